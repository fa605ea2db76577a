"""The messages of ephemeral channels, in the memory of the node that leads their group: index and records in one. Pure.

    sealed batch ─► add ─► cursors at the end take it at once        read: the others, with the same answers as a log's
                    └─► trim: by the channel's limits, or because all such channels of this node together have too many bytes

Promises: sequences lie in the epoch that the group's log has begun for the channel (stan.core.state.ephemeral); nothing of it
outlives the leadership, as it is dropped with the live view of the channel. Why: docs/decisions/0028.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple

from stan_protocol.scalars import ChannelUid, GroupId, Sequence, WallNanos

from stan import limits
from stan.core.base.ready import Index, Indexes, ReadResult
from stan.core.state.ephemeral import Epoch
from stan.invariant import invariant

LENGTH_PREFIX: Final = 4
"""Bytes in front of each message of a batch, which are not accounted (as in a log in memory)."""
COMPACT_BATCHES_MIN: Final = 64
"""Removed batches stay in front until there are this many and they are half of all."""


class _Batch(NamedTuple):
    """A sealed batch."""

    timestamp: WallNanos
    before: int  # accounted bytes of all earlier batches, also of removed ones
    count: int  # type: ignore[assignment]
    records: bytes


class EphemeralMessages:
    """What the leader has of one channel in one epoch: an `Index`, and the records.

    `bytes` and `first_within_bytes` take the messages of a batch that is only partly kept as equally large."""

    __slots__ = ("_bases", "_batches", "_head", "_size", "epoch", "first_sequence", "last_sequence", "last_timestamp")

    compression = 0, 0

    def __init__(self, epoch: Epoch) -> None:
        self.epoch = epoch
        self.first_sequence = Sequence(0)  # as an `Index` has them
        self.last_sequence = Sequence(0)
        self.last_timestamp = WallNanos(0)
        self._bases: list[int] = []  # of the batches; those before `_head` are removed
        self._batches: list[_Batch] = []
        self._head = 0
        self._size = 0  # accounted bytes of all batches ever

    # --- changes ----------------------------------------------------------------------------------------------------------

    def add(self, base: Sequence, count: int, timestamp: WallNanos, records: bytes) -> None:
        """Take the next batch."""
        expected = self.last_sequence + 1 if self.last_sequence else self.epoch.first
        last = Sequence(base + count - 1)
        invariant(
            base == expected and count > 0 and last <= self.epoch.last,
            "S1: sequences are dense, and the epoch's",
            base=base,
            count=count,
            last=self.last_sequence,
            epoch=self.epoch,
        )
        if not self._bases:
            self.first_sequence = base
        self.last_timestamp = max(timestamp, self.last_timestamp)
        self._bases.append(base)
        self._batches.append(_Batch(self.last_timestamp, self._size, count, records))
        self.last_sequence = last
        self._size += self.accounted(len(records), count)

    def trim(self, first: int) -> None:
        """Messages below *first* are gone; a lower *first* than before changes nothing."""
        if first <= self.first_sequence:
            return
        self.first_sequence = Sequence(min(first, self.last_sequence + 1))
        bases, head = self._bases, self._head
        keep = len(bases) if first > self.last_sequence else bisect_right(bases, first, head) - 1
        for at in range(head, keep):
            self._batches[at] = self._batches[at]._replace(records=b"")
        self._head = keep
        if keep >= COMPACT_BATCHES_MIN and 2 * keep >= len(bases):
            del bases[:keep], self._batches[:keep]
            self._head = 0

    # --- Index --------------------------------------------------------------------------------------------------------------

    def accounted(self, record_bytes: int, count: int) -> int:
        """Bytes that *count* messages in *record_bytes* of records add to `bytes`."""
        return record_bytes - LENGTH_PREFIX * count

    @property
    def bytes(self) -> int:
        """Bytes kept."""
        return self._size - self._before(self.first_sequence)

    @property
    def first_timestamp(self) -> WallNanos:
        """Timestamp of the oldest kept message; 0 if there is none."""
        return self._batches[self._head].timestamp if self._head < len(self._batches) else WallNanos(0)

    def timestamp_before(self, sequence: int) -> WallNanos:
        """Timestamp of the newest kept message below *sequence*; 0 if there is none."""
        at = bisect_left(self._bases, sequence, self._head) - 1
        return self._batches[at].timestamp if at >= self._head else WallNanos(0)

    def sequence_at(self, timestamp: WallNanos) -> Sequence:
        """First kept sequence at or after *timestamp*; last + 1 if none; 0 if there never was a message in this epoch."""
        at = bisect_left(self._batches, timestamp, self._head, key=_timestamp)
        if at == len(self._batches):
            return Sequence(self.last_sequence + 1 if self.last_sequence else 0)
        return Sequence(max(self._bases[at], self.first_sequence))

    def kept_from(self, sequence: Sequence) -> Sequence:
        """First kept sequence at or after *sequence*; last + 1 if there is none."""
        return Sequence(min(max(sequence, self.first_sequence), self.last_sequence + 1))

    def first_within_bytes(self, bytes_max: int) -> Sequence:
        """Smallest first sequence with which the kept bytes are within *bytes_max*; the newest message always stays."""
        low, high = self.first_sequence, self.last_sequence
        while low < high:
            middle = (low + high) // 2
            if self._size - self._before(middle) > bytes_max:
                low = Sequence(middle + 1)
            else:
                high = Sequence(middle)
        return low

    def _before(self, sequence: int) -> int:
        """Accounted bytes of all messages ever below *sequence*, which is kept, or behind the newest one."""
        if sequence > self.last_sequence or self._head == len(self._bases):
            return self._size
        at = bisect_right(self._bases, sequence, self._head) - 1
        batch = self._batches[at]
        size = self.accounted(len(batch.records), batch.count)
        return batch.before + size * (sequence - self._bases[at]) // batch.count

    # --- reads --------------------------------------------------------------------------------------------------------------

    def read(self, runs: Iterable[tuple[int, int]], bytes_max: int) -> list[ReadResult]:
        """The batches with the messages [first, last] of each run, cut off after *bytes_max* bytes or BATCHES_PER_READ_MAX
        batches, as a log gives them."""
        found: list[ReadResult] = []
        size = 0
        for first, last in runs:
            at = max(self._head, bisect_right(self._bases, max(first, self.first_sequence), self._head) - 1)
            while at < len(self._bases) and self._bases[at] <= last:
                batch = self._batches[at]
                if self._bases[at] + batch.count > max(first, self.first_sequence) and not (
                    found and found[-1].base_sequence >= self._bases[at]
                ):
                    found.append(ReadResult(self._bases[at], batch.count, batch.records))
                    size += len(batch.records)
                    if size >= bytes_max or len(found) >= limits.BATCHES_PER_READ_MAX:
                        return found
                at += 1
        return found


class EphemeralStores:
    """The messages of all ephemeral channels of which this node has begun an epoch, as the leader of their groups; and the
    indexes of all channels, theirs and those in the logs."""

    def __init__(self, logs: Indexes) -> None:
        self.by_uid: dict[ChannelUid, EphemeralMessages] = {}
        self.bytes = 0  # of all messages that are kept
        self.logs = logs  # the indexes of what is in logs

    def __call__(self, group: GroupId, uid: ChannelUid) -> Index:
        """The index of a channel of either kind."""
        found = self.by_uid.get(uid)
        return self.logs(group, uid) if found is None else found

    def begin(self, uid: ChannelUid, epoch: Epoch) -> None:
        """An epoch begins, without messages; or it goes on, with more sequences."""
        known = self.by_uid.get(uid)
        if known is not None and known.epoch.number == epoch.number:
            known.epoch = epoch
        else:
            self.forget(uid)
            self.by_uid[uid] = EphemeralMessages(epoch)

    def forget(self, uid: ChannelUid) -> None:
        """This node does not lead the channel any more, or it is gone."""
        known = self.by_uid.pop(uid, None)
        if known is not None:
            self.bytes -= known.bytes

    def add(self, uid: ChannelUid, base: Sequence, count: int, timestamp: WallNanos, records: bytes) -> None:
        """Take the next batch of a channel."""
        store = self.by_uid[uid]
        store.add(base, count, timestamp, records)
        self.bytes += store.accounted(len(records), count)

    def trim(self, uid: ChannelUid, first: int) -> None:
        """Messages of a channel below *first* are gone."""
        store = self.by_uid.get(uid)
        if store is not None:
            before = store.bytes
            store.trim(first)
            self.bytes += store.bytes - before

    def make_room(self) -> ChannelUid | None:
        """See to it that all channels together have at most EPHEMERAL_BYTES_MAX bytes: the oldest messages of the largest one go,
        more than has to, so that this is not done for each batch. Returns its uid; None if nothing had to go."""
        if self.bytes <= limits.EPHEMERAL_BYTES_MAX:
            return None
        uid = max(self.by_uid, key=lambda uid: (self.by_uid[uid].bytes, uid))
        over = self.bytes - limits.EPHEMERAL_BYTES_MAX + limits.EPHEMERAL_BYTES_MAX // 8
        self.trim(uid, self.by_uid[uid].first_within_bytes(max(0, self.by_uid[uid].bytes - over)))
        return uid


def _timestamp(batch: _Batch) -> WallNanos:
    return batch.timestamp
