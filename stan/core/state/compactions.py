"""Compactions: up to where the channels of a group are compacted by key. What that means for a log: stan.core.base.compaction.

A component of the group's machine (see components.py), fed by committed entries alone. Promises: `until` and `tombstones_until`
never go back, and tombstones go only where their channel is compacted. Which messages have gone is not kept: it follows from what
is stored, so the state of a channel stays a few bytes however many messages it has lost.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from stan_protocol.scalars import ChannelUid, RaftIndex, Sequence

from stan.core.base.compaction import Compaction
from stan.core.state.per_channel import PerChannel
from stan.protocol.proto import entries_pb2 as pb

NEVER = Compaction(Sequence(0))
"""Of a channel that was never compacted."""


@dataclass(slots=True)
class Compactions(PerChannel[Compaction]):
    """The compaction of each channel that has one. A row is a CompactedChannel without uid."""

    KIND: ClassVar[str] = "compaction"

    def of(self, uid: ChannelUid) -> Compaction:
        """How far a channel is compacted."""
        return self.by_channel.get(uid, NEVER)

    def up_to(self, index: RaftIndex) -> dict[ChannelUid, Compaction]:
        """The compactions that entries up to *index* have decided."""
        return {uid: known for uid, known in self.by_channel.items() if known.index <= index}

    def advance(self, channels: Iterable[pb.CompactedChannel], index: RaftIndex) -> None:
        """Compact channels further, as the entry at *index* says."""
        for one in channels:
            uid = ChannelUid(one.uid)
            known = self.of(uid)
            until = max(known.until, one.until)
            tombstones = max(known.tombstones_until, min(one.tombstones_until, until))
            overdue = max(known.overdue_until, min(one.overdue_until, tombstones))
            made = Compaction(
                Sequence(until), Sequence(tombstones), Sequence(overdue), one.keep_first, index, one.earlier
            )
            self.put(uid, made)

    def encode(self, state: Compaction) -> bytes:
        """The row of a channel's compaction."""
        return pb.CompactedChannel(**state._asdict()).SerializeToString()

    def decode(self, row: bytes) -> Compaction:
        """The compaction that a row holds."""
        return compaction_of(pb.CompactedChannel.FromString(row))


def compaction_of(row: pb.CompactedChannel) -> Compaction:
    """The compaction in an entry or a row."""
    until, tombstones = Sequence(row.until), Sequence(row.tombstones_until)
    return Compaction(until, tombstones, Sequence(row.overdue_until), row.keep_first, RaftIndex(row.index), row.earlier)
