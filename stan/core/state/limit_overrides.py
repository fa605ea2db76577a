"""Limits of one group's channels that operators have edited: they take the place of those of the configuration.

A component of the group's machine (see components.py), fed by committed entries alone. What was not edited is as configured,
whatever that is by then.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Final

from stan.core.state.per_channel import PerChannel
from stan.patterns import ChannelLimits
from stan.protocol.proto import entries_pb2 as pb
from stan.types import ChannelUid, RaftIndex

EDITED: Final = {
    "max_msgs": "msgs",
    "max_bytes": "bytes",
    "max_age": "age_ns",
    "max_subs": "subscriptions",
    "max_inactivity": "inactivity_ns",
}
"""Fields of EditLimits, and what they take the place of."""


@dataclass(slots=True)
class LimitOverrides(PerChannel[pb.EditLimits]):
    """See the module's docstring. A row is an EditLimits without uid."""

    KIND: ClassVar[str] = "limits"
    CHANGES: ClassVar[tuple[str, ...]] = ("edit_limits",)

    def in_force(self, uid: ChannelUid, configured: ChannelLimits) -> ChannelLimits:
        """The limits of a channel."""
        edit = self.by_channel.get(uid)
        if edit is None:
            return configured
        return replace(configured, **{EDITED[name]: getattr(edit, name) for name in _set(edit)})

    def apply(self, _name: str, change: pb.EditLimits, _index: RaftIndex) -> bool:
        """See StateComponent.apply: whether anything is otherwise now."""
        uid = ChannelUid(change.uid)
        before = self.by_channel.get(uid, pb.EditLimits())
        edit = pb.EditLimits()
        if not change.reset:
            edit.CopyFrom(before)
        for name in _set(change):
            setattr(edit, name, getattr(change, name))
        if edit == before:
            return False
        self.put(uid, edit if _set(edit) else None)
        return True

    def encode(self, state: pb.EditLimits) -> bytes:
        """See PerChannel."""
        return state.SerializeToString()

    def decode(self, row: bytes) -> pb.EditLimits:
        """See PerChannel."""
        return pb.EditLimits.FromString(row)


def _set(edit: pb.EditLimits) -> list[str]:
    return [name for name in EDITED if edit.HasField(name)]
