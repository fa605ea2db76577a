"""Bodies of log entries: record batches as a fixed header plus MsgProto bytes, everything else as protobuf.

A RECORDS body is one or more channel batches, one after the other:

    header  uid u32 | base_sequence u64 | count u32 | timestamp i64 | first_sequence u64 | length u32 | crc u32 | flags u32
    records `count` times: u32 length, MsgProto bytes as subscribers get them

stan_protocol.compression defines compressed records; `flags` above its lowest 8 bits are then the bytes of the records that
readers make of them, 0 for others.

A batch without records (length 0) marks its sequences as unused: a channel that was restored has such gaps.

A batch of uid 0 (BESIDE_UID) is none, but something beside the batches, by its `flags`, 0 in all others. 0: its records are an
entries_pb2.Marks, which replicated groups put behind the others. 1: they are an entries_pb2.GroupChange, applied with the
entry and after its batches. 2: they are references, each a batch of a channel whose messages stay where they were staged:

    reference  uid u32 | base_sequence u64 | count u32 | timestamp i64 | first_sequence u64 | staged u64 | size u32 | expiry u64

`staged` is the message of the hidden channel STAGING_UID that has the rows (stan.protocol.staged), `size` the bytes of the
records that readers get, `expiry` when its messages expire, in Unix seconds; 0: they do not. In all others the lowest 8 bits of
flags are 0 in memory and between nodes; on a disk they may be the number of the cipher (stan.log.encryption) with which the
records are sealed, ENCRYPTION_BYTES longer.

All integers little-endian. `first_sequence` is the channel's oldest stored message once this batch is applied, so that limits by
count and bytes need no entry of their own. `crc` is CRC-32 (IEEE, zlib) of the records: DESIGN 6 names CRC-32C, which the
standard library lacks; both twins of the kernel and a machine without a compiler compute this one at memory speed.
"""

import zlib
from collections.abc import Iterable
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from stan_protocol.scalars import ChannelUid, Sequence, WallNanos

from stan.errors import Damage


class Kind(IntEnum):
    """The content of an entry's body; written to disk, so numbers are never reused."""

    NOOP = 0
    RECORDS = 1  # record batches, see above
    META = 2  # entries_pb2.MetaChange: clients and the channel registry
    CHANGE = 3  # entries_pb2.GroupChange: subscriptions, progress, trims of one channel group
    CONFIG = 4  # the voters of the group, see raft.configuration


BATCH_HEADER = Struct("<IQIqQIII")
BESIDE_UID = 0
"""No channel has it."""
STAGING_UID = ChannelUid(0xFFFF_FFFF)
"""Of the hidden channel of each group, whose messages are staged parts of transactions; never registered."""
DEFERRED_UID = ChannelUid(0xFFFF_FFFE)
"""Of another hidden channel of each group, whose messages wait until they are due; never registered either."""
FINGERPRINTS_FLAG, CHANGE_FLAG, REFERENCES_FLAG = 0, 1, 2
REFERENCE = Struct("<IQIqQQIQ")
ENCRYPTION_BYTES = 40
"""By which records that are sealed on the disk are longer than their messages."""
SIZE_SHIFT, CIPHER_MASK = 8, 0xFF
"""Of `flags`: where the bytes of the records of a compressed batch stand, and which bits are the number of the cipher."""


class RecordBatch(NamedTuple):
    """A channel's record batch inside a RECORDS body, or a reference to one: `staged` is not 0, and `records` are empty."""

    uid: ChannelUid
    base_sequence: Sequence
    count: int  # type: ignore[assignment]
    timestamp: WallNanos
    first_sequence: Sequence
    records: memoryview
    position: int  # of the first byte of `records`, or of the reference, inside the body
    size: int = (
        0  # bytes of the records that are made of `records`, which are compressed, or were staged; 0: as they are
    )
    staged: Sequence = Sequence(0)
    expiry: int = 0


class Reference(NamedTuple):
    """A batch of a channel whose messages stay where they were staged."""

    uid: ChannelUid
    base_sequence: Sequence
    count: int  # type: ignore[assignment]
    timestamp: WallNanos
    first_sequence: Sequence
    staged: Sequence  # message of the hidden channel
    size: int  # bytes of the records that readers get
    expiry: int = 0  # when its messages expire, in Unix seconds; 0: they do not


RecordsBody = tuple[list[RecordBatch], memoryview | None, list[bytes]]
"""The batches of a RECORDS body, its encoded fingerprints (None if it has none), and its encoded changes."""


def encode_batch(
    uid: int, base_sequence: int, count: int, timestamp: int, first_sequence: int, records: bytes, size: int = 0
) -> tuple[bytes, bytes]:
    """Header and records of one batch, to be joined into a RECORDS body. *size*: as of RecordBatch."""
    header = BATCH_HEADER.pack(
        uid, base_sequence, count, timestamp, first_sequence, len(records), zlib.crc32(records), size << SIZE_SHIFT
    )
    return header, records


def decode_records(body: bytes, *, verify: bool = False) -> RecordsBody:
    """Decode a RECORDS body: its batches, and the parts beside them.

    Raises:
        Damage: its parts do not fill it exactly or, with *verify*, a CRC is wrong.
    """
    view = memoryview(body)
    end, at = len(view), 0
    batches: list[RecordBatch] = []
    fingerprints: memoryview | None = None
    changes: list[bytes] = []
    while at < end:
        start = at + BATCH_HEADER.size
        if start > end:
            raise Damage(f"record batch at byte {at} of the entry: header cut off")
        uid, base, count, timestamp, first, length, crc, flags = BATCH_HEADER.unpack_from(view, at)
        if start + length > end:
            raise Damage(f"record batch at byte {at} of the entry: {length} bytes announced, {end - start} there")
        records = view[start : start + length]
        if verify and zlib.crc32(records) != crc:
            raise Damage(f"record batch at byte {at} of the entry: wrong CRC")
        if uid != BESIDE_UID:
            size = flags >> SIZE_SHIFT
            batches.append(RecordBatch(uid, base, count, timestamp, first, records, start, size))
        elif flags == CHANGE_FLAG:
            changes.append(bytes(records))
        elif flags == REFERENCES_FLAG:
            batches += _referred(records, start)
        elif flags == FINGERPRINTS_FLAG and fingerprints is None:
            fingerprints = records
        at = start + length
    return batches, fingerprints, changes


def decode_references(records: bytes | bytearray | memoryview) -> list[Reference]:
    """The references in the records of a batch with REFERENCES_FLAG. Raises Damage."""
    if len(records) % REFERENCE.size:
        raise Damage(f"references of {REFERENCE.size} bytes in {len(records)}")
    return [Reference._make(fields) for fields in REFERENCE.iter_unpack(records)]


def _referred(records: memoryview, start: int) -> list[RecordBatch]:
    """Return the referenced batches of a batch of references that begins at *start*."""
    return [
        RecordBatch(*one[:5], records[:0], start + at * REFERENCE.size, one.size, one.staged, one.expiry)
        for at, one in enumerate(decode_references(records))
    ]


def decode_batches(body: bytes) -> list[RecordBatch]:
    """The batches of a RECORDS body; raises as `decode_records`."""
    return decode_records(body)[0]


def encode_fingerprints(fingerprints: bytes) -> tuple[bytes, bytes]:
    """Header and body of an encoded entries_pb2.Marks, a part of a RECORDS body behind all batches."""
    crc = zlib.crc32(fingerprints)
    return BATCH_HEADER.pack(BESIDE_UID, 0, 0, 0, 0, len(fingerprints), crc, FINGERPRINTS_FLAG), fingerprints


def encode_change(change: bytes) -> tuple[bytes, bytes]:
    """Header and body of an encoded entries_pb2.GroupChange, a part of a RECORDS body behind all batches."""
    return BATCH_HEADER.pack(BESIDE_UID, 0, 0, 0, 0, len(change), zlib.crc32(change), CHANGE_FLAG), change


def encode_references(references: Iterable[Reference]) -> tuple[bytes, bytes]:
    """Header and body of references, a part of a RECORDS body behind all batches."""
    records = b"".join(REFERENCE.pack(*one) for one in references)
    return BATCH_HEADER.pack(BESIDE_UID, 0, 0, 0, 0, len(records), zlib.crc32(records), REFERENCES_FLAG), records
