"""`stan demo` as a process: its figures and exit code, and that nothing is left behind however it ends."""

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
from stan_bench.demo_tally import Figure, PublishLedger, Tally, figures_of_log, figures_of_reader
from stan_client import Message, StanClientError

ROOT = Path(__file__).parents[2]
END_SECONDS_MAX = 90
ROW = re.compile(r"^[│|] +(.+?) +[│|] +([\d,]+) [│|] +(yes|NO|) *[│|]$", re.MULTILINE)


@pytest.fixture
def demo(tmp_path, request):
    """Starts the demo with a temporary directory of its own, and options; kills what a test has left running."""
    environment = {
        **os.environ,
        "TMPDIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "clients")]),
        "COLUMNS": "120",
        "PYTHONUNBUFFERED": "1",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "stan.cli.main", "demo", *getattr(request, "param", ())],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        cwd=ROOT,
        start_new_session=True,
    )
    yield process
    if process.poll() is None:
        for child in [*psutil.Process(process.pid).children(recursive=True), process]:
            child.kill()
    process.wait()
    process.stdout.close()


def in_time(process: subprocess.Popen) -> threading.Timer:
    """Kills a demo that does not end, so that reading its output ends."""
    timer = threading.Timer(END_SECONDS_MAX, process.kill)
    timer.start()
    return timer


def read_until(process: subprocess.Popen, text: str) -> str:
    """Output up to the first line that holds *text*; all of it if none does."""
    seen = ""
    for line in process.stdout:
        seen += line
        if text in line:
            break
    return seen


def assert_nothing_left(output: str, directory: Path) -> None:
    pids = [int(pid) for pid in re.findall(r"pid (\d+)", output)]
    assert pids, output
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
    assert not list(directory.glob("stan-demo-*"))
    (port,) = set(re.findall(r"nats://127\.0\.0\.1:(\d+)", output))
    lines = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    assert not [line for line in lines if f"--port={port}" in line or f"-p {port}" in line or str(directory) in line]


def test_demo_holds_and_leaves_nothing_behind(demo, tmp_path):
    timer = in_time(demo)
    output = demo.stdout.read()
    timer.cancel()
    assert demo.wait() == 0, output
    figures = {name: int(value.replace(",", "")) for name, value, _ in ROW.findall(output)}
    assert figures["found"] >= figures["acknowledged"] > 100_000, output
    for name in ("lost", "out of order", "stored twice", "durable: missing", "durable: unexplained repeats"):
        assert figures[name] == 0, output
    for name in ("queue group: missing", "queue group: unexplained repeats"):
        assert figures[name] == 0, output
    assert {mark for _, _, mark in ROW.findall(output)} == {"yes", ""}, output
    assert "resumed: went on at 5,001" in output
    assert "All of it holds" in output
    assert "Traceback" not in output
    assert_nothing_left(output, tmp_path)


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("1  A broker", signal.SIGINT),
        ("acknowledged: ", signal.SIGTERM),
        ("dead; ", signal.SIGINT),
    ],
)
def test_demo_interrupted_leaves_nothing_behind(demo, tmp_path, moment, number):
    timer = in_time(demo)
    output = read_until(demo, moment)
    demo.send_signal(number)
    output += demo.stdout.read()
    timer.cancel()
    assert demo.wait() == 130, output
    assert "Traceback" not in output
    if "pid" in output:
        assert_nothing_left(output, tmp_path)
    assert not list(tmp_path.glob("stan-demo-*"))


with_cluster = pytest.mark.parametrize("demo", [["--cluster"]], indirect=True, ids=["cluster"])


@with_cluster
def test_demo_of_a_cluster_holds_and_leaves_nothing_behind(demo, tmp_path):
    timer = in_time(demo)
    output = demo.stdout.read()
    timer.cancel()
    assert demo.wait() == 0, output
    figures = {name: int(value.replace(",", "")) for name, value, _ in ROW.findall(output)}
    assert figures["found"] >= figures["acknowledged"] > 1000, output
    assert {mark for _, _, mark in ROW.findall(output)} == {"yes", ""}, output
    assert len(set(re.findall(r"kill -9 (n\d)", output))) >= 1
    assert output.count("started again on the same files") == 2
    assert_nothing_left(output, tmp_path)


@with_cluster
@pytest.mark.parametrize(("moment", "number"), [("stan-server n3", signal.SIGINT), ("no ack for", signal.SIGTERM)])
def test_demo_of_a_cluster_interrupted_leaves_nothing_behind(demo, tmp_path, moment, number):
    timer = in_time(demo)
    output = read_until(demo, moment)
    demo.send_signal(number)
    output += demo.stdout.read()
    timer.cancel()
    assert demo.wait() == 130, output
    assert "Traceback" not in output
    assert_nothing_left(output, tmp_path)


@pytest.mark.parametrize("moment", ["pid ", "acknowledged: ", "started again"])
def test_demo_whose_broker_dies_fails_and_leaves_nothing_behind(demo, tmp_path, moment):
    timer = in_time(demo)
    output = read_until(demo, moment)
    os.kill(int(re.findall(r"pid (\d+)", output)[-1]), signal.SIGKILL)
    output += demo.stdout.read()
    timer.cancel()
    assert demo.wait() == 1, output
    assert "The log of the broker ends so:" in output
    assert "Streaming Server is ready" in output
    assert "Traceback" not in output
    assert_nothing_left(output, tmp_path)


# --- the figures can fail -------------------------------------------------------------------------------------------


def written(count: int) -> PublishLedger:
    ledger = PublishLedger()
    for _ in range(count):
        _, settle = ledger.publish()
        settle("guid", None)
    return ledger


def broken(figures) -> set[str]:
    return {figure.name for figure in figures if figure.holds is False}


@pytest.mark.parametrize(
    ("stored", "names"),
    [
        ([1, 2, 3, 4], set()),
        ([1, 2, 3], {"found", "lost"}),
        ([1, 2, 4, 3], {"out of order"}),
        ([1, 2, 3, 3, 4], {"stored twice"}),
    ],
)
def test_log_figures_tell_what_is_wrong(stored, names):
    assert broken(figures_of_log(written(4), [b"%d" % number for number in stored])) == names


def test_log_figures_accept_a_message_without_answer_that_was_stored():
    ledger = written(2)
    _, settle = ledger.publish()
    settle("guid", StanClientError())
    assert ledger.in_flight == 0
    for stored in ([b"1", b"2"], [b"1", b"2", b"3"]):
        assert not broken(figures_of_log(ledger, stored))


@pytest.mark.parametrize(
    ("deliveries", "names"),
    [
        ([(1, False), (2, False), (2, True), (3, False)], set()),
        ([(1, False), (3, False), (2, True)], set()),
        ([(1, False), (2, False), (2, False), (3, False)], {"reader: unexplained repeats"}),
        ([(1, False), (2, False)], {"reader: missing"}),
        ([(2, False), (1, False), (3, False)], {"reader: out of order", "reader: went on at sequence"}),
    ],
)
def test_reader_figures_tell_what_is_wrong(deliveries, names):
    tally = Tally()
    for place, (sequence, redelivered) in enumerate(deliveries):
        if place == 1:
            tally.mark()
        tally.note(Message(sequence, "load", redelivered=redelivered))
    assert broken(figures_of_reader("reader", tally, 3, ordered=True)) == names


def test_figure_without_promise_is_never_broken():
    assert Figure("seen", 5).holds is None
