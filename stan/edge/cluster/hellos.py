"""The nodes of a cluster, by their newest hellos. No clock, no network."""

from dataclasses import dataclass
from typing import NamedTuple

from stan_protocol.scalars import GroupId, Nanos

from stan import level, limits
from stan.labels import Labels, places_of
from stan.protocol.proto.node_pb2 import NodeHello


@dataclass(slots=True)
class PeerInfo:
    """A node of the cluster, by its hellos."""

    hello: NodeHello  # the newest
    first: Nanos  # first hello of this instance
    since: Nanos  # first hello of the current unbroken series
    last: Nanos  # newest hello
    noted: str = ""  # newest warning that was logged about it


class Settings(NamedTuple):
    """Settings that must be the same on all nodes."""

    voters: tuple[str, ...]  # sorted
    raft_groups: int  # with which the cluster was founded
    replicas: int
    version: int = 0  # of the voters: 0 if they come from the nodes' configuration, else from the metadata
    places: tuple[tuple[str, Labels], ...] = ()  # labels of voters that have any, as of that version, sorted


class Hellos:
    """The newest hello of each other node, and this node's own (`me`). A node is live if it said hello lately."""

    def __init__(self, me: NodeHello) -> None:
        self.me = me
        self.nodes: dict[str, PeerInfo] = {}  # the other nodes, live or not
        self.began = Nanos(0)  # since when this node has listened without a break

    def alive(self, name: str, now: Nanos) -> bool:
        """True if the node said hello within NODE_TIMEOUT; always True for this node."""
        peer = self.nodes.get(name)
        return name == self.me.node or (peer is not None and now - peer.last < limits.NODE_TIMEOUT)

    def alive_since(self, now: Nanos) -> dict[str, Nanos]:
        """Live nodes, this one included, and the time since which each has said hello without a break."""
        return {self.me.node: self.began} | {name: self.nodes[name].since for name in self.living(now)}

    def all_listen(self, now: Nanos) -> bool:
        """True if all live nodes, this one included, listen to clients: messages through any nats-server from which their
        hellos have come reach them all."""
        return all(hello.listens for hello in self.live(now))

    def draining(self, now: Nanos) -> set[str]:
        """Live nodes, this one included, that are draining: they are to lead nothing."""
        return {hello.node for hello in self.live(now) if hello.draining}

    def levels(self, now: Nanos) -> dict[str, int]:
        """The highest level that each live node knows, this one included, by name."""
        return {hello.node: hello.level_known for hello in self.live(now)}

    def labels(self, now: Nanos) -> dict[str, Labels]:
        """The labels in the settings of each live node, this one included, by name; those without any are in it, too."""
        return {hello.node: places_of([hello.own_labels])[""] for hello in self.live(now)}

    def outdated(self) -> frozenset[str]:
        """Nodes, live or not, whose version does not know the cluster's level: their messages cannot be relied on."""
        return frozenset(
            level.too_old({name: peer.hello.level_known for name, peer in self.nodes.items()}, self.me.level)
        )

    def read_replicas(self, now: Nanos) -> list[str]:
        """Live read replicas, sorted; this node included if it is one."""
        return sorted(hello.node for hello in self.live(now) if hello.replica)

    def settings(self, now: Nanos) -> Settings | None:
        """Newest settings that established nodes announce for the cluster; None without such a node, or if they disagree."""
        announced = [
            Settings(
                tuple(hello.voters),
                hello.raft_groups,
                hello.replicas,
                hello.nodes_version,
                tuple(places_of(hello.labels).items()),
            )
            for hello in self.live(now)
            if hello.established and hello.voters
        ]
        newest = max((settings.version for settings in announced), default=0)
        agreed = {settings for settings in announced if settings.version == newest}
        return agreed.pop() if len(agreed) == 1 else None

    def store_of(self, name: str, now: Nanos) -> bytes:
        """The store id of a live node's data directory, 16 bytes; b"" if the node is not there or its hello has none."""
        return next((hello.store for hello in self.live(now) if hello.node == name), b"")

    def holders(self, group: GroupId, now: Nanos) -> list[str]:
        """Live nodes, this one included, with a copy of a group; sorted."""
        return sorted(hello.node for hello in self.live(now) if group in hello.held)

    def copies(self, group: GroupId, now: Nanos) -> list[NodeHello]:
        """The hellos of live nodes that have a copy of a group and are not about to stop."""
        return [hello for hello in self.live(now) if group in hello.held and not hello.draining]

    def in_transfer_cooldown(self, now: Nanos) -> set[GroupId]:
        """Groups that a live node has recently handed over for an operator: no node moves them for balance's sake."""
        return {GroupId(number) for hello in self.live(now) for number in hello.resting}

    def led_by(self, group: GroupId, now: Nanos) -> NodeHello | None:
        """Hello of the node that leads a group; None while no live node announces it."""
        return next((hello for hello in self.live(now) if group in hello.led), None)

    def living(self, now: Nanos) -> list[str]:
        """Names of the other live nodes."""
        return [name for name in self.nodes if self.alive(name, now)]

    def live(self, now: Nanos) -> list[NodeHello]:
        """The hellos of the live nodes, this one first."""
        return [self.me, *(self.nodes[name].hello for name in self.living(now))]
