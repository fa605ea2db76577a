"""The read-only view of a broker for the code around it.

The edge, the monitor and the server step the broker with events and read it here; the broker's parts stay private. Nothing is
copied: callers must not change what the view returns.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from stan_protocol.ack_levels import TOLD, AckLevel
from stan_protocol.channels import Subjects
from stan_protocol.scalars import ChannelUid, GroupId, Nanos, RaftIndex, Sequence

from stan.config import Config
from stan.core.base.compaction import Compaction
from stan.core.base.partition import Partition
from stan.core.base.ready import Index
from stan.core.base.runs import Runs
from stan.core.leader.cursors import LiveCursor
from stan.core.publishing.compressing import CompressedTotals
from stan.core.publishing.publishing import Publishing
from stan.core.services.leading import ServingState
from stan.core.services.senders import Authorizer
from stan.core.services.services import Services
from stan.core.state.compactions import Compactions
from stan.core.state.group import GroupMachine
from stan.core.state.meta import MetaMachine


class GroupView(Protocol):
    """One channel group on this node."""

    @property
    def machine(self) -> GroupMachine:
        """The group's replicated state."""

    @property
    def leads(self) -> bool:
        """True if this node leads the group."""

    def live(self, cursor_id: int) -> LiveCursor | None:
        """The leader's view of a cursor; None on a follower, and while the cursor has no online member."""


class BrokerView:
    """The read-only view of one broker."""

    __slots__ = ("_publishing", "_services")

    def __init__(self, services: Services, publishing: Publishing) -> None:
        self._services = services
        self._publishing = publishing

    # --- settings and surroundings ------------------------------------------------------------------------------------

    @property
    def config(self) -> Config:
        """The settings, as last set."""
        return self._services.node.config

    @property
    def subjects(self) -> Subjects:
        """The subjects on which clients and nodes send to the broker."""
        return self._services.nats.subjects

    @property
    def reply_prefix(self) -> bytes:
        """The prefix of the reply subjects of this node's own requests."""
        return self._services.nats.reply_prefix

    @property
    def authorizer(self) -> Authorizer | None:
        """The authorizer; None without permissions: every client may do everything."""
        return self._services.senders.authorizer

    @property
    def partition(self) -> Partition | None:
        """This server's channels, if servers divide the channels among them."""
        return self._services.placement.partition

    @property
    def clustered(self) -> bool:
        """True if this broker is a node of a cluster."""
        return self._services.node.clustered

    @property
    def node(self) -> str:
        """The name of this node; "" alone."""
        return self._services.node.name

    @property
    def now(self) -> Nanos:
        """The time of the newest event."""
        return self._services.node.clock.now

    @property
    def payload_bytes_max(self) -> int:
        """Bytes of the largest payload that NATS accepts."""
        return self._services.nats.payload_bytes_max

    def may_send_to(self, named: bytes) -> bool:
        """True if the broker may send to a subject that a client has named."""
        return self._services.senders.may_send_to(named)

    # --- the metadata -------------------------------------------------------------------------------------------------

    @property
    def meta(self) -> MetaMachine:
        """The metadata: clients, channels, nodes, the cluster's identity."""
        return self._services.node.meta

    @property
    def nuid(self) -> bytes:
        """The unique id of the cluster; b"" while the cluster is not founded."""
        return self._services.node.nuid

    @property
    def pool(self) -> int:
        """How many groups of channels there are."""
        return self._services.placement.pool

    @property
    def pool_open(self) -> int:
        """Over how many of them names of channels are hashed."""
        return self._services.placement.pool_open

    @property
    def channels_to_move(self) -> int:
        """Channels that are not in the group where they belong yet; 0 unless this node leads the metadata."""
        return self._services.leading.to_move

    # --- the groups ---------------------------------------------------------------------------------------------------

    @property
    def leads_meta(self) -> bool:
        """True if this node leads the metadata."""
        return self._services.node.leads_meta

    @property
    def groups(self) -> Mapping[GroupId, GroupView]:
        """The channel groups that this node holds."""
        return self._services.node.groups

    def led(self) -> Iterable[GroupId]:
        """The channel groups that this node leads."""
        return (number for number, _ in self._services.leading.led)

    def leads(self, number: GroupId) -> bool:
        """True if this node leads the group; also for the metadata group."""
        return self._services.node.leads(number)

    def acked(self, number: GroupId) -> set[int]:
        """The groups that ack inboxes name whose acks are for a group that this node leads: itself, and those where subscriptions
        were made that have come with their channels."""
        group = self._services.node.groups.get(number)
        known = group.dispatch.cursors.ack_groups.items() if group is not None else ()
        return {number, *(other for other, count in known if count)}

    def replay_bounds(self, number: GroupId) -> set[Nanos]:
        """Times at which it changes which publishes that were heard are replayed for a group (see `Broker.to_replay`)."""
        group = self._services.node.groups.get(number)
        return set() if group is None else group.replay_filter.bounds()

    def when_placed(self, call: Callable[[], None]) -> None:
        """Call *call* whenever names of channels may belong to other groups than before."""
        self._services.placement.follow(call)

    @property
    def serving(self) -> ServingState:
        """What this node serves of groups that others lead."""
        return self._services.leading.serving

    def when_serving(self, call: Callable[[], None]) -> None:
        """Call *call* whenever this node takes acks of other subscriptions with a wish than before."""
        self._services.leading.serving.followers.append(call)

    def group_number(self, channel: bytes) -> GroupId:
        """The group of a channel."""
        return self._services.placement.group_number(channel)

    def groups_of(self, channel: bytes) -> tuple[GroupId, ...]:
        """The groups that publishes to a channel are for: that of the channel, or those of its parts."""
        return self._services.placement.groups_of(channel)

    @property
    def faulty(self) -> Mapping[GroupId, str]:
        """Groups that are frozen until a restart because the program failed in them, and why."""
        return self._services.leading.faulty

    @property
    def has_faults(self) -> bool:
        """True if the next Ready reports a group in which the program failed."""
        return bool(self._services.faults.new)

    # --- messages -----------------------------------------------------------------------------------------------------

    def indexes(self, group: GroupId, uid: ChannelUid) -> Index:
        """The index of a channel's visible messages."""
        return self._services.stored.indexes(group, uid)

    def visible(self, group: GroupId, uid: ChannelUid, index: Index) -> Index:
        """The visible part of *index*, the index of all committed messages of a channel."""
        return self._services.stored.visible(group, uid, index)

    def deleted(self, group: GroupId, uid: ChannelUid) -> Runs | None:
        """Sequences of a channel that were deleted one by one; None if there are none."""
        return self._services.stored.deleted(group, uid)

    def tombstones_until(self, group: GroupId, uid: ChannelUid) -> int:
        """Up to here tombstones of a channel may be gone."""
        found = self._services.node.groups.get(group)
        return 0 if found is None else found.machine.compactions.of(uid).tombstones_until

    def compactions(self, group: GroupId, index: RaftIndex) -> Mapping[ChannelUid, Compaction]:
        """How far the channels of a group may be compacted, as its entries up to *index* say; tombstones only where no position
        is below them now."""
        found = self._services.node.groups.get(group)
        if found is None:
            return {}
        marks = found.machine.part(Compactions).up_to(index)
        for uid, mark in marks.items():
            passed = found.machine.passed(uid)
            if passed is not None and passed < mark.tombstones_until:
                marks[uid] = mark._replace(tombstones_until=Sequence(max(passed, mark.overdue_until)))
        return marks

    def is_held(self, group: GroupId, uid: ChannelUid) -> bool:
        """True if nothing of a channel may be sent until what has expired in it is removed."""
        found = self._services.node.groups.get(group)
        return found is not None and uid in found.dispatch.stops.expiring

    # --- counters -----------------------------------------------------------------------------------------------------

    @property
    def late_messages(self) -> int:
        """Delayed messages that were given up because they were too late."""
        return self._services.reports.totals.late_messages

    @property
    def refused_by_schema(self) -> int:
        """Messages refused since the start because they did not fit the schema of their channel."""
        return self._services.reports.totals.refused_by_schema

    @property
    def expired_messages(self) -> int:
        """Messages that were removed because their time to live was over."""
        return self._services.reports.totals.expired_messages

    @property
    def in_messages(self) -> int:
        """Messages received from publishers since the start, also those refused."""
        return self._services.reports.totals.in_messages

    @property
    def in_bytes(self) -> int:
        """Bytes of the messages received from publishers since the start, also of those refused."""
        return self._services.reports.totals.in_bytes

    @property
    def tier_lost_messages(self) -> int:
        """Messages that limits have removed before their tier had them."""
        return self._services.reports.totals.tier_lost_messages

    @property
    def compressed(self) -> Mapping[str, CompressedTotals]:
        """Batches that were stored compressed since the start, by who has compressed them: client, leader; nobody: of those that
        came compressed, or that a policy wants so, the ones that are kept in clear."""
        return self._publishing.compressing.totals

    @property
    def unanswered_messages(self) -> int:
        """Those of `in_messages` whose publishers want no ack."""
        return self._services.reports.totals.unanswered_messages

    def acked_messages(self) -> dict[AckLevel, int]:
        """Messages stored by this node as leader whose publishers want an ack, by what the ack has meant."""
        found = dict.fromkeys(TOLD, 0)
        for group, count in self._services.reports.totals.acked.items():
            found[self._services.placement.ack_level(group)] += count
        found[AckLevel.MEMORY] += self._services.reports.totals.acked_in_memory
        return found

    @property
    def out_messages(self) -> int:
        """Messages sent to subscribers, redeliveries included."""
        return sum(group.dispatch.totals.out_messages for group in self._services.node.groups.values())

    @property
    def out_bytes(self) -> int:
        """Bytes of the messages sent to subscribers, redeliveries included."""
        return sum(group.dispatch.totals.out_bytes for group in self._services.node.groups.values())

    @property
    def redelivered_messages(self) -> int:
        """Messages sent again, flagged."""
        return sum(group.dispatch.totals.redelivered_messages for group in self._services.node.groups.values())

    @property
    def served_subscriptions(self) -> int:
        """Subscriptions that this node serves although another one leads their group."""
        return sum(len(group.dispatch.cursors.by_id) for _, group in self.serving.groups)

    @property
    def unsealed_bytes(self) -> int:
        """Bytes of messages that were received and not sealed yet."""
        return sum(self._publishing.unsealed.values())

    @property
    def uncommitted_bytes(self) -> int:
        """Bytes of sealed messages that are on their way into the log."""
        return sum(self._publishing.uncommitted.values())
