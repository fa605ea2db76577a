"""What a group promises beyond keeping hazards out: the port's contract, hand-over, reads, observers, disks that fail."""

import errno

import pytest

from stan import limits
from stan.errors import DiskFull, Frozen, NotNow, StartError
from stan.protocol.entries import Kind
from stan.raft.transport.codec import AppendEntries, TimeoutNow, VoteRequest
from tests.kit.damage import written
from tests.raft.rigs import Safe


def bodies(*texts):
    return [(Kind.META, text) for text in texts]


def test_group_elects_one_leader_by_itself():
    rig = Safe(3).start_all()
    rig.run(3)
    leader = rig.leader()
    assert {node.group.leader for node in rig.nodes.values()} == {leader.name}
    assert all(node.handed[0].kind == Kind.NOOP for node in rig.nodes.values())


def test_who_has_to_listen_first_campaigns_only_then(rig):
    """Also if it has met no leader in this life: it takes the place of one that has."""
    late, other = rig.nodes["n1"].group, rig.nodes["n2"]
    late.listen_until(rig.now + 3_000_000_000)
    del rig.nodes["n0"], rig.nodes["n2"]
    late._raft.leader_gone(rig.now)
    rig.run(2.5)
    assert not any(isinstance(message, VoteRequest) and source == "n1" for source, _, message in rig.sent)
    assert late.term == other.group.term
    rig.nodes["n2"] = other
    rig.run(3)
    assert rig.leader().name in ("n1", "n2")


def test_group_of_one_elects_itself_and_commits_what_is_durable():
    rig = Safe(1).start_all()
    rig.run(2)
    node = rig.nodes["n0"]
    assert node.group.leads
    node.group.propose(bodies(b"a"), urgent=True)
    rig.tick()
    assert not node.group.has_committed
    node.sync()
    rig.tick()
    node.take()
    assert node.applied() == [b"a"]


def test_propose_commits_everywhere_and_gives_the_first_index(rig):
    group = rig.leader().group
    assert group.propose(bodies(b"a", b"b"), urgent=True) == 2
    assert group.propose(bodies(b"c"), urgent=True) == 4
    assert group.wants_sync
    rig.run(0.5)
    assert all(node.applied() == [b"a", b"b", b"c"] for node in rig.nodes.values())
    assert not any(node.group.wants_sync for node in rig.nodes.values())


def test_leader_serves_only_after_its_first_entry_was_handed_out():
    rig = Safe(3).start_all()
    group = rig.elect()
    assert group.leader == "n0"
    assert not group.leads
    with pytest.raises(NotNow):
        group.propose(bodies(b"early"), urgent=True)
    for _ in range(8):
        rig.tick()
        rig.deliver()
        for node in rig.nodes.values():
            node.sync()
    assert group.has_committed
    assert not group.leads
    rig.nodes["n0"].take()
    assert group.leads


def test_news_tell_of_a_change_of_role_once(rig):
    group = rig.leader().group
    assert group.take_news()
    assert not group.take_news()
    rig.run(1.5, drop=lambda *_: True)
    assert group.take_news()
    assert not group.take_news()


def test_room_ends_with_three_proposals_or_a_mebibyte(rig):
    group = rig.leader().group
    for _ in range(limits.RAFT_PROPOSALS_IN_FLIGHT):
        assert group.has_room
        group.propose(bodies(b"x"), urgent=True)
    assert not group.has_room
    rig.run(0.5)
    assert group.has_room
    group.propose(bodies(bytes(limits.RAFT_PROPOSAL_BYTES_IN_FLIGHT)), urgent=True)
    assert not group.has_room


def test_proposals_beyond_the_bound_are_refused(rig, monkeypatch):
    monkeypatch.setattr(limits, "RAFT_UNCOMMITTED_BYTES_MAX", 100)
    group = rig.leader().group
    group.propose(bodies(bytes(101)), urgent=True)
    with pytest.raises(NotNow, match="majority"):
        group.propose(bodies(b"x"), urgent=True)


def test_entries_of_one_turn_leave_in_one_message(rig):
    group = rig.leader().group
    for text in (b"a", b"b", b"c"):
        group.propose(bodies(text), urgent=True)
    rig.tick(0)
    messages = [m for _, to, m in rig.sent if to == "n1" and isinstance(m, AppendEntries) and m.entries]
    assert [[e.body for e in m.entries] for m in messages] == [[b"a", b"b", b"c"]]


# --- hand-over ----------------------------------------------------------------------------------------------------------


def test_transfer_moves_leadership_at_once_and_holds_proposals_back(rig):
    old, gone = rig.leader(), []
    old.group.propose(bodies(b"before"), urgent=True)
    old.group.transfer("n2", gone.append)
    with pytest.raises(NotNow, match="handed over"):
        old.group.propose(bodies(b"during"), urgent=True)
    rig.run(0.4)
    assert gone == [True]
    assert rig.leader().name == "n2"
    assert rig.leader().applied() == [b"before"]


def test_transfer_to_a_node_that_cannot_take_over_gives_up_and_goes_on(rig):
    gone, group = [], rig.leader().group
    group.propose(bodies(b"x"), urgent=True)
    group.transfer("n2", gone.append)
    rig.run(1.2, drop=lambda source, target, _: "n2" in (source, target))
    assert gone == [False]
    assert group.leads
    group.transfer("stranger", gone.append)
    rig.tick()
    assert gone == [False, False]
    group.propose(bodies(b"y"), urgent=True)


def test_transfer_asked_for_by_a_follower_is_not_obeyed(rig):
    term = rig.leader().group.term
    rig.give("n2", "n1", TimeoutNow(term))
    rig.run(0.4)
    assert rig.leader().name == "n0"


def test_node_whose_log_is_not_whole_never_campaigns():
    rig = Safe(3).start_all()
    for name in ("n0", "n1"):
        rig.nodes[name].group._raft.election.votes_for_others_only = True
    rig.run(4)
    assert rig.leader().name == "n2"
    rig.give("n0", "n2", TimeoutNow(rig.leader().group.term))
    assert not any(isinstance(m, VoteRequest) for _, _, m in rig.sent)


# --- observers ----------------------------------------------------------------------------------------------------------


def test_observer_gets_everything_and_counts_for_nothing():
    rig = Safe(3, observers=1).start_all()
    rig.run(3)
    leader = rig.leader()
    leader.group.propose(bodies(b"a"), urgent=True)
    rig.run(0.5)
    assert rig.nodes["o0"].applied() == [b"a"]

    def only_observer(source, target, _message):
        return leader.name in (source, target) and "o0" not in (source, target)

    index = leader.group.propose(bodies(b"b"), urgent=True)
    rig.run(0.6, drop=only_observer)
    assert leader.group.commit_index < index
    rig.run(8, drop=lambda source, target, _: "o0" in (source, target))
    assert not rig.nodes["o0"].group._raft.library.is_leader


def test_observer_goes_on_after_its_link_was_reset():
    rig = Safe(3, observers=1).start_all()
    rig.run(3)
    leader = rig.leader()
    for number in range(3):
        leader.group.peer_down("o0")
        rig.nodes["o0"].group.peer_down(leader.name)
        leader.group.propose(bodies(b"%d" % number), urgent=True)
        rig.run(0.3)
        leader.group.peer_up("o0")
        rig.nodes["o0"].group.peer_up(leader.name)
        rig.run(0.3)
    assert rig.nodes["o0"].applied() == [b"0", b"1", b"2"]


def test_observer_that_begins_anew_is_filled_again_and_nobody_is_warned():
    rig = Safe(3, observers=1).start_all()
    rig.run(3)
    rig.leader().group.propose(bodies(b"a", b"b"), urgent=True)
    rig.run(0.5)
    rig.start("o0")
    rig.leader().group.peer_down("o0")
    rig.leader().group.peer_up("o0")
    rig.run(1)
    assert rig.nodes["o0"].applied() == [b"a", b"b"]
    assert not any("lost entries" in note for note in rig.notes)


# --- disks --------------------------------------------------------------------------------------------------------------


def test_full_disk_of_the_leader_refuses_the_proposal_whole(rig):
    leader = rig.leader()
    leader.files.fail("pwritev", 0, errno.ENOSPC)
    with pytest.raises(DiskFull):
        leader.group.propose(bodies(b"a", b"b"), urgent=True)
    assert leader.group.propose(bodies(b"c"), urgent=True) == 2
    rig.run(0.5)
    assert all(node.applied() == [b"c"] for node in rig.nodes.values())


def test_full_disk_of_a_follower_delays_only_that_follower(rig):
    rig.nodes["n1"].files.fail("pwritev", 0, errno.ENOSPC)
    rig.leader().group.propose(bodies(b"a"), urgent=True)
    rig.run(0.5)
    assert any("No space left" in note for note in rig.notes)
    assert rig.leader().applied() == [b"a"]
    assert rig.nodes["n1"].applied() == [b"a"]
    assert rig.nodes["n1"].group.failed == ""


def test_broken_disk_of_the_leader_ends_its_leadership(rig):
    leader = rig.leader()
    leader.files.fail("pwritev", 0, errno.EIO)
    with pytest.raises(Frozen):
        leader.group.propose(bodies(b"a"), urgent=True)
    assert not leader.group.leads
    with pytest.raises(Frozen):
        leader.group.propose(bodies(b"a"), urgent=True)
    rig.run(3)
    assert rig.leader().name != leader.name
    assert leader.group.take_committed() == []


def test_broken_disk_of_a_voter_lets_no_vote_out():
    rig = Safe(3).start_all()
    node = rig.nodes["n0"]
    node.files.fail("fdatasync", 0, errno.EIO)
    rig.wait()
    assert rig.give("n0", "n1", VoteRequest(5, 9, 4, pre=False, transfer=False)) == []
    assert node.group.failed
    assert rig.give("n0", "n2", VoteRequest(6, 9, 4, pre=False, transfer=False)) == []


def test_sync_that_failed_takes_the_group_out(rig):
    rig.leader().group.freeze("the disk is gone")
    rig.run(3)
    assert rig.leader().name != "n0"


def test_wiped_follower_is_reported_and_filled_again(rig):
    rig.leader().group.propose(bodies(b"a", b"b"), urgent=True)
    rig.run(0.5)
    rig.start("n1")
    for name in ("n0", "n2"):
        rig.nodes[name].group.peer_down("n1")
        rig.nodes[name].group.peer_up("n1")
    rig.run(1)
    assert rig.nodes["n1"].applied() == [b"a", b"b"]
    assert any("n1 has lost entries 1 to 3" in note for note in rig.notes)


def test_restart_goes_on_after_what_was_applied(rig):
    rig.leader().group.propose(bodies(b"a", b"b", b"c"), urgent=True)
    rig.run(0.5)
    old = rig.nodes["n1"]
    again = rig.start("n1", files=old.files, applied=3)
    assert again.group.commit_index >= 3, "what was applied is committed"
    rig.run(1)
    assert [entry.index for entry in again.handed] == [4]
    assert again.group.commit_index == 4
    assert again.group.term == rig.leader().group.term


def test_state_ahead_of_its_log_is_refused():
    with pytest.raises(StartError, match="holds entry 4"):
        Safe(3).start("n0", applied=4)


def test_damaged_entry_is_not_handed_out_and_takes_the_group_out(rig):
    rig.leader().group.propose(bodies(b"a", b"b", b"c"), urgent=True)
    rig.run(0.5)
    old = rig.nodes["n1"]
    again = rig.start("n1", files=old.files, applied=1)
    (path,) = [path for path in old.files.paths() if path.endswith(".log")]
    live = old.files.names[path].live
    live[len(written(bytes(live))) - 1] ^= 1
    rig.run(0.5)
    assert again.applied() == []
    assert "CRC" in again.group.failed or "position" in again.group.failed
    assert not again.group.has_committed
    assert rig.leader().name == "n0"
