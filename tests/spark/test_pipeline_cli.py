"""`stan pipeline` as a command: what it says, how it ends, and that nothing is left behind. Most of it needs no Java."""

import os
import re
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path

import psutil
import pytest
from pyspark_stan.errors import NoJavaError
from pyspark_stan.examples import EXAMPLES
from pyspark_stan.examples.clicks import LATE_S, clicks, counted
from pyspark_stan.examples.orders import STATES, events, table_of
from pyspark_stan.pipeline import session
from pyspark_stan.pipeline.config import parse_pipeline
from pyspark_stan.pipeline.progress import BatchReport
from rich.console import Console
from rich.live import Live
from stan_bench.demo.demo_spark import PublishedClicks, figures_of
from stan_bench.demo_tally import Tally
from stan_client.blocking import BlockingClient
from typer.testing import CliRunner

from stan.cli.commands import pipeline_screen
from stan.cli.main import app
from tests.kit.server import ROOT, until
from tests.spark.filling import fill

END_SECONDS_MAX = 600
"""Spark on a loaded machine."""


def stan(*arguments, **environment):
    """Run the command in this process; returns its exit code, its output and its errors."""
    done = CliRunner(env=environment).invoke(app, arguments)
    return done.exit_code, done.stdout, done.stderr


# --- without Spark --------------------------------------------------------------------------------------------------


def test_check_tells_what_a_pipeline_would_do(tmp_path):
    (tmp_path / "p.toml").write_text(EXAMPLES["clicks"].toml)
    code, out, _ = stan("pipeline", "check", str(tmp_path / "p.toml"))
    assert code == 0
    for text in (
        "clicks from earliest",
        "20 seconds for late events",
        "SELECT window.start",
        "to clicks-per-page, append",
    ):
        assert text in out


def test_check_tells_all_mistakes(tmp_path):
    text = EXAMPLES["clicks"].toml.replace('mode = "append"', 'mode = "apend"').replace("malformed", "malformd")
    (tmp_path / "p.toml").write_text(text)
    for command in ("check", "run"):
        code, out, err = stan("pipeline", command, str(tmp_path / "p.toml"))
        assert (code, out) == (1, "")
        assert "p.toml: 2 mistakes" in err
        assert "line 19: payload.malformd: is not known; do you mean 'malformed'?" in err
        assert "line 39: sink.mode: must be one of append, update, complete, not 'apend'" in err


def test_check_never_shows_a_secret(tmp_path):
    text = EXAMPLES["clicks"].toml.replace("[source]", 'user = "me"\npassword_env = "SECRET"\n[source]')
    (tmp_path / "p.toml").write_text(text)
    code, out, err = stan("pipeline", "check", str(tmp_path / "p.toml"), SECRET="geheim")  # noqa: S106
    assert code == 0
    assert "geheim" not in out + err


def test_without_spark_it_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "p.toml").write_text(EXAMPLES["clicks"].toml)
    monkeypatch.setattr(session.importlib.util, "find_spec", lambda name: None)
    for command in (["pipeline", "run", str(tmp_path / "p.toml")], ["demo", "--spark"]):
        code, _, err = stan(*command)
        assert code == 1
        assert "pyspark and pyarrow cannot be imported by this Python: pip install 'pyspark<5'" in err
    code, out, _ = stan("pipeline", "check", str(tmp_path / "p.toml"))
    assert code == 0
    assert "pip install 'pyspark<5'" in out


def test_without_java_it_says_so(tmp_path, monkeypatch):
    def none():
        raise NoJavaError("Spark needs Java 17 or later")

    (tmp_path / "p.toml").write_text(EXAMPLES["clicks"].toml)
    monkeypatch.setattr(session, "ensure_java", none)
    code, _, err = stan("pipeline", "run", str(tmp_path / "p.toml"))
    assert code == 1
    assert err.strip() == "pipeline clicks-per-page: Spark needs Java 17 or later"


def test_examples_are_listed_and_written_out_and_never_overwritten(tmp_path):
    code, out, _ = stan("pipeline", "examples")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["clicks", "orders"]
    assert stan("pipeline", "examples", "--into", str(tmp_path / "new"))[0] == 0
    for name in EXAMPLES:
        assert stan("pipeline", "check", str(tmp_path / "new" / f"{name}.toml"))[0] == 0
    code, _, err = stan("pipeline", "examples", "clicks", "--into", str(tmp_path / "new"))
    assert code == 1
    assert "clicks.toml: File exists" in err
    assert stan("pipeline", "examples", "nothing")[0] == 2


def test_data_of_the_examples_is_the_same_for_the_same_seed_and_keeps_its_promises():
    stream = list(islice(clicks(seed=2), 5000))
    assert stream == list(islice(clicks(seed=2), 5000))
    newest, late = 0, 0
    for click in stream:
        assert click.at_ms >= newest - LATE_S * 1000
        late += click.at_ms < newest
        newest = max(newest, click.at_ms)
    assert 300 < late < 700
    happened = list(islice(events(seed=2), 5000))
    for order, event in table_of(happened).items():
        states = [each.status for each in happened if each.order_id == order]
        assert states == list(STATES[: len(states)])
        assert event.status == states[-1]


def test_examples_say_on_which_channel_their_data_is(tmp_path):
    for example in EXAMPLES.values():
        inputs = parse_pipeline(example.toml, tmp_path, {}).inputs
        assert [each.source.channels for each in inputs] == [(example.channel,)]


@pytest.mark.parametrize(("directory", "sockets"), [("/tmp/x", "true"), ("/tmp/" + "x" * 60, "false")])  # noqa: S108
def test_unix_sockets_are_used_where_their_paths_fit(directory, sockets):
    conf = session._own_files(Path(directory), {"spark.master": "local[2]"})
    assert conf["spark.python.unix.domain.socket.enabled"] == sockets


def report(batch, rows, published=-1, **lag):
    return BatchReport(batch=batch, rows=rows, rows_per_s=10.0, batch_ms=5, published=published, lag=lag)


def test_lines_are_shown_for_batches_that_did_something(capsys):
    lines = pipeline_screen.Lines()
    for each in (report(0, 5, 2, clicks=7), report(1, 0, 0, clicks=0), report(1, 0, 3)):
        lines.show(each)
    assert capsys.readouterr().out.splitlines() == [
        "batch 0: 5 read in 5 ms, 10 a second, 2 published; behind by clicks 7",
        "batch 1: 0 read in 5 ms, 10 a second, 3 published; behind by nothing",
    ]


def test_a_terminal_shows_a_table_with_sums_and_the_lag():
    console = Console(force_terminal=True, width=80, record=True)
    with Live(console=console, auto_refresh=False) as live:
        table = pipeline_screen.LiveTable("pages", live)
        for each in (report(0, 5, 2, clicks=7), report(1, 1200, 3, clicks=1), report(2, 0, 0, clicks=0)):
            table.show(each)
        live.refresh()
        console.print(live.renderable)
    shown = console.export_text()
    assert re.search(r"messages read +│ +1,200 │ 1,205", shown)
    assert re.search(r"results published +│ +3 │ +5", shown)
    assert re.search(r"behind in clicks +│ +0 ", shown)


# --- the figures of the demo can fail -------------------------------------------------------------------------------


def broken(change):
    load = PublishedClicks(list(islice(clicks(seed=1), 2000)))
    results = [
        b'{"start": "%b", "page": "%b", "clicks": %d}' % (start.encode(), page.encode(), count)
        for (start, page), count in counted(load.acked).items()
    ]
    tally = Tally(seen=dict(enumerate(change(results), 1)))
    return {figure.name for figure in figures_of(load, tally) if figure.holds is False}


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (lambda results: results, set()),
        (lambda results: results[1:], {"clicks in the results", "results found", "missing"}),
        (lambda results: [*results, results[0]], {"clicks in the results", "results found", "published twice"}),
        (
            lambda results: [re.sub(rb'"clicks": \d+', b'"clicks": 1', results[0]), *results[1:]],
            {"clicks in the results", "with another count"},
        ),
        (
            lambda results: [results[0].replace(b'"page": "', b'"page": "x'), *results[1:]],
            {"missing", "not expected"},
        ),
    ],
)
def test_demo_figures_tell_what_is_wrong(change, names):
    assert broken(change) == names


# --- with Spark, as processes ---------------------------------------------------------------------------------------


@pytest.fixture
def processes(tmp_path, spark_environment):
    """Starts commands with a temporary directory of their own; kills what a test has left running."""
    (tmp_path / "tmp").mkdir()
    started = []

    def start(*arguments, **environment):
        with (tmp_path / "output").open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "stan.cli.main", *arguments],
                stdout=output,
                stderr=output,
                env={**os.environ, "TMPDIR": str(tmp_path / "tmp"), "COLUMNS": "120", **environment},
                cwd=ROOT,
                start_new_session=True,
            )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            for child in [*psutil.Process(process.pid).children(recursive=True), process]:
                child.kill()
        process.wait()


def assert_nothing_left(directory):
    assert not list((directory / "tmp").iterdir())
    lines = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    assert not [line for line in lines if str(directory) in line]


@pytest.mark.slow
@pytest.mark.timeout(2 * END_SECONDS_MAX)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_running_pipeline_ends_when_it_is_told_to_and_goes_on_where_it_was(
    broker, channel, processes, tmp_path, number
):
    text = EXAMPLES["clicks"].toml.replace('["clicks"]', f'["{channel}"]')
    text = text.replace('channel = "clicks-per-page"', f'channel = "{channel}.out"')
    file = tmp_path / "p.toml"
    file.write_text(text + '\n[spark]\nmaster = "local[2]"\n')

    def output():
        return (tmp_path / "output").read_text(encoding="utf-8")

    with BlockingClient(broker.url) as client:
        fill(client, channel, [click.message() for click in islice(clicks(seed=1), 3000)])
        process = processes("pipeline", "run", str(file), STAN_SERVER=broker.url)
        until(lambda: "batch 0: 3,000 read" in output() or process.poll() is not None, END_SECONDS_MAX, output)
        process.send_signal(number)
        assert process.wait(END_SECONDS_MAX) == 0, output()
        assert "stopped; the next start goes on from" in output()
        assert_nothing_left(tmp_path)
        fill(client, channel, [click.message() for click in islice(clicks(seed=2), 10)])
        process = processes("pipeline", "run", "--once", str(file), STAN_SERVER=broker.url)
        assert process.wait(END_SECONDS_MAX) == 0, output()
    assert sum(int(rows.replace(",", "")) for rows in re.findall(r"batch \d+: ([\d,]+) read", output())) == 3010
    assert "Traceback" not in output()
    assert_nothing_left(tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(2 * END_SECONDS_MAX)
def test_the_demo_holds_and_leaves_nothing_behind(processes, tmp_path):
    process = processes("demo", "--spark")
    code = process.wait(2 * END_SECONDS_MAX)
    output = (tmp_path / "output").read_text(encoding="utf-8")
    assert code == 0, output
    assert "All of it holds" in output
    assert "started again" in output
    for figure in ("published twice", "missing", "exit code of the pipeline"):
        assert re.search(rf"{figure} +│ +0 │ yes", output), output
    assert "Traceback" not in output
    assert_nothing_left(tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(2 * END_SECONDS_MAX)
@pytest.mark.parametrize("moment", ["A pipeline", "its JVM pid", "kill -9 of"])
def test_an_interrupted_demo_leaves_nothing_behind(processes, tmp_path, moment):
    process = processes("demo", "--spark", PYTHONUNBUFFERED="1")

    def output():
        return (tmp_path / "output").read_text(encoding="utf-8")

    until(lambda: moment in output() or process.poll() is not None, END_SECONDS_MAX, output)
    process.send_signal(signal.SIGINT)
    assert process.wait(END_SECONDS_MAX) == 130, output()
    assert_nothing_left(tmp_path)
