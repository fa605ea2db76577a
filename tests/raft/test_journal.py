"""The journal shows PySyncObj its list of entries, and the log only what Raft's rules allow."""

import errno
from pathlib import Path

import pytest
from pysyncobj.journal import MemoryJournal

from stan import limits
from stan.errors import DiskFull
from stan.invariant import InvariantError
from stan.log.files.filelog import FileLog
from stan.log.memorylog import MemoryLog
from stan.log.types import Entry
from stan.protocol.entries import Kind
from stan.raft.pysyncobj.compat import NO_OP
from stan.raft.pysyncobj.hard_state import HardState
from stan.raft.pysyncobj.journal import Command, GroupJournal
from tests.kit.files import CrashingFiles


def command(text):
    return Command(Kind.META, text)


class Rig:
    """A journal on a disk in memory."""

    def __init__(self, entries=(), files=None):
        self.files = files or CrashingFiles()
        self.log, _ = FileLog.open(Path("/g/log"), 0, b"s" * 16, files=self.files, segment_bytes_max=300)
        self.journal = GroupJournal(self.log, HardState.open(self.files, "/g"))
        for index, (term, body) in enumerate(entries, 1):
            self.journal.add(command(body), index, term)
        self.journal.flush()

    def terms(self):
        return [self.log.term_at(index) for index in range(1, self.log.last_index + 1)]

    def triples(self):
        return [(item[0], item[1], item[2]) for item in (self.journal[at] for at in range(1, len(self.journal)))]


FIVE = [(1, b"a"), (1, b"b"), (2, b"c"), (2, b"d"), (2, b"e")]


def test_empty_journal_has_its_virtual_base_only():
    rig = Rig()
    assert len(rig.journal) == 1
    assert (rig.journal[0][1], rig.journal[0][2]) == (0, 0)
    assert (rig.journal[-1][1], rig.journal[-1][2]) == (0, 0)


def test_entries_read_like_the_librarys_own_list():
    rig, twin = Rig(FIVE), MemoryJournal()
    twin.add(b"", 0, 0)
    for index, (term, body) in enumerate(FIVE, 1):
        twin.add(command(body), index, term)

    assert rig.triples() == twin[1:]
    assert (rig.journal[-1][1], rig.journal[-1][2]) == (5, 2)
    assert [(rig.journal[at][1], rig.journal[at][2]) for at in range(-6, 0)] == [twin[at][1:] for at in range(-6, 0)]
    for beyond in (6, -7):
        with pytest.raises(IndexError):
            rig.journal[beyond]


def test_equal_entries_are_revived_without_a_write():
    rig = Rig(FIVE)
    before = rig.files.calls

    rig.journal.deleteEntriesFrom(2)
    assert len(rig.journal) == 2
    rig.journal.add(command(b"b"), 2, 1)
    rig.journal.add(command(b"c"), 3, 2)
    assert rig.journal.flush() is False

    assert rig.files.calls == before
    assert rig.log.last_index == 5
    assert len(rig.journal) == 6


def test_conflict_cuts_the_log_where_it_begins():
    rig = Rig(FIVE)

    rig.journal.deleteEntriesFrom(2)
    rig.journal.add(command(b"b"), 2, 1)
    rig.journal.add(command(b"x"), 3, 3)
    assert rig.journal.term_at(3) == 3
    assert rig.log.last_index == 5, "nothing happens before the handler is done"
    assert rig.journal.flush() is True

    assert rig.terms() == [1, 1, 3]
    assert rig.journal.entries(3, 3, 1000)[0].body == b"x"
    assert rig.log.durable_index == 2


def test_deletion_alone_changes_nothing():
    rig = Rig(FIVE)
    rig.journal.deleteEntriesFrom(3)
    assert rig.journal[-1][1] == 2
    rig.journal.flush()
    assert rig.terms() == [1, 1, 2, 2, 2]


def test_full_disk_leaves_no_part_behind():
    rig = Rig(FIVE)
    rig.files.fail("pwritev", 0, errno.ENOSPC)
    rig.journal.add(command(b"f"), 6, 2)
    rig.journal.add(command(b"g"), 7, 2)
    with pytest.raises(DiskFull):
        rig.journal.flush()

    assert rig.journal[-1][1] == rig.log.last_index == 5
    rig.journal.add(command(b"f"), 6, 3)
    rig.journal.flush()
    assert rig.terms() == [1, 1, 2, 2, 2, 3]


def test_new_leaders_first_entry_is_a_noop():
    rig = Rig()
    rig.journal.add(NO_OP, 1, 4)
    rig.journal.flush()
    assert rig.log.entries(1, 1, 100) == [Entry(1, 4, Kind.NOOP, b"")]


@pytest.mark.parametrize("foreign", [b"\x00pickle", b"\x02membership", b"\x03version", None])
def test_commands_of_the_library_are_refused(foreign):
    with pytest.raises(InvariantError, match="only commands of this project"):
        Rig().journal.add(foreign, 1, 1)


def test_old_entries_come_from_the_log_and_new_ones_from_memory(monkeypatch):
    monkeypatch.setattr(limits, "RAFT_TAIL_ENTRIES_MAX", 4)
    rig = Rig(FIVE)

    class NoFiles(FileLog):
        def entries(self, first, last, bytes_max):
            raise AssertionError("the newest entries are in memory")

    assert [entry.body for entry in rig.journal.entries(1, 5, 1000)] == [b"a", b"b", b"c", b"d", b"e"]
    rig.log.__class__ = NoFiles
    assert [entry.body for entry in rig.journal.entries(3, 5, 1000)] == [b"c", b"d", b"e"]
    with pytest.raises(AssertionError):
        rig.journal.entries(2, 5, 1000)


def test_slices_are_bounded_in_bytes_and_number(monkeypatch):
    rig = Rig([(1, b"x" * 10)] * 9)
    assert len(rig.journal.entries(1, 9, 35)) == 3
    assert len(rig.journal.entries(1, 9, 0)) == 1
    monkeypatch.setattr(limits, "RAFT_APPEND_ENTRIES_MAX", 4)
    assert len(rig.journal.entries(1, 9, 1000)) == 4


def test_first_entry_of_a_term_is_found_on_both_sides_of_the_end():
    rig = Rig([(1, b""), (3, b""), (3, b""), (3, b""), (7, b"")])
    assert [rig.journal.first_of_term_at(index) for index in range(1, 6)] == [1, 2, 2, 2, 5]


def test_journal_goes_on_after_a_restart():
    rig = Rig(FIVE)
    rig.journal.setCurrentTerm(2, "n1")
    rig.journal.hard_state.hint(4)
    rig.journal.onOneSecondTimer()

    again = Rig(files=rig.files)

    assert (again.journal.getCurrentTerm(), again.journal.getVotedForNodeId()) == (2, "n1")
    assert again.journal.getRaftCommitIndex() == 4
    assert again.triples() == rig.triples()


def test_hint_beyond_a_log_that_lost_its_end_is_cut():
    rig = Rig(FIVE[:2])
    rig.journal.hard_state.hint(5)
    assert rig.journal.getRaftCommitIndex() == 2


def test_base_follows_the_logs_retention():
    log = MemoryLog(replayable=True)
    journal = GroupJournal(log, HardState.open(CrashingFiles(), "/g"))
    for index, (term, body) in enumerate(FIVE, 1):
        journal.add(command(body), index, term)
    journal.flush()
    log.commit(4)
    log.release(3)

    assert journal.base == 3
    assert len(journal) == 3
    assert (journal[0][1], journal[0][2]) == (3, 2)
    assert journal.term_at(3) == 2
    assert journal[1][0] == command(b"d")
