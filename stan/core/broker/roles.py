"""How this node begins and ends to lead a group: the live view is made from the replicated state, and forgotten."""

from stan_protocol.channels import whole_of
from stan_protocol.scalars import GroupId

from stan.core.base.ready import Fetch, ReadResult
from stan.core.broker.group_leader import make_leader
from stan.core.broker.meta_leader import make_meta_leader
from stan.core.broker.parts import BrokerParts
from stan.core.features.dead_letters.moving import DeadLetters
from stan.core.publishing.stored_reads import StoredReads
from stan.core.services.leader_part import MetaPart
from stan.core.services.node import META_GROUP
from stan.core.services.proposals import nobody_waits
from stan.core.services.services import Services
from stan.protocol.proto import entries_pb2 as pb


class GroupRoles:
    """Makes this node the leader of groups, and a follower again."""

    def __init__(self, services: Services, parts: BrokerParts) -> None:
        self._services = services
        self.faults, self.leading, self.node = services.faults, services.leading, services.node
        self.proposals = services.proposals
        self.parts = parts

    def was_reset(self, number: GroupId) -> None:
        """A group's state is loaded again after `reset` and may have changed: channels came and went, connections are gone."""
        if number != META_GROUP:
            return
        meta = self.node.meta
        for gone in [one.info for uid, one in self.parts.channels.by_uid.items() if uid not in meta.by_uid]:
            self.faults.within(gone.group, self.parts.channels.unregistered, gone, whole_of(gone.name))
        self.parts.moves.meta_reset()
        for info in [info for info in meta.channels.values() if info.uid not in self.parts.channels.by_uid]:
            self.faults.within(info.group, self.parts.filters.registered, info.name, info.group)
            self.faults.within(info.group, self.parts.channels.registered, info)
        self.parts.doubling.reset()
        for led, _ in self.leading.led:
            self.faults.within(led, self.parts.clients.lead_group, led)
        self.parts.channels.reconfigure()
        self.parts.long_poll.reset()
        self.parts.read_index.applied()

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
        make_meta_leader(self._services, self.parts)
        if self.node.meta.info is None:
            self.proposals.change_meta(nobody_waits, cluster_info=self.founding(nuid))
        self.parts.spreading.lead()
        self.parts.read_index.applied()

    def lead_group(self, number: GroupId, *, unconfirmed: bool) -> None:
        """This node leads a group from now on, and has applied all earlier entries of it: make the live view, apply the
        current limits, finish what the previous leader left half done. *unconfirmed*: more may have been sent than the log
        records."""
        group = self.node.groups[number]
        unreported = []
        if number in self.leading.serving.leases:
            unreported = self.parts.serving.of_others.take_unreported(number)
            group.dispatch.follow()
            self.leading.stop_serving(number)
        leadership = group.lead()
        self.leading.groups_changed()
        self.parts.channels.lead(number)
        self.parts.moves.lead(leadership)
        make_leader(self._services, self.parts, leadership)
        group.dispatch.lead(self.node.clock.now, self.node.clock.wall, self.parts.moves.not_led(number))
        if unconfirmed:
            group.dispatch.mark_unconfirmed()
        self.parts.clients.lead_group(number)
        self.parts.subscribing.lead_group(number)
        self.parts.channels.lead_live(number)
        self.parts.doubling.lead(number)
        self.parts.serving.lead(leadership, unreported)

    def fetched(self, fetch: Fetch, batches: list[ReadResult], error: str = "") -> None:
        """The answer to a Fetch of stored messages that a part of a group's leader asked for."""
        reads = self.leading.part(fetch.group, StoredReads)
        if reads is not None:
            reads.fetched(fetch, batches, error)

    def reconnected(self) -> None:
        """The NATS connection is back: clients that could not be reached until now get their time once more."""
        leader = self.node.meta_leader
        for part in leader.all(MetaPart) if leader is not None else ():
            part.restart_all()

    def move_given_up(self) -> None:
        """Let the leader of each group move the messages that its positions have given up."""
        for letters in self.leading.all_parts(DeadLetters):
            self.faults.within(letters.number, letters.pump)

    def follow_meta(self) -> None:
        """This node no longer leads the metadata: requests whose entries are on their way stay unanswered."""
        if self.node.meta_leader is not None:
            self.node.meta_leader.ended, self.node.meta_leader = True, None
        self.leading.forget(META_GROUP)
        self.parts.spreading.follow()

    def follow_group(self, number: GroupId) -> None:
        """This node no longer leads a group: of this group, nothing that is on its way is answered or sent."""
        self.node.groups[number].follow()
        self.leading.groups_changed()
        self.leading.forget(number)
        self.parts.clients.follow_group(number)
        self.parts.publishing.follow(number)
        self.parts.channels.follow(number)
        self.node.groups[number].dispatch.follow()
        self.leading.serving_changed()
        self.parts.long_poll.follow(number)
