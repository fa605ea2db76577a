"""Links of a node to the other nodes of its cluster: one for all groups, over the node's connection to NATS."""

import contextlib
from collections.abc import Callable, Iterable

from stan_protocol.frames import Frame

from stan.edge.cluster.host import Environment
from stan.errors import ConfigError
from stan.raft.transport.mux import Mux
from stan.raft.transport.mux_nats import NatsWire


class PeerLinks:
    """Carries the groups' messages: `mux` bundles them by peer, the wire puts the bundles into NATS frames."""

    def __init__(
        self,
        wire: NatsWire,
        peers: list[str],
        environment: Environment,
        *,
        wake: Callable[[], None],
        complain: Callable[[str, str], None],
        raft_logging: bool,
        epoch: int = 0,
    ) -> None:
        """Make the links; they carry nothing before `connect`.

        Args:
            wire: this node's.
            peers: the other nodes of the cluster.
            environment: clock, random numbers and log.
            wake: called when something is to be sent.
            complain: called with level and text of a log line that others can cause again and again.
            raft_logging: log the work of the links, and not only in debug mode.
            epoch: of the cluster; frames of other epochs are ignored.
        """
        self._wire = wire
        self._note = environment.note
        self._complain = complain
        self._raft_logging = raft_logging
        self.refused: frozenset[str] = frozenset()  # nodes whose frames are ignored, as their version is too old
        self.mux = Mux(
            peers,
            wire,
            now=environment.runtime.now,
            random=environment.random,
            note=self._noted,
            wake=wake,
            epoch=epoch,
        )

    @property
    def subscription(self) -> str:
        """NATS subject on which the other nodes' frames arrive."""
        return self._wire.subscription

    def connect(self, publish: Callable[[bytes], bool]) -> None:
        """Send frames by *publish* from now on; it returns False if they are lost."""
        self._wire.publish = publish

    def receive(self, frame: Frame) -> None:
        """Receive a frame of another node."""
        sender = self._wire.sender(frame.subject)
        if sender not in self.refused:
            self.mux.receive(sender, frame.payload)

    def add(self, names: Iterable[str]) -> None:
        """Link to these nodes, too. A name that cannot stand in a subject is no node of this cluster, and is left out."""
        for name in names:
            with contextlib.suppress(ConfigError):
                self._wire.add_peers(name)
                self.mux.add_peer(name)

    def _noted(self, level: str, text: str) -> None:
        if level == "INF":
            self._note("INF" if self._raft_logging else "DBG", text)
        else:  # each client that can publish to the nodes can cause these lines: they are bounded
            self._complain(level, text)
