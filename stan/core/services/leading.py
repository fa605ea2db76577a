"""The groups that this node leads, and the groups that it serves for other leaders."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVarTuple

from stan_protocol.scalars import GroupId, Nanos

from stan.core.base.faults import Faults
from stan.core.leader.dispatch import Dispatch
from stan.core.leader.local_group import ChannelGroup, LeaderParts, Part
from stan.core.services.node import META_GROUP, Node
from stan.core.state.cursors import ack_place
from stan.protocol.user_subjects import ACK_GROUPS

Args = TypeVarTuple("Args")
Groups = Iterable[tuple[GroupId, ChannelGroup]]

LED_ELSEWHERE = "another node leads the channel, and answers"
"""Why a request is left unanswered; no client gets this text."""


@dataclass(slots=True)
class ServingState:
    """Cursors of groups that other nodes lead: those that this node serves, and those whose acks it takes
    (stan.core.state.serving)."""

    groups: tuple[tuple[GroupId, ChannelGroup], ...] = ()  # that this node does not lead, with cursors that it serves
    leases: dict[GroupId, Nanos] = field(default_factory=dict)  # until when it may do so; of groups that it has served
    # Groups, ACK_GROUPS added, of whose subscriptions with a wish this node serves some.
    acks: frozenset[int] = frozenset()
    followers: list[Callable[[], None]] = field(default_factory=list)  # called when `acks` has changed


@dataclass(slots=True)
class Leading:
    """The groups that this node leads, and the reasons why it cannot at the moment."""

    node: Node
    faults: Faults
    led: tuple[tuple[GroupId, ChannelGroup], ...] = ()  # channel groups that this node leads, by number
    meta_lease: bool = True  # no other node can lead the metadata now
    write_blocked: frozenset[GroupId] = frozenset()  # led, but take no proposals at the moment
    saturated: frozenset[GroupId] = frozenset()  # led, but entries wait: new messages grow into a larger batch
    replaying: GroupId | None = None  # its buffered frames are replayed; the previous leader may have handled them
    heard_since: Nanos = Nanos(0)  # noqa: RUF009 - the replay buffer holds what was read from NATS since then
    to_move: int = 0  # channels that are not where they belong; 0 unless this node leads the metadata
    serving: ServingState = field(default_factory=ServingState)

    @contextmanager
    def replay_of(self, group: GroupId) -> Iterator[None]:
        """While the buffered frames of *group* are replayed, requests of other groups do not concern this node."""
        self.replaying = group
        try:
            yield
        finally:
            self.replaying = None

    def concerns(self, group: GroupId) -> bool:
        """True if this node has to handle requests of *group* now: it leads the group, and replays no frames of another one."""
        return self.node.leads(group) and self.replaying in (None, group)

    def holds(self, groups: Iterable[GroupId]) -> bool:
        """True if this node leads all of *groups* and holds their leases, so that no other node can lead them."""
        return all(
            self.node.leads(number)
            and (self.meta_lease if number == META_GROUP else not self.node.groups[number].dispatch.stops.lease_lapsed)
            for number in groups
        )

    def leadership(self, number: GroupId) -> LeaderParts:
        """The parts of the leader of a group that this node leads."""
        leadership = self.node.leader(number)
        assert leadership is not None  # noqa: S101 - for mypy
        return leadership

    def part(self, number: GroupId, kind: type[Part]) -> Part | None:
        """The part of class *kind* of the leader of a group; None if this node does not lead it."""
        leader = self.node.leader(number)
        return None if leader is None else leader.find(kind)

    def all_parts(self, kind: type[Part]) -> Iterator[Part]:
        """The part of class *kind* of the leader of each group that this node leads."""
        for _, part in self._led_parts(kind):
            yield part

    def each(self, kind: type[Part], call: Callable[[Part, *Args], object], *args: *Args) -> None:
        """Call *call* with each of `all_parts` and *args*, on behalf of the part's group."""
        for number, part in self._led_parts(kind):
            self.faults.within(number, call, part, *args)

    def _led_parts(self, kind: type[Part]) -> Iterator[tuple[GroupId, Part]]:
        for number, group in self.led:
            part = group.leadership.find(kind) if group.leadership is not None else None
            if part is not None:
                yield number, part

    def each_dispatch(self, groups: Groups, call: Callable[[Dispatch, *Args], object], *args: *Args) -> None:
        """Call *call* with the dispatch of each of *groups* and *args*, on behalf of the group."""
        for number, group in groups:
            self.faults.within(number, call, group.dispatch, *args)

    def acked(self, number: int, key: int) -> tuple[ChannelGroup, int] | None:
        """The group of the subscriptions whose inboxes have that group and key, and their place there: the group itself, or one
        that this node leads and to which a subscription has come with its channel."""
        for _, led in self.led:
            cursors = led.dispatch.cursors
            if cursors.ack_groups and ack_place(number, key) in cursors.by_ack_key:
                return led, ack_place(number, key)
        group = self.node.groups.get(GroupId(number if number < ACK_GROUPS else number - ACK_GROUPS))
        return None if group is None else (group, key)

    def subscriptions_of(self, incarnation: int) -> list[tuple[GroupId, int]]:
        """(group, subscription id) of each online subscription of one connection, in the groups that this node leads."""
        return [
            (number, subscription_id)
            for number, group in self.led
            for subscription_id in sorted(group.machine.subscriptions.by_incarnation.get(incarnation, ()))
        ]

    # --- changes ------------------------------------------------------------------------------------------------------

    def group_changed(self, number: GroupId) -> None:
        """A group has come or gone, or this node begins or ends to lead it; it serves nothing of the group for another leader."""
        self.led = tuple((number, group) for number, group in self.node.groups.items() if group.leadership is not None)
        if number in self.serving.leases:
            self.serving.leases[number] = Nanos(0)
        self.serving_changed()

    def serving_changed(self) -> None:
        """Look again which groups have cursors that this node serves, and whose acks it takes."""
        serving, groups = self.serving, self.node.groups.items()
        serving.groups = tuple((number, one) for number, one in groups if one.dispatch.cursors.by_id and not one.leads)
        acks = frozenset(number + ACK_GROUPS for number, group in groups if group.dispatch.cursors.wishes)
        if acks != serving.acks:
            serving.acks = acks
            for call in serving.followers:
                call()
