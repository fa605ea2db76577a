"""Deferred messages: those whose publishers have told when they are due, and that wait in the group's hidden channel until then.

A component of the group's machine (see components.py), fed by committed entries alone. Promises: a message is listed from the
entry that stores it in the hidden channel to the one that stores it in its own channel, or that cancels it; what is below `floor`
of the hidden channel is needed no more; the ids of those that wait for one channel are distinct and increase (restored ones keep
theirs, which are other than their sequences). Times are packed, 8 bytes a message, in batches as they were published.
"""

from array import array
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Numbers
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from stan_protocol.scalars import ChannelUid, RaftIndex, Sequence

from stan.core.base.runs import pairs
from stan.core.base.shares import Shares
from stan.protocol.proto import entries_pb2 as pb

KEY_BYTES = 8


class Listed(NamedTuple):
    """A message that waits."""

    first: int  # sequence of its batch in the hidden channel
    sequence: int  # its own there
    id: int  # by which operators and publishers know it
    due: int  # Unix ns


@dataclass(slots=True)
class DeferredBatch:
    """Messages of one publish that wait, one after the other in the hidden channel."""

    uid: ChannelUid  # of their own channel
    user: bytes  # who has published them
    dues: "array[int]"  # Unix ns; 0: it is gone
    waiting: int
    bytes: int  # of all of them
    ids: "array[int] | None" = None  # by which they are known, increasing; None: by their sequences

    @property
    def due(self) -> int:
        """When the next one is due."""
        return min(filter(None, self.dues), default=0)

    def ids_from(self, first: int) -> Numbers[int]:
        """The numbers by which operators and publishers know the messages; *first*: the sequence of the first one."""
        return self.ids if self.ids is not None else range(first, first + len(self.dues))


@dataclass(slots=True)
class Deferred:
    """The deferred messages of a group. A row's key is the first sequence of a batch, big-endian; the row is a pb.Deferred."""

    KIND: ClassVar[str] = "deferred"
    CHANGES: ClassVar[tuple[str, ...]] = ("deferred", "deferred_gone")

    dirty: set[bytes] = field(default_factory=set)
    batches: dict[int, DeferredBatch] = field(default_factory=dict)  # by first sequence, in order
    shares: Shares = field(default_factory=Shares)  # messages that wait, by user
    counts: dict[ChannelUid, int] = field(default_factory=dict)  # messages that wait, by the channel that they are for
    emptied: int = 0  # last sequence when nothing waited any more; 0: that was not since the start

    @property
    def waiting(self) -> int:
        """How many messages wait."""
        return self.shares.used

    @property
    def floor(self) -> Sequence:
        """The messages of the hidden channel below this one are needed no more; 0: that is not known."""
        first = next(iter(self.batches), 0)
        return Sequence(first or (self.emptied + 1 if self.emptied else 0))

    def holds(self, first: int, sequence: int) -> bool:
        """True if a message waits; *first*: the first sequence of its batch."""
        batch = self.batches.get(first)
        return batch is not None and 0 <= sequence - first < len(batch.dues) and batch.dues[sequence - first] > 0

    def listed(self, uid: ChannelUid, after: int = 0) -> Iterator[Listed]:
        """Each message that waits for a channel, with an id above *after*, by id."""
        for first, batch in self.batches.items():
            if batch.uid == uid and (ids := batch.ids_from(first))[-1] > after:
                for sequence, (number, due) in enumerate(zip(ids, batch.dues, strict=True), first):
                    if due and number > after:
                        yield Listed(first, sequence, number, due)

    # --- changes ----------------------------------------------------------------------------------------------------

    def apply(self, _name: str, change: pb.Deferred | pb.DeferredGone, _index: RaftIndex) -> int:
        """Apply one committed change. Returns how many messages wait from now on, or are gone by it."""
        if isinstance(change, pb.Deferred):
            ids = array("Q", change.ids) if change.ids else None
            batch = DeferredBatch(
                ChannelUid(change.uid), change.user, array("q", change.dues), len(change.dues), change.bytes, ids
            )
            self.batches[change.sequence] = batch
            self._count(batch, batch.waiting)
            self.dirty.add(_key(change.sequence))
            return batch.waiting
        gone = 0
        for first, sequence in pairs(change.places):
            if self.holds(first, sequence):
                batch = self.batches[first]
                batch.dues[sequence - first] = 0
                batch.waiting -= 1
                gone += 1
                self._count(batch, -1)
                self.dirty.add(_key(first))
                if not batch.waiting:
                    self._forget(first)
        return gone

    def _count(self, batch: DeferredBatch, change: int) -> None:
        uid = batch.uid
        self.shares.add(batch.user, change)
        self.counts[uid] = self.counts.get(uid, 0) + change
        if not self.counts[uid]:
            del self.counts[uid]

    def _forget(self, first: int) -> None:
        batch = self.batches.pop(first)
        if not self.batches:
            self.emptied = max(self.emptied, first + len(batch.dues) - 1)
        self.dirty.add(_key(first))

    def drop_channel(self, uid: ChannelUid) -> None:
        """A channel is gone, and what waits for it."""
        for first in [first for first, batch in self.batches.items() if batch.uid == uid]:
            self._count(self.batches[first], -self.batches[first].waiting)
            self._forget(first)

    # --- rows -------------------------------------------------------------------------------------------------------

    def keys(self) -> Iterable[bytes]:
        """The keys of all rows, one per batch."""
        return map(_key, self.batches)

    def row(self, key: bytes) -> bytes | None:
        """The row of a batch; None if nothing of it waits."""
        first = int.from_bytes(key)
        batch = self.batches.get(first)
        if batch is None:
            return None
        ids = batch.ids or ()
        return pb.Deferred(
            uid=batch.uid, sequence=first, dues=batch.dues, bytes=batch.bytes, ids=ids, user=batch.user
        ).SerializeToString()

    def load(self, key: bytes, state: bytes) -> None:
        """Take in one row; only before the first `apply`. Batches are kept in order, in whichever order their rows come."""
        row = pb.Deferred.FromString(state)
        first, dues = int.from_bytes(key), array("q", row.dues)
        waiting = sum(1 for due in dues if due)
        out_of_order = first < next(reversed(self.batches), 0)
        ids = array("Q", row.ids) if row.ids else None
        batch = self.batches[first] = DeferredBatch(ChannelUid(row.uid), row.user, dues, waiting, row.bytes, ids)
        self._count(batch, waiting)
        if out_of_order:
            self.batches = dict(sorted(self.batches.items()))


def _key(first: int) -> bytes:
    return first.to_bytes(KEY_BYTES)
