"""Voters that come and go: what a leader may propose, what is known to be committed, objects that are replaced, restarts."""

import pytest

from stan.errors import NotNow
from stan.log.types import Entry
from stan.protocol.entries import Kind
from stan.raft import configuration
from stan.raft.transport.codec import AppendEntries, Readmit, VoteAnswer, VoteRequest
from tests.raft.rigs import Safe


@pytest.fixture
def rig():
    """n0, n1 and n2 vote, n0 leads; o0 observes."""
    rig = Safe(3, observers=1).start_all()
    rig.elect()
    rig.run(0.5)
    return rig


def change(rig, *voters):
    """A change in force on all nodes that are not cut off; somebody leads again."""
    rig.leader().group.change(voters)
    rig.run(0.5)
    return rig


def silent(*names):
    """Nothing comes from these nodes, nothing reaches them."""
    return lambda source, target, _: source in names or target in names


def log_of(*kinds):
    """The log of a group whose entries are of these kinds, from 1 on."""

    class Log:
        last_index = len(kinds)

        def entries(self, first, last, _bytes_max):
            return [Entry(at, 1, kinds[at - 1], b"") for at in range(first, min(last, first + 1) + 1)]  # two at a time

    return Log()


# --- what may be proposed -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "objects"),
    [
        (("a", "b", "c", "d"), ""),
        (("a", "b"), ""),
        (("b", "c"), "hands leadership over"),
        (("a", "b", "c"), "one voter"),
        (("a", "b", "d"), "one voter"),
        (("a",), "one voter"),
        (("a", "b", "c", "d", "e"), "one voter"),
        (("a", "b", "c", "d", "d"), "once each"),
        ((), "once each"),
    ],
)
def test_one_voter_is_added_or_removed_and_never_the_leader(wanted, objects):
    why = configuration.objection(("a", "b", "c"), wanted, "a")

    assert (objects in why) if objects else why == ""


def test_what_is_encoded_is_decoded_in_order():
    assert configuration.decode(configuration.encode(["c", "a", "b"])) == ("a", "b", "c")


@pytest.mark.parametrize(
    ("kinds", "applied", "known"),
    [
        ("", 0, 0),
        ("mm", 0, 0),
        ("mm", 1, 1),
        ("mcmm", 0, 0),
        ("mcmmcm", 0, 2),
        ("mcmmcm", 2, 2),
        ("mcmmcm", 3, 3),
        ("mcmmcm", 6, 6),
        ("mcmcmmmcm", 1, 4),
    ],
)
def test_of_two_changes_in_a_log_the_first_is_committed(kinds, applied, known):
    log = log_of(*({"m": Kind.META, "c": Kind.CONFIG}[kind] for kind in kinds))

    assert configuration.known_committed(log, applied) == known


# --- changes ------------------------------------------------------------------------------------------------------------


def test_only_a_leader_changes_the_voters_and_one_change_at_a_time(rig):
    with pytest.raises(NotNow, match="does not lead"):
        rig.nodes["n1"].group.change(("n0", "n1"))
    group = rig.leader().group
    with pytest.raises(NotNow, match="one voter"):
        group.change(("n0",))
    assert not group.change_under_way
    index = group.change(("n0", "n1"))
    assert group.change_under_way
    with pytest.raises(NotNow, match="under way"):
        group.change(("n0", "n2"))
    assert index == group.log.last_index, "what was refused is not in the log"


def test_change_waits_for_voters_that_could_decide(rig):
    group = rig.leader().group
    for name in ("n1", "o0"):
        group.peer_down(name)
        group.peer_up(name)  # what it says since then is not known
    with pytest.raises(NotNow, match="too few"):
        group.change(("n0", "n1", "n2", "o0"))
    rig.run(0.3)
    assert group.counting() == {"n0", "n1", "n2", "o0"}
    assert group.change(("n0", "n1", "n2", "o0"))


def test_group_in_which_a_change_came_in_force_neither_leads_on_nor_campaigns(rig):
    rig.replaces = False
    leader = rig.leader()
    index = leader.group.change(("n0", "n1"))
    rig.run(0.5)

    assert leader.group.reconfigured == (index, ("n0", "n1"))
    assert leader.group.change_under_way
    assert leader.group.transferring
    for attempt in (
        lambda: leader.group.change(("n0",)),
        lambda: leader.group.propose([(Kind.META, b"")], urgent=True),
    ):
        with pytest.raises(NotNow):
            attempt()
    leader.group._raft.library.step_down()
    rig.sent.clear()
    for _ in range(80):
        rig.tick()
    assert not any(isinstance(message, VoteRequest) for _, _, message in rig.sent)


def test_group_goes_on_with_the_voters_of_the_change(rig):
    change(rig, "n0", "n1", "n2", "o0").run(3)
    assert {node.group.members for node in rig.nodes.values()} == {("n0", "n1", "n2", "o0")}
    leader = rig.leader()
    others = [name for name in rig.nodes if name != leader.name]
    leader.group.propose([(Kind.META, b"three of four")], urgent=True)
    rig.run(0.5, drop=silent(*others[:2]))
    assert b"three of four" not in leader.applied()
    rig.run(0.5, drop=silent(others[0]))
    assert b"three of four" in leader.applied()


def test_voter_that_was_removed_observes(rig):
    change(rig, "n0", "n1").run(3, drop=silent("n2"))
    leader = rig.leader()
    leader.group.propose([(Kind.META, b"two of two")], urgent=True)
    rig.run(0.5)
    assert rig.nodes["n2"].applied()[-1:] == [b"two of two"]
    assert rig.nodes["n2"].group.members == ("n0", "n1")
    assert not rig.nodes["n2"].group.votes
    follower = next(name for name in ("n0", "n1") if name != leader.name)
    rig.run(8, drop=silent(leader.name, follower))
    assert not rig.nodes["n2"].group._raft.library.is_leader
    assert not any(isinstance(m, VoteRequest) and source == "n2" for source, _, m in rig.sent)


def test_changes_that_are_in_force_are_none_after_a_restart(rig):
    first = rig.leader().group.change(("n0", "n1"))
    rig.run(3)
    leader = rig.leader()
    second = leader.group.change([leader.name])
    rig.run(3)

    node = rig.start(leader.name, leader.files, applied=first - 1)  # the state that was saved last
    assert node.group.members == (leader.name,)
    node.take()
    rig.run(1)
    assert [entry.index for entry in node.handed if entry.kind == Kind.CONFIG] == [first, second]
    assert node.group.reconfigured is None
    assert node.replaced == 0


def test_restart_between_two_changes_finds_the_first_in_its_log(rig):
    """The commit index is lost by power, the state was saved before both: it campaigns only once it has handed out the first."""
    node = rig.nodes["n2"]
    change(rig, "n0", "n1", "n2", "o0").run(3)
    leader = rig.leader()
    second = leader.group.change([*(name for name in leader.group.members if name != "o0")])
    rig.run(0.15)
    assert node.log.last_index >= second
    rig.members.pop("n2")
    node.hard_state.commit_hint = 0
    node.hard_state.save(node.group.term + 1, None)
    node = rig.start("n2", node.files, applied=0)

    first = next(entry.index for entry in node.log.entries(1, second, 1 << 30) if entry.kind == Kind.CONFIG)
    assert node.group.commit_index >= first
    rig.now += 10_000_000_000
    node.group.turn()
    assert not node.group.may_campaign(node.group.commit_index, met_leader=True)
    assert not any(isinstance(message, VoteRequest) and source == "n2" for source, _, message in rig.sent)


def test_member_that_has_not_applied_what_it_knows_to_be_committed_does_not_campaign(rig):
    rig.leader().group.change(("n0", "n1"))
    rig.run(0.5, drop=silent("n0"))
    node = rig.nodes["n1"]
    term, end, last_term = node.group.term, node.log.last_index, node.log.last_term
    body = configuration.encode(("n0", "n1"))
    entry = Entry(end + 1, term, Kind.CONFIG, body)
    rig.give("n1", "n0", AppendEntries(term, end + 1, end, last_term, 1000, [entry]))
    assert node.group.commit_index == end + 1
    rig.sent.clear()
    for _ in range(40):
        rig.now += 100_000_000
        node.group.turn()
    assert not any(isinstance(message, VoteRequest) for _, _, message in rig.sent)
    node.sync()
    node.take()
    rig.now += 10_000_000_000
    node.group.turn()
    assert any(isinstance(message, VoteRequest) for _, _, message in rig.sent)


# --- who is not, or not yet, a voter for itself --------------------------------------------------------------------------


def test_member_votes_and_answers_for_who_counts_it(rig):
    """It may have been promoted without knowing, or be removed when others do not know."""
    node = rig.nodes["o0"]
    rig.wait()
    index, term = node.log.last_index, node.log.last_term
    (answer,) = rig.give("o0", "n1", VoteRequest(9, index, term, pre=False, transfer=False))
    assert answer == VoteAnswer(9, pre=False, granted=True)
    (answer,) = rig.give("o0", "n1", AppendEntries(9, 0, index, term, 1, []))
    assert answer.success
    assert answer.counts


def test_messages_of_voters_that_are_not_known_are_taken(rig):
    node = rig.nodes["n1"]
    index, term = node.log.last_index, node.log.last_term
    rig.wait()
    assert rig.give("n1", "stranger", VoteRequest(9, index, term, pre=False, transfer=False))
    assert rig.give("n1", "stranger", AppendEntries(9, 0, index, term, 1, []))
    assert node.group.leader == "stranger"


def test_fresh_observer_becomes_whole_and_counts_with_its_promotion():
    rig = Safe(1, observers=1)
    rig.start("n0")
    rig.start("o0", found=False)
    rig.run(2, drop=lambda *args: isinstance(args[-1], Readmit))
    assert rig.nodes["o0"].group.amnesiac
    with pytest.raises(NotNow, match="too few"):
        rig.leader().group.change(("n0", "o0"))
    rig.run(0.5)
    assert not rig.nodes["o0"].group.amnesiac
    change(rig, "n0", "o0").run(3)
    assert rig.nodes["o0"].group.votes
    rig.leader().group.propose([(Kind.META, b"two of two")], urgent=True)
    rig.run(0.5)
    assert all(node.applied()[-1] == b"two of two" for node in rig.nodes.values())


def test_only_voter_tells_of_no_commit_that_is_not_durable():
    rig = Safe(1, observers=1).start_all()
    rig.run(2)
    group = rig.leader().group
    index = group.propose([(Kind.META, b"a")], urgent=True)
    for _ in range(3):
        rig.tick()
        rig.deliver()
    assert group.commit_index == index - 1
    assert rig.nodes["o0"].group.commit_index == index - 1
    rig.run(0.3)
    assert group.commit_index == rig.nodes["o0"].group.commit_index == index
