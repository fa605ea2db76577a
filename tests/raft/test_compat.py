"""The library is the one that was proven, and a library that differs is refused with every difference named."""

import pysyncobj.syncobj as library
import pytest
from pysyncobj.journal import MemoryJournal
from pysyncobj.syncobj import SyncObj

from stan.raft.pysyncobj import compat


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


def test_library_takes_a_journal_where_it_expects_a_file_name():
    journal = MemoryJournal()
    assert library.createJournal(journal) is journal
    assert isinstance(library.createJournal(None), MemoryJournal)


def test_clock_is_what_the_running_call_was_told():
    assert library.monotonicTime is compat.CLOCK
    try:
        compat.CLOCK.now = 12.5
        assert library.monotonicTime() == 12.5
    finally:
        compat.CLOCK.now = None
    assert library.monotonicTime() > 0


def test_peers_hash_alike_in_every_process():
    assert hash(compat.Peer("n1")) == 3950597356 == hash(compat.Peer("n1"))
    assert compat.Peer("n1") == compat.Peer("n1") != compat.Peer("n2")
