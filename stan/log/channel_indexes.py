"""The indexes of all channels of one group, and what happens to them when entries are committed, trimmed or dropped.

Every log has one; pure. It tells the log's SpaceAccounting which batches are kept and which no longer are, so that the log
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
    """Counts the batches that are kept. It hears of each committed batch once, by `kept` or by `refused`."""

    def kept(self, segment: int, row: BatchRow) -> None:
        """A batch became visible."""

    def refused(self, segment: int, row: BatchRow) -> None:
        """A batch was committed, and all its messages had been removed before."""

    def removed(self, removed: Removed) -> None:
        """These batches are no longer kept."""


class _Indexes(dict[ChannelUid, BatchIndex]):
    """The index of each channel, an empty one made when it is asked for."""

    def __init__(self, overhead: int) -> None:
        super().__init__()
        self._overhead = overhead  # bytes accounted per message on top of its encoding

    def __missing__(self, uid: ChannelUid) -> BatchIndex:
        made = self[uid] = BatchIndex(uid, self._overhead)
        return made


class ChannelIndexes:
    """The index of each channel, made when it is asked for or when the channel gets its first batch."""

    def __init__(self, accounting: SpaceAccounting, overhead: int) -> None:
        self.by_uid = _Indexes(overhead)
        self._accounting = accounting
        # By message of the hidden channel: the reference to it, as uid and base sequence. The message is kept with the reference.
        self._referred: dict[int, tuple[ChannelUid, int]] = {}
        self._walked = RaftIndex(0)  # newest committed entry
        self._hole = RaftIndex(0)  # newest index that was missing on the way there

    def uids(self) -> list[ChannelUid]:
        """Channels that have an index: it was asked for, or the channel had a batch, and it was not dropped since."""
        return list(self.by_uid)

    def commit(self, placed: Placed) -> None:
        """Index the batches of the next committed entry, and trim what their headers say is gone."""
        index, segment, rows = placed
        if index != self._walked + 1:
            self._hole = RaftIndex(index - 1)
        self._walked = index
        for row in rows:
            channel = self.by_uid[row.uid]
            tail = channel.tail
            if row.staged:
                self._refer(channel, row, segment, index)
            elif channel.add(row, segment, raft_index=index, hole=self._hole):
                self._accounting.kept(segment, row)
                if row.first_sequence > channel.floor:
                    self._trim(channel, row.first_sequence)
            else:
                self._accounting.refused(segment, row)
            if tail is not None:
                self._let_go(channel, tail)

    def _refer(self, channel: BatchIndex, row: BatchRow, segment: int, index: RaftIndex) -> None:
        """Index a reference, and trim what it says is gone."""
        hidden = self.by_uid[STAGING_UID]
        place = hidden.alone(row.staged)
        if place is None:  # nothing of the reference is kept any more, or the entry with the rows is lost
            channel.add(row._replace(length=0, size=0), GAP, raft_index=index, hole=self._hole)
        elif channel.add(row, segment, raft_index=index, hole=self._hole, staged=place):
            hidden.held = self._referred
            self._referred[row.staged] = row.uid, row.base_sequence
            self._accounting.kept(segment, row)
        if row.first_sequence > channel.floor:
            self._trim(channel, row.first_sequence)

    def _release(self, place: StagedPlace) -> None:
        """Nothing refers to a message of the hidden channel any more."""
        del self._referred[place.sequence]
        if place.sequence < self.by_uid[STAGING_UID].floor:
            self._accounting.removed(Removed.place(place.segment, place.position, place.length))

    def referred(self, uid: int, base: int) -> StagedPlace | None:
        """Where the messages of the batch at *base* lie, if it is a reference; may be asked in any thread."""
        channel = self.by_uid.get(ChannelUid(uid))
        staged = channel.staged if channel is not None else None
        return staged.get(base) if staged else None

    def trim(self, uid: ChannelUid, first: Sequence) -> None:
        """Messages of the channel below *first* are gone; a lower *first* than before changes nothing."""
        self._trim(self.by_uid[uid], first)

    def drop(self, uid: ChannelUid) -> None:
        """The channel is gone: its index is forgotten, and empty for whoever still has a reference to it."""
        channel = self.by_uid.pop(uid, None)
        if channel is not None:
            self._trim(channel, Sequence(channel.last_sequence + 1))

    def is_kept(self, row: BatchRow) -> bool:
        """True if a committed batch still holds a kept message, or one that a kept batch refers to. In other threads the answer
        lags behind the event loop."""
        channel = self.by_uid.get(row.uid)
        if channel is not None and row.base_sequence + row.count > channel.floor:
            return True
        # Asked second: the hidden channel's floor rises only when what is referred to has been noted.
        return row.uid == STAGING_UID and row.base_sequence in self._referred

    def move(self, row: BatchRow, source: int, target: int) -> bool:
        """The batch went from one segment to *row*'s place in another; False if it is not kept any more."""
        channel = self.by_uid.get(row.uid)
        moved = channel is not None and channel.move(row.base_sequence, source, target, row.position)
        if row.uid == STAGING_UID and (referred := self._referred.get(row.base_sequence)) is not None:
            uid, base = referred
            moved = self.by_uid[uid].move_staged(base, source, target, row.position) or moved
        return moved

    def replace(
        self, uid: ChannelUid, source: int, target: int, span: tuple[Sequence, Sequence], rows: list[BatchRow]
    ) -> list[BatchRow]:
        """A channel's batches of one segment went to another one, some with fewer messages; see BatchIndex.replace."""
        channel = self.by_uid.get(uid)
        if channel is None:
            return []
        kept = channel.replace(source, target, span, rows)
        if channel.staged:  # references that have become batches
            still = {row.base_sequence for row in kept if row.staged}
            for base in [base for base in channel.staged if span[0] <= base <= span[1] and base not in still]:
                self._release(channel.staged.pop(base))
        return kept

    def _trim(self, channel: BatchIndex, first: Sequence) -> None:
        tail = channel.tail
        removed = channel.trim(first)
        if removed is not None:
            self._accounting.removed(removed)
            for place in removed.staged:
                self._release(place)
        if tail is not None:
            self._let_go(channel, tail)

    def _let_go(self, channel: BatchIndex, tail: Tail) -> None:
        """If a newer batch has taken the place of *tail*, which was the channel's tail before, the tail is no longer kept."""
        if channel.tail is not tail:
            self._accounting.removed(Removed.place(tail.segment, tail.position))


class Visible:
    """The part of `GroupLog` that is the same in all logs: what is committed is visible."""

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
        """The changes in the committed entries from *first* on, after about *entries_max* entries cut off. Raises Damage."""
        first = max(first, self.first_index)
        last = RaftIndex(min(self._committed, first + entries_max - 1))
        read = self.entries(first, last, CHANGES_BYTES_MAX) if first <= last else []
        found: list[Entry] = []
        for entry in read:
            if entry.kind == Kind.CHANGE:
                found.append(entry)
            elif entry.kind == Kind.RECORDS:
                found += [entry._replace(kind=Kind.CHANGE, body=body) for body in decode_records(entry.body)[2]]
        return FoundChanges(found, RaftIndex((read[-1].index if read else last) + 1))

    def recent(self, ref: BatchRef) -> bytes | memoryview | None:
        """The records of one batch if they are in memory, else None. Never blocks."""
        raise NotImplementedError

    def read_at_once(self, refs: Seq[BatchRef]) -> Seq[bytes | memoryview] | None:
        """The records of batches if all of them are in memory, else None. Never blocks."""
        found = []
        for ref in refs:
            records = self.recent(ref)
            if records is None:
                return None
            found.append(records)
        return found

    def commit(self, index: RaftIndex) -> None:
        """Everything up to *index* is committed: its record batches enter the channels' indexes, hence are visible.

        After a start: commit first, then trim and drop as the state says."""
        if index > self.last_index:
            raise broken("only what is here can be committed", index=index, last=self.last_index)
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
        """Messages below *first_sequence* are gone (a committed decision); lower values are ignored."""
        if first_sequence > self._channels.by_uid[uid].floor:
            self._channels.trim(uid, first_sequence)

    def compact(self, marks: Mapping[ChannelUid, Compaction]) -> None:
        """Of these channels messages may be left out, as *marks* say. Only logs in files do it, in `clean`."""

    def compacted(self) -> dict[ChannelUid, CompactionState]:
        """How far each channel has got."""
        return {}

    @property
    def compaction(self) -> CompactionTotals:
        """What compaction has done since the log was opened."""
        return CompactionTotals()

    @property
    def decompression(self) -> DecompressedTotals:
        """What has been decompressed since the log was opened."""
        return DecompressedTotals()

    def drop(self, uid: ChannelUid) -> None:
        """The channel is gone; its messages no longer hold a segment. A batch that is committed later makes the channel anew."""
        self._channels.drop(uid)
