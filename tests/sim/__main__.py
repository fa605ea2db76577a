"""`python -m tests.sim --seeds 10000` for a night, `--world cluster` for one kind of world, `--seed N` to replay one run,
`--digest` for the hash of its trace. Without a world the seeds are spread over five of them."""

import argparse
import sys
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor

from tests.sim.worlds import WORLDS, kind_of, play

SHOWN_MAX = 3
"""Complaints of one check about one run; and all of what is no check's."""


def shortened(found):
    """A few complaints of each kind."""
    kinds = defaultdict(list)
    for text in found:
        kinds[text.partition(":")[0] if text.startswith("check_") else ""].append(text)
    shown = [*kinds.pop("", [])]
    for texts in kinds.values():
        shown += texts[:SHOWN_MAX]
        if len(texts) > SHOWN_MAX:
            shown.append(f"... {len(texts)} of these")
    return shown


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--world", choices=[*WORLDS, "all"], default="all")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--digest", action="store_true")
    options = parser.parse_args()
    seeds = [options.seed] if options.seed is not None else range(options.first, options.first + options.seeds)
    kinds = [kind_of(seed) if options.world == "all" else options.world for seed in seeds]
    began, bad, busy = time.monotonic(), 0, 0.0
    with ProcessPoolExecutor(options.jobs) as pool:
        results = pool.map(play, kinds, seeds) if options.jobs > 1 else map(play, kinds, seeds)
        for kind, seed, found, faults, took, digest in results:
            busy += took
            if options.digest:
                print(digest)
            if found:
                bad += 1
                print(f"--world {kind} --seed {seed}: faults {faults}")
                print("\n".join(f"  {line}" for line in shortened(found)), flush=True)
    if not options.digest:
        took = time.monotonic() - began
        print(f"{len(seeds)} seeds, {bad} with complaints; {took:.1f} s, {busy:.1f} s of work")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
