"""Raft links over the broker's NATS connection: one subject per ordered pair of nodes.

    _STAN.raft.<cluster>.<to>.<from>

Promises nothing beyond `mux.Wire`: NATS may lose frames when a connection breaks or a reader is slow, which links notice. The
last part of a frame's subject counts as its sender, so NATS permissions on subjects decide which user may send for which node.
Modelled on Liftbridge's transport.
"""

import re
from collections.abc import Callable
from collections.abc import Sequence as Seq

from stan_protocol.scalars import KiB

from stan.errors import ConfigError

JOINED_BYTES_MAX = 64 * KiB
"""Frames of one `write` that are together no larger than this are published in one piece, so that nats-server wakes up once."""

_TOKEN = re.compile(r"[A-Za-z0-9_-]+")
"""Names of nodes or clusters that can be a part of a subject."""


class NatsWire:
    """`mux.Wire` over a connection to NATS."""

    publish: Callable[[bytes], bool]
    """Write bytes to the connection in one piece; False if there is none, and the bytes are lost. The owner sets it."""

    def __init__(self, cluster: str, me: str, peers: Seq[str]) -> None:
        """Make the wire of node *me*.

        Raises:
            ConfigError: a name cannot be a part of a subject.
        """
        _check_names(cluster, me)
        self.subscription = f"_STAN.raft.{cluster}.{me}.*"
        self._cluster = cluster
        self._me = me
        self._heads: dict[str, bytes] = {}
        self.add_peers(*peers)
        self._was_up = True

    def add_peers(self, *peers: str) -> None:
        """Allow frames to these nodes, too. Raises ConfigError if one of the names is wrong; then none of them is added."""
        _check_names(*peers)
        for peer in peers:
            self._heads[peer] = f"PUB _STAN.raft.{self._cluster}.{peer}.{self._me} ".encode()

    def write(self, frames: Seq[tuple[str, bytes]]) -> bool:
        """Publish each frame on the subject of its peer; small ones together.

        Returns True once per loss of the connection, as `mux.Wire` requires."""
        pieces = []
        for peer, frame in frames:
            pieces.append(b"%b%d\r\n%b\r\n" % (self._heads[peer], len(frame), frame))
        if len(pieces) > 1 and sum(map(len, pieces)) <= JOINED_BYTES_MAX:
            pieces = [b"".join(pieces)]
        lost = False
        for piece in pieces:
            up = self.publish(piece)
            lost |= self._was_up and not up
            self._was_up = up
        return lost

    def sender(self, subject: bytes) -> str:
        """Name of the node that sends on *subject*."""
        return subject.rpartition(b".")[2].decode("ascii", "replace")


def _check_names(*names: str) -> None:
    wrong = [
        f"{name!r} cannot be the name of a node or a cluster of nodes" for name in names if not _TOKEN.fullmatch(name)
    ]
    if wrong:
        raise ConfigError(wrong)
