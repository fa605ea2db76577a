"""How this node begins and ends to lead a group: the live view is made from the replicated state, and forgotten."""

from collections.abc import Sequence

from stan_protocol.channels import whole_of
from stan_protocol.scalars import ChannelUid, GroupId

from stan.core.clients.registration import Registration
from stan.core.features import BrokerFeature, BrokerParts
from stan.core.leader.local_group import ChannelGroup, LeaderParts, Leadership
from stan.core.metadata.meta import ChannelInfo
from stan.core.publishing.batching import Batching
from stan.core.publishing.channel_policies import DelayFaults
from stan.core.publishing.channels import DroppedRuns
from stan.core.publishing.ephemeral import EphemeralChannels
from stan.core.publishing.stored_reads import StoredReads
from stan.core.services.leader_part import MetaPart
from stan.core.services.node import META_GROUP
from stan.core.services.proposals import nobody_waits
from stan.core.services.services import Services
from stan.protocol.proto import entries_pb2 as pb


class GroupRoles:
    """Makes this node the leader of groups, and a follower again."""

    def __init__(self, services: Services, parts: BrokerParts, features: Sequence[BrokerFeature]) -> None:
        self._services = services
        self.faults, self.leading, self.node = services.faults, services.leading, services.node
        self.proposals = services.proposals
        self.placement = services.placement
        self.parts = parts
        self.features = features

    def was_reset(self, number: GroupId) -> None:
        """A group's state is loaded again after `reset` and may have changed: channels came and went, connections are gone."""
        if number != META_GROUP:
            return
        meta = self.node.meta
        gone = [one.info for uid, one in self.parts.channels.by_uid.items() if uid not in meta.by_uid]
        self.faults.each(lambda info: self.parts.channels.unregistered(info, whole_of(info.name)), gone)
        self.placement.changed()
        new = [info for info in meta.channels.values() if info.uid not in self.parts.channels.by_uid]
        self.faults.each(self._registered, new)
        for led, _ in self.leading.led:
            self.faults.within(led, self.parts.clients.lead_group, led)
        self.parts.channels.reconfigure()
        for feature in self.features:
            feature.meta_loaded()
        self.parts.read_index.applied()

    def _registered(self, info: ChannelInfo) -> None:
        self.parts.filters.registered(info.name, info.group)
        self.parts.channels.registered(info)

    def founding(self, nuid: bytes) -> pb.ClusterInfo:
        """The identity of a new cluster, *nuid* its unique id; its level is the highest that all live nodes know."""
        config = self.node.config
        return pb.ClusterInfo(
            cluster_id=config.cluster_id.encode(),
            raft_groups=config.store.raft_groups,
            nuid=nuid,
            level=min(self.parts.nodes.heard.levels().values()),
        )

    def lead_meta(self, nuid: bytes) -> None:
        """This node leads the metadata from now on; *nuid* is for a cluster that has no identity yet."""
        leader, clients = LeaderParts(META_GROUP), self.parts.clients
        self.node.meta_leader = leader
        leader.keep(Registration(self._services, leader, clients.template, clients.gone, clients.closing))
        if self.node.meta.info is None:
            self.proposals.change_meta(nobody_waits, cluster_info=self.founding(nuid))
        for feature in self.features:
            feature.lead_meta(leader)
        self.parts.read_index.applied()

    def lead_group(self, number: GroupId, *, unconfirmed: bool) -> None:
        """This node leads a group from now on, and has applied all earlier entries of it: make the live view, apply the
        current limits, finish what the previous leader left half done. *unconfirmed*: more may have been sent than the log
        records."""
        group = self.node.groups[number]
        unreported = []
        if number in self.leading.serving.leases:
            unreported = self.parts.serving.of_others.take_unreported(number)
            group.dispatch.members.follow()
        leadership = group.lead()
        self.leading.group_changed(number)
        self.parts.channels.lead(number)
        self._make_parts(leadership)
        group.dispatch.members.lead(self.node.clock.now, self.node.clock.wall, self._not_led(number, group))
        if unconfirmed:
            group.dispatch.members.mark_unconfirmed()
        self.parts.clients.lead_group(number)
        self.parts.subscribing.lead_group(number)
        self.parts.channels.lead_live(number)
        for feature in self.features:
            feature.leads_group(number)
        self.parts.serving.lead(leadership, unreported)

    def _make_parts(self, leadership: Leadership) -> None:
        """Make the parts of a group's leader."""
        services, channels = self._services, self.parts.channels
        leadership.keep(EphemeralChannels(services, leadership, channels))
        for small in (StoredReads, DroppedRuns):
            leadership.keep(small(services, leadership))
        leadership.keep(Batching(services, leadership, channels, self.parts.publishing))
        leadership.keep(DelayFaults())
        for feature in self.features:
            feature.lead_group(leadership)

    def _not_led(self, number: GroupId, group: ChannelGroup) -> frozenset[ChannelUid]:
        """Channels of which a group's state has something, but that are another group's, or nobody's, as far as is known here."""
        known, moves = self.node.meta.by_uid, group.machine.moves
        return frozenset(
            uid
            for uid in moves.by_channel
            if uid in moves.held or (info := known.get(uid)) is None or info.group != number
        )

    def reconnected(self) -> None:
        """The NATS connection is back: clients that could not be reached until now get their time once more."""
        leader = self.node.meta_leader
        for part in leader.all(MetaPart) if leader is not None else ():
            part.restart_all()

    def follow_meta(self) -> None:
        """This node no longer leads the metadata: requests whose entries are on their way stay unanswered."""
        if self.node.meta_leader is not None:
            self.node.meta_leader.ended, self.node.meta_leader = True, None
        self.leading.to_move = 0

    def follow_group(self, number: GroupId) -> None:
        """This node no longer leads a group: of this group, nothing that is on its way is answered or sent."""
        self.node.groups[number].follow()
        self.leading.group_changed(number)
        self.parts.clients.follow_group(number)
        self.parts.publishing.follow(number)
        self.parts.channels.follow(number)
        for feature in self.features:
            feature.follow_group(number)
