"""Compaction by key in a log of files: how much is left, what stays although it might go, and what a disk that fails leaves."""

import errno
import random
from pathlib import Path

import pytest
from stan_protocol.compaction import DELETE_HEADER, keyed
from stan_protocol.proto import wire_pb2 as wire

from stan.core.base.compaction import Compaction, CompactionState
from stan.log.encryption import Cipher
from stan.log.files.filelog import FileLog
from stan.protocol.entries import encode_batch
from tests.kit.batches import change, compressed, entry, rows_of_messages
from tests.kit.files import CrashingFiles

STORE = b"0123456789abcdef"
DIRECTORY = Path("/store/groups/1")
UID = 7
ALL = 10**9
SEGMENT_BYTES = 20_000


def opened(files):
    log, _ = FileLog.open(DIRECTORY, 1, STORE, files=files, segment_bytes_max=SEGMENT_BYTES)
    log.commit(log.last_index)
    return log


def batch(first, keys, size=200, tombstones=()):
    """Messages of these keys."""
    records = b""
    for sequence, key in enumerate(keys, first):
        dead = sequence in tombstones
        headers = [wire.Header(key=DELETE_HEADER, value=b"1")] if dead else []
        data = b"" if dead else bytes(size)
        told = wire.MsgProto(sequence=sequence, subject=b"foo", data=data, key=key, headers=headers).SerializeToString()
        records += len(told).to_bytes(4, "little") + told
    return b"".join(encode_batch(UID, first, len(keys), first, 0, records))


def append(log, *batches):
    for one in batches:
        log.append([entry(log.last_index + 1, one)])
    log.sync()
    log.commit(log.last_index)


def roll(log):
    """Seal what is there."""
    log.append([change(log.last_index + 1, bytes(SEGMENT_BYTES))])
    log.append([change(log.last_index + 1)])
    log.sync()
    log.commit(log.last_index)


def compact(log, until, tombstones=0, rounds=80, earlier=0):
    for _ in range(rounds):
        log.release(log.last_index)
        log.compact({UID: Compaction(until, tombstones, earlier=earlier)})
        log.clean()
    log.release(log.last_index)


def sequences(log):
    refs = log.channel(UID).refs(0, ALL, ALL, ALL)
    return [at for ref in refs for at in range(ref.base_sequence, ref.base_sequence + ref.count)]


@pytest.mark.parametrize("together", [1, 20, 200])
def test_what_is_left_is_at_most_one_and_a_half_times_what_lives(together) -> None:
    """With the 40 bytes that a message counts beside its own; messages are stored one by one or many at once."""
    draw, log, first = random.Random(7), opened(CrashingFiles()), 1
    while first < 4000:
        append(log, batch(first, [b"key %d" % draw.randrange(300) for _ in range(together)]))
        first += together
    roll(log)
    before = log.size
    compact(log, first - 1)
    assert len(sequences(log)) == 300
    live = log.channel(UID).bytes
    sealed = log.size - (log._segments.all[-1].end + SEGMENT_BYTES)
    assert sealed <= 1.5 * live
    assert log.size < before / 3
    assert before / 2 < log.compaction.saved_bytes <= before - log.size
    (state,) = log.compacted().values()
    assert state == CompactionState(first - 1, 0, 1, state.saved_bytes)
    assert before / 2 < state.saved_bytes < before - live


def test_a_pass_begins_when_half_as_much_is_new() -> None:
    log = opened(CrashingFiles())
    append(log, *(batch(at, [b"key %d" % at]) for at in range(1, 101)))
    roll(log)
    compact(log, 100)
    assert log.compaction.passes == 1
    append(log, *(batch(at, [b"key %d" % at]) for at in range(101, 141)))
    roll(log)
    compact(log, 140)
    assert log.compaction.passes == 1
    append(log, *(batch(at, [b"key %d" % at]) for at in range(141, 161)))
    roll(log)
    compact(log, 160)
    assert log.compaction.passes == 2


def test_the_newest_message_stays_so_that_no_sequence_comes_twice() -> None:
    files = CrashingFiles()
    log = opened(files)
    append(log, batch(1, [b"k"]), batch(2, [b"k"]), batch(3, [b"k"], tombstones=(3,)))
    roll(log)
    compact(log, 3, tombstones=3)
    assert sequences(log) == [3]
    log.close()
    log = opened(files)
    assert log.channel(UID).last_sequence == 3
    append(log, batch(4, [b"other"]))
    roll(log)
    compact(log, 4, tombstones=4)
    assert sequences(log) == [4]
    assert log.channel(UID).first_sequence == 4


@pytest.mark.parametrize("call", ["create", "pwritev", "fdatasync", "rename", "sync_directory", "pread"])
@pytest.mark.parametrize("after", range(4))
def test_a_disk_that_fails_ends_the_pass_and_nothing_is_lost(call, after) -> None:
    files = CrashingFiles()
    log = opened(files)
    keys = [b"a", b"b", b"c"]
    append(log, *(batch(at, [keys[at % 3]]) for at in range(1, 200)))
    append(log, batch(200, [b"a"], tombstones=(200,)), batch(201, [b"d"]))
    roll(log)
    files.fail(call, after, errno.EIO)
    compact(log, 201, tombstones=201, rounds=20)
    files.faults.clear()
    left = sequences(log)
    assert {197, 199, 201} <= set(left)
    assert 200 in left or not any(at % 3 == 0 and at < 200 for at in left), "what the tombstone deletes came back"
    compact(log, 201, tombstones=201, rounds=300)
    assert sequences(log) == [197, 199, 201]


@pytest.mark.parametrize("encrypted", [False, True])
def test_what_is_left_of_compressed_batches_is_compressed(encrypted) -> None:
    cipher = Cipher(b"a key").of(STORE, 1) if encrypted else None
    log, _ = FileLog.open(DIRECTORY, 1, STORE, files=CrashingFiles(), segment_bytes_max=SEGMENT_BYTES, cipher=cipher)
    data = b'{"user": "somebody", "page": "/index.html", "at": "2026-11-24"}'
    values = {}
    for first in range(1, 8001, 400):
        keys = [b"key %d" % (at * 7 % 900) for at in range(first, first + 400)]
        rows = rows_of_messages([wire.MsgProto(data=data + key, key=key) for key in keys])
        append(log, compressed(UID, first, 400, first, rows))
        values |= {key: sequence for sequence, key in enumerate(keys, first)}
    roll(log)
    before = log.size
    compact(log, 8000)
    assert sequences(log) == sorted(values.values())
    assert log.size < before / 3
    refs = log.channel(UID).refs(0, ALL, ALL, ALL)
    assert any(ref.size and ref.count < 400 for ref in refs)
    found = {}
    for ref in refs:
        found |= dict(enumerate(keyed(log.read(ref), ref.count).keys, ref.base_sequence))
    assert found == {sequence: key for key, sequence in values.items()}


@pytest.mark.parametrize("rounds", [1, 3])
def test_so_many_of_the_newest_messages_of_a_key_stay_as_a_stream_keeps(rounds) -> None:
    log, first = opened(CrashingFiles()), 1
    for _ in range(rounds):  # each finds what the passes before it have left
        for _ in range(20):
            append(log, batch(first, [b"a", b"b", b"a", b"c"]))
            first += 4
        roll(log)
        compact(log, first - 1, earlier=2)
    last = first - 1
    assert sequences(log) == newest(last, 3)
    compact(log, last)
    assert sequences(log) == newest(last, 1)


def newest(last: int, history: int) -> list[int]:
    """The newest messages of each key, of batches with the keys a, b, a, c of which the last one ends at *last*."""
    ends = range(last, 0, -4)
    of_a, of_b, of_c = [at for end in ends for at in (end - 1, end - 3)], [end - 2 for end in ends], [*ends]
    return sorted(of_a[:history] + of_b[:history] + of_c[:history])
