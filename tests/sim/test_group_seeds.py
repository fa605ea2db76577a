"""Simulated failover groups and key-ordered groups: one member is active at a time, one message of a key is in flight, over
deaths of members, of nodes and of the network."""

import os
from collections import Counter

import pytest

from stan.core.leader.cursors import LiveCursor
from stan.core.leader.key_order import KeyOrder
from tests.sim.group_worlds import ClusterFailover, ClusterKeyOrder, NodeFailover, NodeKeyOrder
from tests.sim.history import Delivered, Failed
from tests.sim.worlds import found_out

FOUND = 920030
"""A leadership began anew on a full disk before what it had written was committed: a sequence was given out twice."""
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


@pytest.mark.parametrize(("kind", "name"), [(NodeKeyOrder, "key-order"), (ClusterKeyOrder, "cluster-key-order")])
def test_a_key_ordered_group_keeps_the_order_of_each_key(kind, name):
    said = Counter()
    for seed in range(SEEDS):
        world = kind(seed)
        assert world.run() == [], f"replay with: python -m tests.sim --world {name} --seed {seed}"
        said.update(type(event) for event in world.history.events)

    assert said[Failed] > 10, "the runs did something"


def sends_again_out_of_turn(monkeypatch):
    monkeypatch.setattr(KeyOrder, "is_first", lambda *_: True)


def reads_nothing_first(monkeypatch):
    begin = KeyOrder.begin
    monkeypatch.setattr(KeyOrder, "begin", lambda order, _held: begin(order, ()))


def forgets_who_waits(monkeypatch):
    owed = KeyOrder.owed
    monkeypatch.setattr(KeyOrder, "owed", lambda order, first, last: owed(order, first, last) if first % 7 else None)


@pytest.mark.parametrize("mutate", [sends_again_out_of_turn, reads_nothing_first, forgets_who_waits])
def test_a_broker_that_breaks_the_order_is_found_out(monkeypatch, mutate):
    mutate(monkeypatch)

    assert any(found_out(NodeKeyOrder, seed) for seed in range(6))


def test_a_leadership_that_begins_anew_waits_for_what_it_has_written():
    assert ClusterKeyOrder(FOUND).run() == []
