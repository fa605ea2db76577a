"""Which tests fail now and then: `python -m tests.unsteady tests/integration --runs 20 --hogs 2`.

Runs them again and again beside processes that do nothing but use the machine's time, and lists those that failed at least once,
with how often. The output of each run that failed is kept, and so are its temporary directories. Exit code 1 if any failed.
What follows `--` goes to pytest.
"""

import argparse
import asyncio
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.lanes import ROOT, end, environment, failed_ones

HOG = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: sum(range(100_000))"
"""Ends when the one who has started it has ended."""


async def run_once(command: list[str], directory: Path) -> tuple[int, tuple[str, ...]]:
    """Run pytest; its exit code, and the tests that failed. What it leaves is in *directory*, if it failed."""
    temporary = directory / "tmp"
    temporary.mkdir(parents=True)
    with (directory / "output").open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(*command, "-o", f"cache_dir={directory / 'cache'}"),
            cwd=ROOT,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            env=environment(temporary, directory.parent / "bytecode"),
        )
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            await end(process)
            raise
    failed = failed_ones(directory / "cache")
    if code == 0:
        shutil.rmtree(directory, ignore_errors=True)
    return code, failed


async def look(paths: list[str], options: list[str], runs: int, hogs: int) -> Counter[str]:
    """How often each test failed."""
    kept = Path(tempfile.mkdtemp(prefix="stan-unsteady-"))
    running = asyncio.current_task()
    assert running is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    command = [sys.executable, "-m", "pytest", *paths, *options]
    failures: Counter[str] = Counter()
    busy = [await asyncio.create_subprocess_exec(sys.executable, "-c", HOG) for _ in range(hogs)]
    try:
        for number in range(1, runs + 1):
            began = time.monotonic()
            code, failed = await run_once(command, kept / str(number))
            failures.update(failed or ([f"pytest ended with {code}"] if code else []))
            told = f"failed, see {kept / str(number)}: {' '.join(failed)}" if code else "passed"
            print(f"run {number} of {runs}, {time.monotonic() - began:.0f} s: {told}", flush=True)
    finally:
        for hog in busy:
            hog.kill()
            await hog.wait()
    if not failures:
        shutil.rmtree(kept)
    return failures


def main() -> int:
    """Look for unsteady tests and list them."""
    parser = argparse.ArgumentParser(prog="python -m tests.unsteady", description=__doc__)
    parser.add_argument("paths", nargs="+", metavar="PATH", help="what pytest runs: folders, files, tests")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--hogs", type=int, default=2, help="processes beside it that only use time")
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    asked = parser.parse_args(words[:end])
    failures = asyncio.run(look(asked.paths, words[end + 1 :], asked.runs, asked.hogs))
    for name, count in failures.most_common():
        print(f"UNSTEADY {count} of {asked.runs}: {name}")
    if not failures:
        print(f"none of them failed in {asked.runs} runs")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
