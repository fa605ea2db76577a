"""Term and vote survive any crash: after it there is the old pair or the new one, and never less than what `save` promised."""

import contextlib
import errno
import struct

import pytest

from stan.errors import Damage, Frozen
from stan.invariant import InvariantError
from stan.log.files.disk import OsFiles
from stan.raft.pysyncobj.hard_state import HardState
from tests.kit.files import CrashingFiles, PowerCut

STEPS = [(1, None), (1, "a"), (2, "b"), (5, None), (5, "node-with-a-long-name" * 10), (6, "a")]


def write_all(files, done):
    state = HardState.open(files, "/g")
    for at, (term, vote) in enumerate(STEPS):
        state.save(term, vote)
        done.append((term, vote))
        state.hint(at * 10)
        state.write_hint()


def test_state_is_there_after_a_restart(tmp_path):
    state = HardState.open(OsFiles(), str(tmp_path))
    assert (state.term, state.voted_for, state.commit_hint) == (0, None, 0)
    state.save(7, "b")
    state.hint(12)
    state.write_hint()
    state.close()

    again = HardState.open(OsFiles(), str(tmp_path))

    assert (again.term, again.voted_for, again.commit_hint) == (7, "b", 12)
    again.close()


def test_state_survives_a_crash_at_every_disk_operation():
    total = CrashingFiles()
    write_all(total, [])
    for calls in range(total.calls + 1):
        for seed in range(12):
            files, done = CrashingFiles(), []
            files.cut_power_after(calls)
            with contextlib.suppress(PowerCut):
                write_all(files, done)
            files = files.crash(seed)
            again = HardState.open(files, "/g")
            saved = len(done)
            allowed = STEPS[max(0, saved - 1) : saved + 1] if saved else [(0, None), STEPS[0]]
            assert (again.term, again.voted_for) in allowed, (calls, seed)
            assert again.commit_hint <= saved * 10
            again.save(9, "z")  # and it goes on from there, through another crash
            final = HardState.open(files.crash(seed), "/g")
            assert (final.term, final.voted_for) == (9, "z")


def test_hint_never_costs_term_and_vote():
    for seed in range(40):
        files = CrashingFiles()
        state = HardState.open(files, "/g")
        state.save(3, "a")
        for commit in range(1, 6):
            state.hint(commit)
            state.write_hint()
        again = HardState.open(files.crash(seed), "/g")
        assert (again.term, again.voted_for) == (3, "a")


def test_saving_the_same_again_costs_nothing():
    files = CrashingFiles()
    state = HardState.open(files, "/g")
    state.save(1, "a")
    before = files.calls

    state.save(1, "a")

    assert files.calls == before


@pytest.mark.parametrize("method", ["pwritev", "fdatasync"])
def test_failing_disk_freezes_the_state(method):
    files = CrashingFiles()
    state = HardState.open(files, "/g")
    files.fail(method, 0, errno.EIO)
    with pytest.raises(Frozen):
        state.save(1, "a")
    assert (state.term, state.voted_for) == (0, None)
    with pytest.raises(Frozen):
        state.save(2, "b")


def test_a_vote_whose_sync_failed_is_durable_once_a_restart_has_read_it():
    files = CrashingFiles()
    state = HardState.open(files, "raft/1")
    state.save(1, "n1")
    files.fail("fdatasync", 0, errno.EIO)
    with pytest.raises(Frozen):
        state.save(2, "n2")
    files.open_files.clear()  # killed
    read = HardState.open(files, "raft/1")
    for seed in range(20):
        again = HardState.open(files.crash(seed), "raft/1")
        assert (again.term, again.voted_for) == (read.term, read.voted_for)


def test_second_vote_and_older_term_are_refused():
    state = HardState.open(CrashingFiles(), "/g")
    state.save(4, "a")
    with pytest.raises(InvariantError, match="one vote per term"):
        state.save(4, "b")
    with pytest.raises(InvariantError, match="never go back"):
        state.save(3, None)


def test_damaged_file_is_not_begun_anew():
    files = CrashingFiles()
    HardState.open(files, "/g").save(4, "a")
    files.put("/g/hard_state", bytes(8192))
    with pytest.raises(Damage, match="neither of its two slots"):
        HardState.open(files, "/g")
    assert len(files.open_files) == 1  # the first one


def test_one_damaged_slot_leaves_the_other():
    files = CrashingFiles()
    state = HardState.open(files, "/g")
    state.save(4, "a")
    data = bytearray(files.content("/g/hard_state"))
    newest = max((0, 1), key=lambda slot: struct.unpack_from("<Q", data, slot * 4096 + 8))  # its number
    data[newest * 4096 + 9] ^= 1
    files.put("/g/hard_state", bytes(data))

    assert HardState.open(files, "/g").term == 0


def test_file_that_was_made_just_now_is_fresh_until_it_is_settled():
    files = CrashingFiles()
    state = HardState.open(files, "/g")
    assert state.amnesiac
    state.save(1, "a")
    state.hint(3)
    state.write_hint()
    assert HardState.open(files.crash(1), "/g").amnesiac
    state.mark_readmitted()
    for seed in range(5):
        again = HardState.open(files.crash(seed), "/g")
        assert (again.amnesiac, again.term, again.voted_for) == (False, 1, "a")
    state.mark_amnesiac()
    assert HardState.open(files.crash(1), "/g").amnesiac


def test_freshness_that_could_not_be_saved_is_kept():
    files = CrashingFiles()
    state = HardState.open(files, "/g")
    files.fail("fdatasync", 0, errno.EIO)
    with pytest.raises(Frozen):
        state.mark_readmitted()
    assert state.amnesiac
