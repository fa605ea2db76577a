"""The machine of one channel group: applies committed entries to the group's replicated state.

Deterministic, and fed by committed entries and by nothing else (P2). A change that one component keeps to itself is in the
component (`CHANGES` there); one that several take part in is a function, in `CHANGES` here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from stan_protocol.refusals import CHANNEL_MOVING
from stan_protocol.scalars import ChannelUid, RaftIndex

from stan.core.state import channel_moves, consuming, progress, removals, restores, subscribing
from stan.core.state.components import OWNERS, ChangeOwner
from stan.core.state.group_state import GroupResult, GroupState
from stan.core.state.moves import Stage
from stan.core.state.operator_changes import OPERATOR_CHANGES, change_cursor
from stan.protocol.proto import entries_pb2 as pb

_Change = Callable[[GroupState, Any, RaftIndex], GroupResult]
_MOVES: Final[dict[str, _Change]] = {
    "arriving": channel_moves.arriving,
    "arrived": channel_moves.arrived,
    "arrival_dropped": channel_moves.arrival_dropped,
    "depart": channel_moves.depart,
    "departed": channel_moves.departed,
    "returned": channel_moves.returned,
}
CHANGES: Final[dict[str, _Change]] = {
    "subscribe": subscribing.subscribe,
    "leave": subscribing.leave,
    "serve": subscribing.serve,
    "maybe_sent": progress.maybe_sent,
    "trim": removals.trim,
    "drop_channel": removals.drop_channel,
    "removal": removals.remove,
    "expiring": removals.list_expiring,
    "expired": removals.expire,
    "scheduled": removals.list_scheduled,
    "compacted": removals.compact,
    "ephemeral_epoch": removals.begin_epoch,
    "restore": restores.restore,
    "restored_cursor": restores.restore_cursor,
    "set_consumer": consuming.set_consumer,
    "drop_consumer": consuming.drop_consumer,
    **_MOVES,
}
"""Changes that more than one component takes part in; each returns its outcome. Those of cursors by operators are in
OPERATOR_CHANGES."""


@dataclass(slots=True)
class GroupMachine(GroupState):
    """The replicated state of one channel group, and what entries change of it."""

    def apply(self, change: pb.GroupChange, index: RaftIndex) -> GroupResult:
        """Apply one committed CHANGE entry."""
        progress.apply_progress(self, change)
        name = change.WhichOneof("change")
        if name is None:
            return GroupResult()
        about = getattr(change, name)
        if self.moves.held and self.is_held(name, about):
            return GroupResult(error=CHANNEL_MOVING)
        if name in OPERATOR_CHANGES:
            return change_cursor(self, name, about, index)
        if name in CHANGES:
            return CHANGES[name](self, about, index)
        owner: ChangeOwner = getattr(self, OWNERS[name])
        result = GroupResult(of_part=owner.apply(name, about, index))
        self.trim_hidden()
        return result

    def is_held(self, name: str, about: Any) -> bool:
        """True if a change of that name is about a channel that is being moved to another group, or was: then it changes nothing.
        A leader proposes none, so this is how a fault of a leader stays without effect."""
        if name in _MOVES:
            return False
        if name == "commit":
            return any(share.uid in self.moves.held for share in about.channels)
        uid = self.uid_of(name, about)
        if name == "drop_channel" and (known := self.moves.by_channel.get(uid)) is not None:
            return known.stage is Stage.HELD  # what is left of a channel that is gone is forgotten
        return uid in self.moves.held

    def uid_of(self, name: str, about: Any) -> ChannelUid:
        """The channel that a change of that name is about; 0 if it is about none, or about several."""
        if name == "leave":
            member = self.subscriptions.by_id.get(about.subscription_id)
            return self.cursors[member.cursor_id].uid if member is not None else ChannelUid(0)
        if name in OPERATOR_CHANGES:
            cursor = self.cursors.get(about.cursor_id)
            return cursor.uid if cursor is not None else ChannelUid(0)
        if name == "restored_cursor":
            about = about.cursor
        return ChannelUid(getattr(about, "uid", 0))
