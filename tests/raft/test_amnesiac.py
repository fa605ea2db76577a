"""Members whose disk is new: they take entries, are part of no majority, and become whole by what they cannot have forgotten."""

import pytest

from stan.log.types import Entry
from stan.protocol.entries import Kind
from stan.raft.pysyncobj.hard_state import HardState
from stan.raft.transport.codec import AppendEntries, Readmit, TimeoutNow, VoteAnswer, VoteRequest
from tests.raft.rigs import Safe


@pytest.fixture
def rig(rig):
    """Three nodes; n0 leads, and everybody has an entry."""
    propose(rig, b"a")
    rig.run(0.5)
    return rig


def propose(rig, body):
    return rig.leader().group.propose([(Kind.META, body)], urgent=True)


def replace(rig, name):
    """The node begins a new life on an empty disk."""
    node = rig.start(name, found=False)
    for other in rig.nodes.values():
        if other is not node:
            other.group.peer_down(name)
            other.group.peer_up(name)
    return node


def rig_entry(index):
    return Entry(index, 3, Kind.META, b"x")


def no_vouch(_source, _target, message):
    return isinstance(message, Readmit)


def test_fresh_nodes_elect_nobody_until_they_are_founded():
    rig = Safe(3)
    for name in rig.voters:
        rig.start(name, found=False)
    rig.run(4)
    assert {node.group.term for node in rig.nodes.values()} == {0}
    assert not any(node.group.votes for node in rig.nodes.values())
    for name in ("n0", "n1"):
        rig.nodes[name].group.bootstrap()
        assert rig.nodes[name].group.votes
    rig.run(3)
    assert rig.leader().name in ("n0", "n1")
    assert all(node.group.votes for node in rig.nodes.values()), "n2 was vouched for"


def test_fresh_node_neither_votes_nor_campaigns(rig):
    node = replace(rig, "n1")
    rig.wait()
    for pre in (True, False):
        assert rig.give("n1", "n2", VoteRequest(9, 99, 9, pre=pre, transfer=not pre)) == []
    rig.run(3, drop=no_vouch)
    assert node.applied() == [b"a"]
    assert not node.group.votes
    term = rig.leader().group.term
    assert not any(isinstance(m, VoteRequest) for m in rig.give("n1", "n0", TimeoutNow(term)))
    rig.run(4, drop=lambda source, target, message: "n0" in (source, target) or no_vouch(source, target, message))
    assert not rig.nodes["n2"].group._raft.library.is_leader
    assert not node.group._raft.library.is_leader


def test_fresh_node_does_not_help_to_commit_nor_to_a_lease(rig):
    node = replace(rig, "n1")
    rig.run(0.5, drop=no_vouch)
    group = rig.leader().group
    before = group.commit_index
    index = propose(rig, b"b")
    rig.run(0.8, drop=lambda source, target, message: "n2" in (source, target) or no_vouch(source, target, message))
    assert node.log.last_index >= index
    assert group.commit_index == before
    assert group.lease_until() <= rig.now
    rig.run(0.5, drop=lambda source, target, message: "n2" in (source, target) or no_vouch(source, target, message))
    assert not group.leads, "nobody who counts answered for too long"


def test_founding_has_no_effect_once_a_leader_was_heard(rig):
    node = replace(rig, "n1")
    rig.run(0.3, drop=no_vouch)
    node.group.bootstrap()
    assert not node.group.votes


def test_fresh_node_becomes_whole_durably_by_an_entry_made_since_it_was_met(rig):
    node, end = replace(rig, "n1"), rig.leader().log.last_index
    rig.run(0.6)
    assert node.group.votes
    assert not node.group.amnesiac
    assert node.log.last_index == rig.leader().log.last_index == end + 1
    assert not HardState.open(node.files.crash(1), "/g").amnesiac
    rig.run(1)
    assert rig.leader().log.last_index == end + 1, "once is enough"
    index = propose(rig, b"b")
    rig.run(0.3, drop=lambda source, target, _: "n2" in (source, target))
    assert rig.leader().group.commit_index >= index, "it counts again"


def test_vouch_counts_for_this_term_and_for_what_is_held_durably():
    rig = Safe(3)
    node = rig.start("n1", found=False)
    rig.give("n1", "n0", AppendEntries(3, 0, 0, 0, 1, [rig_entry(1), rig_entry(2)]))
    rig.give("n1", "n0", Readmit(3, 2))
    assert node.group.amnesiac, "nothing of it is durable"
    node.sync()
    node.group.turn()
    rig.give("n1", "n0", Readmit(2, 2))
    rig.give("n1", "n0", Readmit(3, 3))
    assert node.group.amnesiac
    rig.give("n1", "n0", Readmit(3, 2))
    assert not node.group.amnesiac


def test_whole_node_has_voted_in_the_term_in_which_it_became_whole():
    """Its earlier life may have voted for the leader: with a second vote in that term there could be two."""
    rig = Safe(3)
    node = rig.start("n1", found=False)
    rig.give("n1", "n0", AppendEntries(3, 0, 0, 0, 1, [rig_entry(1)]))
    node.sync()
    node.group.turn()
    rig.give("n1", "n0", Readmit(3, 1))
    rig.wait()
    assert rig.give("n1", "n2", VoteRequest(3, 9, 3, pre=False, transfer=False)) == []
    assert rig.give("n1", "n2", VoteRequest(4, 9, 3, pre=False, transfer=False)) == [
        VoteAnswer(4, pre=False, granted=True)
    ]


def test_what_an_earlier_life_acknowledged_is_forgotten_by_the_leader_when_it_meets_the_new_one(rig):
    """Else it could commit by it what the new life, whole in the meantime, does not hold."""
    group = rig.leader().group
    propose(rig, b"b")
    rig.tick(0)
    rig.deliver(drop=lambda _source, target, _: target == "n2")
    rig.nodes["n1"].sync()
    rig.nodes["n1"].group.turn()
    rig.deliver(drop=lambda _source, target, _: target == "n2")
    before = group.commit_index
    replace(rig, "n1")
    rig.nodes["n0"].sync()
    group.turn()
    group.turn()
    assert group.commit_index == before
    assert group.progress()["n1"] == before + 1, "for the operator"


def test_link_that_begins_anew_costs_no_entry(rig):
    end = rig.leader().log.last_index
    for _ in range(3):
        rig.nodes["n0"].group.peer_down("n1")
        rig.nodes["n1"].group.peer_down("n0")
        rig.nodes["n0"].group.peer_up("n1")
        rig.nodes["n1"].group.peer_up("n0")
        rig.run(0.4)
    assert rig.leader().log.last_index == end


def test_node_in_doubt_of_its_log_is_like_a_fresh_one(rig):
    node = rig.nodes["n1"]
    node.hard_state.mark_amnesiac()
    again = rig.start("n1", files=node.files)
    assert not again.group.votes
    rig.run(0.5)
    assert again.group.votes
