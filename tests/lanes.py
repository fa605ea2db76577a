"""All tests, in lanes beside each other, in half the time of `python -m pytest`: `python -m tests.lanes`.

What computes runs at a lower priority than what starts real processes, which mostly waits and has bounds of time. What takes the
machine's time on purpose runs after all others. A lane is one pytest with processes of its own, a temporary directory and a
cache. Its output comes when it has ended. Then come the slowest tests of all, and at the end one line: how many passed, and
what had to be run again.

What starts real processes, browsers or JVMs shares the machine with everything else that runs there: a few of those may fail
once. They run twice more, alone, and are named; everything else, and what fails in two runs of three, is a failure.

A lane whose packages are not installed is left out, and one line says so.
"""

import argparse
import asyncio
import json
import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]
SLOWEST = 20
END_SECONDS_MAX = 30
ONCE_MORE_MAX = 10
GOOD, FAILED = 0, 1  # exit codes of pytest; each other one is a mistake of whoever has called it
_DURATION = re.compile(r"^([\d.]+)s +(?:call|setup|teardown) +tests/\S.*$", re.MULTILINE)
_COUNT = re.compile(r"(\d+) (passed|failed|errors?|skipped|deselected)\b")


@dataclass(frozen=True)
class Lane:
    """One pytest and what it runs."""

    name: str
    paths: tuple[str, ...]
    options: tuple[str, ...] = ()
    niceness: int = 0
    real: bool = True  # starts processes: a few of its tests may fail once
    needs: tuple[str, ...] = ()  # packages without which it is left out
    alone: bool = False  # runs when all others have ended

    def command(self, cache: Path) -> list[str]:
        """What runs it."""
        also = ["--durations", str(SLOWEST), "-o", f"cache_dir={cache}"]
        return [sys.executable, "-m", "pytest", *self.paths, *self.options, *also]

    def missing(self) -> list[str]:
        """What it needs and is not installed."""
        return [package for package in self.needs if find_spec(package) is None]


STARVING = "tests/chaos/test_starved_cluster.py"
DOCUMENTS = "tests/integration/test_documents.py"
PATIENT = ("--timeout", "600")
"""For lanes that share the machine with each other: a test may take several times as long as it does alone."""
EVERYTHING = ("deltalake", "duckdb", "kubernetes_validate", "mkdocs", "moto", "pyarrow", "pyiceberg", "pyspark", "yaml")
"""Packages that the extra `test-spark` installs, and `test` does not."""
SPARK = Lane(
    "spark and tables",
    (
        *("tests/spark", "tests/deploy", "tests/unit/docs"),
        *(f"tests/property/test_lake_{name}.py" for name in ("chunks", "crashes", "damage", "iceberg", "small_files")),
        *(f"tests/integration/test_{name}.py" for name in ("docs_site", "examples", "lake", "lake_stores")),
    ),
    PATIENT,
    needs=EVERYTHING,
)


def without(*paths: str) -> tuple[str, ...]:
    """Options that leave *paths* out, which other lanes have."""
    return tuple(word for path in paths for word in ("--ignore", path))


LANES = (
    Lane(
        "computing",
        (
            *(f"tests/{name}" for name in ("unit", "property", "contracts", "scripts", "raft", "sim", "fuzz")),
            *("tests/test_docs.py", "tests/test_promises.py", "tests/test_tidy.py"),
        ),
        (*without(*SPARK.paths), "-n", "2", *PATIENT),
        niceness=5,
        real=False,
    ),
    Lane(
        "processes",
        ("tests/integration", "tests/conformance", "tests/chaos"),
        (*without(STARVING, DOCUMENTS, *SPARK.paths), "-n", "2", "--dist", "loadfile", *PATIENT),
    ),
    Lane("documents", (DOCUMENTS,), PATIENT, needs=EVERYTHING),
    Lane("browser", ("tests/browser",), PATIENT),
    SPARK,
    Lane("starving", (STARVING,), PATIENT, alone=True),
)
"""Each test is in one of them."""


@dataclass(frozen=True)
class Result:
    """What became of a lane."""

    lane: Lane
    code: int
    output: str
    seconds: float
    failed: tuple[str, ...]

    def tell(self) -> None:
        """Print all of it, with a headline."""
        print(
            f"\n=== {self.lane.name}: exit code {self.code} after {self.seconds:.0f} s ===\n{self.output}", flush=True
        )


def environment(temporary: Path, bytecode: Path) -> dict[str, str]:
    """The environment of a pytest whose temporary files are in *temporary*.

    What it starts finds compiled sources in *bytecode*, even where the environment wants none: a server that compiles
    all that it imports takes twice the time to start, and tests start some thousand.
    """
    return os.environ | {
        "TMPDIR": str(temporary),
        "PYTHONPYCACHEPREFIX": str(bytecode),
        "PYTHONDONTWRITEBYTECODE": "",
    }


async def run(lane: Lane, directory: Path) -> Result:
    """Run a lane to its end."""
    # Its temporary files are in a place with a short name: a browser makes sockets there, whose paths have 107 bytes at most.
    temporary, cache = directory / lane.name[:2], directory / f"cache-{lane.name}"
    temporary.mkdir(parents=True)
    command = [
        *(["nice", "-n", str(lane.niceness)] if lane.niceness and shutil.which("nice") else []),
        *lane.command(cache),
    ]
    print(f"--- {lane.name}: {shlex.join(command)}", flush=True)
    began = time.monotonic()
    output = directory / f"output-{lane.name}"
    with output.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=ROOT,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=file,
            stderr=asyncio.subprocess.STDOUT,
            env=environment(temporary, directory / "bytecode"),
        )
    try:
        code = await process.wait()
    except asyncio.CancelledError:
        await end(process)
        print(f"\n=== {lane.name}: interrupted ===\n{output.read_text(errors='replace')}", flush=True)
        raise
    return Result(lane, code, output.read_text(errors="replace"), time.monotonic() - began, failed_ones(cache))


async def end(process: asyncio.subprocess.Process) -> None:
    """Interrupt a pytest, which ends what its tests have started, and kill it if it does not end."""
    process.send_signal(signal.SIGINT)
    try:
        await asyncio.wait_for(process.wait(), END_SECONDS_MAX)
    except TimeoutError:  # whoever runs in the background ignores interrupts
        process.kill()
        await process.wait()


def failed_ones(cache: Path) -> tuple[str, ...]:
    """Tests that failed, as pytest has noted them in its cache."""
    noted = cache / "v" / "cache" / "lastfailed"
    return tuple(json.loads(noted.read_text(encoding="utf-8"))) if noted.exists() else ()


def may_run_again(results: list[Result]) -> tuple[str, ...]:
    """Tests that failed, if all of them may have failed for want of time; else none."""
    failed = tuple(name for result in results for name in result.failed)
    for result in results:
        if result.code not in {GOOD, FAILED} or (result.code == FAILED and not (result.lane.real and result.failed)):
            return ()
    return failed if len(failed) <= ONCE_MORE_MAX else ()


def slowest(results: list[Result]) -> list[str]:
    """Lines of pytest about the tests that took longest in all lanes."""
    lines = [found for result in results for found in _DURATION.finditer(result.output)]
    return [line[0] for line in sorted(lines, key=lambda line: -float(line[1]))[:SLOWEST]]


def counts(results: list[Result]) -> str:
    """How many passed, failed and so on, as pytest tells it in the last line of each lane."""
    total: dict[str, int] = {}
    for result in results:
        last = result.output.rstrip().rpartition("\n")[2]
        for number, what in _COUNT.findall(last):
            total[what] = total.get(what, 0) + int(number)
    return ", ".join(f"{number:,} {what}" for what, number in total.items())


async def run_beside(lanes: list[Lane], directory: Path) -> list[Result]:
    """Run lanes at the same time, and tell of each when it has ended."""
    results = []
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(run(lane, directory)) for lane in lanes]
        for each in asyncio.as_completed(running):
            result = await each
            result.tell()
            results.append(result)
    return results


async def run_all(lanes: list[Lane], directory: Path) -> int:
    """Run lanes, and once more what may have failed for want of time; the exit code of it all."""
    began = time.monotonic()
    running = asyncio.current_task()
    assert running is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    left_out = [
        f'left out: {lane.name}: {", ".join(lane.missing())} not installed; pip install ".[test-spark]" ./clients/*'
        for lane in lanes
        if lane.missing()
    ]
    lanes = [lane for lane in lanes if not lane.missing()]
    results = await run_beside([lane for lane in lanes if not lane.alone], directory)
    for lane in lanes:
        results += await run_beside([lane] if lane.alone else [], directory)
    print(f"=== slowest {SLOWEST} tests ===", *slowest(results), "", sep="\n")
    code = max((result.code for result in results), default=GOOD)
    failed = tuple(name for result in results for name in result.failed)
    again = may_run_again(results) if code == FAILED else ()
    if again:
        print("=== UNSTEADY, to be run twice more ===", *again, sep="\n  ")
        two = [(await run_beside([Lane(name, again)], directory))[0] for name in ("once more", "twice more")]
        code = max(result.code for result in two)
        failed = tuple(dict.fromkeys(name for result in two for name in result.failed or again if result.code))
    if code:
        print("=== FAILED ===", *failed, sep="\n  ")
    minutes, seconds = divmod(int(time.monotonic() - began), 60)
    print(*left_out, sep="\n", end="\n" if left_out else "")
    twice = f"UNSTEADY, run again: {' '.join(again)}" if again else "nothing was run again"
    print(f"{'FAILED' if code else 'passed'} after {minutes} min {seconds} s: {counts(results)}; {twice}", flush=True)
    return code


def main() -> int:
    """Run the lanes that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.lanes", description=__doc__)
    parser.add_argument("lanes", nargs="*", metavar="LANE", help=", ".join(repr(lane.name) for lane in LANES))
    names = parser.parse_args().lanes
    unknown = set(names) - {lane.name for lane in LANES}
    if unknown:
        parser.error(f"no such lane: {', '.join(sorted(unknown))}")
    for lane in LANES:
        if lane.name in names and lane.missing():
            parser.error(f"{lane.name} needs {', '.join(lane.missing())}: the extra test-spark")
    with tempfile.TemporaryDirectory(prefix="l", ignore_cleanup_errors=True) as directory:
        try:
            return asyncio.run(run_all([lane for lane in LANES if not names or lane.name in names], Path(directory)))
        except asyncio.CancelledError:
            return 128 + signal.SIGTERM


if __name__ == "__main__":
    sys.exit(main())
