"""Channels of one group that are being restored from a backup, or were.

A part of the group's machine (see parts.py), fed by committed entries alone: it remembers the name of a channel's restore, so
that requests may be repeated, and whether it is at its end. What it does to the rest of the machine is in restored.py.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from stan.protocol import entries_pb2 as pb
from stan.types import ChannelUid, RaftIndex

UID_BYTES = 4
"""A row's key is the channel's uid, big-endian; the row is a Restore without uid."""


@dataclass(slots=True)
class Restores:
    """See the module's docstring."""

    KIND: ClassVar[str] = "restores"
    CHANGES: ClassVar[tuple[str, ...]] = ("restore",)
    dirty: set[bytes] = field(default_factory=set)
    by_channel: dict[ChannelUid, pb.Restore] = field(default_factory=dict)

    def under_way(self, uid: ChannelUid) -> bytes:
        """The name of the restore that has not ended; b"" if there is none."""
        restore = self.by_channel.get(uid)
        return b"" if restore is None or restore.ended else restore.name

    def apply(self, _name: str, change: pb.Restore, _index: RaftIndex) -> None:
        """See Part.apply."""
        uid = ChannelUid(change.uid)
        self.by_channel[uid] = pb.Restore(name=change.name, first_sequence=change.first_sequence, ended=change.ended)
        self.dirty.add(_key(uid))

    def drop_channel(self, uid: ChannelUid) -> None:
        """See Part."""
        if self.by_channel.pop(uid, None) is not None:
            self.dirty.add(_key(uid))

    def keys(self) -> Iterable[bytes]:
        """See Part."""
        return [_key(uid) for uid in self.by_channel]

    def row(self, key: bytes) -> bytes | None:
        """See Part."""
        restore = self.by_channel.get(_uid(key))
        return None if restore is None else restore.SerializeToString()

    def load(self, key: bytes, state: bytes) -> None:
        """See Part."""
        self.by_channel[_uid(key)] = pb.Restore.FromString(state)


def _key(uid: ChannelUid) -> bytes:
    return uid.to_bytes(UID_BYTES, "big")


def _uid(key: bytes) -> ChannelUid:
    return ChannelUid(int.from_bytes(key, "big"))
