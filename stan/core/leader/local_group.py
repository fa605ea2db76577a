"""One channel group on this node: its replicated state, the leader's live view of it, and what it takes to lead it."""

from dataclasses import dataclass, field

from stan.core.leader.cursors import LiveCursor
from stan.core.leader.dispatch import Dispatch
from stan.core.leader.leadership import Leadership
from stan.core.leader.publish_replay import ReplayFilter
from stan.core.state.group import GroupMachine
from stan.types import Nanos


@dataclass(slots=True)
class ChannelGroup:
    """One channel group on this node."""

    machine: GroupMachine
    dispatch: Dispatch
    leadership: Leadership | None = None  # while this node leads it
    replay_filter: ReplayFilter = field(default_factory=ReplayFilter)  # which publishes of late are in the log
    report_at: int = 0  # Nanos: the next progress entry of a replicated group
    reported_deliveries: int = 0  # deliveries when the last one was made
    loaded: int = 0  # RaftIndex: newest entry that the log had when this node began to listen
    leadership_epoch: int = 0  # how often this node began to lead it
    joined: dict[tuple[bytes, bytes], tuple[Nanos, int]] = field(default_factory=dict)
    """Subscriptions made of late, by client id and inbox: when, and their id; oldest first."""

    @property
    def leads(self) -> bool:
        """Whether this node leads it."""
        return self.leadership is not None

    def lead(self) -> Leadership:
        """This node leads it from now on."""
        self.leadership_epoch += 1
        self.leadership = Leadership()
        return self.leadership

    def live(self, cursor_id: int) -> LiveCursor | None:
        """The leader's view of a cursor; None in a copy, and while nobody is online."""
        return self.dispatch.cursors.get(cursor_id) if self.leads else None
