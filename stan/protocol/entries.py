"""Bodies of log entries: record batches as a fixed header plus MsgProto bytes, everything else as protobuf.

A RECORDS body is one or more channel batches, one after the other:

    header  uid u32 | base_sequence u64 | count u32 | timestamp i64 | first_sequence u64 | length u32 | crc u32 | flags u32
    records `count` times: u32 length, MsgProto bytes as subscribers get them

A batch of uid 0 (MARKS_UID) is none: its records are an entries_pb2.Marks, which replicated groups put behind the others.

All integers little-endian. `first_sequence` is the channel's oldest kept message once this batch is applied, so that limits by
count and bytes need no entry of their own. `crc` is CRC-32 (IEEE, zlib) of the records: DESIGN 6 names CRC-32C, which the
standard library lacks; both twins of the kernel and a machine without a compiler compute this one at memory speed.
"""

import zlib
from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from stan.errors import Damage
from stan.types import ChannelUid, Sequence, WallNanos


class Kind(IntEnum):
    """What an entry's body holds; written to disk, so numbers are never reused."""

    NOOP = 0
    RECORDS = 1  # record batches, see above
    META = 2  # entries_pb2.MetaChange: clients and the channel registry
    CHANGE = 3  # entries_pb2.GroupChange: subscriptions, progress, trims of one channel group
    CONFIG = 4  # who votes in the group, see raft.configuration


BATCH_HEADER = Struct("<IQIqQIII")
MARKS_UID = 0
"""No channel has it."""


class Batch(NamedTuple):
    """One channel's record batch inside a RECORDS body."""

    uid: ChannelUid
    base_sequence: Sequence
    count: int  # type: ignore[assignment]
    timestamp: WallNanos
    first_sequence: Sequence
    records: memoryview
    position: int  # of the first byte of `records` inside the body


def encode_batch(
    uid: ChannelUid, base_sequence: Sequence, count: int, timestamp: WallNanos, first_sequence: Sequence, records: bytes
) -> tuple[bytes, bytes]:
    """Header and records of one batch, to be joined into a RECORDS body."""
    header = BATCH_HEADER.pack(
        uid, base_sequence, count, timestamp, first_sequence, len(records), zlib.crc32(records), 0
    )
    return header, records


def decode_batches(body: bytes, *, verify: bool = False) -> Iterator[Batch]:
    """Walk the batches of a RECORDS body, without its marks.

    Raises:
        Damage: they do not fill it exactly or, asked to *verify*, a CRC is wrong.
    """
    view = memoryview(body)
    end = len(view)
    at = 0
    while at < end:
        start = at + BATCH_HEADER.size
        if start > end:
            raise Damage(f"record batch at byte {at} of the entry: header cut off")
        uid, base, count, timestamp, first, length, crc, _flags = BATCH_HEADER.unpack_from(view, at)
        if start + length > end:
            raise Damage(f"record batch at byte {at} of the entry: {length} bytes announced, {end - start} there")
        records = view[start : start + length]
        if verify and zlib.crc32(records) != crc:
            raise Damage(f"record batch at byte {at} of the entry: wrong CRC")
        if uid != MARKS_UID:
            yield Batch(ChannelUid(uid), Sequence(base), count, WallNanos(timestamp), Sequence(first), records, start)
        at = start + length


def encode_marks(marks: bytes) -> tuple[bytes, bytes]:
    """Header and body of an encoded entries_pb2.Marks, the last part of a RECORDS body."""
    return encode_batch(ChannelUid(MARKS_UID), Sequence(0), 0, WallNanos(0), Sequence(0), marks)


def marks_of(body: bytes) -> memoryview | None:
    """The encoded marks of a RECORDS body, None if it has none; raises Damage as decode_batches does."""
    at = 0
    while at + BATCH_HEADER.size <= len(body):
        uid, _, _, _, _, length, _, _ = BATCH_HEADER.unpack_from(body, at)
        at += BATCH_HEADER.size
        if uid == MARKS_UID:
            return memoryview(body)[at : at + length]
        at += length
    return None
