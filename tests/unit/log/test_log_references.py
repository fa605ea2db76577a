"""Batches that lie where they were staged: what readers get, what is kept for them, and what compaction makes of them."""

import random
from pathlib import Path

import pytest
from stan_protocol.proto import wire_pb2 as wire

from stan.core.base.compaction import Compaction
from stan.errors import Damage
from stan.log.encryption import Cipher
from stan.log.files.filelog import FileLog
from stan.log.memorylog import MemoryLog
from stan.log.sql.sqlfile import SqlFile
from stan.log.sql.sqllog import SqlLog
from stan.protocol.entries import STAGING_UID, decode_records, encode_batch
from stan.protocol.kernel import server as kernel
from stan.protocol.staged import sealed, sealed_size, staged_body
from tests.kit.batches import (
    batch,
    change,
    entry,
    full_messages,
    references,
    rows_of,
    rows_of_messages,
    staged_batch,
    staged_records,
)
from tests.kit.files import CrashingFiles

STORE = b"0123456789abcdef"
DIRECTORY = Path("/store/groups/1")
UID, NAME = 7, b"orders.new"
ALL = 10**9
SEGMENT_BYTES = 700


def file_log(files, cache=0, cipher=None):
    made, report = FileLog.open(
        DIRECTORY,
        1,
        STORE,
        files=files,
        segment_bytes_max=SEGMENT_BYTES,
        tail_cache_bytes_max=cache,
        cipher=cipher.of(STORE, 1, 1) if cipher else None,
    )
    assert not report.quarantined
    return made


@pytest.fixture(params=["disk", "disk with cache", "encrypted disk", "memory", "sql"])
def log(request, tmp_path):
    if request.param == "memory":
        yield MemoryLog(overhead=40)
    elif request.param == "sql":
        file = SqlFile(tmp_path / "stan.db")
        yield SqlLog(file, 1, overhead=40)
        file.close()
    else:
        cipher = Cipher(b"key") if request.param.startswith("encrypted") else None
        yield file_log(CrashingFiles(), 10_000 if request.param.endswith("cache") else 0, cipher)


def add(log, *parts):
    """One entry, committed."""
    log.append([entry(log.last_index + 1, *parts)])
    log.sync()
    log.commit(log.last_index)


def stage(log, *many, name=NAME):
    """Parts, each with these payloads; returns what `references` wants to know of them."""
    parts = []
    for sequence, payloads in enumerate(many, log.channel(STAGING_UID).last_sequence + 1):
        rows = rows_of(payloads)
        add(log, staged_batch(sequence, name, rows))
        parts.append((staged_records(sequence, name, rows, 1), sequence, len(payloads)))
    return parts


def refer(log, *parts, uid=UID, timestamp=50, **named):
    add(log, references(*parts, uid=uid, base=log.channel(uid).last_sequence + 1, timestamp=timestamp, **named))


def refs(log, uid=UID):
    return log.channel(uid).refs(0, ALL, ALL, ALL)


def data_of(log, uid=UID):
    """(sequence, timestamp, data) of every message."""
    found = []
    for ref in refs(log, uid):
        at, records = 0, log.read(ref)
        while at < len(records):
            size = int.from_bytes(records[at : at + 4], "little")
            message = wire.MsgProto.FromString(records[at + 4 : at + 4 + size])
            found.append((message.sequence, message.timestamp, message.data))
            at += 4 + size
    return found


def grow(log):
    """Enough for a new segment, of a channel that nobody reads."""
    for _ in range(8):
        add(log, batch(99, log.channel(99).last_sequence + 1, 1, size=100))


def everything_else_goes(log):
    log.trim(99, log.channel(99).last_sequence + 1)
    log.trim(STAGING_UID, log.channel(STAGING_UID).last_sequence + 1)
    for _ in range(4):
        log.release(log.last_index)
        log.clean()
    log.release(log.last_index)


@pytest.mark.parametrize("base", [1, 126, 16_380])
@pytest.mark.parametrize("timestamp", [1, 1_700_000_000 * 10**9])
def test_rows_are_what_a_publish_would_have_stored(base, timestamp):
    messages = full_messages(40)
    rows = rows_of_messages(messages)
    records = kernel.seal(b"_STAN.staged", 12, 34, [staged_body(NAME, rows)])
    found = sealed(records, base, timestamp)
    assert found == kernel.seal(NAME, base, timestamp, [rows])
    assert sealed_size(NAME, len(rows), 40, base, timestamp) == len(found)


@pytest.mark.parametrize("damaged", [b"", b"abc", b"\x00\x00\x00\x00\x22\x05abc"])
def test_what_is_no_part_of_a_transaction_is_damage(damaged):
    with pytest.raises(Damage):
        sealed(damaged, 1, 1)


def test_readers_get_them_in_the_order_of_the_references(log):
    one, _, three = stage(log, [b"a", b"b"], [b"c"], [b"d"])
    add(log, batch(UID, 1, 2, timestamp=10, size=20))
    refer(log, three, one)
    assert [(ref.base_sequence, ref.count) for ref in refs(log)] == [(1, 2), (3, 1), (4, 2)]
    later = refs(log)[1:]
    assert log.read_at_once(later) is None or [*map(bytes, log.read_at_once(later))] == [*map(log.read, later)]
    read = b"".join(map(log.read, later))
    assert read == kernel.seal(NAME, 3, 50, [rows_of([b"d", b"a", b"b"])])
    assert [ref.base_sequence for ref in log.channel(UID).refs_before(4, ALL, ALL)] == [4, 3, 1]
    assert log.read(log.channel(UID).refs_before(4, ALL, ALL)[0]) == log.read(later[1])
    assert log.channel(UID).bytes == 2 * 60 + len(read) + 3 * 36
    assert (log.channel(UID).last_sequence, log.channel(UID).last_timestamp) == (5, 50)


def test_rows_that_expire_say_so(log):
    (one,) = stage(log, [b"a", b"b" * 200])
    refer(log, one, expiry=1_700_000_060)
    rows = [wire.MsgProto(data=data, expires_at=1_700_000_060 * 10**9) for data in (b"a", b"b" * 200)]
    assert log.read(*refs(log)) == kernel.seal(NAME, 1, 50, [rows_of_messages(rows)])
    assert log.channel(UID).bytes == len(log.read(*refs(log))) + 2 * 36


def test_the_hidden_message_stays_for_as_long_as_something_of_the_batch_is_kept(log):
    one, _ = stage(log, [b"a", b"b"], [b"never"])
    grow(log)
    refer(log, one)
    grow(log)
    everything_else_goes(log)
    assert data_of(log) == [(1, 50, b"a"), (2, 50, b"b")]
    log.trim(UID, 2)
    everything_else_goes(log)
    assert data_of(log)[-1] == (2, 50, b"b")
    held = log.size
    log.trim(UID, 3)
    everything_else_goes(log)
    assert refs(log) == []
    assert log.size < held
    if isinstance(log, MemoryLog):
        assert log.size == 0
    else:
        assert log.size <= SEGMENT_BYTES + 200  # the active segment


def test_a_channel_that_is_dropped_lets_go_of_what_it_refers_to(log):
    (one,) = stage(log, [b"a"])
    grow(log)
    refer(log, one)
    grow(log)
    log.drop(UID)
    everything_else_goes(log)
    assert log.size <= (0 if isinstance(log, MemoryLog) else SEGMENT_BYTES + 200)


def test_trims_of_the_channel_come_with_the_references(log):
    one, two = stage(log, [b"a", b"b"], [b"c"])
    refer(log, one)
    refer(log, two, first=3)
    assert data_of(log) == [(3, 50, b"c")]


def test_the_reference_outlives_a_message_that_is_still_staged(log):
    """The hidden channel's message is counted once, whoever lets go of it last."""
    _, two = stage(log, [b"a"], [b"b"])
    refer(log, two)
    log.trim(UID, 2)  # the channel first
    grow(log)
    everything_else_goes(log)
    assert log.size <= (0 if isinstance(log, MemoryLog) else SEGMENT_BYTES + 200)


@pytest.mark.parametrize("index_files", [True, False])
def test_they_are_there_after_a_start(index_files):
    files = CrashingFiles()
    log = file_log(files)
    parts = stage(log, [b"a"], [b"b", b"c"])
    grow(log)
    refer(log, *parts)
    grow(log)
    everything_else_goes(log)
    want = data_of(log)
    log.close()
    if not index_files:
        for path in [path for path in files.paths() if path.endswith(".idx")]:
            files.unlink(path)
    again = file_log(files)
    again.commit(again.last_index)
    assert data_of(again) == want == [(1, 50, b"a"), (2, 50, b"b"), (3, 50, b"c")]
    again.trim(STAGING_UID, 3)
    assert data_of(again) == want


def test_a_reference_to_what_is_lost_leaves_a_gap():
    log = file_log(CrashingFiles())
    (one,) = stage(log, [b"a", b"b"])
    records, _, count = one
    add(log, references((records, 17, count), uid=UID, base=1, timestamp=50))
    refer(log, one)
    assert data_of(log) == [(3, 50, b"a"), (4, 50, b"b")]
    assert log.channel(UID).first_sequence == 3


def test_a_batch_of_several_parts_is_not_referred_to():
    log = file_log(CrashingFiles())
    rows = rows_of([b"a"])
    records = kernel.seal(b"_STAN.staged", 1, 1, [staged_body(NAME, rows)] * 2)
    add(log, b"".join(encode_batch(STAGING_UID, 1, 2, 1, 0, records)))
    assert log.channel(STAGING_UID).alone(1) is None
    assert log.channel(STAGING_UID).alone(2) is None
    assert log.channel(STAGING_UID).alone(3) is None


def test_references_in_an_entry_are_told_apart_from_batches():
    parts = [(staged_records(5, NAME, rows_of([b"a"]), 1), 5, 1)]
    body = batch(UID, 1, 2) + references(*parts, uid=UID, base=3, timestamp=50)
    found, _, _ = decode_records(body, verify=True)
    assert [(one.base_sequence, one.count, one.staged, len(one.records)) for one in found] == [
        (1, 2, 0, 48),
        (3, 1, 5, 0),
    ]
    with pytest.raises(Damage):
        decode_records(body[:-1] + b"\xff", verify=True)


def compact(log, until, rounds=40):
    for _ in range(rounds):
        log.release(log.last_index)
        log.compact({UID: Compaction(until, 0)})
        log.clean()
    log.release(log.last_index)


@pytest.mark.parametrize("cipher", [None, Cipher(b"key")])
def test_compaction_leaves_out_messages_that_lie_where_they_were_staged(cipher):
    """And what stays of them is the channel's own from then on."""
    draw, files = random.Random(3), CrashingFiles()
    log = file_log(files, cipher=cipher)
    newest, other = {}, []
    for at in range(30):
        keys = [b"k%d" % draw.randrange(5) for _ in range(4)]
        rows = rows_of_messages([wire.MsgProto(data=b"%d.%d" % (at, row), key=key) for row, key in enumerate(keys)])
        sequence = log.channel(STAGING_UID).last_sequence + 1
        add(log, staged_batch(sequence, NAME, rows))
        base = log.channel(UID).last_sequence + 1
        part = (staged_records(sequence, NAME, rows, 1), sequence, 4)
        if at % 3:
            refer(log, part, expiry=at % 2)
        else:
            add(log, b"".join(encode_batch(UID, base, 4, 50, 0, kernel.seal(NAME, base, 50, [rows]))))
        newest |= {key: (base + row, 50, b"%d.%d" % (at, row)) for row, key in enumerate(keys)}
        if at == 10:  # of a channel without compaction, in the same segments
            (one,) = stage(log, [b"other"])
            refer(log, one, uid=8)
            other = data_of(log, 8)
    last = log.channel(UID).last_sequence
    for _ in range(2):
        log.append([change(log.last_index + 1, bytes(SEGMENT_BYTES))])
        log.sync()
        log.commit(log.last_index)
    log.trim(STAGING_UID, log.channel(STAGING_UID).last_sequence + 1)
    before = log.size
    compact(log, last)
    assert sorted(data_of(log)) == sorted(newest.values())
    assert data_of(log, 8) == other
    assert log.size < before / 2
    assert log.channel(UID).bytes > 0
    log.close()

    again = file_log(files, cipher=cipher)
    again.commit(again.last_index)
    again.trim(STAGING_UID, again.channel(STAGING_UID).last_sequence + 1)
    assert sorted(data_of(again)) == sorted(newest.values())
    assert data_of(again, 8) == other
    again.trim(UID, last + 1)
    again.drop(8)
    for _ in range(5):
        again.release(again.last_index)
        again.clean()
    again.release(again.last_index)
    assert again.size <= 2 * SEGMENT_BYTES + 300
