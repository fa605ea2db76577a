"""A leader's lease: nobody else leads before it ends, whoever restarts, campaigns or is handed the leadership."""

from stan_protocol.scalars import MILLISECOND, SECOND

from stan import limits
from stan.raft.transport.codec import AppendAnswer, TimeoutNow, VoteRequest
from tests.raft.rigs import Safe


def cut_off(name):
    return lambda source, target, _: name in (source, target)


def test_lease_counts_from_what_was_sent_not_from_its_answer(rig):
    group = rig.leader().group
    rig.run(0.2)
    rig.sent.clear()
    sent_at = rig.now = rig.now + 100 * MILLISECOND
    group.turn()
    rig.now += 200 * MILLISECOND
    rig.deliver()
    rig.deliver()
    expected = sent_at + limits.RAFT_ELECTION_TIMEOUT_MIN - limits.RAFT_CLOCK_MARGIN
    assert group.lease_until() == expected


def test_lease_needs_a_majority_and_ends_without_one():
    rig = Safe(5).start_all()
    rig.elect()
    rig.run(0.5)
    group = rig.leader().group
    rig.run(0.7, drop=lambda source, target, _: "n0" in (source, target) and {"n1", "n2"}.isdisjoint((source, target)))
    assert group.lease_until() > rig.now
    rig.run(0.7, drop=lambda source, target, _: {source, target} != {"n0", "n1"})
    assert group.leads
    assert group.lease_until() <= rig.now


def test_lease_of_a_follower_and_of_a_frozen_leader_is_none(rig):
    assert rig.nodes["n1"].group.lease_until() == 0
    group = rig.leader().group
    assert group.lease_until() > rig.now
    group.freeze("the disk is gone")
    assert group.lease_until() == 0


def test_lease_of_the_only_voter_never_ends():
    rig = Safe(1).start_all()
    rig.run(2)
    assert rig.leader().group.lease_until() > rig.now + 10**9 * SECOND


def test_lease_needs_the_votes_of_no_observer():
    rig = Safe(3, observers=3).start_all()
    rig.elect()
    rig.run(0.5)
    rig.run(0.6, drop=lambda source, target, _: "n0" in (source, target) and "o" not in source + target)
    group = rig.nodes["n0"].group
    assert group.leads
    assert group.lease_until() <= rig.now


def test_restarted_follower_keeps_the_promise_of_its_earlier_life(rig):
    old = rig.nodes["n1"]
    again = rig.start("n1", files=old.files)
    request = VoteRequest(9, 99, 9, pre=True, transfer=False)
    assert not rig.give("n1", "n2", request)[0].granted
    assert rig.give("n1", "n2", request._replace(pre=False)) == []
    assert again.group.term < 9
    rig.wait()
    assert rig.give("n1", "n2", request)[0].granted


def test_leader_that_hands_over_has_no_lease_until_it_was_refused(rig):
    group = rig.leader().group
    group.transfer("n2", lambda gone: None)
    group.turn()
    assert any(isinstance(message, TimeoutNow) for _, _, message in rig.sent)
    rig.sent.clear()
    rig.now += 100 * MILLISECOND
    group.turn()
    seq = group._raft.as_leader.progress[group._raft.members.others["n1"]].appends.seq
    rig.give("n0", "n1", AppendAnswer(group.term, seq, group.log.last_index + 1, success=True, reset=False))
    assert group.leads
    assert group.lease_until() == 0, "n1 may vote for n2 at any moment"
    seq = group._raft.as_leader.progress[group._raft.members.others["n2"]].appends.seq
    rig.give("n0", "n2", AppendAnswer(group.term, seq, group.log.last_index + 1, success=True, reset=False))
    assert group.lease_until() > rig.now


def test_leader_whose_successor_refuses_until_the_end_leads_on_with_its_lease(rig):
    gone, group = [], rig.leader().group
    term = group.term
    rig.nodes["n2"].group.listen_until(rig.now + 60 * SECOND)
    group.transfer("n2", gone.append)
    rig.run(1.2)
    assert gone == [False]
    assert group.leads
    assert group.term == term
    assert group.lease_until() > rig.now
    rig.nodes["n2"].group.listen_until(rig.now)
    group.transfer("n2", gone.append)
    rig.run(0.4)
    assert gone == [False, True]


def test_leader_that_never_hears_whether_it_was_refused_steps_down(rig):
    gone, group = [], rig.leader().group
    group.transfer("n2", gone.append)
    rig.run(1.2, drop=cut_off("n2"))
    assert gone == [True]
    rig.run(2, drop=cut_off("n2"))
    assert rig.leader().group.lease_until() > rig.now, "an election brought a lease back"


def test_follower_that_is_asked_to_campaign_does_so_before_it_says_anything_else(rig):
    term, follower = rig.leader().group.term, rig.nodes["n2"].group
    said = rig.give("n2", "n0", TimeoutNow(term))
    assert {(m.term, m.transfer) for m in said if isinstance(m, VoteRequest)} == {(term + 1, True)}
    for peer in ("n0", "n1"):
        follower.peer_down(peer)
    rig.now += 100 * MILLISECOND
    follower._raft.library.step_down()
    assert rig.give("n2", "n0", TimeoutNow(term + 1)) == []
    assert not follower._raft.library._SyncObj__transferInProgress
    assert follower.term == term + 1
