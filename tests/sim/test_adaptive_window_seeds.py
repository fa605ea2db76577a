"""Simulated runs in which some cursors have an adaptive window: nothing else changes for anybody."""

import os

import pytest

from stan.core.base.delivery_policy import DeliveryPolicy
from stan.core.leader.cursors import LiveCursors
from tests.sim.worlds import make

SEEDS = int(os.environ.get("STAN_SIM_SEEDS", "30")) // 10 or 1


@pytest.mark.parametrize("kind", ["node", "cluster", "operator"])
def test_seeds_leave_nothing_to_complain_about(kind, monkeypatch):
    add, cut = LiveCursors.add_member, []

    def adaptive(self, live, sub):
        live.policy = DeliveryPolicy(adaptive_window=live.cursor.cursor_id % 3 > 0)
        add(self, live, sub)
        if live.members[-1].adaptive is not None:
            cut.append(live.members[-1].adaptive)

    monkeypatch.setattr(LiveCursors, "add_member", adaptive)
    for seed in range(SEEDS):
        assert make(kind, seed).run() == [], f"world {kind}, seed {seed}"

    assert cut
    assert all(1 <= window.size <= window.most for window in cut)
    print(f"{kind}: {sum(window.size < window.most for window in cut)} of {len(cut)} windows were cut at the end")
