"""The contract of `GroupLog`, held by the log on disk, in clear and encrypted, on a simulated disk, in memory, and in SQL."""

from itertools import count
from pathlib import Path

import pytest

from stan.invariant import InvariantError
from stan.log.encryption import Cipher
from stan.log.files.filelog import FileLog
from stan.log.memorylog import MemoryLog
from stan.log.sql.sqlfile import SqlFile
from stan.log.sql.sqllog import SqlLog
from stan.log.types import StaleRef
from stan.protocol.entries import encode_batch, encode_change
from tests.kit.batches import batch, change, entry, records
from tests.kit.files import CrashingFiles

ALL = 10**9
KINDS = ["disk", "disk without cache", "encrypted disk", "encrypted disk without cache", "simulated disk", "memory"]
SQL_KINDS = ["sql", "sql without cache", "sql at once without cache"]


class AtOnce(SqlLog):
    """Every entry is written before anything else happens."""

    def append(self, entries):
        super().append(entries)
        self.sync()


@pytest.fixture(params=[*KINDS, *SQL_KINDS])
def log(request, tmp_path):
    """A log with tiny segments, 40 bytes accounted per message."""
    if request.param == "memory":
        made = MemoryLog(overhead=40, replayable=True)
    elif request.param in SQL_KINDS:
        file = SqlFile(tmp_path / "stan.db")
        kind = AtOnce if "at once" in request.param else SqlLog
        made = kind(file, 1, overhead=40, tail_cache_bytes_max=0 if "without" in request.param else 1000)
    else:
        simulated = request.param == "simulated disk"
        made, _ = FileLog.open(
            Path("/store/groups/1") if simulated else tmp_path / "groups" / "1",
            1,
            b"0123456789abcdef",
            files=CrashingFiles() if simulated else None,
            segment_bytes_max=700,
            tail_cache_bytes_max=0 if request.param.endswith("without cache") else 1000,
            cipher=Cipher(b"key").of(b"0123456789abcdef", 1, 1) if request.param.startswith("encrypted") else None,
        )
    yield made
    made.close()
    if request.param in SQL_KINDS:
        file.close()


def fill(log, entries, uid=7, per_batch=3, size=20, first=0):
    """Append one batch per entry after what is there; returns the entries."""
    made = []
    base = log.channel(uid).last_sequence + 1
    for index in range(log.last_index + 1, log.last_index + 1 + entries):
        made.append(entry(index, batch(uid, base, per_batch, first=first, size=size)))
        base += per_batch
    for one in made:
        log.append([one])
    return made


def kept(log, uid=7):
    """What a reader sees: base sequence and records of all batches."""
    return [(ref.base_sequence, ref.count, log.read(ref)) for ref in log.channel(uid).refs(0, ALL, ALL, ALL)]


def test_log_new_is_empty(log):
    assert (log.first_index, log.last_index, log.last_term, log.durable_index) == (1, 0, 0, 0)
    assert log.entries(1, 10, ALL) == []
    assert log.term_at(1) == 0
    assert log.sync() == 0
    log.commit(0)


def test_log_append_gives_back_the_entries(log):
    made = [
        entry(1, batch(7, 1, 2)),
        change(2),
        change(3, b"", term=4),
        entry(4, batch(7, 3, 1), batch(9, 1, 5), term=4),
    ]
    log.append(made)
    assert log.entries(1, 4, ALL) == made
    assert log.entries(2, 3, ALL) == made[1:3]
    assert log.entries(3, 99, ALL) == made[2:]
    assert (log.last_index, log.last_term) == (4, 4)
    assert [log.term_at(index) for index in range(6)] == [0, 1, 1, 4, 4, 0]


def test_log_append_across_segments_gives_back_the_entries(log):
    made = fill(log, 40)
    assert log.entries(1, 40, ALL) == made
    assert log.entries(17, 23, ALL) == made[16:23]


def test_log_gives_the_changes_alone(log):
    beside = b"".join(encode_change(b"beside"))
    made = [
        entry(1, batch(7, 1, 3)),
        change(2, b"two"),
        entry(3, batch(7, 4, 3), batch(9, 1, 30), beside, term=2),
        entry(4, batch(7, 7, 40), term=2),
        change(5, b"five", term=2),
        change(6, b"six", term=2),
    ]
    for one in made:
        log.append([one])
    log.sync()
    log.commit(5)

    told = [change(2, b"two"), change(3, b"beside", term=2), change(5, b"five", term=2)]
    assert log.changes(1, 99) == (told, 6)
    assert log.changes(3, 99) == (told[1:], 6)
    assert log.changes(6, 99) == ([], 6)
    assert log.changes(1, 2) == (told[:1], 3)
    assert log.changes(3, 2) == (told[1:2], 5)


def test_log_knows_which_entry_has_a_batch(log):
    log.append(
        [entry(1, batch(7, 1, 3)), change(2), entry(3, batch(9, 1, 2), batch(7, 4, 30)), entry(4, batch(7, 34, 1))]
    )
    log.sync()
    log.commit(4)
    assert [log.index_of(ref) for ref in log.channel(7).refs(0, ALL, ALL, ALL)] == [1, 3, 4]
    assert [log.index_of(ref) for ref in log.channel(9).refs(0, ALL, ALL, ALL)] == [3]


def test_log_entries_stops_at_bytes_max_but_gives_one(log):
    made = fill(log, 10)
    size = len(made[0].body)
    assert log.entries(2, 10, 1) == made[1:2]
    assert log.entries(2, 10, 3 * size) == made[1:4]
    assert log.entries(2, 10, 4 * size - 1) == made[1:4]


def test_log_append_of_wrong_index_or_term_breaks_an_invariant(log):
    log.append([change(1, term=3)])
    with pytest.raises(InvariantError):
        log.append([change(3, term=3)])
    with pytest.raises(InvariantError):
        log.append([change(2, term=2)])
    log.append([change(2, term=3)])
    assert log.last_index == 2


def test_log_sync_raises_durable_index(log):
    fill(log, 20)
    assert log.sync() == 20
    assert log.durable_index == 20


def test_log_append_is_invisible_until_commit(log):
    fill(log, 4)
    assert log.channel(7).last_sequence == 0
    assert kept(log) == []
    log.commit(2)
    assert log.channel(7).last_sequence == 6
    assert kept(log) == [(1, 3, records(7, 1, 3)), (4, 3, records(7, 4, 3))]
    log.commit(1)
    assert log.channel(7).last_sequence == 6


def test_log_batch_without_records_leaves_its_sequences_unused(log):
    def unused(base, count):
        return b"".join(encode_batch(7, base, count, base * 10, 0, b""))

    log.append([entry(1, unused(1, 2), batch(7, 3, 2), unused(5, 4), batch(7, 9, 1), batch(8, 1, 1))])
    log.append([entry(2, unused(10, 3))])
    log.commit(2)
    assert kept(log) == [(3, 2, records(7, 3, 2)), (9, 1, records(7, 9, 1))]
    index = log.channel(7)
    assert (index.first_sequence, index.last_sequence, index.bytes) == (3, 12, 3 * 60)
    assert [index.sequence_at(at) for at in (0, 31, 90, 91)] == [3, 9, 9, 13]
    fill(log, 60)
    log.sync()
    log.commit(62)
    log.trim(7, 12)
    assert index.first_sequence == 13
    log.release(62)
    log.clean()
    log.release(62)
    assert kept(log)[0] == (13, 3, records(7, 13, 3))
    assert kept(log, 8) == [(1, 1, records(8, 1, 1))]


def test_log_commit_of_what_is_not_there_breaks_an_invariant(log):
    fill(log, 1)
    with pytest.raises(InvariantError):
        log.commit(2)


def test_log_commit_indexes_every_batch_of_an_entry(log):
    log.append([entry(1, batch(1, 1, 2), batch(2, 5, 1), batch(3, 1, 4))])
    log.commit(1)
    assert kept(log, 1) == [(1, 2, records(1, 1, 2))]
    assert kept(log, 2) == [(5, 1, records(2, 5, 1))]
    assert kept(log, 3) == [(1, 4, records(3, 1, 4))]
    assert sorted(log.channels()) == [1, 2, 3]


@pytest.mark.parametrize("base", [1, 2, 3, 5, 9])
def test_log_commit_of_a_batch_that_does_not_follow_breaks_an_invariant(log, base):
    log.append([entry(1, batch(7, 1, 3)), entry(2, batch(7, base, 1))])
    with pytest.raises(InvariantError, match="S1"):
        log.commit(2)


def test_log_channel_index_is_live(log):
    channel = log.channel(7)
    assert (channel.first_sequence, channel.last_sequence, channel.bytes) == (0, 0, 0)
    assert (channel.first_timestamp, channel.last_timestamp) == (0, 0)
    fill(log, 2)
    log.commit(2)
    assert (channel.first_sequence, channel.last_sequence, channel.bytes) == (1, 6, 6 * 60)
    assert (channel.first_timestamp, channel.last_timestamp) == (10, 40)


def test_log_trim_removes_the_oldest(log):
    fill(log, 10)
    log.commit(10)
    channel = log.channel(7)
    log.trim(7, 8)
    assert (channel.first_sequence, channel.last_sequence, channel.bytes) == (8, 30, 23 * 60)
    log.trim(7, 3)
    assert channel.first_sequence == 8
    assert kept(log)[0] == (7, 3, records(7, 7, 3))
    log.trim(7, 31)
    assert (channel.first_sequence, channel.last_sequence, channel.bytes) == (31, 30, 0)
    assert (channel.first_timestamp, channel.last_timestamp) == (0, 280)
    assert kept(log) == []
    fill(log, 1)
    log.commit(11)
    assert kept(log) == [(31, 3, records(7, 31, 3))]


def test_log_commit_trims_what_the_batch_header_says(log):
    log.append([entry(1, batch(7, 1, 3)), entry(2, batch(7, 4, 3, first=3)), entry(3, batch(7, 7, 3, first=8))])
    log.commit(2)
    assert log.channel(7).first_sequence == 3
    log.commit(3)
    assert log.channel(7).first_sequence == 8


def test_log_trim_before_the_first_commit_is_remembered(log):
    log.trim(7, 6)
    assert (log.channel(7).first_sequence, log.channel(7).last_sequence) == (6, 5)
    fill_from = [entry(1, batch(7, 1, 3)), entry(2, batch(7, 4, 3)), entry(3, batch(7, 7, 3))]
    log.append(fill_from)
    log.commit(3)
    assert (log.channel(7).first_sequence, log.channel(7).last_sequence) == (6, 9)
    assert kept(log) == [(4, 3, records(7, 4, 3)), (7, 3, records(7, 7, 3))]


def test_log_drop_empties_the_channel(log):
    fill(log, 5)
    log.commit(5)
    held = log.channel(7)
    log.drop(7)
    log.drop(8)
    assert kept(log) == []
    assert (held.first_sequence, held.last_sequence) == (16, 15)
    assert (log.channel(7).first_sequence, log.channel(7).last_sequence) == (0, 0)
    log.drop(7)
    assert log.channels() == []


def test_log_truncate_removes_the_entries_after(log):
    made = fill(log, 30)
    log.sync()
    log.truncate_after(17)
    assert (log.last_index, log.durable_index, log.last_term) == (17, 17, 1)
    assert log.entries(1, 99, ALL) == made[:17]
    other = [entry(index, batch(7, index * 3 - 2, 3, size=33), term=5) for index in range(18, 25)]
    log.append(other)
    assert log.entries(15, 99, ALL) == made[14:17] + other
    assert [log.term_at(index) for index in (17, 18, 24, 25)] == [1, 5, 5, 0]
    log.commit(24)
    assert kept(log)[17] == (52, 3, records(7, 52, 3, size=33))


def test_log_truncate_below_a_committed_index_breaks_an_invariant(log):
    fill(log, 5)
    log.commit(3)
    with pytest.raises(InvariantError, match="L3"):
        log.truncate_after(2)
    log.truncate_after(3)
    assert log.last_index == 3


def test_log_truncate_of_everything_starts_again_at_one(log):
    fill(log, 30)
    log.truncate_after(0)
    assert (log.first_index, log.last_index, log.last_term) == (1, 0, 0)
    made = fill(log, 3)
    log.commit(3)
    assert log.entries(1, 3, ALL) == made


def test_log_release_keeps_the_kept_messages(log):
    fill(log, 30)
    log.commit(30)
    before = kept(log)
    log.release(30)
    assert kept(log) == before
    assert len(before) == 30


def test_log_release_keeps_the_entries_above(log):
    made = fill(log, 30)
    log.commit(30)
    log.trim(7, 60)
    log.release(15)
    assert log.first_index <= 16
    assert log.entries(16, 30, ALL) == made[15:]
    assert [base for base, _, _ in kept(log)] == list(range(58, 91, 3))


def test_log_release_frees_what_is_not_kept(log):
    fill(log, 60)
    log.commit(60)
    size = log.size
    log.trim(7, 170)
    log.release(60)
    assert log.size < size / 3
    assert log.first_index > 1
    assert log.term_at(log.first_index - 1) == 1
    assert log.term_at(log.first_index - 2) == 0


def test_log_read_after_release_is_stale(log):
    fill(log, 30)
    log.commit(30)
    ref = log.channel(7).refs(1, 1, ALL, 1)[0]
    assert log.read(ref) == records(7, 1, 3)
    log.trim(7, 88)
    log.release(30)
    with pytest.raises(StaleRef):
        log.read(ref)


def test_log_clean_keeps_what_is_kept(log):
    index = count(1)
    for round_ in range(12):
        log.append([entry(next(index), batch(1, round_ + 1, 1, size=9))])
        for part in range(5):
            log.append([entry(next(index), batch(2, 1 + round_ * 5 + part, 1, size=100))])
    log.commit(72)
    log.trim(2, 61)
    log.release(72)
    before = kept(log, 1)
    while log.clean() is not None:
        log.release(72)
    assert kept(log, 1) == before
    assert len(before) == 12


def test_log_read_at_once_gives_what_read_gives_or_nothing(log):
    fill(log, 10)
    log.commit(10)
    refs = log.channel(7).refs(1, 30, ALL, ALL)
    at_once = log.read_at_once(refs)
    assert at_once is None or [bytes(found) for found in at_once] == [log.read(ref) for ref in refs]


def test_log_recent_gives_what_read_gives_or_nothing(log):
    fill(log, 10)
    log.commit(10)
    for ref in log.channel(7).refs(1, 30, ALL, ALL):
        recent = log.recent(ref)
        assert recent is None or bytes(recent) == log.read(ref)
