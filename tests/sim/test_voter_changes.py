"""While the voters of a group change in peace, its leadership goes from one to the next: nobody waits for an election."""

import pytest
from stan_protocol.scalars import MILLISECOND, SECOND

from stan import limits
from tests.kit.broker_state import BrokerState
from tests.sim.member_world import MemberWorld
from tests.sim.test_cluster_faults import sending_group


class Calm(MemberWorld):
    """Peaceful, with three nodes; the voters change as the test says."""

    def _change(self):
        """Nobody comes or goes."""


@pytest.fixture
def world():
    seeds = (seed for seed in range(200) if len(MemberWorld(seed, calm=True).names) == 3)
    made = Calm(next(seeds), calm=True)
    made.begin()
    made.run_for(6)
    return made


def leave_one_out(world):
    """Let the voters of group 1 be one less; returns the leader and the voter that stays."""
    leader = world.leader(1)
    stays, goes = sorted(set(leader.cluster_node.groups[1].members) - {leader.name})
    leader.run(leader.cluster_node.groups[1].change, [name for name in (leader.name, stays, goes) if name != goes])
    return leader, world.nodes[stays]


def longest_without_a_leader(world, seconds):
    """In ms, while the world goes on."""
    longest = now = 0
    for _ in range(int(seconds * 100)):
        world.run_for(0.01)
        now = 0 if world.leader(1) else now + 10
        longest = max(longest, now)
    return longest


def test_who_takes_over_with_a_change_in_its_log_hands_over_in_turn(world):
    leader, other = leave_one_out(world)
    leader.run(leader.cluster_node.groups[1].transfer, other.name, lambda _gone: None)
    assert longest_without_a_leader(world, 3) < 200
    assert world.finish() == []


def test_a_leader_whose_successor_refuses_asks_the_next_one(world):
    leader = world.leader(1)
    first, second = (node for node in world.nodes.values() if node is not leader)
    preferred = leader.cluster_node.reconfiguration.placement[1].preferred
    refusing = second if second.name == preferred else first
    refusing.cluster_node.groups[1].listen_until(refusing.clock() + 20 * SECOND)
    leader.run(leader.cluster_node.groups[1].change, sorted((*world.names, "x0")))
    leader.run(leader.driver.turns.wake)
    assert longest_without_a_leader(world, 3) < 200
    assert world.leader(1) not in (refusing, None)


def test_nothing_is_handed_over_while_its_voters_change(world):
    leader, other = leave_one_out(world)
    told = []
    leader.run(leader.cluster_node.handovers.hand_over, 1, other.name, told.append)
    assert told == [False]
    leader.run(leader.cluster_node.handovers.hand_over, 1, other.name)
    world.loop.run_until(world.loop.now + 50 * MILLISECOND)
    assert world.leader(1) is leader


def test_who_leads_behind_a_change_of_voters_knows_of_all_that_was_sent(world, monkeypatch):
    monkeypatch.setattr(limits, "PROGRESS_INTERVAL", 2 * SECOND)
    world.run_for(1)
    number, old, state = sending_group(world)
    raft = old.cluster_node.groups[number]
    gone = min(set(raft.members) - {old.name})
    old.run(old.cluster_node.reconfiguration._change, raft, frozenset(raft.members) - {gone})
    sent = {live.cursor_id: live.last_sent for live in state.live_positions(number)}
    messages = state.sent_messages(number)
    while state.broker.view.leads(number):
        world.run_for(0.001)
    assert state.sent_messages(number) == messages
    while world.leader(number) is None:
        world.run_for(0.001)
    assert world.leader(number) is not old
    known = BrokerState(world.leader(number).cluster_node.broker)
    assert {cursor_id: known.position_of(cursor_id, number).last_sent for cursor_id in sent} == sent
    assert world.finish() == []
