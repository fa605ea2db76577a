"""Simulated runs of clusters in which rows of the state are damaged."""

import os

import pytest

from tests.sim.state_world import DamagedState

SEEDS = int(os.environ.get("STAN_STATE_SEEDS", "8"))
BATCH = 4


@pytest.mark.parametrize("first", range(0, SEEDS, BATCH))
def test_damaged_rows_are_told_and_nothing_is_lost_or_skipped(first):
    struck = told = 0
    for seed in range(first, first + BATCH):
        world = DamagedState(seed)
        assert world.run() == [], f"replay with: python -m tests.sim --world damaged-state --seed {seed}"
        struck += world.struck
        told += world.told
    assert 2 * struck >= told > 0  # a row whose group is damaged is told of, and that it is missing in its own
