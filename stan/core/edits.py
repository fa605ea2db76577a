"""Limits of one group's channels that operators have edited: they take the place of those of the configuration.

A part of the group's machine (see parts.py), fed by committed entries alone. What was not edited is as configured, whatever that
is by then.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

from stan.patterns import ChannelLimits
from stan.protocol import entries_pb2 as pb
from stan.types import ChannelUid, RaftIndex

UID_BYTES = 4
"""A row's key is the channel's uid, big-endian; the row is an EditLimits without uid."""
EDITED: Final = {
    "max_msgs": "msgs",
    "max_bytes": "bytes",
    "max_age": "age_ns",
    "max_subs": "subscriptions",
    "max_inactivity": "inactivity_ns",
}
"""Fields of EditLimits, and what they take the place of."""


@dataclass(slots=True)
class Edits:
    """See the module's docstring."""

    KIND: ClassVar[str] = "limits"
    CHANGES: ClassVar[tuple[str, ...]] = ("edit_limits",)
    dirty: set[bytes] = field(default_factory=set)
    by_channel: dict[ChannelUid, pb.EditLimits] = field(default_factory=dict)

    def in_force(self, uid: ChannelUid, configured: ChannelLimits) -> ChannelLimits:
        """The limits of a channel."""
        edit = self.by_channel.get(uid)
        if edit is None:
            return configured
        return replace(configured, **{EDITED[name]: getattr(edit, name) for name in _set(edit)})

    def apply(self, _name: str, change: pb.EditLimits, _index: RaftIndex) -> bool:
        """See Part.apply: whether anything is otherwise now."""
        uid = ChannelUid(change.uid)
        before = self.by_channel.get(uid, pb.EditLimits())
        edit = pb.EditLimits()
        if not change.reset:
            edit.CopyFrom(before)
        for name in _set(change):
            setattr(edit, name, getattr(change, name))
        if edit == before:
            return False
        if _set(edit):
            self.by_channel[uid] = edit
        else:
            del self.by_channel[uid]
        self.dirty.add(_key(uid))
        return True

    def drop_channel(self, uid: ChannelUid) -> None:
        """See Part."""
        if self.by_channel.pop(uid, None) is not None:
            self.dirty.add(_key(uid))

    def keys(self) -> Iterable[bytes]:
        """See Part."""
        return [_key(uid) for uid in self.by_channel]

    def row(self, key: bytes) -> bytes | None:
        """See Part."""
        edit = self.by_channel.get(_uid(key))
        return None if edit is None else edit.SerializeToString()

    def load(self, key: bytes, state: bytes) -> None:
        """See Part."""
        self.by_channel[_uid(key)] = pb.EditLimits.FromString(state)


def _set(edit: pb.EditLimits) -> list[str]:
    return [name for name in EDITED if edit.HasField(name)]


def _key(uid: ChannelUid) -> bytes:
    return uid.to_bytes(UID_BYTES, "big")


def _uid(key: bytes) -> ChannelUid:
    return ChannelUid(int.from_bytes(key, "big"))
