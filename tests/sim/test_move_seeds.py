"""Simulated clusters whose channels are moved between groups: nothing is lost, stored twice or out of order, whoever dies."""

import os

from stan.core.leader.publish_replay import ReplayFilter
from tests.sim.move_world import MoveWorld

SEEDS = int(os.environ.get("STAN_MOVE_SEEDS", "2"))
FIRST = 9
"""Of seeds in which channels come to their ends."""


def test_channels_move_while_everything_else_happens():
    moved = 0
    for seed in range(FIRST, FIRST + SEEDS):
        world = MoveWorld(seed)
        assert world.run() == [], f"replay with: python -m tests.sim --world moves --seed {seed}"
        moved += world.moved

    assert moved


def test_a_group_that_is_not_told_which_publishes_are_stored_is_found_out(monkeypatch):
    monkeypatch.setattr(ReplayFilter, "told_since", lambda self, _channels, _at, _size: (b"", self._count, True))

    assert any("check_one_order" in text for text in MoveWorld(4).run())
