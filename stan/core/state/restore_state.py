"""Restores: the channels of one group that are being restored from a backup, or were.

A component of the group's machine (see components.py), fed by committed entries alone: it remembers the name of each channel's
newest restore, so that its requests may be repeated, and whether the restore has ended. What a restore does to the rest of the
group's state is in restores.py.
"""

from dataclasses import dataclass
from typing import ClassVar

from stan_protocol.scalars import ChannelUid

from stan.core.state.per_channel import PerChannel
from stan.protocol.proto import entries_pb2 as pb


@dataclass(slots=True)
class RestoreStates(PerChannel[pb.Restore]):
    """The newest restore of each channel. A row is a Restore without uid."""

    KIND: ClassVar[str] = "restores"

    def under_way(self, uid: ChannelUid) -> bytes:
        """The name of the restore that has not ended; b"" if there is none."""
        restore = self.by_channel.get(uid)
        return b"" if restore is None or restore.ended else restore.name

    def remember(self, change: pb.Restore) -> None:
        """Remember the restore that begins or ends; it may (restores.py)."""
        kept = pb.Restore(name=change.name, first_sequence=change.first_sequence, ended=change.ended)
        self.put(ChannelUid(change.uid), kept)

    def encode(self, state: pb.Restore) -> bytes:
        """The row of a channel's restore."""
        return state.SerializeToString()

    def decode(self, row: bytes) -> pb.Restore:
        """The restore that a row holds."""
        return pb.Restore.FromString(row)
