"""Answers to fetch requests: record batches cut to what was asked for, and walked through again at the other end. Pure.

Promises: messages are never re-encoded and never copied before the answer is put together; of a batch that is wanted whole not
even the lengths are read. Works on record batches as `kernel.seal` makes them: u32 little-endian length and MsgProto per message.
"""

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from stan.protocol.kernel.rows import behind
from stan.protocol.kernel.wire_py import varint
from stan.protocol.proto.extension_pb2 import FetchResponse, Run

LENGTH_PREFIX = 4
"""Bytes in front of each message."""
RUN_ROOM = 40
"""Bytes that a run of messages takes beside its records: tag and length, sequence, count, timestamp, position."""
HEAD_ROOM = 64
"""Bytes of everything else in an answer without error."""
BARE_ROOM = 5
"""Bytes beside the record in an answer that holds nothing else: tag and length, of 64 MiB at most."""

_LENGTH = Struct("<I")
_RECORDS_TAG = bytes([FetchResponse.RECORDS_FIELD_NUMBER << 3 | 2])

Records = bytes | memoryview


class FetchedBatch(NamedTuple):
    """A record batch of a channel, or a part of one."""

    first: int
    count: int  # type: ignore[assignment] # hides tuple.count, which nobody calls on a batch
    timestamp: int
    records: Records


def cut(batch: FetchedBatch, first: int, last: int, messages_max: int, bytes_max: int) -> FetchedBatch:
    """The messages [first, last] of *batch*, as many from the front as are within both bounds; count 0 if none is."""
    skipped = max(0, first - batch.first)
    count = min(batch.count - skipped, last - batch.first - skipped + 1, messages_max)
    if count <= 0:
        return batch._replace(count=0, records=b"")
    if count == batch.count and len(batch.records) <= bytes_max:
        return batch
    size = len(batch.records)
    _, begin = behind(batch.records, 0, skipped, size)
    taken, end = behind(batch.records, begin, count, min(bytes_max, size))
    return FetchedBatch(batch.first + skipped, taken, batch.timestamp, memoryview(batch.records)[begin:end])


def select(
    batches: Iterable[FetchedBatch], first: int, last: int, messages_max: int, bytes_max: int
) -> list[FetchedBatch]:
    """The messages [first, last] of *batches*, as many from the front as are within both bounds, each batch's with its run."""
    found: list[FetchedBatch] = []
    for batch in batches:
        if batch.first + batch.count <= first:
            continue
        part = cut(batch, first, last, messages_max, bytes_max - RUN_ROOM)
        if part.count:
            found.append(part)
            messages_max -= part.count
            bytes_max -= RUN_ROOM + len(part.records)
        if part.first + part.count < min(batch.first + batch.count, last + 1):
            break  # a bound is reached
    return found


def encode(response: FetchResponse, batches: list[FetchedBatch]) -> list[Records]:
    """*response* with the records and runs of *batches*, as pieces of its encoding."""
    position = 0
    for batch in batches:
        response.runs.add(first_sequence=batch.first, count=batch.count, timestamp=batch.timestamp, position=position)
        position += len(batch.records)
    pieces: list[Records] = [response.SerializeToString()]
    if position:
        pieces.append(_RECORDS_TAG + varint(position))
        pieces += [batch.records for batch in batches]
    return pieces


def bare(record: Records) -> list[Records]:
    """An answer with one message and nothing else."""
    return [_RECORDS_TAG + varint(len(record)), record]


def messages(records: bytes, runs: Iterable[Run]) -> Iterator[bytes]:
    """The MsgProtos of an answer, one by one. Raises ValueError if the records are cut off."""
    end = len(records)
    length_at = _LENGTH.unpack_from
    for run in runs:
        at = run.position
        for _ in range(run.count):
            start = at + LENGTH_PREFIX
            at = start + length_at(records, at)[0] if start <= end else start
            if at > end:
                raise ValueError("record cut off")
            yield records[start:at]
