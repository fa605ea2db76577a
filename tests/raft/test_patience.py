"""Who is short of CPU takes others for dead that are only slow: it listens first, and waits longer when it was wrong."""

import random

import pytest
from stan_protocol.scalars import MILLISECOND, SECOND

from stan import limits
from stan.raft.backoff import Backoff
from stan.raft.transport.codec import AppendEntries, TimeoutNow, VoteRequest
from stan.raft.transport.mux import Mux


@pytest.fixture
def rig(rig):
    """Three nodes; n0 leads."""
    rig.sent.clear()
    return rig


def just_woke(rig, name):
    group = rig.nodes[name].group
    woke = rig.now
    raft = group._raft
    raft.election.contact._listens_since = lambda: woke
    raft.as_leader._host = raft.as_leader._host._replace(listens_since=lambda: woke)
    return group


def campaign(term):
    return VoteRequest(term, 1, 1, pre=True, transfer=False)


def asked(rig):
    return [message for _, _, message in rig.sent if isinstance(message, VoteRequest)]


def test_each_setback_doubles_and_steady_times_halve():
    backoff = Backoff()
    assert backoff.factor(SECOND) == 1
    for at in range(1, 6):
        backoff.setback(at * SECOND)
    assert backoff.factor(6 * SECOND) == 1 << limits.RAFT_BACKOFF_MAX
    assert backoff.factor(5 * SECOND + limits.RAFT_STEADY) == 4
    assert backoff.factor(5 * SECOND + 3 * limits.RAFT_STEADY) == 1
    backoff.setback(1000 * SECOND)
    assert backoff.factor(1000 * SECOND) == 2


def test_back_off_stays_doubled_while_answers_nearly_come_too_late():
    backoff, usual = Backoff(), 500 * MILLISECOND
    backoff.late(200 * MILLISECOND, usual, SECOND)
    assert backoff.factor(SECOND) == 1
    for at in range(1, 600, 59):
        backoff.late(900 * MILLISECOND, usual, at * SECOND)
        assert backoff.factor((at + 59) * SECOND) == 2
    assert backoff.is_steady(600 * SECOND), "nobody was taken for dead"
    for at in (601, 602):
        backoff.setback(at * SECOND)
    backoff.late(900 * MILLISECOND, usual, 603 * SECOND)
    assert backoff.factor(603 * SECOND) == 8
    backoff.late(limits.RAFT_SILENCE_MAX + 1, usual, 2000 * SECOND)
    assert backoff.factor(2000 * SECOND) == 1, "an outage is not slowness"


def test_a_leader_that_was_nearly_taken_for_dead_is_waited_for_longer(rig):
    follower, leader = rig.nodes["n1"].group, rig.nodes["n0"].group
    rig.run(0.3, drop=lambda *_: True)
    rig.run(0.2)
    assert leader.leads
    assert follower._raft.patience.factor == 2
    rig.run(0.8, drop=lambda *between: between[0] != "n0")
    rig.run(0.2)
    assert leader.leads
    assert leader._raft.patience.factor == 2


def test_a_new_leader_is_not_late(rig):
    rig.run(3, drop=lambda *between: "n0" in between[:2])
    (new,) = [node.group for name, node in rig.nodes.items() if name != "n0" and node.group.leads]
    assert new._raft.patience.factor == 1
    assert {node.group._raft.patience.factor for name, node in rig.nodes.items() if name != "n0"} == {1}


def test_who_was_stopped_listens_before_it_votes_against_its_leader(rig):
    rig.now += 2 * SECOND
    group = just_woke(rig, "n1")
    assert not rig.give("n1", "n2", campaign(group.term + 1))[0].granted
    rig.now += limits.RAFT_LISTEN
    assert rig.give("n1", "n2", campaign(group.term + 1))[0].granted


def test_who_was_stopped_listens_before_it_campaigns(rig):
    rig.now += 2 * SECOND
    group = just_woke(rig, "n1")
    group.turn()
    assert asked(rig) == []
    rig.now += limits.RAFT_LISTEN + MILLISECOND
    group.turn()
    assert len(asked(rig)) == 2


def test_a_leader_that_is_silent_for_too_long_is_gone_however_late_one_was_oneself(rig):
    rig.now += limits.RAFT_SILENCE_MAX
    group = just_woke(rig, "n1")
    assert rig.give("n1", "n2", campaign(group.term + 1))[0].granted
    group.turn()
    assert len(asked(rig)) == 2


def test_a_leader_that_was_stopped_gives_its_followers_time_to_answer(rig):
    rig.now += 2 * limits.RAFT_LEADER_PATIENCE
    group = just_woke(rig, "n0")
    group.turn()
    assert group.leads
    rig.now += limits.RAFT_LEADER_PATIENCE
    group.turn()
    assert not group.leads


def test_an_election_that_nobody_wins_makes_patient(rig):
    rig.elect("n1")  # with votes that its followers do not know of
    group = rig.nodes["n2"].group
    rig.now += 2 * SECOND
    group.turn()
    group._raft.election.candidacy._won_at = rig.now / SECOND
    group._raft.library._SyncObj__raftElectionDeadline = float("-inf")
    group.turn()  # it campaigns, and nobody votes
    assert group.is_steady
    rig.now += 2 * SECOND
    group.turn()
    assert not group.is_steady
    rig.now += limits.RAFT_STEADY
    group.turn()
    assert rig.nodes["n2"].group._raft.patience._backoff.factor(rig.now) <= 2


def test_a_leader_that_was_replaced_though_it_lived_makes_patient(rig):
    group = rig.nodes["n2"].group
    rig.give("n2", "n1", AppendEntries(group.term + 1, 0, 0, 0, 1, []))
    assert group.is_steady
    for _ in range(3):
        rig.give("n2", "n0", AppendEntries(group.term - 1, 0, 0, 0, 9, []))
    assert group._raft.patience.factor == 2, "each term counts once"


def test_a_leader_that_handed_over_makes_nobody_patient(rig):
    group = rig.nodes["n2"].group
    rig.give("n2", "n1", VoteRequest(group.term + 1, 100, group.term, pre=False, transfer=True))
    rig.give("n2", "n1", AppendEntries(group.term, 0, 0, 0, 1, []))
    rig.give("n2", "n0", AppendEntries(group.term - 1, 0, 0, 0, 9, []))
    assert group.is_steady


def test_who_was_asked_to_lead_is_not_patient_for_that(rig):
    group = just_woke(rig, "n1")
    rig.give("n1", "n0", TimeoutNow(group.term))
    assert [message.pre for message in asked(rig)] == [False, False]
    assert group.is_steady


def test_links_tell_since_when_a_node_listens():
    class Wire:
        def write(self, frames):
            pass

    now = [SECOND]
    mux = Mux(["b"], Wire(), now=lambda: now[0], random=random.Random(1), note=print, wake=lambda: None)
    for _ in range(20):
        now[0] += limits.RAFT_TICK_INTERVAL
        mux.tick()
    assert mux.listens_since() == SECOND
    now[0] += 2 * SECOND
    assert mux.listens_since() == now[0], "it has not looked yet"
    mux.receive("b", b"")
    woke = now[0]
    now[0] += limits.RAFT_TICK_INTERVAL
    mux.tick(reads_nothing=True)
    assert mux.listens_since() == woke
