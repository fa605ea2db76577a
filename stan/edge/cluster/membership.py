"""Membership (gossip): the hellos of the nodes of a cluster to each other, and this node's conclusions.

    receive(hello) ─► nodes ─► refusal: this node must not run     notes: another node should not
                       └──► is_new: the cluster has no past     settings: those that a joining node adopts
    tick ─► hellos to broadcast

Promises:
    R1  If two live processes share a node id, the one started later exits, but only after the other has answered it: a restart
        is not ended by the last message of its predecessor.
    R2  A newcomer that disagrees about the cluster refuses to run; an established node only logs the disagreement.
    R3  Only a node with an empty disk takes a cluster for new, and only until a hello of a node with a past. A voter
        that forgot its votes, because its disk was emptied meanwhile, does not take part in founding again.
    R4  A node accepts only nodes of its own epoch. One that has data of an older epoch than another node refuses to run: the
        cluster was rescued without it (stan.edge.cluster.rescue). One with an empty disk takes the newest epoch over.

Uses no clock, no network, and only the random numbers that are passed in. A hello that is due must leave before anything that is
done because of it: a node that gets this node's vote then knows why this node may vote.
"""

from collections.abc import Iterable
from random import Random

from google.protobuf.message import DecodeError
from stan_protocol.refusals import go_quote
from stan_protocol.scalars import GroupId, Nanos

from stan import level, limits
from stan.edge.cluster.hellos import Hellos, PeerInfo, Settings
from stan.invariant import invariant
from stan.labels import place_rows
from stan.protocol.proto.node_pb2 import NodeHello, NodeLabels, StateHash
from stan.raft.placement import NOWHERE, Places, place

EPOCH_BITS = 32
"""The lower bits of an epoch, from the plan of the rescue; above them is its number."""
REJOIN = (
    "Stop it, move its data directory away (keep it: it may hold messages that the others lost), start it with an empty "
    "directory and --join, then: stan node add"
)

FOUNDED = ", the number with which the cluster was founded: it has grown since, and nodes learn that by themselves"


class Membership:
    """The membership as one node sees it. Read `refusal`, `take_notes`, `is_new` and `next_tick` after each call."""

    def __init__(self, me: NodeHello, now: Nanos, random: Random) -> None:
        """Begin to listen.

        Args:
            me: this node, with everything but `established`, `rival` and `founders`. `fresh`: no group has a term, a vote or an
                entry on its disk.
            now: monotonic; from now on hellos are received.
            random: for the delay of answers.
        """
        self.me = NodeHello()
        self.me.CopyFrom(me)
        self.me.level_known = me.level_known or level.KNOWN
        self.hellos = Hellos(self.me)
        self.refusal = ""  # the reason why this node must not run; stays once set. Send the result of `tick`, then stop
        self._random = random
        self._notes: list[str] = []
        self._noted_rival = 0
        self._noted_epochs: dict[str, int] = {}  # by node of another epoch: the epoch in the last warning
        self._connected = True
        self.announce(now)
        self._judge(now)

    # --- state --------------------------------------------------------------------------------------------------------

    @property
    def is_new(self) -> bool:
        """True if the cluster has no past, so that this node may vote although it has an empty disk.

        Stays True after the cluster has formed; becomes False if a voter with a past says hello before that.
        """
        return bool(self.me.founders)

    def take_notes(self) -> list[str]:
        """Warnings since the last call."""
        notes, self._notes = self._notes, []
        return notes

    # --- events -------------------------------------------------------------------------------------------------------

    @property
    def next_tick(self) -> Nanos:
        """Time of the next `tick` with work."""
        return self._next_hello if self._listened else min(self._next_hello, self._listen_until)

    def announce(self, now: Nanos) -> None:
        """Say hello at once, as the connection is up (again), and draw no conclusions from silence for HELLO_LISTEN."""
        self.hellos.began = self._next_hello = now
        self._listen_until = Nanos(now + limits.HELLO_LISTEN)
        self._listened = False

    def connection_is(self, now: Nanos, *, up: bool) -> None:
        """Note if the connection is up; call `announce` when it is up again."""
        if up and not self._connected:
            self.announce(now)
        self._connected = up

    def tick(self, now: Nanos) -> list[bytes]:
        """Hellos to broadcast. Costs nothing before `next_tick`."""
        if now < self.next_tick:
            return []
        self._listened = now >= self._listen_until
        for name in [name for name, peer in self.hellos.nodes.items() if now - peer.last >= limits.NODE_FORGET]:
            if name not in self.me.voters:
                del self.hellos.nodes[name]
        self._judge(now)
        if now < self._next_hello:
            return []
        self._next_hello = Nanos(now + limits.HELLO_INTERVAL)
        return [self.me.SerializeToString(deterministic=True)]

    def receive(self, payload: bytes, now: Nanos) -> None:
        """Receive a hello, which may be this node's own."""
        try:
            hello = NodeHello.FromString(payload)
        except DecodeError:
            return
        if hello.cluster_id != self.me.cluster_id or not hello.node:
            return
        if self._is_other_epoch(hello) and not self._takes_over_epoch(hello):
            self._meet_other_epoch(hello, now)
        elif hello.node == self.me.node:
            if hello.instance != self.me.instance:
                self._meet_rival(hello, now)
        elif self._note_hello(hello, now):
            self._judge(now)

    def update(
        self,
        now: Nanos,
        *,
        identity: bytes | None = None,
        fresh: bool | None = None,
        draining: bool | None = None,
        listens: bool | None = None,
        led: Iterable[GroupId] | None = None,
        held: Iterable[GroupId] | None = None,
        walking: Iterable[GroupId] | None = None,
        resting: Iterable[GroupId] | None = None,
        hashes: Iterable[StateHash] | None = None,
        level: int | None = None,
    ) -> None:
        """Update this node's own hello; arguments that are None leave it as it is.

        A change of identity, fresh, draining, listens or level is announced at once; groups and state hashes go out with the next
        hello.

        Args:
            now: monotonic.
            identity: of the cluster; never changes once set.
            fresh: no group has a term, a vote or an entry on this node's disk.
            draining: this node is to lead nothing.
            listens: this node has subscribed to the clients' messages, on the connection on which its hellos leave.
            led: groups that this node leads.
            held: groups of which this node has a copy.
            walking: groups led here that are migrating.
            resting: groups that this node was recently asked to hand over.
            hashes: state hashes of groups, for the other nodes to compare.
            level: the cluster's, see stan.level.
        """
        me = self.me
        if hashes is not None:
            del me.hashes[:]
            me.hashes.extend(hashes)
        for field, groups in ((me.led, led), (me.held, held), (me.walking, walking), (me.resting, resting)):
            if groups is not None:
                field[:] = sorted(groups)
        before = (me.identity, me.fresh, me.draining, me.listens, me.level)
        if identity is not None:
            invariant(not me.identity or me.identity == identity, "a cluster keeps its identity", old=me.identity)
            me.identity = identity
        me.fresh = me.fresh if fresh is None else fresh
        me.draining = me.draining if draining is None else draining
        me.listens = me.listens if listens is None else listens
        me.level = me.level if level is None else level
        if before != (me.identity, me.fresh, me.draining, me.listens, me.level):
            self._hello_by(now)
            self._judge(now)

    def adopt(self, settings: Settings, now: Nanos) -> None:
        """Join the cluster with the settings that its nodes announce."""
        self.me.raft_groups = settings.raft_groups
        self.me.replicas = settings.replicas
        self.set_nodes(settings.voters, settings.version, now, replica=self.me.replica, places=dict(settings.places))

    def set_nodes(
        self, names: Iterable[str], version: int, now: Nanos, *, replica: bool, places: Places = NOWHERE
    ) -> None:
        """Adopt the voters of the metadata, and their labels (*places*); *replica*: this node is not among them and
        only has a copy."""
        self.me.voters[:] = sorted(names)
        del self.me.labels[:]
        self.me.labels.extend(place_rows(places, NodeLabels))
        self.me.nodes_version = version
        self.me.replica = replica
        self._hello_by(now)
        self._judge(now)

    def set_pool(self, groups: int, now: Nanos) -> None:
        """Note that the pool has grown: this node's directory counts *groups* groups of channels."""
        self.me.pool = groups
        self._hello_by(now)

    def _hello_by(self, deadline: Nanos) -> None:
        self._next_hello = min(self._next_hello, deadline)

    def _note_hello(self, hello: NodeHello, now: Nanos) -> bool:
        """Note another node's hello; returns True if it has news."""
        peer, alive = self.hellos.nodes.get(hello.node), self.hellos.alive(hello.node, now)
        if peer is None or peer.hello.instance != hello.instance:
            if peer is not None and alive and hello.started < peer.hello.started:
                return False  # the last message of a process that was replaced
            if peer is None and len(self.hellos.nodes) >= limits.NODES_MAX and hello.node not in self.me.voters:
                return False
            peer = self.hellos.nodes[hello.node] = PeerInfo(hello, now, now, now)
            alive = False
        if not alive:  # it may not know this node either: answer with a hello
            peer.since = now
            self._hello_by(Nanos(now + self._random.randrange(limits.HELLO_ANSWER_MAX)))
        news = not alive or hello != peer.hello
        peer.hello, peer.last = hello, now
        return news

    # --- conclusions --------------------------------------------------------------------------------------------------

    def _judge(self, now: Nanos) -> None:
        if not self.refusal:
            disputes = self._dispute(now)
            if not self.refusal:
                self._establish(now, disputes)
                self._check_new(now)

    def _refuse(self, why: str, now: Nanos) -> None:
        self.refusal = why
        self._hello_by(now)  # other nodes that must stop for the same reason need this node's hello

    def _meet_rival(self, hello: NodeHello, now: Nanos) -> None:
        """Handle a hello of another process with this node's id (R1). It is alive if its hello names this process as rival."""
        me = self.me
        if me.rival != hello.instance:
            me.rival = hello.instance
            self._hello_by(now)
        if hello.rival != me.instance or self.refusal:
            return
        text = (
            f"node ID {go_quote(me.node)} is used by two running servers (process {me.instance:016x} here, {hello.instance:016x} "
            f"elsewhere): stop one, or give it another -cluster_node_id"
        )
        if _seniority(hello) < _seniority(me):
            self._refuse(text, now)
        elif self._noted_rival != hello.instance:
            self._noted_rival = hello.instance
            self._notes.append(text)

    def _is_other_epoch(self, hello: NodeHello) -> bool:
        me = self.me
        return hello.epoch != me.epoch and not (me.identity and hello.identity and me.identity != hello.identity)

    def _takes_over_epoch(self, hello: NodeHello) -> bool:
        """Adopt the epoch of another node, if this one has nothing of the cluster and the other one has (R4)."""
        me = self.me
        blank = not me.identity and (me.fresh or not me.voters)
        if not blank or not hello.identity or epoch_number(hello.epoch) <= epoch_number(me.epoch):
            return False
        me.epoch = hello.epoch
        self.hellos.nodes.clear()
        me.founders.clear()
        return True

    def _meet_other_epoch(self, hello: NodeHello, now: Nanos) -> None:
        """Handle a hello of a node of another epoch: one of the two has data from before a rescue, and must not run (R4)."""
        me = self.me
        mine, others = epoch_number(me.epoch), epoch_number(hello.epoch)
        if others > mine and hello.identity:
            if not self.refusal:
                self._refuse(
                    f"the cluster was rescued without node {go_quote(me.node)} ({epoch_name(hello.epoch)}, node "
                    f"{go_quote(hello.node)} says): what this node holds is from before, and it must not vote, lead or "
                    f"acknowledge with it. {REJOIN}",
                    now,
                )
            return
        self._next_hello = min(self._next_hello, Nanos(now + self._random.randrange(limits.HELLO_ANSWER_MAX)))
        if self._noted_epochs.get(hello.node) == hello.epoch or len(self._noted_epochs) >= limits.NODES_MAX:
            return
        self._noted_epochs[hello.node] = hello.epoch
        if not hello.identity:
            return  # an empty disk: it is about to take over this epoch
        if others == mine:
            self._notes.append(
                f"node {go_quote(hello.node)} is of another rescue of this cluster ({epoch_name(hello.epoch)}, here "
                f"{epoch_name(me.epoch)}): it was rescued twice, with different survivors. Stop the nodes of one side"
            )
        else:
            self._notes.append(
                f"node {go_quote(hello.node)} is refused: what it holds is from before the rescue of this cluster "
                f"({epoch_name(me.epoch)})"
            )

    def _dispute(self, now: Nanos) -> set[str]:
        """Live nodes that disagree with this one about the cluster. Sets `refusal` if this node has to give way (R2)."""
        me, living = self.me, self.hellos.living(now)
        for hello in (self.hellos.nodes[name].hello for name in living):
            if _founds_alone(me) and _founds_alone(hello):
                self._refuse(f"Server {hello.node} was also started with -cluster_bootstrap", now)
                return set()
        disputes = {name: text for name in living if (text := difference(me, self.hellos.nodes[name].hello))}
        members = [
            name
            for name in living
            if not self.hellos.nodes[name].hello.replica and self.hellos.nodes[name].hello.voters
        ]
        against = sum(name in disputes for name in members)
        outvoted = 2 * against > len(members)  # if the nodes, this one included, are split in halves, both give way
        for name, text in disputes.items():
            peer = self.hellos.nodes[name]
            newcomer = not me.established and (peer.hello.established or outvoted)
            if newcomer and (peer.hello.established or now - peer.first >= limits.HELLO_LISTEN):
                self._refuse(text, now)  # the others had time to take sides
                break
            if not newcomer and peer.noted != text:
                peer.noted = text
                self._notes.append(text)
        return set(disputes)

    def _establish(self, now: Nanos, disputes: set[str]) -> None:
        me = self.me
        if me.established or not me.identity or now < self._listen_until:
            return
        agreeing = (self.hellos.nodes[name].hello.identity for name in self.hellos.living(now) if name not in disputes)
        if list(me.voters) == [me.node] or me.identity in agreeing:
            me.established = True
            self._hello_by(now)

    def _check_new(self, now: Nanos) -> None:
        """Conclude that the cluster is new, or revoke that (R3). `founders` remembers the instances without a past."""
        me = self.me
        if not _is_pastless(me) or me.node not in me.voters:
            return
        others = [self.hellos.nodes[name].hello for name in me.voters if name in self.hellos.nodes]
        if any(not self._is_blank(hello) and not self._founded_with(hello) for hello in others):
            if me.founders:
                me.founders.clear()
                self._hello_by(now)
            return
        if not me.founders:
            there = {name for name in me.voters if self.hellos.alive(name, now)}
            alone = any(_founds_alone(hello) for hello in (me, *others)) and now >= self._listen_until
            if len(there) < len(me.voters) and not (alone and self._can_lead_all(there)):
                return  # the bootstrap flag may be older than the cluster; and a later node gets no vote in a leaderless group
        for hello in (me, *others):
            if hello.node not in me.founders:
                me.founders[hello.node] = hello.instance
                self._hello_by(now)

    def _can_lead_all(self, there: set[str]) -> bool:
        """True if *there* has a majority of all voters and of each group's voters."""
        me = self.me
        groups = [placed.voters for placed in place(me.raft_groups, tuple(me.voters), me.replicas).values()]
        return all(2 * len(there.intersection(voters)) > len(voters) for voters in (*groups, me.voters))

    def _is_blank(self, hello: NodeHello) -> bool:
        """True if a voter has no past, agrees with this node, and does not remember another process of this node as a founder."""
        me = self.me
        nobody_else = hello.founders.get(me.node, me.instance) == me.instance
        return _is_pastless(hello) and nobody_else and not difference(me, hello)

    def _founded_with(self, hello: NodeHello) -> bool:
        """True if a voter's past began with this very founding: one of the two knew the other while neither had a past."""
        return hello.node in self.me.founders or hello.founders.get(self.me.node) == self.me.instance


def epoch_number(epoch: int) -> int:
    """Number of rescues in an epoch; the rest of it distinguishes two rescues of the same number."""
    return epoch >> EPOCH_BITS


def epoch_name(epoch: int) -> str:
    """An epoch for the operator: rescue 1 (3f2a9c01)."""
    return f"rescue {epoch_number(epoch)} ({epoch & ((1 << EPOCH_BITS) - 1):08x})" if epoch else "no rescue"


def difference(me: NodeHello, peer: NodeHello) -> str:
    """Return a text for the operator: the difference of a peer's cluster from this one's, and its remedy; "" without one."""
    name = go_quote(peer.node)
    if me.raft_groups and peer.raft_groups and me.raft_groups != peer.raft_groups:
        return (
            f"node {name} runs with {peer.raft_groups} groups of channels, this one with {me.raft_groups}: "
            f"give all nodes the same -raft_groups{FOUNDED if me.pool or peer.pool else ''}"
        )
    if me.identity and peer.identity and me.identity != peer.identity:
        return (
            f"node {go_quote(me.node)} holds the data of another cluster ({_shown(me.identity)}) than node {name} "
            f"({_shown(peer.identity)}): give the one that does not belong here another -dir"
        )
    same_version = me.nodes_version == peer.nodes_version  # else one does not know of a change yet
    if same_version and me.voters and peer.voters and set(me.voters) != set(peer.voters):
        return (
            f"node {name} knows the voters {', '.join(sorted(peer.voters))}, this one {', '.join(sorted(me.voters))}: "
            "give all nodes the same -cluster_peers"
        )
    for node, cluster in ((me, peer.level), (peer, me.level)):
        if (known := node.level_known) < cluster:
            return (
                f"node {go_quote(node.node)} runs a version that knows levels up to {known}, "
                f"the cluster is at level {cluster}: install a newer version there"
            )
    if me.replicas and peer.replicas and me.replicas != peer.replicas:
        return (
            f"node {name} keeps {peer.replicas} replicas of each group, this one {me.replicas}: "
            "give all nodes the same -replicas"
        )
    return ""


def _seniority(hello: NodeHello) -> tuple[bool, int, int]:
    """Order of processes with one node id: the smaller one stays. Both sides get the same order, whatever their clocks."""
    return not hello.established, hello.started, hello.instance


def _is_pastless(hello: NodeHello) -> bool:
    """True if a node began with an empty disk and knows of no cluster; also for a founder that has voted."""
    return (hello.fresh or bool(hello.founders)) and not hello.identity


def _founds_alone(hello: NodeHello) -> bool:
    return hello.bootstrap and _is_pastless(hello)


def _shown(identity: bytes) -> str:
    return identity.decode(errors="replace")
