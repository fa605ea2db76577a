"""Simulated runs of clusters that lose their majority for good, and are rescued by the directories of the survivors."""

import os

import pytest

from tests.sim.rescue_world import RescueWorld

SEEDS = int(os.environ.get("STAN_RESCUE_SEEDS", "4"))
BATCH = 2
FIRST = 100
"""In these runs there is something to rescue."""
pytestmark = pytest.mark.xdist_group("rescue seeds")


@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, BATCH))
def test_the_survivors_go_on_and_the_lost_do_not(first):
    forced = joined = 0
    for seed in range(first, first + BATCH):
        world = RescueWorld(seed)
        assert world.run() == [], f"replay with: python -m tests.sim --world rescue --seed {seed}"
        forced += world.forced
        joined += world.joined
    assert forced, "a group went on without its majority"
    assert joined, "nodes with empty disks joined"
