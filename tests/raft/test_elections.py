"""Elections between the answer that decides them and the turn that acts on it: links end, time passes, roles change."""

import pytest
from stan_protocol.scalars import SECOND

from stan import limits
from stan.raft.transport.codec import VoteAnswer, VoteRequest
from tests.raft.rigs import Safe


@pytest.fixture
def rig():
    """Three nodes; nobody leads, and nobody is bound to an earlier leader."""
    rig = Safe(3).start_all()
    rig.now += 2 * SECOND
    return rig


def ask(rig, name="n0"):
    """Its patience is at its end: it asks whether it could win."""
    group = rig.nodes[name].group
    group.turn()
    asked = [message for _, _, message in rig.sent if isinstance(message, VoteRequest)]
    assert [message.pre for message in asked] == [True, True]
    rig.sent.clear()
    return group


def win_pre_vote(rig, name="n0"):
    group = ask(rig, name)
    rig.give(name, "n1", VoteAnswer(group.term + 1, pre=True, granted=True))
    return group


def asked_for_votes(rig):
    return [target for _, target, message in rig.sent if isinstance(message, VoteRequest) and not message.pre]


def test_a_won_pre_vote_leads_to_an_election(rig):
    group = win_pre_vote(rig)
    group.turn()
    assert asked_for_votes(rig) == ["n1", "n2"]
    assert group.term == 1


def test_a_won_pre_vote_is_taken_back_if_nobody_is_connected_at_the_turn(rig):
    group = win_pre_vote(rig)
    group.peer_down("n1")
    group.peer_down("n2")
    group.turn()
    assert asked_for_votes(rig) == []
    assert group.term == 0
    assert not group.tick(rig.now), "the next turn comes when the election timeout is over, not at once"

    group.peer_up("n1")
    rig.sent.clear()
    rig.now += limits.RAFT_ELECTION_TIMEOUT_MAX
    win_pre_vote(rig)
    group.turn()
    assert asked_for_votes(rig) == ["n1", "n2"]


def test_a_won_pre_vote_is_taken_back_if_no_majority_is_connected_at_the_turn():
    rig = Safe(5).start_all()
    rig.now += 2 * SECOND
    group = rig.nodes["n0"].group
    group.turn()
    for name in ("n1", "n2"):
        rig.give("n0", name, VoteAnswer(1, pre=True, granted=True))
    for name in ("n1", "n2", "n3"):
        group.peer_down(name)
    group.turn()
    assert asked_for_votes(rig) == []
    assert group.term == 0


def test_a_pre_vote_that_was_won_before_a_pause_says_nothing_after_it(rig):
    group = win_pre_vote(rig)
    rig.now += limits.RAFT_ELECTION_TIMEOUT_MIN
    group.turn()
    assert asked_for_votes(rig) == []
    assert group.term == 0


def test_a_member_that_must_not_campaign_any_more_takes_its_won_pre_vote_back(rig):
    group = win_pre_vote(rig)
    group._applied.newer = 1, ("n1", "n2")
    group.turn()
    assert asked_for_votes(rig) == []
    assert group.term == 0


def test_a_member_whose_election_is_due_takes_a_turn_at_once(rig):
    group = win_pre_vote(rig)
    assert group._raft.rest(rig.now) == rig.now


def test_a_leader_that_was_deposed_waits_before_it_campaigns_again(rig):
    group = rig.elect("n0")
    rig.now += 3 * SECOND
    rig.give("n0", "n1", VoteAnswer(group.term + 1, pre=False, granted=False))
    rig.sent.clear()
    group.turn()
    assert [message for _, _, message in rig.sent if isinstance(message, VoteRequest)] == []
