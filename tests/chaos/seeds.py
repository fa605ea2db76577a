"""The seed of a run, told so that the run can be repeated: STAN_CHAOS_SEED=<seed> pytest tests/chaos.

It decides the faults and their moments; how the processes interleave is up to the machine.
"""

import os
import random
import secrets


def chaos_dice() -> random.Random:
    """Seeded by the environment, or anew; the seed is printed, so that a failure shows it."""
    seed = int(os.environ.get("STAN_CHAOS_SEED") or secrets.randbits(32))
    print(f"STAN_CHAOS_SEED={seed}")
    return random.Random(seed)
