"""Index of one channel inside its group's log: the record batches with their sequences and places.

Promises: pure memory, 36 bytes a batch, nothing allocated for a channel without messages; only batches that the log hands
to `add` (committed ones) are in it. Never reads a file and never deletes one: `trim` returns the removed rows.
Modelled on Kafka's offset and time index, with columns instead of files.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Container
from itertools import groupby
from typing import NamedTuple, Self

from stan_protocol.scalars import ChannelUid, RaftIndex, Sequence, WallNanos

from stan.invariant import broken, invariant
from stan.log.references import StagedPlace
from stan.log.types import BatchRef, BatchRow

GAP = 0xFFFF_FFFF
"""The segment number of a row for sequences that are lost; no segment has this number. A row without records that has another
segment number is for sequences that a batch leaves unused."""
LENGTH_PREFIX = 4
"""Bytes in front of each message of a batch (protocol.entries)."""
COMPACT_ROWS_MIN = 64
"""Removed rows stay in front until there are this many and they are half of all: cheap trimming, bounded memory."""


class Removed(NamedTuple):
    """Rows that left the index, column by column."""

    segments: "array[int]"
    positions: "array[int]"
    lengths: "array[int]"
    staged: list[StagedPlace]  # places of the messages of rows that were references

    def by_segment(self) -> list[tuple[int, int, int]]:
        """(segment, batches, bytes of records) for each run of rows in one segment."""
        runs = []
        start = 0
        for segment, rows in groupby(self.segments):
            count = sum(1 for _ in rows)
            if segment != GAP:
                runs.append((segment, count, sum(self.lengths[start : start + count])))
            start += count
        return runs

    @classmethod
    def place(cls, segment: int, position: int, length: int = 0) -> Self:
        """Return a single removed batch, by default without records."""
        return cls(array("I", [segment]), array("I", [position]), array("I", [length]), [])


class Tail(NamedTuple):
    """The place of a batch without records in a channel without messages: the only trace that its sequences were used."""

    base: Sequence
    segment: int
    position: int


class _Rows:
    """Columns of the index; the rows from `head` on are live.

    A row ends where the next one begins; the last ends at the channel's last written sequence.
    """

    __slots__ = ("base", "compressed", "head", "length", "position", "segment", "size_before", "timestamp")

    def __init__(self) -> None:
        self.head = 0
        self.compressed = False  # one row is, or was
        self.base = array("Q")
        self.timestamp = array("q")
        self.size_before = array("Q")  # accounted bytes of all earlier rows, also of removed ones
        self.segment = array("I")
        self.position = array("I")
        self.length = array("I")

    def append(self, base: int, timestamp: int, size_before: int, segment: int, position: int, length: int) -> None:
        """Add a row."""
        self.base.append(base)
        self.timestamp.append(timestamp)
        self.size_before.append(size_before)
        self.segment.append(segment)
        self.position.append(position)
        self.length.append(length)

    def compact(self) -> None:
        """Forget removed rows, now and then."""
        if self.head < COMPACT_ROWS_MIN or 2 * self.head < len(self.base):
            return
        for column in (self.base, self.timestamp, self.size_before, self.segment, self.position, self.length):
            del column[: self.head]
        self.head = 0


class BatchIndex:
    """`ChannelIndex` over compact columns.

    Invariants:
        S1  batches are dense: base_sequence = last written + 1, except for a first batch and over lost entries.
        S2  first_sequence <= last_sequence + 1, and both only grow.

    `bytes` and `first_within_bytes` count the messages of a partly removed batch as equally large.
    """

    __slots__ = (
        "_beside",
        "_last_timestamp",
        "_rows",
        "_size",
        "_written",
        "first_sequence",
        "floor",
        "raft_index",
        "referred",
        "staged",
        "tail",
        "uid",
    )

    def __init__(self, uid: ChannelUid, overhead: int) -> None:
        self.uid = uid
        self.raft_index = RaftIndex(0)  # of the newest batch
        self.first_sequence = Sequence(0)
        """Sequence of the oldest live message; 0 if the channel never had a message, last + 1 if all were removed."""
        self.floor = Sequence(0)  # messages below are removed
        self.tail: Tail | None = None
        self.staged: dict[int, StagedPlace] | None = None
        """By base sequence: the places of the messages of references. The row has the place of the reference."""
        self.referred: Container[int] = ()
        """Base sequences of batches that others refer to: they are not reported as removed."""
        self._beside = overhead - LENGTH_PREFIX  # bytes accounted per message beside its records
        self._written = Sequence(0)  # newest sequence of a batch; 0 before the first
        self._size = 0  # accounted bytes of all rows ever
        self._last_timestamp = WallNanos(0)
        self._rows: _Rows | None = None

    def __repr__(self) -> str:
        return f"<BatchIndex {self.uid} first={self.first_sequence} last={self.last_sequence} bytes={self.bytes}>"

    # --- changes by the log ----------------------------------------------------------------------------------------
    def add(
        self,
        row: BatchRow,
        segment: int,
        *,
        raft_index: RaftIndex,
        hole: RaftIndex,
        staged: StagedPlace | None = None,
    ) -> bool:
        """Append a committed batch; False if trim() already removed all of it. One without records stays like any other.
        *staged*: the place of its messages if it is a reference.

        *hole* is the newest raft index before this one that the log does not have; sequences may be missing only if a
        batch of this channel can have been in it. A timestamp before its predecessor's counts as the predecessor's.
        """
        written = self._written
        _, base, count, timestamp, _, position, length, size, *_ = row
        if base != written + 1 or count < 1:
            allowed = not written or (base > written and self.raft_index <= hole)
            invariant(
                allowed and count > 0,
                "S1: sequences are dense",
                uid=self.uid,
                base=base,
                count=count,
                last=written,
                raft_index=raft_index,
            )
        self._written = last = Sequence(base + count - 1)
        self.raft_index = raft_index
        self.tail = None
        self._last_timestamp = timestamp = max(timestamp, self._last_timestamp)
        if last < self.floor:
            return False
        rows = self._rows
        if rows is None:
            if not length:  # no records at all: these sequences stay unused
                self.tail = Tail(base, segment, position)
                self.first_sequence = Sequence(last + 1)
                return True
            rows = self._rows = _Rows()
            self.first_sequence = max(self.floor, base)
        elif base != written + 1:
            rows.append(written + 1, timestamp, self._size, GAP, 0, 0)
        rows.append(base, timestamp, self._size, segment, position, length)
        if size:
            rows.compressed = True
        if length:
            self._size += (size or length) + self._beside * count
        if staged is not None:
            if self.staged is None:
                self.staged = {}
            self.staged[base] = staged
        return True

    def trim(self, first: Sequence) -> Removed | None:
        """Remove the messages below *first*; returns the rows without a live message, None if there are none.

        A *first* beyond last_sequence + 1 (state restored before the log was replayed) raises last_sequence too.
        """
        if first <= self.floor:
            return None
        self.floor = first
        if first > self._written:
            self.tail = None
        removed = self._cut(first)
        rows, last = self._rows, self.last_sequence
        if last:
            self.first_sequence = Sequence(last + 1 if rows is None else max(first, rows.base[rows.head]))
        return removed

    def _cut(self, first: Sequence) -> Removed | None:
        """Drop the rows without a message from *first* on."""
        rows = self._rows
        if rows is None:
            return None
        head = rows.head
        if first > self._written:
            keep = len(rows.base)
        else:
            keep = max(head, bisect_right(rows.base, first, head) - 1)
            while keep < len(rows.base) and not rows.length[keep]:
                keep += 1
        if keep == head:
            return None
        removed = Removed(rows.segment[head:keep], rows.position[head:keep], rows.length[head:keep], [])
        if self.staged:
            for base in rows.base[head:keep]:
                if (place := self.staged.pop(base, None)) is not None:
                    removed.staged.append(place)
        elif self.referred:
            removed = self._unreferred(removed, rows.base[head:keep])
        if keep == len(rows.base):
            self._rows = None
        else:
            rows.head = keep
            rows.compact()
        return removed

    def _unreferred(self, removed: Removed, bases: "array[int]") -> Removed:
        """Return the part of *removed* that no batch refers to."""
        free = [at for at, base in enumerate(bases) if base not in self.referred]
        segments, positions, lengths, staged = removed
        return Removed(
            array("I", map(segments.__getitem__, free)),
            array("I", map(positions.__getitem__, free)),
            array("I", map(lengths.__getitem__, free)),
            staged,
        )

    def alone(self, sequence: Sequence) -> StagedPlace | None:
        """Return the place of the batch with this message alone; None if there is none, or it is not live."""
        refs = self.refs(sequence, sequence, 0, 1)
        if not refs or refs[0].base_sequence != sequence or refs[0].count != 1:
            return None
        return StagedPlace(sequence, refs[0].segment, refs[0].position, refs[0].length)

    def move(self, base: Sequence, source: int, target: int, position: int) -> bool:
        """Move the batch at *base* from segment *source* to *target*; False if it is not live any more."""
        if self.tail is not None and self.tail[:2] == (base, source):
            self.tail = Tail(base, target, position)
            return True
        rows = self._rows
        if rows is None:
            return False
        row = bisect_left(rows.base, base, rows.head)
        if row == len(rows.base) or rows.base[row] != base or rows.segment[row] != source:
            return False
        rows.segment[row] = target
        rows.position[row] = position
        return True

    def move_staged(self, base: int, source: int, target: int, position: int) -> bool:
        """Move the messages of the reference at *base* from segment *source* to *target*; False if it is not live any more."""
        place = self.staged.get(base) if self.staged else None
        if self.staged is None or place is None or place.segment != source:
            return False
        self.staged[base] = place._replace(segment=target, position=position)
        return True

    def replace(self, source: int, target: int, span: tuple[int, int], rows: list[BatchRow]) -> list[BatchRow]:
        """Move the batches between the sequences *span* from segment *source* to *target*, some with fewer messages:
        *rows* are the new ones. Returns those of *rows* that are live and have messages, or are the channel's tail.

        Cost: O(rows before them, and their own)."""
        if self.tail is not None:
            tails = [row for row in rows if (row.base_sequence, source) == self.tail[:2]]
            if tails:
                self.tail = Tail(tails[0].base_sequence, target, tails[0].position)
            return tails
        columns = self._rows
        if columns is None:
            return []
        begin = max(columns.head, bisect_left(columns.base, span[0], columns.head))
        end = bisect_right(columns.base, span[1], begin)
        if columns.head < begin < end and columns.segment[begin] not in (source, GAP):
            raise broken("a segment's batches are together", uid=self.uid, source=source, span=span)
        if begin == end:
            return []
        first = max(columns.base[begin], self.floor)
        live = [row for row in rows if row.length and row.base_sequence + row.count > first]
        behind = columns.base[end] if end < len(columns.base) else self._written + 1
        before = columns.size_before[begin]
        less = (columns.size_before[end] if end < len(columns.base) else self._size) - before
        less -= sum(row.clear_length + self._beside * row.count for row in live)
        made, size, at = _Rows(), before + less, columns.base[begin]
        for row in live:
            base = row.base_sequence
            if base > at and (made.base or begin > columns.head):
                made.append(at, row.timestamp, size, GAP, 0, 0)
            made.append(base, row.timestamp, size, target, row.position, row.length)
            size, at = size + row.clear_length + self._beside * row.count, base + row.count
        if at < behind and (made.base or begin > columns.head):
            made.append(at, columns.timestamp[end - 1], size, GAP, 0, 0)
        made.size_before = array("Q", (before + less for before in columns.size_before[:begin])) + made.size_before
        columns.size_before[:end] = made.size_before
        for name in ("base", "timestamp", "segment", "position", "length"):
            getattr(columns, name)[begin:end] = getattr(made, name)
        self._drop_gaps(columns)
        return live

    def _drop_gaps(self, columns: "_Rows") -> None:
        """Drop gaps at the beginning, so that the oldest row has messages."""
        while columns.head < len(columns.base) and not columns.length[columns.head]:
            columns.head += 1
        if columns.head == len(columns.base):
            self._rows, self.first_sequence = None, Sequence(self.last_sequence + 1)
        else:
            self.first_sequence = max(self.first_sequence, Sequence(columns.base[columns.head]))

    def bytes_up_to(self, sequence: int) -> int:
        """Accounted bytes of the live batches that begin at *sequence* or before."""
        rows = self._rows
        if rows is None:
            return 0
        row = bisect_right(rows.base, sequence, rows.head)
        return (rows.size_before[row] if row < len(rows.base) else self._size) - rows.size_before[rows.head]

    def last_outside(self, segments: Container[int]) -> Sequence:
        """The last sequence of the batches in front of *segments*, the numbers of the newest ones of the log; 0: none."""
        rows = self._rows
        if rows is None:
            return Sequence(0)
        row = bisect_left(rows.segment, 1, rows.head, key=segments.__contains__)
        return Sequence((rows.base[row] if row < len(rows.base) else self._written + 1) - 1)

    # --- reading ---------------------------------------------------------------------------------------------------
    @property
    def last_sequence(self) -> Sequence:
        """Sequence of the newest committed message; 0 if none."""
        return max(self._written, Sequence(self.floor - 1))

    @property
    def bytes(self) -> int:
        """Accounted bytes of the live messages. Exact except for a partly removed first batch."""
        rows = self._rows
        if rows is None:
            return 0
        head = rows.head
        whole = self._size - rows.size_before[head]
        removed = self.first_sequence - rows.base[head]
        if not removed:
            return whole
        size, count = self._extent(rows, head)
        return whole - size + -(-size * (count - removed) // count)

    @property
    def compression(self) -> tuple[int, int]:
        """Bytes of the batches in clear, and as stored, if some are compressed; 0, 0: none is, or rows of
        transactions lie elsewhere.

        Cost: O(batches), of a channel that has had a compressed one."""
        rows = self._rows
        if rows is None or not rows.compressed or self.staged:
            return 0, 0
        head = rows.head
        lengths, ends = rows.length[head:], rows.base[head + 1 :]
        count = self._written + 1 - rows.base[head]
        if 0 in lengths:
            ends.append(self._written + 1)
            count -= sum(
                end - base for base, end, size in zip(rows.base[head:], ends, lengths, strict=True) if not size
            )
        return self._size - rows.size_before[head] - self._beside * count, sum(lengths)

    def accounted(self, record_bytes: int, count: int) -> int:
        """Bytes that *count* messages in *record_bytes* of records add to `bytes`."""
        return record_bytes + self._beside * count

    @property
    def last_timestamp(self) -> WallNanos:
        """Timestamp of the newest message ever; 0 if none."""
        return self._last_timestamp

    @property
    def first_timestamp(self) -> WallNanos:
        """Timestamp of the oldest live message; 0 if none."""
        rows = self._rows
        return WallNanos(rows.timestamp[rows.head] if rows else 0)

    def refs(self, first: Sequence, last: Sequence, bytes_max: int, batches_max: int) -> list[BatchRef]:
        """Batches that overlap [first, last], in order, cut off after *bytes_max* bytes or *batches_max* batches.

        At least one batch if there is any. Batches are whole: the first may begin below first_sequence, the last end after
        *last*."""
        rows = self._rows
        if rows is None or first > self._written:
            return []
        refs: list[BatchRef] = []
        room = bytes_max
        base, before = rows.base, rows.size_before
        for row in range(max(rows.head, bisect_right(base, first, rows.head) - 1), len(base)):
            if base[row] > last or len(refs) == batches_max:
                break
            length = rows.length[row]
            if not length:
                continue
            after = row + 1
            if after < len(base):
                count, size = base[after] - base[row], before[after] - before[row]
            else:
                count, size = self._written + 1 - base[row], self._size - before[row]
            size -= self._beside * count
            room -= size
            if refs and room < 0:
                break
            place = (base[row], count, rows.timestamp[row], rows.segment[row], rows.position[row], length)
            refs.append(BatchRef._make((*place, size if size != length else 0, 0, False, 0)))
        return refs if self.staged is None else [*map(self._placed, refs)]

    def _placed(self, ref: BatchRef) -> BatchRef:
        """The same batch, with the place of its messages if it is a reference."""
        place = self.staged.get(ref.base_sequence) if self.staged else None
        if place is None:
            return ref
        sequence, segment, position, length, expiry = place
        return ref._replace(segment=segment, position=position, length=length, size=0, staged=sequence, expiry=expiry)

    def refs_before(self, last: Sequence, bytes_max: int, batches_max: int) -> list[BatchRef]:
        """Batches that begin at *last* or before, the newest first, cut off as by `refs`."""
        rows = self._rows
        refs: list[BatchRef] = []
        if rows is None:
            return refs
        base, room = rows.base, bytes_max
        for row in range(bisect_right(base, last, rows.head) - 1, rows.head - 1, -1):
            length = rows.length[row]
            if not length:
                continue
            size, count = self._extent(rows, row)
            size -= self._beside * count
            room -= size
            if len(refs) == batches_max or (refs and room < 0):
                break
            refs.append(
                BatchRef(
                    Sequence(base[row]),
                    count,
                    WallNanos(rows.timestamp[row]),
                    rows.segment[row],
                    rows.position[row],
                    length,
                    size if size != length else 0,
                )
            )
        return refs if self.staged is None else [*map(self._placed, refs)]

    def sequence_at(self, timestamp: WallNanos) -> Sequence:
        """First live sequence at or after *timestamp*; last + 1 if none; 0 if the channel never had a message."""
        rows = self._rows
        if rows is None:
            return self.first_sequence
        row = bisect_left(rows.timestamp, timestamp, rows.head)
        if row == len(rows.base):
            return Sequence(self._written + 1)
        while not rows.length[row]:  # carries the timestamp of the batch after it
            row += 1
            if row == len(rows.base):
                return Sequence(self._written + 1)
        return max(self.floor, Sequence(rows.base[row]))

    def timestamp_before(self, sequence: int) -> WallNanos:
        """Timestamp of the newest message below *sequence*; 0 if none is there."""
        rows = self._rows
        if rows is None:
            return WallNanos(0)
        row = bisect_left(rows.base, sequence, rows.head) - 1
        while row >= rows.head and rows.segment[row] == GAP:  # carries the timestamp of the batch after it
            row -= 1
        return WallNanos(rows.timestamp[row] if row >= rows.head else 0)

    def kept_from(self, sequence: Sequence) -> Sequence:
        """First live sequence at or after *sequence*; last + 1 if there is none. Those in batches without records are not."""
        rows, end = self._rows, Sequence(self.last_sequence + 1)
        if rows is None or sequence >= end:
            return end
        base = rows.base
        row = max(rows.head, bisect_right(base, sequence, rows.head) - 1)
        first = max(sequence, self.first_sequence)
        while not rows.length[row]:
            row += 1
            if row == len(base):
                return end
            first = Sequence(base[row])
        return first

    def first_within_bytes(self, bytes_max: int) -> Sequence:
        """Smallest first sequence with which the accounted bytes are within *bytes_max*; the newest message always stays."""
        rows = self._rows
        if rows is None:
            return self.first_sequence
        row = bisect_left(rows.size_before, self._size - bytes_max, rows.head)
        first = rows.base[row] if row < len(rows.base) else self._written + 1
        if row > rows.head:
            size, count = self._extent(rows, row - 1)
            room = bytes_max - (self._size - rows.size_before[row - 1] - size)
            first -= room * count // size if size else 0
        newest, last = self._written, len(rows.base) - 1
        while not rows.length[last]:
            newest, last = Sequence(rows.base[last] - 1), last - 1
        return Sequence(max(self.first_sequence, min(first, newest)))

    def _extent(self, rows: _Rows, row: int) -> tuple[int, int]:
        """Accounted bytes and number of sequences of one row."""
        after = row + 1
        if after < len(rows.base):
            return rows.size_before[after] - rows.size_before[row], rows.base[after] - rows.base[row]
        return self._size - rows.size_before[row], self._written + 1 - rows.base[row]
