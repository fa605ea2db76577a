"""Crashes of everything that takes part in a query, one by one, and what is in the target channel afterwards.

`python -m tests.spark.crash_kit [EVENT...]` runs the matrix and prints it as a table: one query for each delivery, all three in
one driver. Every event has a broker of its own with fsync, a Spark of its own, and leaves no process behind.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path

from pyspark_stan.java import ensure_java
from pyspark_stan.writing.sink_options import DELIVERIES
from stan_client.blocking import BlockingClient
from stan_protocol.kernel.rows import columns, pack_rows

from stan.protocol.placement import channel_group
from tests.kit.cluster import GROUPS, StanCluster
from tests.kit.server import ROOT, StanServer, until
from tests.spark.conftest import slim_home

ROWS = 80_000
TRIGGERS = 4
ROWS_PER_REQUEST = 4_000
ATTEMPTS = 3
"""To run the query to its end: Spark 4.3 at times cannot read a task that it has serialized while three queries begin."""
JOB_SECONDS_MAX = 480.0
EVENTS = {
    "writing": "driver killed while tasks write",
    "acked": "driver killed after all acks, before the commit",
    "committed": "driver killed after the commit, before Spark's own",
    "worker": "a Python worker killed while it writes",
    "retry": "a task failed after its acks, retried behind a shuffle on 2 executors",
    "leader": "the leader of the target's group killed, in a cluster of 3",
}
MASTERS = {"worker": "local[4,4]", "retry": "local-cluster[2,1,1024]"}


@dataclass(frozen=True)
class Outcome:
    """What the target channel holds, compared with what it should."""

    rows: int
    duplicates: int
    lost: int

    def __str__(self):
        return f"{self.duplicates} / {self.lost}"


class Job:
    """A driver and all that it starts, in a session of their own."""

    def __init__(self, directory, described, point):
        self._log = Path(directory, "job.log")
        paths = os.pathsep.join([str(ROOT), str(ROOT / "clients")])
        home = Path(directory, "spark")
        if not home.exists():
            home.mkdir()
            slim_home(home)
        environment = {
            **os.environ,
            "PYTHONPATH": paths,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "SPARK_LOCAL_DIRS": str(directory),
            "SPARK_WORKER_DIR": str(Path(directory, "executors")),
            "STAN_TEST_POINT": point,
            "STAN_TEST_MARKS": str(directory),
        }
        self._marks = Path(directory)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.crash_job", json.dumps(described)],
                env=environment,
                cwd=directory,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def log(self):
        return self._log.read_text(errors="replace")[-6000:]

    def reached(self, point):
        """Whether all of its queries have been at a point."""
        return all((self._marks / f"{point}.{delivery}").exists() for delivery in DELIVERIES)

    def wait_for_marks(self, point):
        """Return when all of its queries are at a point."""
        until(lambda: self.reached(point) or self._process.poll() is not None, JOB_SECONDS_MAX, self.log)
        assert self.reached(point), self.log()

    def go(self, point):
        """Let it go on behind a point."""
        (self._marks / f"{point}.go").touch()

    @property
    def ended(self):
        """Its exit code; None: it runs."""
        return self._process.poll()

    def kill9(self):
        """SIGKILL to the driver and its JVM at once; Python workers notice only later, as in life."""
        pids = {pid for pid, command in self._members() if "java" in command} | {self._process.pid}
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def succeeds(self):
        """Whether it ends well; returns when it has ended."""
        until(lambda: self._process.poll() is not None, JOB_SECONDS_MAX, self.log)
        return self._process.returncode == 0

    def succeed(self):
        """Return when it has ended well."""
        assert self.succeeds(), self.log()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        def end():
            for pid, _ in self._members():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.poll()
            return not self._members()

        until(end)
        self._process.wait()

    def _members(self):
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
                state, _parent, _group, session = rest.split()[:4]
                if int(session) == self._process.pid and state not in "ZX":
                    found.append((int(stat.parent.name), name))
        return found


def run_event(directory, event, *, rows=ROWS, update=False):
    """One line of the matrix: of each delivery, what has become of its rows."""
    ensure_java()
    targets = targets_in_one_group()
    broker = StanCluster(directory) if event == "leader" else StanServer(directory)
    with broker, BlockingClient(broker.url.split(",")) as client:
        values = fill(client, "source", rows)
        described = {
            "master": MASTERS.get(event, "local[4]"),
            "servers": broker.url,
            "source": "source",
            "targets": targets,
            "update": update,
            "per_trigger": rows // TRIGGERS,
            "checkpoints": str(directory),
        }
        provoke(directory, described, event, broker)
        found = {delivery: Counter(read(client, target)) for delivery, target in targets.items()}
    wanted = Counter(running_counts(values, rows // TRIGGERS) if update else values)
    return {
        delivery: Outcome(rows.total(), (rows - wanted).total(), (wanted - rows).total())
        for delivery, rows in found.items()
    }


def targets_in_one_group():
    """A channel for each delivery; one group holds them all, so that one leader is their leader."""
    found = {}
    for delivery in DELIVERIES:
        names = (f"target.{delivery}.{number}" for number in count())
        found[delivery] = next(name for name in names if channel_group(name.encode(), GROUPS) == 1)
    return found


def provoke(directory, described, event, broker):
    """Let the event happen, and the query come to its end all the same."""
    point = "writing" if event == "leader" else event
    with Job(directory, described, point) as job:
        if event in ("worker", "retry"):
            job.succeed()
            assert job.reached(event), job.log()
            return
        job.wait_for_marks(point)
        if event == "leader":
            broker.kill9(broker.leader(1))
            job.go(point)
            job.succeed()
            return
        job.kill9()
        for attempts_left in reversed(range(ATTEMPTS)):
            with Job(directory, described, "") as again:
                if again.succeeds() or not attempts_left:
                    assert again.succeeds(), again.log()
                    return


def fill(client, channel, rows):
    """Put that many rows into a channel, some of them equal; returns them."""
    values = [b"%07d %0100d" % (number - number % 50 if number % 50 < 3 else number, 0) for number in range(rows)]
    for at in range(0, rows, ROWS_PER_REQUEST):
        part = values[at : at + ROWS_PER_REQUEST]
        client.publish_batch(channel, packed(part), len(part))
    return values


def packed(values):
    """Rows of a request."""
    places = [0]
    for value in values:
        places.append(places[-1] + len(value))
    offsets = b"".join(place.to_bytes(4, "little") for place in places)
    return pack_rows(offsets, b"".join(values), 0, len(values))


def read(client, channel):
    """All values that a channel holds."""
    info = client.info([channel]).get(channel)
    if info is None or not info.last:
        return
    for fetched in client.read_range(channel, info.first, info.last):
        found = columns(fetched.records, fetched.count)
        places = memoryview(found.data_offsets).cast("i")
        yield from (found.data[begin:end] for begin, end in pairwise(places))


def running_counts(values, per_trigger):
    """What an update-mode count writes, batch by batch."""
    counts = Counter()
    for at in range(0, len(values), per_trigger):
        batch = values[at : at + per_trigger]
        counts.update(batch)
        yield from (b"%b=%d" % (value, counts[value]) for value in set(batch))


def main(names):
    """Run the events that are named, or all, and print the table."""
    lines = [f"| {ROWS:,} rows: twice / lost | {' | '.join(DELIVERIES)} |", "|---" * (1 + len(DELIVERIES)) + "|"]
    for event in names or EVENTS:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as directory:
            outcomes = run_event(Path(directory), event)
        print(f"{event}: {time.monotonic() - begun:.0f} s, {outcomes}", file=sys.stderr)
        lines.append(f"| {EVENTS[event]} | {' | '.join(str(outcomes[delivery]) for delivery in DELIVERIES)} |")
    print("\n".join(lines))


if __name__ == "__main__":
    main(sys.argv[1:])
