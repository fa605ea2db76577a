"""One channel group on this node: its replicated state, the leader's live view of it, and the rest of the leader's state."""

from dataclasses import dataclass, field

from stan_protocol.scalars import Nanos

from stan.core.leader.cursors import LiveCursor
from stan.core.leader.dispatch import Dispatch
from stan.core.leader.leadership import Leadership
from stan.core.leader.publish_replay import ReplayFilter
from stan.core.state.group import GroupMachine


@dataclass(slots=True)
class ChannelGroup:
    """One channel group on this node."""

    machine: GroupMachine
    dispatch: Dispatch
    leadership: Leadership | None = None  # while this node leads the group
    replay_filter: ReplayFilter = field(default_factory=ReplayFilter)  # which recent publishes are in the log
    report_at: int = 0  # Nanos: the next progress entry of a replicated group
    reported_deliveries: int = 0  # `dispatch.totals.out_messages` at the last progress entry
    loaded: int = 0  # RaftIndex: newest entry that the log had when this node began to receive publishes
    leadership_epoch: int = 0  # how often this node began to lead the group
    applied: int = 0  # RaftIndex: newest entry that was stepped
    begun: int = 0  # RaftIndex: entries behind it were stepped; those before only loaded, if any
    joined: dict[tuple[bytes, bytes], tuple[Nanos, int]] = field(default_factory=dict)
    """Recent subscriptions: (client id, inbox) -> (time, subscription id); oldest first."""

    @property
    def leads(self) -> bool:
        """True if this node leads the group."""
        return self.leadership is not None

    def lead(self) -> Leadership:
        """This node leads the group from now on; returns the new, empty leadership."""
        self.leadership_epoch += 1
        self.leadership = Leadership(self.machine.group)
        return self.leadership

    def follow(self) -> None:
        """This node no longer leads the group."""
        if self.leadership is not None:
            self.leadership.ended = True
            self.leadership = None

    def live(self, cursor_id: int) -> LiveCursor | None:
        """The live view of a cursor on the node that serves it, which is the leader as a rule; None on all others, and while the
        cursor has no online member."""
        return self.dispatch.cursors.by_id.get(cursor_id)
