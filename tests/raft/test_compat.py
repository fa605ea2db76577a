"""The library is the one that was proven, and a library that differs is refused with every difference named."""

from types import SimpleNamespace

import pysyncobj.syncobj as library
import pytest
from pysyncobj.syncobj import SyncObj
from stan_protocol.scalars import SECOND

from stan.log.memorylog import MemoryLog
from stan.protocol.entries import Kind
from stan.raft.pysyncobj import compat
from stan.raft.pysyncobj.hard_state import HardState
from stan.raft.pysyncobj.journal import Command, GroupJournal
from stan.raft.pysyncobj.library import Library, LibraryClock
from tests.kit.files import CrashingFiles


def test_installed_library_is_as_the_shell_needs_it():
    assert compat.complaints(compat.VERSION, SyncObj, library) == []


@pytest.mark.parametrize("name", compat.METHODS)
def test_missing_method_is_named(name):
    class Other(SyncObj):
        pass

    for method in compat.METHODS:
        if method != name:
            setattr(Other, method, SyncObj.__dict__[method])
    Other.__init__ = SyncObj.__init__
    assert compat.complaints(compat.VERSION, Other, library) == [f"SyncObj.{name} is missing"]


def test_other_version_signature_and_attributes_are_named():
    class Other(SyncObj):
        def __init__(self):
            """Sets nothing."""

    for method in compat.METHODS:
        setattr(Other, method, SyncObj.__dict__[method])
    Other._onTick = lambda self: None

    found = compat.complaints("0.3.14", Other, object())

    assert found[0] == "pysyncobj 0.3.14 is installed, 0.3.17 is needed"
    assert "SyncObj._onTick takes ['self'], not ['self', 'timeToWait']" in found
    assert sum("has no attribute" in text for text in found) == len(compat.ATTRIBUTES)
    assert sum(text.startswith("pysyncobj.syncobj.") for text in found) == 2


def journal(term):
    made = GroupJournal(MemoryLog(replayable=True), HardState.open(CrashingFiles(), "/g"))
    made.add(compat.NO_OP, 1, term)
    made.flush()
    return made


def test_each_instance_has_a_clock_and_a_journal_of_its_own_and_the_library_keeps_its_own():
    before = dict(vars(library))
    clocks, journals = (LibraryClock(12 * SECOND), LibraryClock(5000 * SECOND)), (journal(1), journal(2))
    events = SimpleNamespace(
        election_timeout=lambda: 1.0,
        on_new_term=lambda: None,
        on_role=lambda leads: None,
        on_heartbeat_due=lambda: None,
    )
    nodes = [
        Library(compat.Peer("me"), [], clock, journal, events) for clock, journal in zip(clocks, journals, strict=True)
    ]
    assert [12 < node._SyncObj__raftElectionDeadline < 20 for node in nodes] == [True, False]
    assert [node._SyncObj__raftLog for node in nodes] == list(journals)
    clocks[0].set(100 * SECOND)
    for node in nodes:
        node.tick()
    assert [node._isLeader() for node in nodes] == [True, False]
    assert 100 < nodes[0]._SyncObj__raftElectionDeadline < 102
    assert dict(vars(library)) == before


def test_peers_hash_alike_in_every_process():
    assert hash(compat.Peer("n1")) == int.from_bytes(b"n1", "big") == hash(compat.Peer("n1"))
    assert compat.Peer("n1") == compat.Peer("n1") != compat.Peer("n2")
    assert (compat.Peer("n1").id, f"{compat.Peer('n1')}") == ("n1", "n1")


def test_entries_that_the_library_is_shown_are_those_that_it_would_find():
    """By index: how many there are from it on, and the term of the first."""
    events = SimpleNamespace(election_timeout=lambda: 1.0)
    log = MemoryLog(replayable=True)
    shown = GroupJournal(log, HardState.open(CrashingFiles(), "/g"))
    for index, term in enumerate((1, 1, 2, 2, 4), 1):
        shown.add(Command(Kind.META, b""), index, term)
    shown.flush()
    log.commit(3)
    log.release(2)
    node = Library(compat.Peer("me"), [], LibraryClock(SECOND), shown, events)
    stock = SimpleNamespace(_SyncObj__raftLog=[(None, index, term) for index, term in ((2, 1), (3, 2), (4, 2), (5, 4))])
    for end in (5, 4, 3, 2):
        assert node._SyncObj__getCurrentLogIndex() == SyncObj._SyncObj__getCurrentLogIndex(stock) == end
        for index in range(8):
            for count in (None, 1):
                mine = node._SyncObj__getEntries(index, count)
                its = SyncObj._SyncObj__getEntries(stock, index, count)
                assert (len(mine), mine[:1]) == (len(its), its[:1]), (end, index, count)
        shown.deleteEntriesFrom(end - 2)
        stock._SyncObj__raftLog.pop()
