"""The common types of the logs: entries, places of record batches, and GroupLog, the port that each of them implements.

The Raft log of a group *is* its message log: an entry of kind RECORDS carries the messages, and a channel is an
index into it. Modelled on Liftbridge's commitlog interface: the whole log on one page.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from stan_protocol.scalars import ChannelUid, RaftIndex, Sequence, Term, WallNanos

from stan.core.base.compaction import Compaction, CompactionState, CompactionTotals
from stan.core.base.ready import Index
from stan.errors import NotNow
from stan.protocol.staged import sealed


class StaleRef(NotNow):
    """The batch's place is no longer valid: its segment was deleted or rewritten since the index gave it out.

    The index, read again, has a valid place if it still has the batch.
    """


class Entry(NamedTuple):
    """An entry of a group's log."""

    index: RaftIndex  # type: ignore[assignment] # hides tuple.index, which nobody calls on an entry
    term: Term
    kind: int  # protocol.entries.Kind
    body: bytes


class BatchRef(NamedTuple):
    """The place of a channel's record batch; the messages are [base_sequence, base_sequence + count - 1].

    If they lie where they were staged, place and length are those of the hidden channel's batch (stan.log.references)."""

    base_sequence: Sequence
    count: int  # type: ignore[assignment] # hides tuple.count, which nobody calls on a place
    timestamp: WallNanos
    segment: int  # number of the segment inside its log
    position: int  # of the first byte of the records (not of the batch header) in the segment file
    length: int  # bytes of the records as stored
    size: int = 0  # bytes of the records if they are stored compressed; 0: they are not
    staged: Sequence = Sequence(0)  # message of the hidden channel that has them; 0: they are the channel's own
    as_stored: bool = False  # read a compressed batch as it is stored, else its records
    expiry: int = 0  # of messages that are `staged`: when they expire, in Unix seconds; 0: they do not

    @property
    def hidden(self) -> "BatchRef":
        """The batch of the hidden channel with the messages; only if `staged`."""
        return self._replace(base_sequence=self.staged, count=1, staged=Sequence(0))

    def records(self, stored: bytes | memoryview) -> bytes | memoryview:
        """The records that readers get, from the *stored* ones at the place; only if `staged`. Raises Damage."""
        return sealed(stored, self.base_sequence, self.timestamp, self.expiry)


class BatchRow(NamedTuple):
    """A record batch and its place in the segment file, or a reference to one and the reference's place."""

    uid: ChannelUid
    base_sequence: Sequence
    count: int  # type: ignore[assignment] # hides tuple.count, which nobody calls on a row
    timestamp: WallNanos
    first_sequence: Sequence
    position: int  # of the first byte of the records, or of the reference
    length: int  # of the records, in clear; of the reference
    size: int = (
        0  # bytes of the records that readers get, if they are made of these or of those referred to; 0: they are these
    )
    staged: Sequence = Sequence(0)  # message of the hidden channel that it refers to; 0: it is none
    expiry: int = 0  # of a reference, as of BatchRef

    @property
    def clear_length(self) -> int:
        """Bytes of the records as readers get them."""
        return self.size or self.length


class ChannelIndex(Index, Protocol):
    """Index of one channel inside its group's log: the core's view of it, and the places of the batches. Pure memory; only
    committed batches are in it, hence visible. `bytes` counts records minus their length prefixes plus `overhead` per message.
    """

    def refs(self, first: Sequence, last: Sequence, bytes_max: int, batches_max: int) -> list[BatchRef]:
        """Batches that overlap [first, last], in order, cut off after `bytes_max` bytes or `batches_max` batches
        (at least one batch if there is any)."""

    def refs_before(self, last: Sequence, bytes_max: int, batches_max: int) -> list[BatchRef]:
        """Batches that begin at *last* or before, the newest first, cut off as by `refs`."""


@dataclass(slots=True)
class DecompressedTotals:
    """Batches that a log has decompressed, for subscribers and other readers of messages in clear."""

    batches: int = 0
    clear_bytes: int = 0  # of the records made
    again: int = 0  # of the batches: those that were decompressed earlier, and dropped from memory
    cpu: int = 0  # ns of the processor that it took


class FoundChanges(NamedTuple):
    """The changes of a range of entries."""

    entries: list[Entry]  # of kind CHANGE; a change beside messages is one with the index of their entry
    next_index: RaftIndex  # the next one to read; above the newest committed entry: that was all


class GroupLog(Protocol):
    """Append-only log of one group. `append`, `commit`, `trim` run on the event loop; `sync`, `read`, `clean` may run in a
    worker thread beside them."""

    syncs_alone: bool
    """True if a sync waits for nothing but the disk. Otherwise a sync must not run on the event loop, on which it may depend."""

    @property
    def first_index(self) -> RaftIndex:
        """Oldest entry that can still be read by `entries`; last_index + 1 if none."""

    @property
    def last_index(self) -> RaftIndex:
        """Newest written entry; 0 if none."""

    @property
    def last_term(self) -> Term:
        """Term of the newest entry; 0 if none."""

    @property
    def durable_index(self) -> RaftIndex:
        """Newest entry known to be on stable storage."""

    @property
    def sealed_index(self) -> RaftIndex:
        """Newest entry of a sealed segment; 0 if none is sealed. Once durable state covers it, `release` may delete files."""

    def has_room(self, size: int) -> bool:
        """Return True if entries of *size* bytes could be written now. Blocking, as an append is."""

    def append(self, entries: Seq[Entry]) -> None:
        """Write *entries* (consecutive indexes, the first is last_index + 1) in one write; they are not durable yet.

        Raises Shortage (everything undone, the log goes on) or Frozen (the log accepts nothing more)."""

    def sync(self) -> RaftIndex:
        """Make everything appended before the call durable; returns the new durable_index. Blocking. Raises Frozen."""

    def entries(self, first: RaftIndex, last: RaftIndex, bytes_max: int) -> list[Entry]:
        """Entries [first, last], cut off after *bytes_max* bytes of bodies but at least one. Raises Damage."""

    def changes(self, first: RaftIndex, entries_max: int) -> FoundChanges:
        """The changes in the committed entries from *first* on, cut off after about *entries_max* entries; messages are not read.
        Removed entries are left out. Blocking, for a worker. Raises Damage."""

    def index_of(self, ref: BatchRef) -> RaftIndex:
        """The index of the entry that has the batch. Blocking, for a worker. Raises Damage, StaleRef."""

    def term_at(self, index: RaftIndex) -> Term:
        """Term of the entry at *index*, also of the one before first_index if it is known; 0 if it is not there."""

    def truncate_after(self, index: RaftIndex) -> None:
        """Remove every entry after *index*, durably (Raft: a conflicting suffix). Never below a committed index."""

    def commit(self, index: RaftIndex) -> None:
        """Commit everything up to *index*: its record batches get indexed, hence visible."""

    def channel(self, uid: ChannelUid) -> ChannelIndex:
        """Index of a channel; an empty one for a channel that never had a committed batch."""

    def read(self, ref: BatchRef, *, stored: bool = False) -> bytes:
        """The records of one batch, CRC verified, or its stored form if *ref* says so; *stored*: from the store, not
        from a cache. Raises Damage with file and position, StaleRef if it is removed (its segment was rewritten or
        deleted: read the index again)."""

    def recent(self, ref: BatchRef) -> bytes | memoryview | None:
        """The records of one batch if they are in memory, else None. Never blocks; for the event loop."""

    def read_at_once(self, refs: Seq[BatchRef]) -> Seq[bytes | memoryview] | None:
        """The records of batches, CRC verified, if all of them can be had without waiting for a disk or decompressing, else None.
        Never blocks; for the event loop."""

    def trim(self, uid: ChannelUid, first_sequence: Sequence) -> None:
        """Remove the messages below *first_sequence* (a committed decision); lower values are ignored."""

    def compact(self, marks: Mapping[ChannelUid, Compaction]) -> None:
        """Allow leaving out messages of these channels (a committed decision that durable state covers); `clean` does it."""

    def compacted(self) -> dict[ChannelUid, CompactionState]:
        """Return the compaction state of each channel since the log was opened."""

    @property
    def compaction(self) -> CompactionTotals:
        """Totals of compaction since the log was opened."""

    @property
    def decompression(self) -> DecompressedTotals:
        """Totals of decompression since the log was opened."""

    def drop(self, uid: ChannelUid) -> None:
        """Drop the channel; its messages no longer need a segment."""

    def release(self, index: RaftIndex) -> None:
        """Release entries up to *index*, which durable state covers; sealed segments without a live message and with nothing
        above *index* are deleted."""

    def clean(self) -> str | None:
        """Rewrite one sealed, released segment that is mostly removed messages, or has some that compaction leaves out; returns a
        line about it. Blocking, for a worker; the next commit() or release() takes the new file into use."""

    def channels(self) -> list[ChannelUid]:
        """Channels that have an index. After a start, the owner must drop() those that the registry does not have any more."""

    def close(self) -> None:
        """Sync and close the files."""
