"""Members that may have lost acknowledged entries with their power: when their votes elect, and when they are whole again."""

import pytest

from stan.errors import Frozen
from stan.raft.pysyncobj.election import Votes
from stan.raft.pysyncobj.hard_state import Amnesia, HardState
from stan.raft.transport.codec import AppendEntries, Readmit, VoteAnswer, VoteRequest, decode, encode
from tests.kit.files import CrashingFiles, PowerCut
from tests.raft.rigs import Safe


@pytest.mark.parametrize(
    ("whole", "partial", "others", "own_partial", "elected"),
    [
        (1, 0, 2, False, True),
        (0, 1, 2, False, False),
        (0, 2, 2, False, True),
        (1, 0, 2, True, False),
        (2, 0, 2, True, True),
        (0, 2, 2, True, True),
        (1, 2, 4, False, False),
        (2, 0, 4, False, True),
        (2, 1, 4, True, False),
        (3, 0, 4, True, True),
        (0, 4, 4, True, True),
        (0, 0, 0, True, True),
    ],
)
def test_partial_votes_elect_only_together_with_all_others(whole, partial, others, own_partial, elected):
    votes = Votes()
    for at in range(whole):
        assert votes.add(f"w{at}", partial=False)
    for at in range(partial):
        assert votes.add(f"p{at}", partial=True)
    assert not votes.add("w0" if whole else "p0", partial=False) or others == 0
    assert votes.elect(others, partial=own_partial) is elected


def test_what_was_forgotten_is_on_the_disk_whenever_the_power_goes():
    for cut in range(8):
        files = CrashingFiles()
        state = HardState.open(files, "/g")
        state.mark_readmitted()
        state.save(3, "a")
        files.cut_power_after(cut)
        done = False
        try:
            state.mark_entries_forgotten()
            done = True
        except (PowerCut, Frozen):
            pass
        found = HardState.open(files.crash(cut), "/g")
        assert (found.term, found.voted_for) == (3, "a")
        assert found.amnesia is Amnesia.ENTRIES or not done
        assert found.amnesia in (Amnesia.NONE, Amnesia.ENTRIES)


def test_who_has_forgotten_votes_has_forgotten_entries_too():
    state = HardState.open(CrashingFiles(), "/g")
    state.mark_entries_forgotten()
    assert state.amnesia is Amnesia.ALL


@pytest.mark.parametrize("partial", [False, True])
def test_a_vote_tells_whether_it_is_partial(partial):
    message = VoteAnswer(4, pre=False, granted=True, partial=partial)
    assert list(decode(b"".join(encode(7, message)))) == [(7, message)]


def lossy(rig):
    node = rig.start("n1")
    node.group._raft.journal.hard_state.mark_entries_forgotten()
    return node


def test_a_member_that_has_lost_power_votes_and_says_so_and_does_not_count():
    rig = Safe(3)
    lossy(rig)
    (answer,) = rig.give("n1", "n0", VoteRequest(5, 0, 0, pre=False, transfer=True))
    assert answer == VoteAnswer(5, pre=False, granted=True, partial=True)
    (answer,) = rig.give("n1", "n0", AppendEntries(5, 0, 0, 0, 1, []))
    assert not answer.counts


def test_a_leader_that_all_have_elected_readmits_those_that_have_voted_for_it():
    rig = Safe(3)
    node = lossy(rig)
    rig.give("n1", "n0", VoteRequest(5, 0, 0, pre=False, transfer=True))
    rig.give("n1", "n2", Readmit(5, 0))
    assert node.group.amnesiac, "it has not voted for that one"
    rig.give("n1", "n0", Readmit(4, 0))
    assert node.group.amnesiac
    rig.give("n1", "n0", Readmit(5, 0))
    assert node.group.votes


def test_a_member_that_has_forgotten_its_votes_is_not_readmitted_without_an_entry():
    rig = Safe(3)
    node = rig.start("n1", found=False)
    rig.give("n1", "n0", AppendEntries(5, 0, 0, 0, 1, []))
    rig.give("n1", "n0", Readmit(5, 0))
    assert node.group.amnesiac
