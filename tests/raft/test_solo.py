"""What a group of one node tells its owner."""

import pytest

from stan.raft.solo import Solo


class Log:
    """A log in memory, of which nothing is durable before the test says so."""

    def __init__(self):
        self.last_index = self.durable_index = 0

    def append(self, entries):
        self.last_index = entries[-1].index


@pytest.fixture
def log():
    return Log()


def test_group_is_touched_from_a_proposal_until_all_of_it_is_taken(log):
    touched = set()
    solo = Solo(1, log, "always", touched)
    solo.propose([(1, b"a"), (2, b"b")], urgent=True)
    assert (touched, solo.wants_sync, solo.has_committed) == ({1}, True, False)
    assert solo.take_committed() == []
    assert touched == {1}, "a sync is still wanted"
    solo.synced(1)
    assert (solo.wants_sync, solo.has_committed) == (True, True)
    solo.synced(2)
    assert (solo.wants_sync, solo.has_committed) == (False, True)
    assert solo.take_committed() == [(1, 1, 1, b"a"), (2, 1, 2, b"b")]
    assert (touched, solo.has_committed, solo.take_committed()) == (set(), False, [])


def test_entries_that_may_wait_want_no_sync_of_their_own(log):
    solo = Solo(1, log, "always", set())
    solo.propose([(1, b"a")], urgent=False)
    assert not solo.wants_sync
    solo.propose([(1, b"b")], urgent=True)
    solo.synced(2)
    assert [entry.body for entry in solo.take_committed()] == [b"a", b"b"]


def test_urgent_entry_that_is_durable_without_a_sync_still_wants_the_one_that_commits_it(log):
    solo = Solo(1, log, "always", set())
    solo.propose([(1, b"a")], urgent=True)
    log.durable_index = 1  # a segment was sealed
    assert solo.wants_sync
    solo.synced(log.durable_index)
    assert (solo.wants_sync, solo.has_committed) == (False, True)


@pytest.mark.parametrize("sync", ["interval", "never"])
def test_entries_that_no_sync_is_waited_for_are_committed_at_once(log, sync):
    touched = set()
    solo = Solo(1, log, sync, touched)
    solo.propose([(1, b"a")], urgent=True)
    assert (touched, solo.wants_sync, solo.has_committed) == ({1}, False, True)


def test_group_that_failed_is_touched_and_hands_out_nothing_more(log):
    touched = set()
    solo = Solo(1, log, "always", touched)
    solo.propose([(1, b"a")], urgent=True)
    solo.synced(1)
    touched.clear()
    solo.freeze("the disk")
    solo.synced(1)
    assert touched == {1}
    assert (solo.wants_sync, solo.has_committed, solo.take_committed()) == (False, False, [])
