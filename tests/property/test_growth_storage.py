"""Directories of new groups: power is lost at every write while they are made, and the next life makes them again."""

import errno

import pytest

from stan.edge.storage.groupfiles import groups_on_disk
from stan.edge.storage.manifest import read_manifest
from stan.edge.storage.raft_files import Voters
from stan.errors import StartError
from stan.testing.loop import run_now
from tests.kit.files import PowerCut
from tests.kit.storage import StorageNode

VOTERS = {3: ("a", "b", "c"), 5: ("a", "b")}
POOL = 5
CALLS_MAX = 90
"""Calls that change the disk until the directories are made, at most."""


def groups_of(node):
    """As a start finds them: of the placement, and what is there."""
    pool = read_manifest(node.directory, node.files).groups
    return sorted({*range(pool + 1), *groups_on_disk(node.directory, node.files)}) if pool > 2 else range(3)


def opened(node):
    return {number: node.storage.members[number] for number in node.storage.logs if number in VOTERS}


def crashed_at(call, seed, *, votes=True):
    """A node whose power was lost at that call; None if that was after the end."""
    node = StorageNode().boot()
    node.files.cut_power_after(call)
    try:
        node.storage.found_groups(VOTERS, POOL, votes=votes)
    except PowerCut:
        return node.power_cut(seed)
    return None


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("votes", [True, False])
def test_a_crash_at_any_point_is_followed_by_the_same_again(seed, votes):
    call = 0
    while (node := crashed_at(call, seed, votes=votes)) is not None:
        call += 1
        counted = read_manifest(node.directory, node.files).groups
        node.boot(groups=groups_of(node))
        if counted == 2:
            assert set(node.storage.logs) == {0, 1, 2}, "directories that are not counted are not looked at"
            node.storage.found_groups(VOTERS, POOL, votes=votes)
            node.close()
            node.boot(groups=groups_of(node))
        assert counted in (2, POOL)
        assert set(opened(node)) == set(VOTERS)
        for number, member in opened(node).items():
            assert member.voters.names == list(VOTERS[number])
            assert member.hard_state.amnesiac is not votes
            assert member.intact
            assert node.storage.logs[number].last_index == 0
        assert node.storage.members[4].hard_state.amnesiac, "a group in which it has no vote from the beginning"
        assert node.storage.members[4].voters.names == []
        assert not any(note.startswith("ERR") for note in node.notes)
        node.close()
    assert 10 < call < CALLS_MAX


def test_a_full_disk_counts_nothing_and_is_tried_again():
    node = StorageNode().boot()
    node.files.full = True
    with pytest.raises((OSError, StartError)):
        node.storage.found_groups(VOTERS, POOL, votes=True)
    assert node.storage.directory.manifest.groups == 2
    node.files.full = False
    node.storage.found_groups(VOTERS, POOL, votes=True)
    assert (node.storage.directory.manifest.groups, node.storage.directory.manifest.raft_groups) == (POOL, 2)
    node.close()


def test_what_a_member_has_promised_since_is_kept_when_it_is_asked_for_again():
    node = StorageNode().boot()
    node.storage.found_groups(VOTERS, POOL, votes=True)
    node.close()
    node.boot(groups=groups_of(node))
    node.storage.members[3].hard_state.save(4, "b")
    node.close()
    node.boot(groups=groups_of(node))
    assert (node.storage.members[3].hard_state.term, node.storage.members[3].hard_state.voted_for) == (4, "b")
    node.close()


def test_the_number_of_the_founding_stays_the_one_to_start_with():
    node = StorageNode().boot()
    node.storage.found_groups({}, POOL, votes=True)
    node.close()
    node.group_count = POOL
    with pytest.raises(StartError, match=r"was made with 2 channel group\(s\), not 5, and has grown to 5 since"):
        node.boot()


@pytest.mark.parametrize("method", ["create", "mkdir", "pwritev", "fdatasync", "rename", "sync_directory"])
def test_a_group_that_a_failing_disk_has_not_let_begin_is_held_after_another_try(method):
    """As it is on a node that gets a copy: in part with directories that are there, in part without."""
    fails = 0
    for after in range(12):
        node = StorageNode().boot()
        node.storage.found_groups({3: VOTERS[3]}, POOL, votes=True)
        for number in (3, 4):
            node.files.fail(method, after, errno.EIO)
            try:
                run_now(node.storage.begin_group(number))
                node.storage.members[number].set_voters(Voters(["b", "c"]))
            except (OSError, StartError):
                fails += 1
                node.storage.abandon_group(number)
                assert number not in node.storage.logs
                assert number not in node.storage.members
            node.files.fail(method, 1 << 30, errno.EIO)
            if number not in node.storage.logs:
                run_now(node.storage.begin_group(number))
                node.storage.members[number].set_voters(Voters(["b", "c"]))
            names = {3: ["a", "b", "c"], 4: ["b", "c"]}[number]
            assert node.storage.members[number].voters.names == names
            assert node.storage.members[number].hard_state.amnesiac is (number == 4)
            assert node.storage.logs[number].last_index == 0
    assert fails, "the disk has failed at some of them"
