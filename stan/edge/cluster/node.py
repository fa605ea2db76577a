"""A node of a cluster: a broker with its replicated groups, its links to the other nodes, and its view of the membership.

    gateway ─► driver ─► broker            membership ─► found, observers, refusal
       └─ frames of nodes ─► mux ─► groups ─► leaderships ─► driver          balance ─► handovers

Connection, runtime, storage and random numbers are passed in, so that the simulation runs this very class.
"""

import contextlib
from collections.abc import Callable
from functools import partial

import stan
from stan import limits
from stan.config import ClusterConfig, Config
from stan.core.broker.broker import Broker
from stan.core.context import META_GROUP
from stan.edge.cluster.agreement import Agreement
from stan.edge.cluster.balance import Balance
from stan.edge.cluster.group_sync import GroupSync
from stan.edge.cluster.handovers import Handovers
from stan.edge.cluster.host import Done, Environment
from stan.edge.cluster.membership import Membership
from stan.edge.cluster.reconfiguration import Reconfiguration
from stan.edge.driver import Driver
from stan.edge.leadership import Leaderships
from stan.edge.nats.gateway import Gateway
from stan.edge.serving.fetching import Fetching
from stan.edge.serving.scrub import Scrubber
from stan.edge.storage.raft_files import Voters
from stan.edge.storage.storage import Storage
from stan.edge.turns import Turns
from stan.errors import ConfigError, NotNow, StartError
from stan.protocol.channels import publication
from stan.protocol.frames import Frame
from stan.protocol.proto.node_pb2 import NodeHello
from stan.protocol.user_subjects import ack_subjects
from stan.raft.configuration import decode
from stan.raft.group import GroupPorts, RaftGroup
from stan.raft.placement import place
from stan.raft.scheduler import Scheduler
from stan.raft.transport.mux import Mux
from stan.raft.transport.mux_nats import NatsWire
from stan.types import GroupId, Nanos, RaftIndex

NEVER = Nanos(1 << 63)


def held_groups(cluster: ClusterConfig, node_id: str, raft_groups: int) -> list[GroupId]:
    """Groups that a node keeps: the metadata group, which every node needs, and those it votes in; a read replica keeps all."""
    placement = place(raft_groups, cluster.voters(node_id), cluster.replicas)
    return [
        group
        for group, placed in placement.items()
        if group == META_GROUP or cluster.replica or node_id in placed.voters
    ]


class ClusterNode:
    """One node. Life cycle: construct, `load`, assign `gateway.connection`, `start`; at the end `drain` and `stop`.

    Begins, replaces, reconfigures and ends the groups of this node; its parts do the rest (see the diagram above)."""

    def __init__(
        self, config: Config, storage: Storage, environment: Environment, *, reply_prefix: bytes, identity: bytes
    ) -> None:
        """*identity*: the cluster's identity, used if this node founds the cluster."""
        cluster = config.cluster
        if cluster is None:
            raise StartError("a node of a cluster needs the cluster's settings")
        self.config = config
        self.cluster = cluster
        self.storage = storage
        self.environment = environment
        self.me = storage.node_id
        self.reconfiguration = Reconfiguration(self)
        self.agreement = Agreement(storage, environment.note, stan.__version__)
        self.groups: dict[GroupId, RaftGroup] = {}
        channel_groups = [number for number in storage.logs if number != META_GROUP]
        self.broker = Broker(config, lambda group, uid: storage.logs[group].channel(uid), reply_prefix, channel_groups)
        self.broker.join_cluster(self.me, self.reconfiguration.names, self.reconfiguration.under_way)
        self.gateway = Gateway(self.broker, "", environment.note)
        turns = Turns(environment.runtime, environment.crashed)
        self.gateway.read_buffer.wake = turns.look
        peers = [name for name in self.reconfiguration.names if name != self.me]
        self.scheduler = turns.scheduler = Scheduler(environment.ticker, news=turns.news, crashed=environment.crashed)
        self.wire = NatsWire(config.cluster_id, self.me, peers)
        self.mux = Mux(
            peers,
            self.wire,
            now=environment.runtime.now,
            random=environment.random,
            note=self._debug,
            wake=self.scheduler.schedule,
        )
        self.leaderships = Leaderships(
            self.broker,
            self.groups,
            self.scheduler,
            self.gateway,
            nuid=identity,
            now=environment.runtime.now,
            note=environment.note,
        )
        self.driver = Driver(
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
        self.leaderships.configured, self.leaderships.fault = self._configured, self.driver.faults.fail
        self.handovers = Handovers(self, Balance(self.me, self.reconfiguration.placement), self.mux.is_up)
        self.membership = Membership(self._hello(), environment.runtime.now(), environment.random)
        self.group_sync = GroupSync(self)
        subjects = self.broker.view.subjects
        Fetching(self.broker, self.groups, self.gateway, environment.runtime, self._may_lead)
        Scrubber(self.broker, self.groups, self.gateway, environment.runtime, self.me)
        self.gateway.subscribe(self.wire.subscription, self._raft_frame, quiet=True)
        self.gateway.subscribe(subjects.hello, self._hello_heard)
        self._founded = False
        self._connected = True
        self._incomplete: set[GroupId] = set()
        self._replacing: set[GroupId] = set()
        self._listening = False
        self._hello_subject = subjects.hello.encode()

    # --- parts ------------------------------------------------------------------------------------------------------------

    def _may_lead(self, number: GroupId) -> bool:
        return self.groups[number].lease_until() > self.environment.runtime.now()

    def _debug(self, level: str, text: str) -> None:
        if level == "INF":
            self.environment.note("INF" if self.cluster.raft_logging else "DBG", text)
        else:  # anybody who can publish to the nodes can cause these lines: they are bounded
            self.gateway.complain(level, text)

    def _hello(self) -> NodeHello:
        config, cluster, runtime = self.config, self.cluster, self.environment.runtime
        return NodeHello(
            node=self.me,
            instance=self.environment.random.getrandbits(64),
            started=runtime.wall(),
            cluster_id=config.cluster_id,
            raft_groups=config.store.raft_groups,
            replicas=cluster.replicas,
            voters=self.reconfiguration.names,
            fresh=self.storage.fresh,
            bootstrap=cluster.bootstrap,
            replica=cluster.replica,
            nodes_version=cluster.nodes_version,
            version=stan.__version__,
        )

    def make_group(self, number: GroupId) -> RaftGroup:
        """Make the Raft member of this node in a group, from the log, hard state and voters in the storage."""
        environment, storage, member = self.environment, self.storage, self.storage.members[number]
        self.broker.step_loaded(number, storage.logs[number].last_index)
        return RaftGroup(
            number,
            self.me,
            member.voters.names or self.reconfiguration.first_voters(number),
            storage.logs[number],
            member.hard_state,
            GroupPorts(
                self.mux.send,
                environment.runtime.now,
                environment.random,
                self.scheduler.wake,
                environment.note,
                self.group_sync.needs_snapshot,
                self.mux.listens_since,
            ),
            applied=storage.applied[number][0],
            sync=self.config.store.sync,
            intact=member.intact,
            configured=member.voters.index,
        )

    # --- start and stop -----------------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Load the broker's state from the storage and make the groups. Raises StanError, OSError."""
        await self.storage.load(self.broker, self.config.cluster_id, replicated=True)
        for number in sorted(self.storage.logs):
            group = self.groups[number] = self.make_group(number)
            if not self._needs_no_clients(number):
                group.not_before = NEVER  # until this node listens to clients
        info = self.broker.view.meta.info
        if info is not None:
            self.membership.update(self.environment.runtime.now(), identity=info.nuid)

    def _needs_no_clients(self, number: GroupId) -> bool:
        """True if the group may be led before this node listens to clients.

        Only the metadata group, as long as it lacks the cluster's identity: no node listens to clients before a leader has
        written the identity. A node with an empty disk waits until the cluster turns out to be new."""
        return number == META_GROUP and self.broker.view.meta.info is None and not self.storage.fresh

    def start(self) -> None:
        """Take part in the cluster; the connection is up."""
        runtime = self.environment.runtime
        self.wire.publish = self.gateway.connection.write
        self.broker.start(runtime.now(), runtime.wall())
        self.membership.announce(runtime.now())
        self.scheduler.start(self.mux, list(self.groups.values()))
        self.tick(runtime.now())
        self.driver.turns.wake()

    def stop(self) -> None:
        """Stop the driver and the scheduler: this node takes part in no group."""
        self.driver.turns.stop()
        self.scheduler.stop()

    def drain(self, done: Callable[[], None]) -> None:
        """Hand every leadership over and take on none; *done* is called when this node leads no group."""
        self.handovers.drained = done
        self.membership.update(self.environment.runtime.now(), draining=True)
        self.tick(self.environment.runtime.now())

    # --- links ----------------------------------------------------------------------------------------------------------------

    def _raft_frame(self, frame: Frame) -> None:
        self.mux.receive(self.wire.sender(frame.subject), frame.payload)

    # --- a group received from another node -------------------------------------------------------------------------------------

    def replace_group(self, number: GroupId, done: Done) -> None:
        """Replace this node's copy of a group by the copy that was received from another node."""

        def put_in(problem: Exception | None) -> None:
            if not isinstance(problem, Exception) or isinstance(problem, NotNow):
                self.scheduler.add(self._begun(number))
                self.driver.turns.wake()
            self._replacing.discard(number)
            done(problem)

        self._replacing.add(number)
        self.leaderships.leave(number)
        self.scheduler.remove(number)
        del self.groups[number]
        self.environment.run(self._replace(number), put_in)

    def _begun(self, number: GroupId) -> RaftGroup:
        """Make and keep the Raft member of a new copy.

        Publishes heard until now cannot be told apart from those in its log, so the member leads only after it has listened to
        clients for LISTEN_BEFORE_LEADING."""
        group = self.groups[number] = self.make_group(number)
        hears_no_clients = number != META_GROUP and not self._listening
        group.listen_until(
            NEVER if hears_no_clients else Nanos(self.environment.runtime.now() + limits.LISTEN_BEFORE_LEADING)
        )
        return group

    async def _replace(self, number: GroupId) -> None:
        self.storage.install(number)
        self.broker.reset(number)
        await self.storage.load_group(self.broker, number, replicated=True)
        self.broker.roles.was_reset(number)
        self.gateway.forget_replay(number)

    # --- groups that come and go ------------------------------------------------------------------------------------------------

    def begin_group(self, number: GroupId, done: Done) -> None:
        """Begin to hold a group, with an empty log."""

        def begun(problem: Exception | None) -> None:
            if problem is None:
                self.environment.note("INF", f"group {number}: is held here from now on")
                self.scheduler.add(self._begun(number))
                self.driver.turns.wake()
            done(problem)

        self.environment.run(self._begin(number), begun)

    async def _begin(self, number: GroupId) -> None:
        await self.storage.begin_group(number)
        others = [name for name in self.reconfiguration.first_voters(number) if name != self.me]
        self.storage.members[number].set_voters(Voters(others))  # with an empty log this node must not vote
        self.broker.reset(number)
        await self.storage.load_group(self.broker, number, replicated=True)

    def _configured(self, number: GroupId, index: RaftIndex, body: bytes) -> None:
        """A committed entry changes the voters of a group: store them, and make a new Raft member after this turn.

        A leader waits VOTERS_TOLD first, so that the followers learn of the commit, and then hands the leadership over: its new
        member would not be the leader.
        """
        self.storage.members[number].set_voters(Voters(list(decode(body)), index))
        soon = self.environment.runtime.soon
        if not self.groups[number].leads:  # not `leaderships.led`: a leader that has just been elected is not in it yet
            soon(partial(self._reconfigure, number))
            return
        at = Nanos(self.environment.runtime.now() + limits.VOTERS_TOLD)
        self.broker.step_alarm(at, lambda _now: soon(partial(self._yield, number)))

    def _yield(self, number: GroupId, asked: frozenset[str] = frozenset()) -> None:
        """Ask the new voters one after the other to take over, until one does; then go on as a new member.

        *asked*: the voters that were asked already."""
        group = self.groups.get(number)
        if group is None or group.reconfigured is None:
            return
        able = set(group.reconfigured[1]) - asked
        lag = {peer: missing for peer, missing in self.handovers.lag_of_voters(number).items() if peer in able}
        now, preferred = self.environment.runtime.now(), self.reconfiguration.placement[number].preferred
        since = self.membership.alive_since(now)
        if group.leads and lag:
            # Nodes that came lately may refuse.
            lately = {peer for peer in lag if now - since.get(peer, now) < limits.BALANCE_SETTLE}
            to = min(lag, key=lambda peer: (peer in lately, lag[peer], peer != preferred))
            again = partial(self._yield, number, asked | {to})
            group.transfer(to, lambda _done: self.environment.runtime.soon(again), limits.VOTERS_SUCCESSION)
        else:
            self._reconfigure(number)

    def _reconfigure(self, number: GroupId) -> None:
        old = self.groups.get(number)
        if old is None or old.reconfigured is None or old.failed or self.driver.turns.stopped:
            return
        self.leaderships.leave(number)
        self.scheduler.remove(number)
        group = self.groups[number] = self.make_group(number)
        group.listen_until(old.not_before)
        self.scheduler.add(group)
        group.set_observers(self.reconfiguration.observers(number, frozenset(group.members)))
        self.environment.note("INF", f"group {number}: its voters are {', '.join(group.members)}")
        self.driver.turns.wake()

    def end_group(self, number: GroupId, done: Done) -> None:
        """Stop holding a group, which this node must not lead; its files are moved aside."""
        self.scheduler.remove(number)
        del self.groups[number]
        self.environment.run(self._end(number), done)

    async def _end(self, number: GroupId) -> None:
        self.broker.drop(number)
        aside = await self.storage.end_group(number)
        self.environment.note("INF", f"group {number}: is not held here any more, what it was is in {aside}")

    # --- the other nodes --------------------------------------------------------------------------------------------------------

    def _hello_heard(self, frame: Frame) -> None:
        self.membership.receive(frame.payload, self.environment.runtime.now())
        self._follow_membership()

    def tick(self, now: Nanos) -> None:
        """Every MEMBER_TICK_INTERVAL: exchange hellos, spread leaderships, and listen to clients once the cluster has an
        identity."""
        if self.driver.turns.stopped:
            return
        self.broker.step_alarm(now + limits.MEMBER_TICK_INTERVAL, self.tick)
        info = self.broker.view.meta.info
        up = self.gateway.connection.up
        if up and not self._connected:
            self.membership.announce(now)
        self._connected = up
        self._note_incomplete()
        if self.groups[META_GROUP].failed and not self.membership.me.draining:
            self.environment.note(
                "ERR", "without the metadata this node leads nothing: its leaderships are handed over"
            )
            self.membership.update(now, draining=True)
        self.membership.update(
            now,
            identity=info.nuid if info is not None else None,
            fresh=self.membership.me.fresh and not any(group.votes for group in self.groups.values()),
            led=self.leaderships.led,
            resting=self.handovers.in_transfer_cooldown(now),
            hashes=self.agreement.told(self.groups),
        )
        self.agreement.compare({name: known.hello for name, known in self.membership.nodes.items()})
        self._follow_membership()
        self.handovers.spread(now)
        self.reconfiguration.tick(now)
        self.group_sync.tick(now)
        if info is not None and not self._listening and up:
            self._listening = True
            for group in self.groups.values():
                group.not_before = Nanos(0 if self._founded else now + limits.LISTEN_BEFORE_LEADING)
            self.gateway.listen(ack_subjects(self.config, info.nuid))
            self.gateway.read_buffer.wake()
            self.environment.listening()

    def _note_incomplete(self) -> None:
        """Log the groups in which this node has no vote or cannot lead, because it lost entries or votes; log when that ends."""
        lacking = {
            number
            for number, group in self.groups.items()
            if self._is_voter(number) and not (group.votes and self.storage.is_intact(number))
        }
        lacking |= self._replacing & self._incomplete
        if lacking != self._incomplete and not self.membership.is_new:
            for number in sorted(lacking - self._incomplete):
                self.environment.note("INF", f"group {number}: is not whole")
            for number in sorted(self._incomplete - lacking):
                self.environment.note("INF", f"group {number}: is whole again")
        self._incomplete = lacking

    def _is_voter(self, number: GroupId) -> bool:
        return self.me in self.groups[number].members

    def _follow_membership(self) -> None:
        membership, now = self.membership, self.environment.runtime.now()
        hellos = membership.tick(now)  # hellos leave before anything that follows from them is done
        for hello in hellos:
            self.gateway.connection.write(publication(self._hello_subject, hello))
        for note in membership.take_notes():
            self.gateway.complain("WRN", note)
        if membership.refusal:
            self.environment.crashed(StartError(membership.refusal))
            return
        if membership.is_new and not self._founded:
            self._founded = True
            self.environment.note("INF", "the cluster is new: every node begins with an empty disk")
            for number, group in self.groups.items():
                group.not_before = Nanos(0) if number == META_GROUP else NEVER  # holds only after a leader was met
                group.found(first=self.reconfiguration.placement[number].preferred == self.me)
        if hellos:
            self._observe()

    def _observe(self) -> None:
        """Update links and observers to the nodes that belong to the cluster now."""
        for name in self.reconfiguration.peers(self.environment.runtime.now()):
            with contextlib.suppress(ConfigError):  # a name that is no valid subject token: no node of this cluster
                self.wire.add_peers(name)
                self.mux.add_peer(name)
        for number, group in self.groups.items():
            group.set_observers(self.reconfiguration.observers(number, frozenset(group.members)))
