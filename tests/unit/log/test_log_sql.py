"""The log in SQLite beyond the contract: what a restart finds, what retention deletes, what people see, what harm does."""

import shutil
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stan_protocol.proto import wire_pb2 as wire

from stan.errors import Damage, Frozen, LostLock, StartError
from stan.log.index import GAP
from stan.log.sql.sqlfile import SqlFile
from stan.log.sql.sqllog import SqlLog
from stan.protocol.entries import STAGING_UID, encode_batch, encode_change, encode_fingerprints
from stan.protocol.messages import data_span
from stan.protocol.staged import sealed
from tests.kit.batches import batch, change, entry, records, references, rows_of, staged_batch, staged_records

ALL = 10**9


def unused(base, count):
    """A batch that tells only that these sequences were used."""
    return b"".join(encode_batch(7, base, count, 0, 0, b""))


class Store:
    """A file with one log in it, opened again and again."""

    def __init__(self, path):
        self.path = path
        self.open()

    def open(self, group=1):
        self.file = SqlFile(self.path)
        self.log = SqlLog(self.file, group, tail_cache_bytes_max=0)

    def open_and_read(self):
        self.open()
        self.log.commit(self.log.last_index)
        self.log.entries(1, ALL, ALL)

    def close(self):
        self.log.close()
        self.file.close()

    def crash(self):
        """What was not synced is gone."""
        self.file.close()
        self.open()

    def query(self, text, *parameters):
        with sqlite3.connect(self.path) as database:
            return database.execute(text, parameters).fetchall()

    def change(self, text, *parameters):
        self.query(text, *parameters)

    def kept(self, uid=7):
        refs = self.log.channel(uid).refs(0, ALL, ALL, ALL)
        return [(ref.base_sequence, ref.count, self.log.read(ref)) for ref in refs]


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "stan.db")
    yield made
    made.close()


def fill(log, count, uid=7):
    """Entries of three messages each; returns them."""
    made = []
    for index in range(log.last_index + 1, log.last_index + 1 + count):
        made.append(entry(index, batch(uid, 3 * index - 2, 3)))
        log.append([made[-1]])
    return made


def test_what_was_synced_is_there_after_a_crash_and_nothing_else(store):
    made = fill(store.log, 10)
    assert store.log.sync() == 10
    fill(store.log, 5)
    store.crash()
    assert (store.log.last_index, store.log.durable_index, store.log.last_term) == (10, 10, 1)
    assert store.log.entries(1, 99, ALL) == made
    store.log.commit(10)
    assert store.kept() == [(3 * i + 1, 3, records(7, 3 * i + 1, 3)) for i in range(10)]
    fill(store.log, 1)
    store.log.commit(11)
    assert store.log.channel(7).last_sequence == 33


def test_entries_with_marks_and_changes_come_back_as_they_were(store):
    body = b"".join(
        (*encode_batch(7, 1, 2, 5, 0, records(7, 1, 2)), *encode_fingerprints(b"marks"), *encode_change(b"change"))
    )
    made = [entry(1, body), change(2, b""), change(3, b"x" * 300_000), entry(4, batch(7, 3, 1), batch(9, 1, 4))]
    store.log.append(made)
    store.log.sync()
    store.crash()
    assert store.log.entries(1, 4, ALL) == made
    assert store.log.entries(2, 4, 1) == made[1:2]


def test_retention_deletes_rows(store):
    fill(store.log, 30)
    store.log.sync()
    store.log.commit(30)
    store.log.trim(7, 50)
    assert store.log.clean() is None
    store.log.release(20)
    assert "removed 16 batches" in store.log.clean()
    assert store.query("SELECT MIN(sequence), COUNT(*) FROM message_rows") == [(49, 42)]
    assert store.query("SELECT MIN(raft_index), COUNT(*) FROM entries") == [(21, 10)]
    assert store.log.clean() is None
    store.crash()
    assert (store.log.first_index, store.log.last_index, store.log.term_at(20)) == (21, 30, 1)
    store.log.commit(30)
    store.log.trim(7, 50)
    assert store.log.channel(7).first_sequence == 50
    assert [base for base, _, _ in store.kept()] == list(range(49, 91, 3))
    store.log.release(30)
    store.log.clean()
    store.crash()
    assert (store.log.first_index, store.log.last_index) == (31, 30)
    store.log.commit(30)
    assert len(store.kept()) == 14


def test_channel_that_is_dropped_leaves_no_row(store):
    fill(store.log, 9)
    store.log.sync()
    store.log.commit(9)
    store.log.drop(7)
    store.log.release(9)
    store.log.clean()
    assert store.query("SELECT COUNT(*) FROM message_rows") == [(0,)]
    assert store.query("SELECT COUNT(*) FROM batches") == [(0,)]


def test_many_batches_are_recovered_and_deleted_in_parts(store, monkeypatch):
    monkeypatch.setattr("stan.limits.SQL_ROWS_PER_READ", 7)
    monkeypatch.setattr("stan.limits.SQL_ENTRIES_PER_READ", 3)
    made = fill(store.log, 40)
    store.log.sync()
    store.crash()
    assert store.log.entries(1, 40, ALL) == made
    store.log.commit(40)
    assert len(store.kept()) == 40
    store.log.trim(7, 121)
    store.log.release(40)
    while store.log.clean() is not None:
        pass
    assert store.query("SELECT COUNT(*) FROM message_rows") == [(0,)]


def test_nothing_is_deleted_that_is_not_written(store):
    fill(store.log, 5)
    store.log.commit(5)
    store.log.trim(7, 16)
    store.log.release(5)
    assert store.log.clean() is None
    store.log.sync()
    store.log.clean()
    assert store.query("SELECT COUNT(*) FROM message_rows") == [(0,)]


def test_logs_of_two_groups_do_not_mix(store):
    other = SqlLog(store.file, 2)
    mine, theirs = fill(store.log, 3), [change(1), change(2)]
    other.append(theirs)
    other.sync()
    store.log.sync()
    assert SqlLog(store.file, 2).entries(1, 9, ALL) == theirs
    assert SqlLog(store.file, 1).entries(1, 9, ALL) == mine


# --- damage and refusals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE message_rows SET message = X'00' WHERE sequence = 5",
        "DELETE FROM message_rows WHERE sequence = 5",
        "UPDATE batches SET crc = crc + 1",
    ],
)
def test_changed_message_is_told_and_not_served(store, harm):
    fill(store.log, 3)
    store.log.sync()
    store.log.commit(3)
    store.change(harm)
    with pytest.raises(Damage, match=r"messages \[4, 6\] of channel 7, entry 2 of group 1"):
        store.log.read(store.log.channel(7).refs(4, 6, ALL, 1)[0])


def test_missing_entry_is_told_at_the_start(store):
    fill(store.log, 3)
    store.log.sync()
    store.change("DELETE FROM entries WHERE raft_index = 2")
    with pytest.raises(Damage, match="entries of group 1 are missing behind entry 0"):
        SqlLog(store.file, 1)


def test_transaction_that_fails_freezes_the_log(store):
    fill(store.log, 2)
    store.change("DROP TABLE batches")
    with pytest.raises(Frozen):
        store.log.sync()
    with pytest.raises(Frozen):
        store.log.append([change(3)])
    assert store.log.durable_index == 0


def test_fence_is_asked_before_each_transaction(store):
    def refuse():
        raise LostLock("ft: somebody else")

    fill(store.log, 2)
    store.file.fence = refuse
    with pytest.raises(LostLock):
        store.log.sync()
    assert store.query("SELECT COUNT(*) FROM entries") == [(0,)]
    store.file.fence = None
    assert store.log.sync() == 2


def test_file_that_is_none_of_ours_is_refused(tmp_path):
    (tmp_path / "a").write_bytes(b"no database, but longer than a header of one would be" * 50)
    with pytest.raises(Damage, match="not a database"):
        SqlFile(tmp_path / "a")
    with pytest.raises(StartError):
        SqlFile(tmp_path / "nowhere" / "b")


def test_file_of_another_format_is_refused(store, tmp_path):
    store.change("UPDATE store SET value = '9' WHERE key = 'format'")
    with pytest.raises(StartError, match="messages in format 9, this program reads format 1"):
        SqlFile(store.path)


def test_place_beyond_four_billion_entries_is_found(store):
    terms = store.log._terms
    terms.before = (GAP + 5, 1)
    assert terms.index_of((GAP + 3) % GAP) == GAP + 3
    terms.before = (0, 0)


# --- what people see ------------------------------------------------------------------------------------------------------


@given(
    st.builds(
        wire.MsgProto,
        sequence=st.integers(min_value=0, max_value=2**63),
        subject=st.binary(max_size=200),
        reply=st.binary(max_size=200),
        data=st.binary(max_size=400),
        timestamp=st.integers(min_value=0, max_value=2**62),
    )
)
def test_data_of_a_message_is_found(message):
    raw = message.SerializeToString()
    at, length = data_span(raw)
    assert raw[at : at + length] == message.data


@given(st.binary(max_size=50))
def test_data_of_anything_else_lies_within_it(raw):
    at, length = data_span(raw)
    assert 0 <= at <= at + length <= len(raw)


# --- rows that are not as they were written -------------------------------------------------------------------------------

HARMS = {
    "a batch's count": "UPDATE batches SET count = count + 1 WHERE raft_index = 4",
    "a batch's time": "UPDATE batches SET timestamp = timestamp + 64 WHERE raft_index = 4",
    "a batch's channel": "UPDATE batches SET uid = 9 WHERE raft_index = 4",
    "a missing batch": "DELETE FROM batches WHERE raft_index = 4",
    "the newest batch": "DELETE FROM batches WHERE raft_index = 6",
    "the sum of the batches": "UPDATE logs SET batches_sum = batches_sum + 1",
    "an entry's term": "UPDATE entries SET term = 2 WHERE raft_index = 6",
    "an entry's body": "UPDATE entries SET frame = CAST(frame || x'00' AS BLOB) WHERE raft_index = 7",
    "an entry's header of a batch": "UPDATE entries SET frame = CAST(x'ff' || substr(frame, 2) AS BLOB) WHERE raft_index = 6",
    "an entry's kind": "UPDATE entries SET kind = 2 WHERE raft_index = 7",
}


@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS)
def test_damaged_row_is_told_and_never_served(store, harm):
    fill(store.log, 6)
    store.log.append([change(7, b"x")])
    store.log.sync()
    store.close()
    store.change(harm)
    with pytest.raises(Damage, match=r"stan\.db: "):
        store.open_and_read()
    store.file.close()
    store.path.unlink()
    store.open()


def test_sums_follow_what_is_written_truncated_and_cleaned(store):
    fill(store.log, 9)
    store.log.sync()
    store.log.truncate_after(7)
    store.log.commit(7)
    store.log.trim(7, 10)
    store.log.release(5)
    assert "removed 3 batches" in store.log.clean()
    fill(store.log, 2)
    store.log.sync()
    store.crash()
    store.log.commit(store.log.last_index)
    assert [base for base, *_ in store.kept()] == [10, 13, 16, 19, 22, 25]


@pytest.mark.parametrize("messages", [0, 3])
def test_that_the_newest_sequences_were_used_is_known_as_long_as_nothing_else_tells_it(tmp_path, messages):
    store = Store(tmp_path / "stan.db")
    log = store.log
    log.append([entry(1, *[batch(7, 1, messages)] * bool(messages), unused(messages + 1, 5))])
    log.append([entry(2, batch(8, 1, 1))])
    log.sync()
    log.commit(2)
    log.release(2)
    log.clean()
    store.close()
    store.open_and_read()
    assert store.log.channel(7).last_sequence == messages + 5
    store.log.append([entry(3, batch(7, messages + 6, 1))])
    store.log.sync()
    store.log.commit(3)
    store.log.release(3)
    store.log.clean()
    store.close()
    store.open_and_read()
    assert store.log.channel(7).last_sequence == messages + 6
    store.close()


def test_what_a_start_has_read_lies_in_the_file_itself(tmp_path):
    """A commit whose sync failed may be lost with the write-ahead log, although the next process reads it there."""
    left = Store(tmp_path / "log.db")
    left.log.append([entry(1, batch(7, 1, 2))])
    left.log.sync()
    killed = tmp_path / "killed"
    killed.mkdir()
    for path in tmp_path.glob("log.db*"):
        shutil.copy(path, killed)
    left.close()

    read = SqlFile(killed / "log.db")
    power_lost = Path(shutil.copy(killed / "log.db", tmp_path / "power_lost.db"))
    read.close()

    found = Store(power_lost)
    assert found.log.last_index == 1
    found.close()


# --- rows that are referred to ------------------------------------------------------------------------------------------


def staged_and_committed():
    """Entries with messages, parts that are staged, and references to these; and what readers get of their channel."""
    many = [rows_of([b"a", b"bb"]), rows_of([b"c" * 1000])]
    parts = [(staged_records(at, b"foo", rows, 1), at, count) for at, rows, count in ((1, many[0], 2), (2, many[1], 1))]
    staged = [staged_batch(at, b"foo", rows) for at, rows in enumerate(many, 1)]
    committed = references(*parts, uid=7, base=4, timestamp=50)
    want = [(1, 3, records(7, 1, 3)), (4, 2, sealed(parts[0][0], 4, 50)), (6, 1, sealed(parts[1][0], 6, 50))]
    return [entry(1, batch(7, 1, 3)), entry(2, *staged), entry(3, committed, b"".join(encode_change(b"done")))], want


@pytest.mark.parametrize("together", [True, False])
def test_rows_that_an_entry_refers_to_become_messages_of_their_channel(store, together):
    made, want = staged_and_committed()
    for one in [made] if together else [[one] for one in made]:
        store.log.append(one)
        store.log.sync()
    store.crash()
    assert store.log.entries(1, 9, ALL) == made
    store.log.commit(3)
    assert store.kept() == want
    store.log.trim(STAGING_UID, 3)
    store.log.release(3)
    store.log.clean()
    assert store.query("SELECT uid, sequence, length(message) > 1000 FROM message_rows ORDER BY sequence") == [
        (7, sequence, sequence == 6) for sequence in range(1, 7)
    ]
    assert store.kept() == want
    store.crash()
    store.log.commit(3)
    assert store.kept() == want
    store.log.trim(7, 6)
    store.log.release(3)
    store.log.clean()
    assert store.query("SELECT sequence FROM message_rows") == [(6,)]


def test_references_that_are_truncated_take_their_messages_with_them(store):
    made, _ = staged_and_committed()
    store.log.append(made)
    store.log.sync()
    store.log.truncate_after(2)
    assert store.query("SELECT MAX(sequence) FROM message_rows WHERE uid = 7") == [(3,)]
    store.log.append([made[2]])
    store.log.sync()
    store.log.commit(3)
    assert len(store.kept()) == 3


@pytest.mark.parametrize("harm", ["DELETE FROM message_rows", "UPDATE message_rows SET message = x'78'"])
def test_rows_that_are_damaged_before_they_are_referred_to_are_not_served(store, harm):
    made, want = staged_and_committed()
    store.log.append(made[:2])
    store.log.sync()
    store.change(f"{harm} WHERE uid = ?", STAGING_UID)
    store.log.append(made[2:])
    store.log.sync()
    store.log.commit(3)
    first, *referring = store.log.channel(7).refs(0, ALL, ALL, ALL)
    assert store.log.read(first) == want[0][2]
    for ref in referring:
        with pytest.raises(Damage, match="entry 3 of group 1"):
            store.log.read(ref)
