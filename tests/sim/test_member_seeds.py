"""Simulated runs of clusters whose nodes are added and removed."""

import os

import pytest

from tests.sim.member_world import MemberWorld

SEEDS = int(os.environ.get("STAN_MEMBER_SEEDS", "4"))
BATCH = 2
pytestmark = pytest.mark.xdist_group("member seeds")  # for ENDED


ENDED = []
"""Nodes that ended because they were removed, in each run; not every run has one."""


@pytest.mark.parametrize("first", range(0, SEEDS, BATCH))
def test_nodes_come_and_go_and_nothing_is_lost(first):
    changed = 0
    for seed in range(first, first + BATCH):
        world = MemberWorld(seed)
        assert world.run() == [], f"replay with: python -m tests.sim --world members --seed {seed}"
        changed += world.changed
        ENDED.append(world.ended)

    assert changed > BATCH, "nodes came and went"
    assert len(ENDED) < SEEDS or any(ENDED), "of all runs one at least"
