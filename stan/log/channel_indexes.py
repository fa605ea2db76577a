"""The indexes of all channels of one group, and their changes when entries are committed, trimmed or dropped.

Every log has one; pure. It reports to the log's SpaceAccounting the batches that become live or dead, so that the log
knows which of its bytes are dead.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from typing import Protocol

from stan_protocol.scalars import ChannelUid, RaftIndex, Sequence

from stan.core.base.compaction import Compaction, CompactionState, CompactionTotals
from stan.invariant import broken
from stan.limits import CHANGES_BYTES_MAX
from stan.log.index import GAP, BatchIndex, Removed, Tail
from stan.log.references import StagedPlace
from stan.log.types import BatchRef, BatchRow, DecompressedTotals, Entry, FoundChanges
from stan.log.uncommitted import Placed, UncommittedEntries
from stan.protocol.entries import STAGING_UID, Kind, decode_records


class SpaceAccounting(Protocol):
    """Counts the live batches. Gets each committed batch once, by `added` or by `refused`."""

    def added(self, segment: int, row: BatchRow) -> None:
        """Count a batch that has become visible."""

    def refused(self, segment: int, row: BatchRow) -> None:
        """Count a committed batch whose messages were all removed before."""

    def removed(self, removed: Removed) -> None:
        """Count batches that are no longer live."""


class _Indexes(dict[ChannelUid, BatchIndex]):
    """The index of each channel, made empty when it is first read."""

    def __init__(self, overhead: int) -> None:
        super().__init__()
        self._overhead = overhead  # bytes accounted per message on top of its encoding

    def __missing__(self, uid: ChannelUid) -> BatchIndex:
        made = self[uid] = BatchIndex(uid, self._overhead)
        return made


class ChannelIndexes:
    """The index of each channel, made when it is first read or when the channel gets its first batch."""

    def __init__(
        self, accounting: SpaceAccounting, overhead: int, damaged: Seq[tuple[RaftIndex, RaftIndex]] = ()
    ) -> None:
        """*damaged*: the entries that damage has taken out of the log before it was opened, as (first, last) each."""
        self.by_uid = _Indexes(overhead)
        self.lost_until: dict[ChannelUid, Sequence] = {}
        """Of each channel of which *damaged* entries had messages: the newest of these that later ones follow."""
        self._damaged = damaged
        self._accounting = accounting
        # By message of the hidden channel: the reference to it, as uid and base sequence. It lives as long as the reference.
        self._referred: dict[int, tuple[ChannelUid, int]] = {}
        self._walked = RaftIndex(0)  # newest committed entry
        self._hole = RaftIndex(0)  # newest missing index before it

    def uids(self) -> list[ChannelUid]:
        """Channels that have an index: it was read, or the channel had a batch, and was not dropped since."""
        return list(self.by_uid)

    def commit(self, placed: Placed) -> None:
        """Index the batches of the next committed entry, and trim as their headers say."""
        index, segment, rows = placed
        if index != self._walked + 1:
            self._hole = RaftIndex(index - 1)
        self._walked = index
        for row in rows:
            channel = self.by_uid[row.uid]
            tail = channel.tail
            if self._damaged:
                self._look_for_loss(channel, row, index)
            if row.staged:
                self._refer(channel, row, segment, index)
            elif channel.add(row, segment, raft_index=index, hole=self._hole):
                self._accounting.added(segment, row)
                if row.first_sequence > channel.floor:
                    self._trim(channel, row.first_sequence)
            else:
                self._accounting.refused(segment, row)
            if tail is not None:
                self._release_tail(channel, tail)

    def _look_for_loss(self, channel: BatchIndex, row: BatchRow, index: RaftIndex) -> None:
        """Note messages in front of a batch that damage has taken."""
        if row.base_sequence > channel.last_sequence + 1 and any(
            last > channel.raft_index and first < index for first, last in self._damaged
        ):
            self.lost_until[row.uid] = Sequence(row.base_sequence - 1)

    def _refer(self, channel: BatchIndex, row: BatchRow, segment: int, index: RaftIndex) -> None:
        """Index a reference, and trim as it says."""
        hidden = self.by_uid[STAGING_UID]
        place = hidden.alone(row.staged)
        if place is None:  # nothing of the reference is live any more, or the entry with the rows is lost
            if self._damaged:
                self.lost_until[row.uid] = Sequence(row.base_sequence + row.count - 1)
            channel.add(row._replace(length=0, size=0), GAP, raft_index=index, hole=self._hole)
        elif channel.add(row, segment, raft_index=index, hole=self._hole, staged=place._replace(expiry=row.expiry)):
            hidden.referred = self._referred
            self._referred[row.staged] = row.uid, row.base_sequence
            self._accounting.added(segment, row)
        if row.first_sequence > channel.floor:
            self._trim(channel, row.first_sequence)

    def _release(self, place: StagedPlace) -> None:
        """Release a message of the hidden channel that no reference needs any more."""
        del self._referred[place.sequence]
        if place.sequence < self.by_uid[STAGING_UID].floor:
            self._accounting.removed(Removed.place(place.segment, place.position, place.length))

    def referred(self, uid: int, base: int) -> StagedPlace | None:
        """Return the place of the messages of the batch at *base*, if it is a reference. For any thread."""
        channel = self.by_uid.get(ChannelUid(uid))
        staged = channel.staged if channel is not None else None
        return staged.get(base) if staged else None

    def trim(self, uid: ChannelUid, first: Sequence) -> None:
        """Remove the messages of the channel below *first*; a lower *first* than before changes nothing."""
        self._trim(self.by_uid[uid], first)

    def drop(self, uid: ChannelUid) -> None:
        """Drop the channel's index; it is empty for those that still have a reference to it."""
        channel = self.by_uid.pop(uid, None)
        if channel is not None:
            self._trim(channel, Sequence(channel.last_sequence + 1))

    def is_live(self, row: BatchRow) -> bool:
        """True if a committed batch still has a live message, or one that a live batch refers to. In other threads the answer
        lags behind the event loop."""
        channel = self.by_uid.get(row.uid)
        if channel is not None and row.base_sequence + row.count > channel.floor:
            return True
        # Checked second: the hidden channel's floor rises only after its referred messages are noted.
        return row.uid == STAGING_UID and row.base_sequence in self._referred

    def move(self, row: BatchRow, source: int, target: int) -> bool:
        """Move a batch from one segment to *row*'s place in another; False if it is not live any more."""
        channel = self.by_uid.get(row.uid)
        moved = channel is not None and channel.move(row.base_sequence, source, target, row.position)
        if row.uid == STAGING_UID and (referred := self._referred.get(row.base_sequence)) is not None:
            uid, base = referred
            moved = self.by_uid[uid].move_staged(base, source, target, row.position) or moved
        return moved

    def replace(
        self, uid: ChannelUid, source: int, target: int, span: tuple[Sequence, Sequence], rows: list[BatchRow]
    ) -> list[BatchRow]:
        """Move a channel's batches of one segment to another one, some with fewer messages; see BatchIndex.replace."""
        channel = self.by_uid.get(uid)
        if channel is None:
            return []
        live = channel.replace(source, target, span, rows)
        if channel.staged:  # references that have become batches
            still = {row.base_sequence for row in live if row.staged}
            for base in [base for base in channel.staged if span[0] <= base <= span[1] and base not in still]:
                self._release(channel.staged.pop(base))
        return live

    def _trim(self, channel: BatchIndex, first: Sequence) -> None:
        tail = channel.tail
        removed = channel.trim(first)
        if removed is not None:
            self._accounting.removed(removed)
            for place in removed.staged:
                self._release(place)
        if tail is not None:
            self._release_tail(channel, tail)

    def _release_tail(self, channel: BatchIndex, tail: Tail) -> None:
        """Release *tail*, the channel's earlier tail, if a newer batch has taken its place."""
        if channel.tail is not tail:
            self._accounting.removed(Removed.place(tail.segment, tail.position))


class Visible:
    """The part of `GroupLog` that is the same in all logs: committed entries are visible."""

    _channels: ChannelIndexes
    _uncommitted: UncommittedEntries
    _committed: RaftIndex

    @property
    def last_index(self) -> RaftIndex:
        """Newest written entry; 0 if none."""
        raise NotImplementedError

    @property
    def first_index(self) -> RaftIndex:
        """Oldest entry that `entries` has; last_index + 1 if none."""
        raise NotImplementedError

    def entries(self, first: RaftIndex, last: RaftIndex, bytes_max: int) -> list[Entry]:
        """Entries [first, last], cut off after *bytes_max* bytes of bodies but at least one. Raises Damage."""
        raise NotImplementedError

    def changes(self, first: RaftIndex, entries_max: int) -> FoundChanges:
        """The changes in the committed entries from *first* on, cut off after about *entries_max* entries. Raises Damage."""
        first = max(first, self.first_index)
        last = RaftIndex(min(self._committed, first + entries_max - 1))
        read = self.entries(first, last, CHANGES_BYTES_MAX) if first <= last else []
        changes: list[Entry] = []
        for entry in read:
            if entry.kind == Kind.CHANGE:
                changes.append(entry)
            elif entry.kind == Kind.RECORDS:
                changes += [entry._replace(kind=Kind.CHANGE, body=body) for body in decode_records(entry.body)[2]]
        return FoundChanges(changes, RaftIndex((read[-1].index if read else last) + 1))

    def recent(self, ref: BatchRef) -> bytes | memoryview | None:
        """The records of one batch if they are in memory, else None. Never blocks."""
        raise NotImplementedError

    def read_at_once(self, refs: Seq[BatchRef]) -> Seq[bytes | memoryview] | None:
        """The records of batches if all of them are in memory, else None. Never blocks."""
        batches = []
        for ref in refs:
            records = self.recent(ref)
            if records is None:
                return None
            batches.append(records)
        return batches

    def commit(self, index: RaftIndex) -> None:
        """Commit everything up to *index*: its record batches enter the channels' indexes, hence are visible.

        After a start: commit first, then trim and drop as in the state."""
        if index > self.last_index:
            raise broken("only entries that are here can be committed", index=index, last=self.last_index)
        channels, entries = self._channels, self._uncommitted
        for placed in entries.take_recovered(index) if entries.recovered is not None else ():
            channels.commit(placed)
        appended = entries.appended
        while appended and appended[0].index <= index:
            channels.commit(appended.popleft())
        self._committed = max(self._committed, index)

    def channel(self, uid: ChannelUid) -> BatchIndex:
        """Index of a channel; an empty one for a channel that never had a committed batch."""
        return self._channels.by_uid[uid]

    def channels(self) -> list[ChannelUid]:
        """Channels that have an index."""
        return self._channels.uids()

    def trim(self, uid: ChannelUid, first_sequence: Sequence) -> None:
        """Remove the messages below *first_sequence* (a committed decision); lower values are ignored."""
        if first_sequence > self._channels.by_uid[uid].floor:
            self._channels.trim(uid, first_sequence)

    def compact(self, marks: Mapping[ChannelUid, Compaction]) -> None:
        """Allow leaving out messages of these channels, as *marks* say. Only logs in files do it, in `clean`."""

    def compacted(self) -> dict[ChannelUid, CompactionState]:
        """Return the compaction state of each channel."""
        return {}

    @property
    def compaction(self) -> CompactionTotals:
        """Totals of compaction since the log was opened."""
        return CompactionTotals()

    @property
    def decompression(self) -> DecompressedTotals:
        """Totals of decompression since the log was opened."""
        return DecompressedTotals()

    def drop(self, uid: ChannelUid) -> None:
        """Drop the channel; its messages no longer need a segment. A batch that is committed later starts it again."""
        self._channels.drop(uid)
