"""Channels of one group that are being restored from a backup, or were.

A component of the group's machine (see components.py), fed by committed entries alone: it remembers the name of a channel's
restore, so that requests may be repeated, and whether it is at its end. What it does to the rest of the machine is in group.py.
"""

from dataclasses import dataclass
from typing import ClassVar

from stan.core.state.per_channel import PerChannel
from stan.protocol.proto import entries_pb2 as pb
from stan.types import ChannelUid, RaftIndex


@dataclass(slots=True)
class RestoreStates(PerChannel[pb.Restore]):
    """See the module's docstring. A row is a Restore without uid."""

    KIND: ClassVar[str] = "restores"
    CHANGES: ClassVar[tuple[str, ...]] = ("restore",)

    def under_way(self, uid: ChannelUid) -> bytes:
        """The name of the restore that has not ended; b"" if there is none."""
        restore = self.by_channel.get(uid)
        return b"" if restore is None or restore.ended else restore.name

    def apply(self, _name: str, change: pb.Restore, _index: RaftIndex) -> None:
        """See StateComponent.apply."""
        kept = pb.Restore(name=change.name, first_sequence=change.first_sequence, ended=change.ended)
        self.put(ChannelUid(change.uid), kept)

    def encode(self, state: pb.Restore) -> bytes:
        """See PerChannel."""
        return state.SerializeToString()

    def decode(self, row: bytes) -> pb.Restore:
        """See PerChannel."""
        return pb.Restore.FromString(row)
