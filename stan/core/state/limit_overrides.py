"""Limits of one group's channels that operators have edited: they take the place of the configured limits.

A component of the group's machine (see components.py), fed by committed entries alone. Limits that were not edited follow the
configuration, also when it changes.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Final

from stan_protocol.patterns import ChannelLimits
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.scalars import ChannelUid, RaftIndex

from stan.core.state.per_channel import PerChannel
from stan.protocol.proto import entries_pb2 as pb

EDITED: Final = {
    "max_msgs": "msgs",
    "max_bytes": "bytes",
    "max_age": "age_ns",
    "max_subs": "subscriptions",
    "max_inactivity": "inactivity_ns",
}
"""Fields of EditLimits -> the fields of ChannelLimits that they take the place of."""

LIMIT_END: Final = 1 << 63
"""Values of limits are below this."""


@dataclass(slots=True)
class LimitOverrides(PerChannel[pb.EditLimits]):
    """The edited limits of each channel. A row is an EditLimits without uid."""

    KIND: ClassVar[str] = "limits"
    CHANGES: ClassVar[tuple[str, ...]] = ("edit_limits",)

    def in_force(self, uid: ChannelUid, configured: ChannelLimits) -> ChannelLimits:
        """The limits of a channel that apply now: the edited ones, and the *configured* ones for the rest."""
        edit = self.by_channel.get(uid)
        if edit is None:
            return configured
        return replace(configured, **{EDITED[name]: getattr(edit, name) for name in _set(edit)})

    def apply(self, _name: str, change: pb.EditLimits, _index: RaftIndex) -> bool:
        """Edit limits of a channel; a change with `reset` drops all earlier edits first. Returns True if the edited limits differ
        from before."""
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
        """The row of a channel's edited limits."""
        return state.SerializeToString()

    def decode(self, row: bytes) -> pb.EditLimits:
        """The edited limits that a row holds."""
        return pb.EditLimits.FromString(row)


def _set(edit: pb.EditLimits) -> list[str]:
    return [name for name in EDITED if edit.HasField(name)]


def edit_of(uid: ChannelUid, wished: admin.Limits) -> pb.EditLimits | None:
    """The change of limits that a request asks for; None if a value is out of range."""
    edit = pb.EditLimits(uid=uid)
    for name in EDITED:
        if wished.HasField(name):
            value = getattr(wished, name)
            if not 0 <= value < LIMIT_END:
                return None
            setattr(edit, name, value)
    return edit
