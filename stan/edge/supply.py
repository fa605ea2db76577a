"""State and messages of a group for a member that lags behind the leader's log: driven here, done by stan.edge.transfer."""

from typing import TYPE_CHECKING

from stan.protocol.frames import Frame
from stan.raft.group import RaftGroup
from stan.types import Nanos

if TYPE_CHECKING:
    from stan.edge.member import Member


class Supply:
    """Of one node, in both directions."""

    def __init__(self, member: "Member") -> None:
        self._member = member

    def needs_snapshot(self, group: RaftGroup, peer: str) -> None:
        """The peer lacks entries that this leader's log no longer has."""

    def heard(self, frame: Frame) -> None:
        """Another node speaks of a transfer."""

    def tick(self, now: Nanos) -> None:
        """Look at what waits."""
