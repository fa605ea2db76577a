"""`python -m tests.fuzz --inputs 1000000`: every parser, each in turn; `--parser TEXT` only those whose name holds TEXT.

One line a parser. Ends with exit code 1 if there was a complaint, which names the input and the seed.
"""

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.fuzz.parsers import all_parsers, run_named


def main() -> int:
    """Parse the arguments, run, report."""
    arguments = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    arguments.add_argument("--inputs", type=int, default=10_000, help="for each parser")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--parser", default="", help="only those whose name holds this text")
    arguments.add_argument("--jobs", type=int, default=1)
    given = arguments.parse_args()
    names = [parser.name for parser in all_parsers() if given.parser in parser.name]
    bad = 0
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        jobs = [pool.submit(run_named, name, given.inputs, given.seed) for name in names]
        for job in jobs:
            name, complaints, rate = job.result()
            bad += len(complaints)
            print(f"{name:55} {given.inputs:>9} inputs {rate:9.0f}/s  {complaints or 'none'}", flush=True)
    print(f"{len(names)} parsers, {bad} complaints")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
