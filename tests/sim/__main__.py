"""`python -m tests.sim --seeds 10000` for a night, `--seed N` to replay one, `--digest` for the hash of its trace."""

import argparse
import sys
import time

from tests.sim.world import World


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--digest", action="store_true")
    options = parser.parse_args()
    seeds = [options.seed] if options.seed is not None else range(options.first, options.first + options.seeds)
    began, bad, acked, deliveries = time.monotonic(), 0, 0, 0
    for seed in seeds:
        world = World(seed)
        found = world.run()
        acked += len(world.history.acknowledged)
        deliveries += len(world.history.deliveries)
        if options.digest:
            print(world.digest.hexdigest())
        if found:
            bad += 1
            print(f"seed {seed}: faults {[kind for _, kind in sorted(world.faults)]}")
            print("\n".join(f"  {line}" for line in found[:10]))
    if not options.digest:
        took = time.monotonic() - began
        print(f"{len(seeds)} seeds, {bad} with complaints; {acked} acknowledged, {deliveries} delivered, {took:.1f} s")
    return 1 if bad else 0


sys.exit(main())
