"""Channels of one group that are being restored from a backup, or were.

A part of the group's machine (see parts.py), fed by committed entries alone: it remembers the name of a channel's restore, so
that requests may be repeated, and whether it is at its end. What it does to the rest of the machine is in group.py.
"""

from dataclasses import dataclass
from typing import ClassVar

from stan.core.state.by_channel import ByChannel
from stan.protocol.proto import entries_pb2 as pb
from stan.types import ChannelUid, RaftIndex


@dataclass(slots=True)
class Restores(ByChannel[pb.Restore]):
    """See the module's docstring. A row is a Restore without uid."""

    KIND: ClassVar[str] = "restores"
    CHANGES: ClassVar[tuple[str, ...]] = ("restore",)

    def under_way(self, uid: ChannelUid) -> bytes:
        """The name of the restore that has not ended; b"" if there is none."""
        restore = self.by_channel.get(uid)
        return b"" if restore is None or restore.ended else restore.name

    def apply(self, _name: str, change: pb.Restore, _index: RaftIndex) -> None:
        """See Part.apply."""
        kept = pb.Restore(name=change.name, first_sequence=change.first_sequence, ended=change.ended)
        self.put(ChannelUid(change.uid), kept)

    def encode(self, state: pb.Restore) -> bytes:
        """See ByChannel."""
        return state.SerializeToString()

    def decode(self, row: bytes) -> pb.Restore:
        """See ByChannel."""
        return pb.Restore.FromString(row)
