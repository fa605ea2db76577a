"""The read-only view of a broker for the code around it.

The edge, the monitor and the server step the broker with events and read it here; the broker's parts stay private. What a view
returns cannot be changed, or is a copy.
"""

from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from stan_protocol.ack_levels import TOLD, AckLevel
from stan_protocol.channels import Subjects
from stan_protocol.frames import Frame, StreamSubject
from stan_protocol.scalars import ChannelUid, GroupId, Nanos, RaftIndex, Sequence

from stan.config import Config
from stan.core.base.compaction import Compaction
from stan.core.base.partition import Partition
from stan.core.base.ready import Index
from stan.core.base.runs import Runs
from stan.core.boundary.group_view import GroupView
from stan.core.boundary.meta_view import MetaView
from stan.core.publishing.compressing import CompressedTotals
from stan.core.publishing.publishing import Publishing
from stan.core.services.senders import Authorizer
from stan.core.services.services import Services


class BrokerTotals(NamedTuple):
    """The counters of one node since its start, and the bytes that are on their way now."""

    in_messages: int  # received from publishers, also those refused
    in_bytes: int
    unanswered_messages: int  # those of `in_messages` whose publishers want no ack
    acked_messages: Mapping[AckLevel, int]  # stored by this node as leader, by what the ack has meant
    out_messages: int  # sent to subscribers, redeliveries included
    out_bytes: int
    redelivered_messages: int  # sent again, flagged
    late_messages: int  # delayed messages that were given up because they were too late
    refused_by_schema: int  # messages that did not fit the schema of their channel
    expired_messages: int  # removed because their time to live was over
    tier_lost_messages: int  # removed by limits before their tier had them
    compressed: Mapping[str, CompressedTotals]
    """Batches that were stored compressed, by who has compressed them: client, leader; nobody: of those that came compressed, or
    that a policy wants so, the ones that are kept in clear."""
    served_subscriptions: int  # that this node serves although another one leads their group
    unsealed_bytes: int  # of messages that were received and not sealed yet
    uncommitted_bytes: int  # of sealed messages that are on their way into the log


class RemovedUntil(NamedTuple):
    """Sequences up to which messages of a channel have been removed; 0: none."""

    lost: int  # by limits or damage of the log: others were compacted, have expired or were deleted
    tombstones: int  # tombstones, by compaction


class ScopeView:
    """The publishes and acks that a node handles, of all that it receives, and where else it listens."""

    __slots__ = ("_leading", "_listening", "_node", "_placement")

    def __init__(self, services: Services) -> None:
        self._leading, self._node, self._placement = services.leading, services.node, services.placement
        self._listening = services.listening

    def takes(self, channel: bytes) -> bool:
        """True if this node leads a group that publishes to the channel are for."""
        return any(map(self._node.leads, self._placement.groups_of(channel)))

    def groups_of(self, channel: bytes) -> tuple[GroupId, ...]:
        """The groups that publishes to a channel are for: that of the channel, or those of its parts."""
        return self._placement.groups_of(channel)

    def acks(self) -> frozenset[int]:
        """The groups that ack inboxes name whose acks this node handles."""
        return self._leading.serving.acks.union(*(self.acks_of(number) for number, _ in self._leading.led))

    def acks_of(self, number: GroupId) -> set[int]:
        """The groups that ack inboxes name whose acks are for a group that this node leads: itself, and those where subscriptions
        were made that have come with their channels."""
        group = self._node.groups.get(number)
        known = group.dispatch.cursors.ack_groups.items() if group is not None else ()
        return {number, *(other for other, count in known if count)}

    @property
    def serves_others(self) -> bool:
        """True if this node has served groups that others lead."""
        return bool(self._leading.serving.leases)

    def lapsed(self, groups: Set[GroupId], now: Nanos) -> set[GroupId]:
        """Return those of *groups*, led by other nodes, that this node has served and may not serve now."""
        leases = self._leading.serving.leases
        return {number for number in groups if leases.get(number, now + 1) <= now}

    def follow(self, placed: Callable[[], None], acks: Callable[[], None]) -> None:
        """Call *placed* whenever names of channels may belong to other groups than before, and *acks* whenever this node takes
        acks of other subscriptions than before."""
        self._placement.follow(placed)
        self._leading.serving.followers.append(acks)

    @property
    def more_subjects(self) -> Mapping[str, Callable[[Frame], None]]:
        """The subjects of other protocols on which this node listens now, each with the taker of its frames."""
        return self._listening.subjects

    @property
    def stream_subjects(self) -> Mapping[str, StreamSubject]:
        """The subjects among `more_subjects` whose frames are messages for streams, which the broker takes as batches, too."""
        return MappingProxyType(self._listening.streams)

    @property
    def consumer_acks(self) -> str:
        """The subject among `more_subjects` of acks to consumers, whose frames the broker takes as batches, too;
        "": none."""
        return self._listening.acks

    def follow_subjects(self, call: Callable[[], None]) -> None:
        """Call *call* whenever `more_subjects` are others."""
        self._listening.followers.append(call)


class BrokerView:
    """The read-only view of one broker."""

    __slots__ = ("_publishing", "_services", "meta", "scope")

    def __init__(self, services: Services, publishing: Publishing) -> None:
        self._services = services
        self._publishing = publishing
        self.meta = MetaView(services.node)
        """The metadata: clients, channels, nodes, the cluster's identity."""
        self.scope = ScopeView(services)

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
    def nuid(self) -> bytes:
        """The unique id of the cluster; b"" while the cluster is not founded."""
        return self._services.node.nuid

    @property
    def cluster(self) -> bytes:
        """The identity of the cluster for its readers; b"" while the cluster is not founded."""
        return self._services.node.cluster

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
        """The channel groups that this node holds now."""
        return MappingProxyType({number: GroupView(group) for number, group in self._services.node.groups.items()})

    def group(self, number: GroupId) -> GroupView | None:
        """A channel group; None if this node does not hold it."""
        found = self._services.node.groups.get(number)
        return None if found is None else GroupView(found)

    def leads(self, number: GroupId) -> bool:
        """True if this node leads the group; also for the metadata group."""
        return self._services.node.leads(number)

    def group_number(self, channel: bytes) -> GroupId:
        """The group of a channel."""
        return self._services.placement.group_number(channel)

    @property
    def faulty(self) -> Mapping[GroupId, str]:
        """Groups that are frozen until a restart because the program failed in them, and why."""
        return MappingProxyType(self._services.faults.faulty)

    @property
    def has_faults(self) -> bool:
        """True if the next Ready reports a group in which the program failed."""
        return bool(self._services.faults.new)

    # --- messages -----------------------------------------------------------------------------------------------------

    def indexes(self, group: GroupId, uid: ChannelUid) -> Index:
        """The index of a channel's messages."""
        return self._services.stored.indexes(group, uid)

    def deleted(self, group: GroupId, uid: ChannelUid) -> Runs | None:
        """Sequences of a channel that were deleted one by one; None if there are none."""
        return self._services.stored.deleted(group, uid)

    def removed_until(self, group: GroupId, uid: ChannelUid) -> RemovedUntil:
        """Up to where messages of a channel may have been removed."""
        found = self._services.node.groups.get(group)
        if found is None:
            return RemovedUntil(0, 0)
        return RemovedUntil(found.machine.lost_until(uid), found.machine.compactions.of(uid).tombstones_until)

    def compactions(self, group: GroupId, index: RaftIndex) -> Mapping[ChannelUid, Compaction]:
        """How far the channels of a group may be compacted, as its entries up to *index* say; tombstones only where no position
        is below them now."""
        found = self._services.node.groups.get(group)
        if found is None:
            return {}
        marks = found.machine.compactions.up_to(index)
        for uid, mark in marks.items():
            slowest = found.machine.slowest(uid)
            if slowest is not None and slowest[0] < mark.tombstones_until:
                marks[uid] = mark._replace(tombstones_until=Sequence(max(slowest[0], mark.overdue_until)))
        return marks

    def is_held(self, group: GroupId, uid: ChannelUid) -> bool:
        """True if nothing of a channel may be sent until what has expired in it is removed."""
        found = self._services.node.groups.get(group)
        return found is not None and uid in found.dispatch.stops.expiring

    # --- counters -----------------------------------------------------------------------------------------------------

    @property
    def uncommitted_bytes(self) -> int:
        """Bytes of sealed messages that are on their way into the log."""
        return sum(self._publishing.uncommitted.values())

    def totals(self) -> BrokerTotals:
        """Return the counters as they are now."""
        totals, groups = self._services.reports.totals, self._services.node.groups.values()
        acked = dict.fromkeys(TOLD, 0)
        for group, count in totals.acked.items():
            acked[self._services.placement.ack_level(group)] += count
        acked[AckLevel.MEMORY] += totals.acked_in_memory
        served = (group.dispatch.cursors.by_id for _, group in self._services.leading.serving.groups)
        return BrokerTotals(
            in_messages=totals.in_messages,
            in_bytes=totals.in_bytes,
            unanswered_messages=totals.unanswered_messages,
            acked_messages=MappingProxyType(acked),
            out_messages=sum(group.dispatch.totals.out_messages for group in groups),
            out_bytes=sum(group.dispatch.totals.out_bytes for group in groups),
            redelivered_messages=sum(group.dispatch.totals.redelivered_messages for group in groups),
            late_messages=totals.late_messages,
            refused_by_schema=totals.refused_by_schema,
            expired_messages=totals.expired_messages,
            tier_lost_messages=totals.tier_lost_messages,
            compressed=MappingProxyType({by: replace(one) for by, one in self._publishing.compressing.totals.items()}),
            served_subscriptions=sum(map(len, served)),
            unsealed_bytes=sum(self._publishing.unsealed.values()),
            uncommitted_bytes=self.uncommitted_bytes,
        )
