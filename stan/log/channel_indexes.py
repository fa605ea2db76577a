"""The indexes of all channels of one group, and what happens to them when entries are committed, trimmed or dropped.

Every log has one; pure. It tells the log's SpaceAccounting which batches are kept and which no longer are, so that the log
knows which of its bytes are dead.
"""

from typing import Protocol

from stan.invariant import invariant
from stan.log.index import BatchIndex, Removed, Tail
from stan.log.types import BatchRow
from stan.log.uncommitted import Placed, UncommittedEntries
from stan.types import ChannelUid, RaftIndex, Sequence


class SpaceAccounting(Protocol):
    """Counts the batches that are kept. It hears of each committed batch once, by `kept` or by `refused`."""

    def kept(self, segment: int, row: BatchRow) -> None:
        """A batch became visible."""

    def refused(self, segment: int, row: BatchRow) -> None:
        """A batch was committed, and all its messages had been removed before."""

    def removed(self, removed: Removed) -> None:
        """These batches are no longer kept."""


class ChannelIndexes:
    """The index of each channel, made when it is asked for or when the channel gets its first batch."""

    def __init__(self, accounting: SpaceAccounting, overhead: int) -> None:
        self._accounting = accounting
        self._overhead = overhead  # bytes accounted per message on top of its encoding
        self._channels: dict[ChannelUid, BatchIndex] = {}
        self._walked = RaftIndex(0)  # newest committed entry
        self._hole = RaftIndex(0)  # newest index that was missing on the way there

    def get(self, uid: ChannelUid) -> BatchIndex:
        """The channel's index; an empty one for a channel without committed batch."""
        channel = self._channels.get(uid)
        if channel is None:
            channel = self._channels[uid] = BatchIndex(uid, self._overhead)
        return channel

    def uids(self) -> list[ChannelUid]:
        """Channels that have an index: it was asked for, or the channel had a batch, and it was not dropped since."""
        return list(self._channels)

    def commit(self, placed: Placed) -> None:
        """Index the batches of the next committed entry, and trim what their headers say is gone."""
        if placed.index != self._walked + 1:
            self._hole = RaftIndex(placed.index - 1)
        self._walked = placed.index
        for row in placed.rows:
            channel = self.get(row.uid)
            tail = channel.tail
            if channel.add(row, placed.segment, raft_index=placed.index, hole=self._hole):
                self._accounting.kept(placed.segment, row)
                if row.first_sequence > channel.floor:
                    self._trim(channel, row.first_sequence)
            else:
                self._accounting.refused(placed.segment, row)
            self._let_go(channel, tail)

    def trim(self, uid: ChannelUid, first: Sequence) -> None:
        """Messages of the channel below *first* are gone; a lower *first* than before changes nothing."""
        self._trim(self.get(uid), first)

    def drop(self, uid: ChannelUid) -> None:
        """The channel is gone: its index is forgotten, and empty for whoever still has a reference to it."""
        channel = self._channels.pop(uid, None)
        if channel is not None:
            self._trim(channel, Sequence(channel.last_sequence + 1))

    def is_kept(self, row: BatchRow) -> bool:
        """True if a committed batch still holds a kept message. In other threads the answer lags behind the event loop."""
        channel = self._channels.get(row.uid)
        return channel is not None and row.base_sequence + row.count > channel.floor

    def move(self, row: BatchRow, source: int, target: int) -> bool:
        """The batch went from one segment to *row*'s place in another; False if it is not kept any more."""
        channel = self._channels.get(row.uid)
        return channel is not None and channel.move(row.base_sequence, source, target, row.position)

    def _trim(self, channel: BatchIndex, first: Sequence) -> None:
        tail = channel.tail
        removed = channel.trim(first)
        if removed is not None:
            self._accounting.removed(removed)
        self._let_go(channel, tail)

    def _let_go(self, channel: BatchIndex, tail: Tail | None) -> None:
        """If a newer batch has taken the place of *tail*, which was the channel's tail before, the tail is no longer kept."""
        if tail is not None and channel.tail is not tail:
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

    def commit(self, index: RaftIndex) -> None:
        """Everything up to *index* is committed: its record batches enter the channels' indexes, hence are visible.

        After a start: commit first, then trim and drop as the state says."""
        invariant(index <= self.last_index, "only what is here can be committed", index=index, last=self.last_index)
        for placed in self._uncommitted.take(index):
            self._channels.commit(placed)
        self._committed = max(self._committed, index)

    def channel(self, uid: ChannelUid) -> BatchIndex:
        """Index of a channel; an empty one for a channel that never had a committed batch."""
        return self._channels.get(uid)

    def channels(self) -> list[ChannelUid]:
        """Channels that have an index."""
        return self._channels.uids()

    def trim(self, uid: ChannelUid, first_sequence: Sequence) -> None:
        """Messages below *first_sequence* are gone (a committed decision); lower values are ignored."""
        self._channels.trim(uid, first_sequence)

    def drop(self, uid: ChannelUid) -> None:
        """The channel is gone; its messages no longer hold a segment. A batch that is committed later makes the channel anew."""
        self._channels.drop(uid)
