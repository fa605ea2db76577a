"""The source in a driver of its own that is killed in its first batch, with everything that belongs to it."""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys

import pytest

from tests.kit.server import until
from tests.spark.conftest import SESSION
from tests.spark.filling import fill

JOB_SECONDS_MAX = 280.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def start(spark_environment, broker, channel, tmp_path):
    """Starts drivers, and ends them with all that they have started."""
    jobs = []

    def begin(**job):
        known = {"servers": broker.url, "channel": channel, "directory": str(tmp_path), "settings": SESSION}
        with (tmp_path / "job.log").open("ab") as log:
            command = [sys.executable, "-m", "tests.spark.source_job", json.dumps({**known, **job})]
            jobs.append(subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log, start_new_session=True))
        return jobs[-1]

    yield begin
    for job in jobs:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()


def ended(job, directory):
    until(lambda: job.poll() is not None, JOB_SECONDS_MAX, lambda: text(directory))
    assert job.returncode == 0, text(directory)


def text(directory):
    return (directory / "job.log").read_text(errors="replace")[-6000:]


def test_a_query_from_the_newest_message_that_dies_in_its_first_batch_loses_nothing(client, channel, start, tmp_path):
    numbers = itertools.count()
    fill(client, channel, [b"%d" % next(numbers)])
    mark = tmp_path / "first-0"

    def published():
        assert job.poll() is None, text(tmp_path)
        fill(client, channel, [b"%d" % next(numbers)])
        return mark.exists()

    job = start(run="first", hold=True)
    until(published, JOB_SECONDS_MAX, lambda: text(tmp_path))
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()
    fill(client, channel, [b"%d" % next(numbers) for _ in range(50)])
    ended(start(run="second", hold=False), tmp_path)
    first, again, later = (json.loads((tmp_path / name).read_text()) for name in ("first-0", "second-0", "second-1"))
    assert again == first  # may be empty: what Spark begins with is where the channel ends
    found = first + later
    assert found == list(range(found[0], next(numbers)))
    assert len(later) >= 50
