"""A node of a cluster: a broker with its replicated groups, its links to the other nodes, and its view of the membership.

    gateway ─► driver ─► broker            membership ─► found, observers, refusal
       └─ frames of nodes ─► links ─► groups ─► leaderships ─► driver        balance ─► handovers

Connection, runtime, storage and random numbers are passed in, so that the simulation runs this very class.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVarTuple

from stan_protocol.channels import publication
from stan_protocol.frames import Frame
from stan_protocol.scalars import GroupId, Nanos

from stan import limits
from stan.config import ClusterConfig, Config
from stan.core.broker.broker import Broker
from stan.core.clients.nodes import CopyHolder, HeardNodes
from stan.core.services.node import META_GROUP
from stan.edge.cluster.balance import Balance
from stan.edge.cluster.copies import GroupCopies
from stan.edge.cluster.group_sync import GroupSync
from stan.edge.cluster.handovers import Handovers
from stan.edge.cluster.host import Environment
from stan.edge.cluster.links import PeerLinks
from stan.edge.cluster.membership import Membership, epoch_name
from stan.edge.cluster.reconfiguration import Reconfiguration
from stan.edge.leadership import GroupEvents, Leaderships
from stan.edge.nats.gateway import Gateway
from stan.edge.serving.fetching import Fetching
from stan.edge.serving.log_requests import serve_log_requests
from stan.edge.storage.storage import Storage
from stan.edge.turns import Turns
from stan.errors import Aborted, StartError
from stan.labels import Labels, place_rows
from stan.product import VERSION
from stan.protocol.proto.node_pb2 import NodeHello, NodeLabels
from stan.protocol.user_subjects import ack_subjects
from stan.raft.placement import place
from stan.raft.scheduler import Scheduler
from stan.raft.transport.mux_nats import NatsWire

if TYPE_CHECKING:
    from stan.raft.group import RaftGroup

Parts = TypeVarTuple("Parts")


def held_groups(cluster: ClusterConfig, node_id: str, groups: int) -> list[GroupId]:
    """Groups of a node, of *groups* groups of channels: the metadata group, which every node needs, and those it votes
    in; a read replica has all."""
    placement = place(groups, cluster.voters(node_id), cluster.replicas, cluster.places)
    return [
        group
        for group, placed in placement.items()
        if group == META_GROUP or cluster.replica or node_id in placed.voters
    ]


class ClusterNode:
    """A node of a cluster. Life cycle: construct, `load`, assign `gateway.connection`, `start`; at the end `drain` and `stop`.

    Puts the parts together and lets them do their periodic work; see the diagram above."""

    def __init__(
        self, config: Config, storage: Storage, environment: Environment, *, reply_prefix: bytes, identity: bytes
    ) -> None:
        """*identity*: the cluster's identity, used if this node founds the cluster."""
        cluster, me = config.cluster, storage.node_id
        if cluster is None:
            raise StartError("a node of a cluster needs the cluster's settings")
        self.storage = storage
        self.environment = environment
        self.groups: dict[GroupId, RaftGroup] = {}
        self.reconfiguration = Reconfiguration(self, cluster, config.store.raft_groups)
        names = self.reconfiguration.names
        channel_groups = [number for number in storage.logs if number != META_GROUP]
        self.broker = Broker(config, lambda group, uid: storage.logs[group].channel(uid), reply_prefix, channel_groups)
        plans = self.reconfiguration
        heard = HeardNodes(
            plans.under_way,
            self._levels,
            self._labels,
            self._holders,
            self._instance,
            plans.growth,
            plans.pool.waits_for,
        )
        self.broker.cluster.join(me, names, heard)
        self.broker.cluster.step_epoch(storage.epoch)
        self.gateway = Gateway(self.broker, "", environment.note)
        turns = Turns(environment.runtime, environment.crashed)
        self.gateway.read_buffer.wake = turns.look
        scheduler = turns.scheduler = Scheduler(environment.ticker, news=turns.wake, crashed=environment.crashed)
        turns.touched = scheduler.owner.touched
        self.leaderships = Leaderships(
            self.broker,
            self.groups,
            scheduler,
            self.gateway,
            nuid=identity,
            now=environment.runtime.now,
            note=environment.note,
        )
        self.driver = environment.make_driver(
            self.broker,
            self.groups,
            self.gateway,
            environment.runtime,
            turns,
            applied=storage.applied,
            note=environment.note,
            leaderships=self.leaderships,
        )
        self.driver.hash_state = partial(storage.hash_state, self.broker)
        peers = [name for name in names if name != me]
        links = PeerLinks(
            NatsWire(config.cluster_id, me, peers),
            peers,
            environment,
            wake=scheduler.schedule,
            complain=self.gateway.complain,
            raft_logging=cluster.raft_logging,
            epoch=storage.epoch,
        )
        self.copies = GroupCopies(self, links)
        self.leaderships.events = GroupEvents(self.copies.configured, self.driver.faults.fail)
        self.handovers = Handovers(self, Balance(me, self.reconfiguration.placement), links.mux.is_up)
        self.membership = Membership(self._hello(config, cluster), environment.runtime.now(), environment.random)
        self.group_sync = GroupSync(self)
        Fetching(self.broker, self.groups, self.gateway, environment.runtime, self._may_lead)
        serve_log_requests(self.broker, self.groups, self.gateway, environment.runtime, me)
        self.gateway.subscribe(links.subscription, links.receive, quiet=True)
        self.gateway.subscribe(self.broker.view.subjects.hello, self._hello_received)

    # --- parts ------------------------------------------------------------------------------------------------------------

    def _may_lead(self, number: GroupId) -> bool:
        return self.groups[number].lease_until() > self.environment.runtime.now()

    def _levels(self) -> dict[str, int]:
        return self.membership.hellos.levels(self.environment.runtime.now())

    def _labels(self) -> dict[str, Labels]:
        return self.membership.hellos.labels(self.environment.runtime.now())

    def _holders(self, number: GroupId) -> dict[str, CopyHolder]:
        copies = self.membership.hellos.copies(number, self.environment.runtime.now())
        return {hello.node: CopyHolder(hello.replica, hello.instance) for hello in copies}

    def _instance(self) -> int:
        return self.membership.me.instance

    def _hello(self, config: Config, cluster: ClusterConfig) -> NodeHello:
        manifest = self.storage.directory.manifest if self.storage.directory is not None else None
        return NodeHello(
            node=self.storage.node_id,
            instance=self.environment.random.getrandbits(64),
            started=self.environment.runtime.wall(),
            cluster_id=config.cluster_id,
            raft_groups=config.store.raft_groups,
            replicas=cluster.replicas,
            voters=self.reconfiguration.names,
            fresh=self.storage.fresh,
            bootstrap=cluster.bootstrap,
            replica=cluster.replica,
            nodes_version=cluster.nodes_version,
            version=VERSION,
            epoch=self.storage.epoch,
            own_labels=NodeLabels(**cluster.labels._asdict()) if any(cluster.labels) else None,
            labels=place_rows(cluster.places, NodeLabels),
            pool=self.reconfiguration.pool.groups if manifest is not None and manifest.pool else 0,
            store=manifest.store_bytes if manifest is not None else b"",
        )

    # --- start and stop -----------------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Load the broker's state from the storage and make the groups. Raises StanError, OSError."""
        await self.copies.load()
        view = self.broker.view
        if view.meta.founded:
            self.membership.update(self.environment.runtime.now(), identity=view.nuid)
            self.gateway.subscriptions.ack_on(ack_subjects(view.config, view.nuid))

    def start(self) -> None:
        """Take part in the cluster; the connection is up."""
        runtime, links = self.environment.runtime, self.copies.links
        links.connect(self.gateway.connection.write)
        self.broker.start(runtime.now(), runtime.wall())
        self.membership.announce(runtime.now())
        self.leaderships.scheduler.start(links.mux, list(self.groups.values()))
        self.tick(runtime.now())
        self.driver.turns.wake()

    def stop(self) -> None:
        """Stop the driver and the scheduler: this node takes part in no group."""
        self.driver.turns.stop()
        self.leaderships.scheduler.stop()

    def drain(self, done: Callable[[], None]) -> None:
        """Hand every leadership over and begin none; *done* is called when this node leads no group."""
        self.handovers.drained = done
        self.membership.update(self.environment.runtime.now(), draining=True)
        self.tick(self.environment.runtime.now())

    # --- the other nodes --------------------------------------------------------------------------------------------------------

    def _hello_received(self, frame: Frame) -> None:
        self.membership.receive(frame.payload, self.environment.runtime.now())
        self._follow_membership()

    def tick(self, now: Nanos) -> None:
        """Every MEMBER_TICK_INTERVAL: exchange hellos, spread leaderships, and listen to clients once the cluster has an
        identity. A failed step freezes the metadata here; the others go on, so that this node's leaderships leave it."""
        if self.driver.turns.stopped:
            return
        self.broker.step_alarm(now + limits.MEMBER_TICK_INTERVAL, self.tick, META_GROUP)
        self.within(META_GROUP, self._leave_without_metadata, now)
        self.within(META_GROUP, self.copies.note_incomplete)
        self.within(META_GROUP, self._listen, now)
        self.within(META_GROUP, self._pass_on_connects)
        self.within(META_GROUP, self._update_hello, now)
        self.within(META_GROUP, self._compare_states)
        self.within(META_GROUP, self._follow_membership)
        self.within(META_GROUP, self.handovers.spread, now)
        self.within(META_GROUP, self.reconfiguration.tick, now)
        self.within(META_GROUP, self.group_sync.tick, now)

    def within(self, number: GroupId, call: Callable[[*Parts], object], *args: *Parts) -> None:
        """Call something on behalf of a group, maybe amid a turn: if it raises, the group is frozen when that goes on."""
        try:
            call(*args)
        except Aborted:
            raise
        except Exception as error:  # noqa: BLE001 - the border of the group
            self.broker.step_fault(number, error)
            self.driver.turns.wake()

    def _leave_without_metadata(self, now: Nanos) -> None:
        meta = self.groups.get(META_GROUP)  # not there while its copy is replaced
        if meta is not None and meta.failed and not self.membership.me.draining:
            self.environment.note(
                "ERR", "without the metadata this node leads nothing: its leaderships are handed over"
            )
            self.membership.update(now, draining=True)

    def _update_hello(self, now: Nanos) -> None:
        """Update the next hello."""
        view = self.broker.view
        self.membership.connection_is(now, up=self.gateway.connection.up)
        self.membership.update(
            now,
            identity=view.nuid if view.meta.founded else None,
            listens=self.gateway.listens,
            fresh=self.membership.me.fresh and not any(group.votes for group in self.groups.values()),
            led=self.leaderships.led,
            resting=self.handovers.handed_over_lately(now),
            hashes=self.copies.agreement.hashes(self.groups),
            level=view.meta.level if view.meta.founded else None,
        )

    def _compare_states(self) -> None:
        self.copies.agreement.compare({name: known.hello for name, known in self.membership.hellos.nodes.items()})

    def _listen(self, now: Nanos) -> None:
        view = self.broker.view
        if view.meta.founded and not self.gateway.listens and self.gateway.connection.up:
            self.copies.listen(now)
            self.gateway.listen(ack_subjects(view.config, view.nuid))
            self.gateway.read_buffer.wake()
            self._check_listening(Nanos(now + limits.LISTENING_PATIENCE), now)

    def _check_listening(self, until: Nanos, now: Nanos) -> None:
        """Report that clients are served once all live nodes listen to them, or at *until*. A node tells that
        behind its subscriptions, on their way through NATS: where the hello has come, no request misses the node any more. Any
        of them may be the leader that needs a request, and nothing forwards requests."""
        if now >= until or self.membership.hellos.all_listen(now):
            self.environment.listening()
        else:
            self.broker.step_alarm(
                now + limits.MEMBER_TICK_INTERVAL // 10, partial(self._check_listening, until), META_GROUP
            )

    def _pass_on_connects(self) -> None:
        """Pass on connects once the metadata's leader said hello over a new connection to NATS: it may have missed some."""
        buffer, group = self.gateway.replay_buffer, self.groups.get(META_GROUP)
        leader = None if group is None else group.leader
        if buffer is None or buffer.alone_since is None or leader is None or not self.gateway.listens:
            return
        known = self.membership.hellos.nodes.get(leader)
        if leader == self.membership.me.node:
            buffer.alone_since = None
        elif known is not None and known.last > buffer.alone_since:
            self.gateway.pass_on_connects()

    def _begin_epoch(self, epoch: int) -> bool:
        """Take part in the cluster after its last rescue, with nothing on the disk; False if the note cannot be written."""
        try:
            if self.storage.directory is not None:
                self.storage.directory.note_epoch(epoch)
        except OSError as error:
            self.gateway.complain("ERR", f"the epoch of the cluster could not be written down: {error}")
            return False
        self.environment.note("INF", f"the cluster was rescued before this node came: {epoch_name(epoch)}")
        self.copies.links.mux.begin_epoch(epoch)
        self.broker.cluster.step_epoch(epoch)
        return True

    def _follow_membership(self) -> None:
        membership, now = self.membership, self.environment.runtime.now()
        if membership.me.epoch != self.copies.links.mux.epoch and not self._begin_epoch(membership.me.epoch):
            return
        self.copies.links.refused = membership.hellos.outdated()
        hellos = membership.tick(now)  # hellos leave before any action that follows from them
        for hello in hellos:
            self.gateway.connection.write(publication(self.broker.view.subjects.hello.encode(), hello))
        for note in membership.take_notes():
            self.gateway.complain("WRN", note)
        if membership.refusal:
            self.environment.crashed(StartError(membership.refusal))
            return
        if membership.is_new and not self.copies.founded:
            self.copies.bootstrap()
        if hellos:
            self.copies.observe()
