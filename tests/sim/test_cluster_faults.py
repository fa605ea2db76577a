"""Single faults at chosen moments, in otherwise peaceful clusters: what simulated runs have found once stays found."""

import pytest
from stan_protocol.scalars import MILLISECOND, SECOND

from stan import limits
from stan.edge.nats.subscriptions import ACK_SID
from tests.kit.broker_state import BrokerState
from tests.sim.clients import Publisher
from tests.sim.cluster_node import SimulatedNode
from tests.sim.cluster_world import ClusterWorld
from tests.sim.history import Reset


def calm_world(wanted):
    """A cluster of the wanted kind that has not begun."""
    seeds = (seed for seed in range(200) if wanted(ClusterWorld(seed, calm=True)))
    return ClusterWorld(next(seeds), calm=True)


def peaceful(wanted=lambda world: len(world.names) == 3):
    """A cluster of the wanted kind, with every group led by somebody and clients at work."""
    world = calm_world(wanted)
    world.begin()
    world.run_for(4)
    assert all(world.leader(number) for number in range(world.raft_groups + 1))
    return world


@pytest.fixture
def world():
    """Three nodes."""
    return peaceful()


def group_with_messages(world):
    return world.history.group_of["a"]


def new_clients(world, seconds):
    """All clients are started anew after a while."""
    for client in world.clients.values():
        client.die()
        world.loop.after(int(seconds * SECOND), client.start)


def test_peace_has_nothing_to_explain(world):
    world.run_for(3)
    assert world.finish() == []
    assert not [d for d in world.history.deliveries if d.redelivered and d.count > 1 and not world.history.causes]


def test_no_node_says_that_it_is_ready_before_all_hear_clients(monkeypatch):
    """A client that then connects through any node's nats-server is heard by the metadata's leader, whichever it is."""
    listening, ready, deaf = SimulatedNode._listening, [], []

    def looked_at(node):
        ready.append(node.name)
        deaf.extend(other.name for other in node.world.nodes.values() if not other.cluster_node.gateway.listens)
        listening(node)

    monkeypatch.setattr(SimulatedNode, "_listening", looked_at)
    world = peaceful()
    assert (sorted(ready), deaf) == (sorted(world.names), [])


def test_a_group_that_was_handed_over_by_an_operator_rests_and_then_returns(world, monkeypatch):
    monkeypatch.setattr(limits, "TRANSFER_COOLDOWN", 8 * SECOND)
    world.run_for(8)
    old = world.leader(1)
    assert old.cluster_node.reconfiguration.placement[1].preferred == old.name
    to = next(name for name in old.cluster_node.groups[1].members if name != old.name)
    old.run(
        old.cluster_node.handovers.hand_over, 1, to, lambda _done: old.cluster_node.handovers.start_transfer_cooldown(1)
    )
    world.run_for(6)
    assert world.leader(1).name == to
    world.run_for(12)
    assert world.leader(1) is old


def test_a_leader_that_was_stopped_refuses_nothing_that_its_successor_took(world):
    leader = world.leader(group_with_messages(world))
    leader.pause(2 * SECOND)
    world.history.cause(world.loop.now, world.loop.now + 2 * SECOND, "stopped")
    new_clients(world, 1)
    world.run_for(3)
    assert world.finish() == []
    assert not [publish for publish in world.history.publishes.values() if publish.failed_at]


def test_a_leader_without_followers_refuses_nothing_that_its_successor_took():
    world = peaceful(lambda world: len(world.names) == 3 and world.raft_groups == 1)
    leader = world.leader(group_with_messages(world))
    if leader is not world.leader(0):
        world.leader(0).cluster_node.groups[0].transfer(leader.name, lambda _gone: None)
        world.run_for(0.5)
    for other in world.names:
        world.nats.deaf[other, leader.name] = world.nats.deaf[leader.name, other] = None
    world.history.cause(world.loop.now, world.loop.now + 3 * SECOND, "isolated")
    new_clients(world, 0.1)
    world.run_for(3)
    assert world.finish() == []
    assert not [publish for publish in world.history.publishes.values() if publish.failed_at]


def forget_first_hints(group_sync):
    """A hint that a transfer is needed may come before it is known that its sender leads."""
    hinted, heard = group_sync._on_hint, []

    def hear(payload):
        heard.append(payload)
        if len(heard) > 3:
            hinted(payload)

    group_sync._on_hint = hear


def test_who_is_elected_by_one_that_lags_behind_its_log_brings_it_up():
    world = peaceful(lambda world: len(world.names) == 3 and world.limit > 0 and world.raft_groups == 1)
    number = group_with_messages(world)
    lagging, follower = [node for node in world.nodes.values() if node is not world.leader(number)]
    behind = lagging.cluster_node.groups[number].log.last_index
    for writer in (client for client in world.clients.values() if isinstance(client, Publisher)):
        writer.pace, writer.one_by_one = 20 * MILLISECOND, False
    lagging.port.cut()
    world.history.cause(world.loop.now, world.loop.now + 60 * SECOND, "cut off")
    for _ in range(40):
        world.run_for(1)
        if follower.cluster_node.groups[number].log.first_index > behind + 1:
            break
    assert follower.cluster_node.groups[number].log.first_index > behind + 1, "what the lagging one needs is gone"
    forget_first_hints(lagging.cluster_node.group_sync)
    world.leader(number).crash(power=True, length=20 * SECOND)
    lagging.port.connect()
    world.run_for(6)
    assert world.leader(number) is follower
    assert world.finish() == []


def test_a_node_with_a_new_disk_becomes_whole(world):
    node = world.leader(group_with_messages(world))
    node.replace_disk()
    world.run_for(4)
    assert world.finish() == []
    assert all(group.votes for group in node.cluster_node.groups.values())


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


def test_a_node_whose_disk_is_lost_votes_for_nothing_before_it_is_up_again(world):
    lost = world.leader(0)
    lost.replace_disk()
    assert not lost.votes
    assert world.finish() == []


def test_a_node_that_has_heard_nothing_yet_leaves_it_to_the_other_to_lead(world):
    """What was published and not acknowledged just before would be unknown to it, and never be acknowledged."""

    def may_lead():
        group = renewed.cluster_node.groups[number]
        return group.votes and group.may_campaign(group.commit_index, met_leader=True)

    def wait_for(met):
        until = world.loop.now + 20 * SECOND
        while not met():
            world.run_for(0.01)
            assert world.loop.now < until

    number = group_with_messages(world)
    leader = world.leader(number)
    renewed, other = [node for node in world.nodes.values() if node is not leader]
    renewed.replace_disk()
    wait_for(lambda: renewed.alive and renewed.votes and number in renewed.cluster_node.groups)
    assert not may_lead()
    leader.crash(power=False, length=20 * SECOND)
    wait_for(lambda: world.leader(number) is not None)
    assert world.leader(number) is other
    world.run_for(3)
    assert may_lead()
    assert world.finish() == []
    assert not [publish for publish in world.history.publishes.values() if publish.failed_at]


def test_a_node_that_learns_the_identity_late_leads_nothing_before_it_hears_clients():
    """It has voted, and died before the metadata had an identity: acks that came to it as a leader would go into the void."""

    def wait_for(met):
        until = world.loop.now + 20 * SECOND
        while not met():
            world.run_for(0.001)
            assert world.loop.now < until

    def knows(node):
        return node.running and node.cluster_node.broker.view.nuid != b""

    def voted(node):
        return node.running and not knows(node) and any(group.term for group in node.cluster_node.groups.values())

    world = calm_world(lambda world: len(world.names) == 3 and world.raft_groups == 1 and not world.limit)
    world.begin()
    number = group_with_messages(world)
    wait_for(lambda: any(voted(node) and not node.cluster_node.leaderships.led for node in world.nodes.values()))
    late = next(node for node in world.nodes.values() if voted(node) and not node.cluster_node.leaderships.led)
    late.crash(power=False, length=20 * SECOND)
    wait_for(lambda: world.history.deliveries)
    late.boot()
    wait_for(lambda: knows(late) and late.cluster_node.groups[number].commit_index)
    leader, group = world.leader(number), late.cluster_node.groups[number]
    assert not late.cluster_node.gateway.connection.subscriptions.get(ACK_SID)
    assert not group.may_campaign(group.commit_index, met_leader=True)
    leader.run(leader.cluster_node.groups[number].transfer, late.name, lambda _gone: None)
    wait_for(lambda: late.cluster_node.gateway.connection.subscriptions.get(ACK_SID))
    assert world.leader(number) is leader
    world.run_for(3)
    assert group.may_campaign(group.commit_index, met_leader=True)
    assert world.finish() == []


def sending_group(world):
    """(number, leader, state of its broker) of a group of which more was sent than its log tells."""
    number = group_with_messages(world)
    until = world.loop.now + 20 * SECOND
    while True:
        leader = world.leader(number)
        state = BrokerState(leader.cluster_node.broker)
        told = {position.cursor_id: position.last_sent for position in state.positions(number)}
        if any(live.last_sent > told[live.cursor_id] for live in state.live_positions(number)):
            return number, leader, state
        world.run_for(0.001)
        assert world.loop.now < until


def test_who_is_handed_a_group_knows_of_all_that_was_sent(monkeypatch):
    """The progress is written before the handover, and nothing is sent behind it."""
    world = peaceful(lambda world: len(world.names) == 3 and not world.limit)
    monkeypatch.setattr(limits, "PROGRESS_INTERVAL", 2 * SECOND)
    world.run_for(1)
    number, old, state = sending_group(world)
    to = next(name for name in old.cluster_node.groups[number].members if name != old.name)
    old.run(old.cluster_node.handovers.hand_over, number, to)
    sent = {live.cursor_id: live.last_sent for live in state.live_positions(number)}
    messages = state.sent_messages(number)
    while state.broker.view.leads(number):
        world.run_for(0.001)
    assert state.sent_messages(number) == messages
    while world.leader(number) is None:
        world.run_for(0.001)
    known = BrokerState(world.leader(number).cluster_node.broker)
    assert world.leader(number).name == to
    assert {cursor_id: known.position_of(cursor_id, number).last_sent for cursor_id in sent} == sent
    assert world.finish() == []


def test_who_hands_a_group_over_in_vain_sends_on(world):
    number, old, state = sending_group(world)
    to = next(name for name in old.cluster_node.groups[number].members if name != old.name)
    world.nodes[to].cluster_node.groups[number].listen_until(world.nodes[to].clock() + 20 * SECOND)
    old.run(old.cluster_node.handovers.hand_over, number, to)
    assert state.stops(number).mute
    for _ in range(20):  # a second later another one may be tried, as leaderships are spread
        world.run_for(0.1)
        if not state.stops(number).mute:
            break
    assert world.leader(number) is old
    assert not state.stops(number).mute
    assert world.finish() == []
