"""The log of one group in memory: the twin of `FileLog` that `-st memory` asks for.

Promises the same order, visibility and trimming as the log on disk; nothing outlives the process, so an appended entry counts as
durable at once. Contract: tests/contracts/test_group_log.py.
"""

from collections import deque
from collections.abc import Sequence as Seq
from itertools import islice

from stan_protocol.scalars import RaftIndex, Term

from stan.invariant import invariant
from stan.log.channel_indexes import ChannelIndexes, Visible
from stan.log.index import GAP, Removed
from stan.log.tail import DecompressedBatches
from stan.log.types import BatchRef, BatchRow, DecompressedTotals, Entry, StaleRef
from stan.log.uncommitted import Placed, UncommittedEntries
from stan.protocol.entries import BATCH_HEADER, REFERENCE, Kind, RecordBatch, decode_batches


class MemoryLog(Visible):
    """`GroupLog` without files.

    The place of a batch is its entry (as segment) and its position in the entry's body. Its records go when its last
    message is trimmed.
    """

    syncs_alone = True

    def __init__(self, *, overhead: int = 0, replayable: bool = False) -> None:
        """Make an empty log.

        Args:
            overhead: bytes that a channel accounts per message on top of its encoding (STAN-SPEC 7.1: none in memory).
            replayable: hold committed entries until release(), so that other nodes can get them; else commit() releases
                them, as this node never replays a log in memory.
        """
        self._replayable = replayable
        self._entries: deque[Entry] = deque()
        self._last_index = RaftIndex(0)
        self._last_term = Term(0)
        self._before = (RaftIndex(0), Term(0))  # index and term of the newest released entry
        self._committed = RaftIndex(0)
        self._records: dict[tuple[int, int], bytes | memoryview] = {}  # as stored
        self._decompressed = DecompressedBatches()
        self._channels = ChannelIndexes(self, overhead)
        self._uncommitted = UncommittedEntries(iter(()), RaftIndex(0))

    @property
    def decompression(self) -> DecompressedTotals:
        """Totals of decompression since the log was opened."""
        return self._decompressed.totals

    @property
    def first_index(self) -> RaftIndex:
        """Oldest entry that is not released; last_index + 1 if there is none."""
        return RaftIndex(self._before[0] + 1)

    @property
    def last_index(self) -> RaftIndex:
        """Newest appended entry; 0 if there never was one."""
        return self._last_index

    @property
    def last_term(self) -> Term:
        """Term of the newest entry; 0 if there never was one."""
        return self._last_term

    @property
    def durable_index(self) -> RaftIndex:
        """The newest entry: nothing here is more durable than memory."""
        return self._last_index

    @property
    def sealed_index(self) -> RaftIndex:
        """Always 0: there are no segments."""
        return RaftIndex(0)

    @property
    def size(self) -> int:
        """Bytes of all records in memory."""
        return sum(map(len, list(self._records.values())))

    def has_room(self, _size: int) -> bool:
        """True: memory always has room."""
        return True

    def append(self, entries: Seq[Entry]) -> None:
        """Append consecutive entries, the first at last_index + 1; always succeeds."""
        for entry in entries:
            last, term = self._last_index, self._last_term
            invariant(entry.index == last + 1, "entries are consecutive", index=entry.index, last_index=last)
            invariant(entry.term >= term, "terms never go back", term=entry.term, last_term=term)
            segment = entry.index % GAP
            rows: list[BatchRow] = []
            for uid, base, count, timestamp, first, records, at, size, staged, expiry in _batches(entry):
                length = len(records) if not staged else REFERENCE.size
                rows.append(BatchRow(uid, base, count, timestamp, first, at, length, size, staged, expiry))
                if staged:
                    continue
                alone = at == BATCH_HEADER.size and at + len(records) == len(entry.body)
                # A view of one of several batches would keep the memory of all of them.
                self._records[segment, at] = records if alone else bytes(records)
            self._entries.append(entry)
            self._uncommitted.add(Placed(entry.index, segment, rows))
            self._last_index, self._last_term = entry.index, entry.term

    def sync(self) -> RaftIndex:
        """Do nothing, as there is no disk; returns durable_index, which is the newest entry."""
        return self._last_index

    def entries(self, first: RaftIndex, last: RaftIndex, bytes_max: int) -> list[Entry]:
        """Entries [first, last] that are not released, cut off after *bytes_max* bytes of bodies but at least one."""
        start = max(0, first - self.first_index)
        entries: list[Entry] = []
        size = 0
        for entry in islice(self._entries, start, max(start, last - self.first_index + 1)):
            size += len(entry.body)
            if entries and size > bytes_max:
                break
            entries.append(entry)
        return entries

    def index_of(self, ref: BatchRef) -> RaftIndex:
        """The index of the entry that has the batch: its segment number shows it."""
        return RaftIndex(self._last_index - (self._last_index - ref.segment) % GAP)

    def term_at(self, index: RaftIndex) -> Term:
        """Term of the entry at *index*, also of the newest released one; 0 if it is not there."""
        if index == self._before[0]:
            return self._before[1]
        if not self.first_index <= index <= self._last_index:
            return Term(0)
        return self._entries[index - self.first_index].term

    def truncate_after(self, index: RaftIndex) -> None:
        """Remove every entry after *index* with its records (Raft: a conflicting suffix). Never below a committed index."""
        invariant(index >= self._committed, "L3: committed entries stay", index=index, committed=self._committed)
        for placed in self._uncommitted.truncate_after(index):
            for row in placed.rows:
                self._records.pop((placed.segment, row.position), None)  # a reference has none
        self._decompressed.clear()
        while self._last_index > index:
            self._entries.pop()
            self._last_index = RaftIndex(self._last_index - 1)
        self._last_term = self._entries[-1].term if self._entries else self._before[1]

    def commit(self, index: RaftIndex) -> None:
        """Commit everything up to *index*, which makes it visible; released at once unless the log is replayable."""
        super().commit(index)
        if not self._replayable:
            self.release(index)

    def read(self, ref: BatchRef, *, stored: bool = False) -> bytes:  # noqa: ARG002 - memory is where they are
        """The records of one batch. Raises StaleRef if they are removed."""
        stored_records = self._records.get((ref.segment, ref.position))
        if stored_records is None:
            raise StaleRef(f"batch {ref.base_sequence} is gone")
        if ref.staged:
            return bytes(ref.records(stored_records))
        if not ref.size or ref.as_stored:
            return bytes(stored_records)
        return self._decompressed.get(ref) or self._decompressed.make(ref, stored_records)

    def recent(self, ref: BatchRef) -> bytes | memoryview | None:
        """The records of one batch; None if they are removed, or would have to be decompressed. Never blocks."""
        records = self._records.get((ref.segment, ref.position))
        if records is None:
            return None
        if ref.staged:
            return ref.records(records)
        return records if not ref.size or ref.as_stored else self._decompressed.get(ref)

    def added(self, segment: int, row: BatchRow) -> None:
        """SpaceAccounting: do nothing; the records of the batch are in memory since it was appended."""

    def refused(self, segment: int, row: BatchRow) -> None:
        """SpaceAccounting: free a batch that was removed before it was committed."""
        del self._records[segment, row.position]

    def removed(self, removed: Removed) -> None:
        """SpaceAccounting: free the records."""
        for place in zip(removed.segments, removed.positions, strict=True):
            self._records.pop(place, None)  # a gap has none

    def release(self, index: RaftIndex) -> None:
        """Forget the committed entries up to *index*; the live records stay."""
        while self._entries and self._entries[0].index <= min(index, self._committed):
            entry = self._entries.popleft()
            self._before = (entry.index, entry.term)

    def clean(self) -> str | None:
        """Always None: records are freed when they are removed, so there is nothing to clean."""
        return None

    def close(self) -> None:
        """Do nothing: there is no file."""


def _batches(entry: Entry) -> list[RecordBatch]:
    """The record batches of an entry of any kind."""
    return decode_batches(entry.body) if entry.kind == Kind.RECORDS else []
