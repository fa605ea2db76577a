"""Raft links over the broker's NATS connection: one subject per ordered pair of nodes.

    _STAN.raft.<cluster>.<to>.<from>

Promises nothing beyond the wire's contract: NATS may lose frames when a connection breaks or a reader is slow; links notice.
A frame's sender is its subject, so permissions on subjects decide who may speak for whom. Modelled on Liftbridge's transport.
"""

import re
from collections.abc import Callable
from collections.abc import Sequence as Seq

from stan.errors import ConfigError
from stan.types import KiB

JOINED_BYTES_MAX = 64 * KiB
"""Frames that are together no larger leave in one piece: one wake-up of nats-server instead of several."""

_TOKEN = re.compile(r"[A-Za-z0-9_-]+")
"""What a node's or cluster's name may be to stand in a subject."""


class NatsWire:
    """`mux.Wire` over a connection: `publish` writes bytes in one piece; False if there is no connection, and they are gone."""

    publish: Callable[[bytes], bool]

    def __init__(self, cluster: str, me: str, peers: Seq[str]) -> None:
        """Make the wire.

        Raises:
            ConfigError: a name cannot stand in a subject.
        """
        _check_names(cluster, me)
        self.subscription = f"_STAN.raft.{cluster}.{me}.*"
        self._cluster = cluster
        self._me = me
        self._heads: dict[str, bytes] = {}
        self.add_peers(*peers)
        self._was_up = True

    def add_peers(self, *peers: str) -> None:
        """Frames can be written to these nodes, too; raises ConfigError, and then to none of them."""
        _check_names(*peers)
        for peer in peers:
            self._heads[peer] = f"PUB _STAN.raft.{self._cluster}.{peer}.{self._me} ".encode()

    def write(self, frames: Seq[tuple[str, bytes]]) -> bool:
        """See mux.Wire."""
        pieces = [b"%b%d\r\n%b\r\n" % (self._heads[peer], len(frame), frame) for peer, frame in frames]
        if len(pieces) > 1 and sum(map(len, pieces)) <= JOINED_BYTES_MAX:
            pieces = [b"".join(pieces)]
        lost = False
        for piece in pieces:
            up = self.publish(piece)
            lost |= self._was_up and not up
            self._was_up = up
        return lost

    def sender(self, subject: bytes) -> str:
        """Which peer speaks on *subject*."""
        return subject.rpartition(b".")[2].decode("ascii", "replace")


def _check_names(*names: str) -> None:
    wrong = [
        f"{name!r} cannot be the name of a node or a cluster of nodes" for name in names if not _TOKEN.fullmatch(name)
    ]
    if wrong:
        raise ConfigError(wrong)
