"""Nodes whose states differ are found out, at rest and while entries never stop."""

import pytest
from stan_protocol.scalars import GroupId

from stan import limits
from stan.monitor.health import trouble
from tests.kit.broker_state import BrokerState
from tests.kit.damage import change_in_memory
from tests.sim.cluster_world import ClusterWorld
from tests.sim.test_cluster_faults import new_clients


class Odd(ClusterWorld):
    """Lines about states that differ are what the test is about."""

    def __init__(self, seed):
        super().__init__(seed, calm=True)
        self.told = {}

    def note(self, node, level, text):
        if "is not that of node" in text:
            assert level == "ERR"
            self.told.setdefault(node.name, []).append(text)
        else:
            super().note(node, level, text)


class Seen:
    """What stan.monitor.health looks at."""

    def __init__(self, node):
        self.driver, self.storage, self.runtime = node.driver, node.storage, node.runtime


def flip(world):
    """A bit of a durable's position in the memory of a follower; returns the node and the group."""
    for number in range(1, world.raft_groups + 1):
        leader = world.leader(number)
        for node in world.nodes.values():
            held = number in node.broker.view.groups
            if node is not leader and held and BrokerState(node.broker).positions(number):
                change_in_memory(node.broker, number, bit=1 << 20)
                return node, GroupId(number)
    return None


@pytest.mark.parametrize("seed", [3, 5])  # in some others progress of the cursor mends the bit before it is looked at
def test_a_flipped_bit_in_the_memory_of_a_follower_is_told_by_all_and_is_trouble(seed, monkeypatch):
    monkeypatch.setattr(limits, "STATE_HASH_ENTRIES", 8)
    world = Odd(seed)
    world.begin()
    world.run_for(4)
    assert not world.told
    odd, number = flip(world)
    new_clients(world, 0.5)
    world.run_for(6)

    assert world.told.keys() == {node.name for node in world.nodes.values() if number in node.storage.logs}
    assert all(f"group {number}: the state here as of entry" in text for texts in world.told.values() for text in texts)
    for node in world.nodes.values():
        if number in node.storage.logs:
            assert len(world.told[node.name]) == (len(world.told) - 1 if node is odd else 1), "once for each other node"
            assert node.storage.differs.keys() == {number}
            assert "is not that of node" in trouble(Seen(node), number, node.cluster_node.groups[number]).text


def test_no_difference_is_told_where_there_is_none(monkeypatch):
    monkeypatch.setattr(limits, "STATE_HASH_ENTRIES", 8)
    world = Odd(5)
    world.begin()
    world.run_for(6)
    assert not world.told
    told = [one for node in world.nodes.values() for one in node.cluster_node.membership.me.hashes]
    assert any(one.index % 8 == 0 for one in told)
    assert world.finish() == []
