"""Simulated shortage of CPU on all nodes: leaders stay, and one that dies is replaced."""

import os

import pytest

from tests.sim.starved_world import StarvedWorld

SEEDS = int(os.environ.get("STAN_STARVED_SEEDS", "4"))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_groups_keep_their_leaders_while_cpu_is_short(seed):
    assert StarvedWorld(seed).run() == [], f"replay with: python -m tests.sim --world starved --seed {seed}"
