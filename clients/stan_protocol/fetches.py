"""Answers to fetch requests: record batches cut to the requested range, and walked through again at the other end. Pure.

A compressed batch goes as stored to readers that request that: as one frame, with the range of messages that count.

Promises: messages are never re-encoded and never copied before the answer is put together; of a batch that is sent whole not
even the lengths are read. Works on record batches as `kernel.seal` makes them: u32 little-endian length and MsgProto per message.
"""

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from stan_protocol.compression import rows_of
from stan_protocol.kernel.rows import behind, seal
from stan_protocol.kernel.wire_py import varint
from stan_protocol.limits import COMPRESSED_BYTES_MAX
from stan_protocol.proto.extension_pb2 import FetchResponse, Run

LENGTH_PREFIX = 4
"""Bytes in front of each message."""
RUN_ROOM = 40
"""Bytes that a run of messages takes beside its records: tag and length, sequence, count, timestamp, position."""
HEAD_ROOM = 120
"""Bytes of everything else in an answer without error."""
BARE_ROOM = 5
"""Bytes beside the record in an answer that holds nothing else: tag and length, of 64 MiB at most."""

_LENGTH = Struct("<I")
_RECORDS_TAG = bytes([FetchResponse.RECORDS_FIELD_NUMBER << 3 | 2])

Records = bytes | memoryview


class FetchedBatch(NamedTuple):
    """A record batch of a channel, or a part of one."""

    first: int
    count: int  # type: ignore[assignment] # hides tuple.count, which is not called on a batch
    timestamp: int
    records: Records
    rows: int = 0  # above 0: `records` is the frame of so many messages; those that are meant ...
    skipped: int = 0  # ... are behind as many others

    @property
    def room(self) -> int:
        """Bytes that it takes of an answer."""
        return len(self.records) + (2 * RUN_ROOM if self.rows else RUN_ROOM)


def cut(batch: FetchedBatch, first: int, last: int, messages_max: int, bytes_max: int) -> FetchedBatch:
    """The messages [first, last] of *batch*, as many from the front as are within both bounds; count 0 if none is."""
    skipped = max(0, first - batch.first)
    count = min(batch.count - skipped, last - batch.first - skipped + 1, messages_max)
    if count <= 0 or (batch.rows and len(batch.records) + RUN_ROOM > bytes_max):
        return batch._replace(count=0, records=b"")
    if batch.rows:
        return batch._replace(first=batch.first + skipped, count=count, skipped=skipped)
    if count == batch.count and len(batch.records) <= bytes_max:
        return batch
    size = len(batch.records)
    _, begin = behind(batch.records, 0, skipped, size)
    number, end = behind(batch.records, begin, count, min(bytes_max, size))
    return FetchedBatch(batch.first + skipped, number, batch.timestamp, memoryview(batch.records)[begin:end])


def select(
    batches: Iterable[FetchedBatch], first: int, last: int, messages_max: int, bytes_max: int
) -> list[FetchedBatch]:
    """The messages [first, last] of *batches*, as many from the front as are within both bounds, each batch's with its run."""
    parts: list[FetchedBatch] = []
    for batch in batches:
        if batch.first + batch.count <= first:
            continue
        part = cut(batch, first, last, messages_max, bytes_max - RUN_ROOM)
        if part.count:
            parts.append(part)
            messages_max -= part.count
            bytes_max -= part.room
        if part.first + part.count < min(batch.first + batch.count, last + 1):
            break  # a bound is reached
    return parts


def encode(response: FetchResponse, batches: list[FetchedBatch]) -> list[Records]:
    """*response* with the records and runs of *batches*, as pieces of its encoding."""
    position = 0
    for batch in batches:
        run = response.runs.add(
            first_sequence=batch.first, count=batch.count, timestamp=batch.timestamp, position=position
        )
        if batch.rows:
            run.compressed, run.skipped, run.rows = len(batch.records), batch.skipped, batch.rows
        position += len(batch.records)
    pieces: list[Records] = [response.SerializeToString()]
    if position:
        pieces.append(_RECORDS_TAG + varint(position))
        pieces += [batch.records for batch in batches]
    return pieces


def bare(record: Records) -> list[Records]:
    """An answer with one message and nothing else."""
    return [_RECORDS_TAG + varint(len(record)), record]


def in_clear(channel: bytes, records: bytes, runs: list[Run]) -> tuple[bytes, list[Run]]:
    """The records and runs of an answer about *channel*, without frames. Raises ValueError: one is no frame, or of other rows."""
    if not any(run.compressed for run in runs):
        return records, runs
    parts: list[Records] = []
    made: list[Run] = []
    position = 0
    for run, after in zip(runs, [*runs[1:], None], strict=True):
        piece: Records = records[run.position : len(records) if after is None else after.position]
        if run.compressed:
            base = run.first_sequence - run.skipped
            rows = rows_of(piece[: run.compressed], COMPRESSED_BYTES_MAX)
            whole = FetchedBatch(base, run.rows, run.timestamp, seal(channel, base, run.timestamp, [rows]))
            last = run.first_sequence + run.count - 1
            piece = cut(whole, run.first_sequence, last, run.count, len(whole.records)).records
        parts.append(piece)
        made.append(Run(first_sequence=run.first_sequence, count=run.count, timestamp=run.timestamp, position=position))
        position += len(piece)
    return b"".join(parts), made


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
