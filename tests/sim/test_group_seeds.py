"""Simulated failover groups: one member is active at a time, over deaths of members, of nodes and of the network."""

import os
from collections import Counter

import pytest

from stan.core.leader.cursors import LiveCursor
from tests.sim.group_worlds import ClusterFailover, NodeFailover
from tests.sim.history import Delivered

SEEDS = int(os.environ.get("STAN_GROUP_SEEDS", "3"))


@pytest.mark.parametrize(("kind", "name"), [(NodeFailover, "failover"), (ClusterFailover, "cluster-failover")])
def test_a_failover_group_has_one_active_member(kind, name):
    served = Counter()
    for seed in range(SEEDS):
        world = kind(seed)
        assert world.run() == [], f"replay with: python -m tests.sim --world {name} --seed {seed}"
        groups = {event.sub for event in world.history.events if isinstance(event, Delivered) and event.sub.shared}
        served.update(sub.consumer for sub in groups)

    assert max(served.values()) > 2, "others took over"


def test_a_broker_with_two_active_members_is_found_out(monkeypatch):
    monkeypatch.setattr(LiveCursor, "takers", property(lambda live: [min(live.members, key=lambda m: m.window.size)]))

    assert any("while" in text for seed in range(4) for text in NodeFailover(seed).run())
