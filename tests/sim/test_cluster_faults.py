"""Single faults at chosen moments, in otherwise peaceful clusters: what simulated runs have found once stays found."""

import pytest

from stan.types import SECOND
from tests.sim.cluster_world import ClusterWorld
from tests.sim.history import Reset


@pytest.fixture
def world():
    """Three nodes, with every group led by somebody and clients at work."""
    world = ClusterWorld(calm_seed(3), calm=True)
    world.begin()
    world.run_for(4)
    assert all(world.leader(number) for number in range(world.raft_groups + 1))
    return world


def calm_seed(nodes):
    """A seed whose cluster has that many nodes."""
    return next(seed for seed in range(100) if len(ClusterWorld(seed, calm=True).names) == nodes)


def group_with_messages(world):
    return next(iter(world.history.group_of.values()))


def test_peace_has_nothing_to_explain(world):
    world.run_for(3)
    assert world.finish() == []
    assert not [d for d in world.history.deliveries if d.redelivered and d.count > 1 and not world.history.causes]


def test_a_leader_that_was_stopped_refuses_nothing_that_its_successor_took(world):
    leader = world.leader(group_with_messages(world))
    for client in world.clients.values():
        client.die()
    world.run_for(0.5)
    leader.pause(2 * SECOND)
    world.history.cause(world.loop.now, world.loop.now + 2 * SECOND, "stopped")
    for client in world.clients.values():
        world.loop.after(SECOND // 2, client.start)
    world.run_for(3)
    assert world.finish() == []
    assert not [publish for publish in world.history.publishes.values() if publish.failed_at]


def test_a_node_with_a_new_disk_becomes_whole(world):
    node = world.leader(group_with_messages(world))
    node.replace_disk()
    world.run_for(4)
    assert world.finish() == []
    assert all(group.votes for group in node.member.groups.values())


def test_a_graceful_stop_hands_over(world):
    node = world.leader(group_with_messages(world))
    life, before = node.lives, len(world.history.events)
    world.history.cause(world.loop.now, world.loop.now + 3 * SECOND, "graceful stop")
    node.stop()
    world.run_for(3)
    assert node.lives == life + 1
    assert any(isinstance(event, Reset) for event in world.history.events[before:])
    assert world.finish() == []


def test_power_lost_everywhere_at_once(world):
    for node in world.nodes.values():
        node.crash(power=True)
    world.run_for(3)
    assert world.finish() == []
    assert world.history.acknowledged
