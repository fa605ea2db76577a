"""A channel group on this node: its replicated state, the live view of it, and the parts of its leader."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from stan_protocol.scalars import ChannelUid, GroupId, Nanos, WallNanos

from stan.core.base.compaction import CompactionState
from stan.core.base.ready import LeaderState
from stan.core.leader.cursors import LiveCursor
from stan.core.leader.dispatch import Dispatch
from stan.core.leader.publish_replay import ReplayFilter
from stan.core.state.group import GroupMachine

Part = TypeVar("Part")


@dataclass(slots=True)
class ChannelGroup:
    """A channel group on this node."""

    machine: GroupMachine
    dispatch: Dispatch
    leadership: "Leadership | None" = None  # while this node leads the group
    replay_filter: ReplayFilter = field(default_factory=ReplayFilter)  # which recent publishes are in the log
    report_at: int = 0  # Nanos: the next progress entry of a replicated group
    reported_deliveries: int = 0  # `dispatch.totals.out_messages` at the last progress entry
    loaded: int = 0  # RaftIndex: newest entry that the log had when this node began to receive publishes
    leadership_epoch: int = 0  # how often this node began to lead the group
    applied: int = 0  # RaftIndex: newest entry that was stepped
    begun: int = 0  # RaftIndex: entries behind it were stepped; those before only loaded, if any
    joined: dict[tuple[bytes, bytes], tuple[Nanos, int]] = field(default_factory=dict)
    """Recent subscriptions: (client id, inbox) -> (time, subscription id); oldest first."""
    compacted: Mapping[ChannelUid, CompactionState] = field(default_factory=dict)
    """How far the log of this node has got with the channels that are compacted."""

    @property
    def leads(self) -> bool:
        """True if this node leads the group."""
        return self.leadership is not None

    def is_held(self, uid: ChannelUid) -> bool:
        """True if the group leads a channel no more: it is held for a move to another group, or gone to one, or the entry that
        holds it is on its way into the log."""
        return uid in self.machine.moves.held or uid in self.dispatch.stops.departing

    def note_compacted(self, done: Mapping[ChannelUid, CompactionState], wall: WallNanos) -> None:
        """Note how far the log has got; a pass that is new ended at *wall*."""
        self.compacted = {
            uid: state._replace(
                ended=known.ended if (known := self.compacted.get(uid)) and known.passes == state.passes else wall
            )
            for uid, state in done.items()
        }

    def lead(self) -> "Leadership":
        """This node leads the group from now on; returns the new, empty leadership."""
        self.leadership_epoch += 1
        self.leadership = Leadership(self)
        return self.leadership

    def follow(self) -> None:
        """This node no longer leads the group: nothing that is on its way is answered or sent."""
        if self.leadership is not None:
            self.leadership.ended = True
            self.leadership = None
        self.dispatch.members.follow()

    def live(self, cursor_id: int) -> LiveCursor | None:
        """The live view of a cursor on the node that serves it, which is the leader as a rule; None on all others, and while the
        cursor has no online member."""
        return self.dispatch.cursors.by_id.get(cursor_id)


class LeaderParts(LeaderState):
    """The parts of a leader, one object per class, and its proposals on their way.

    They are made when the node begins to lead and dropped as a whole when that ends: the next leadership begins empty, and no
    part has to clear anything itself.
    """

    __slots__ = ("_parts", "followers", "number")

    def __init__(self, number: GroupId) -> None:
        super().__init__()
        self.number = number  # of the group
        self.followers: dict[str, list[Any]] = {}
        """The parts that follow a change of the group, by its name."""
        self._parts: dict[type, Any] = {}

    def keep(self, part: object) -> None:
        """Add a part."""
        self._parts[type(part)] = part
        for change in getattr(part, "follows", ()):
            self.followers.setdefault(change, []).append(part)

    def all(self, kind: type[Part]) -> list[Part]:
        """The parts of class *kind* or one that is derived from it."""
        return [part for part in self._parts.values() if isinstance(part, kind)]

    def part(self, kind: type[Part]) -> Part:
        """The part of class *kind*, which was made with the leadership.

        Raises:
            KeyError: there is none.
        """
        part: Part = self._parts[kind]
        return part

    def find(self, kind: type[Part]) -> Part | None:
        """The part of class *kind*; None if there is none yet."""
        return self._parts.get(kind)


class Leadership(LeaderParts):
    """The leader of one channel group."""

    __slots__ = ("group",)

    def __init__(self, group: ChannelGroup) -> None:
        super().__init__(group.machine.group)
        self.group = group
