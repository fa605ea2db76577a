"""How much longer than usual a node waits for others after it took slow ones for dead. Pure.

factor   1 ── setback ──► 2 ── setback ──► 4 ── setback ──► 8          each RAFT_STEADY without a setback halves it
"""

from stan import limits
from stan.types import Nanos


class Backoff:
    """The factor for one group on one node, or for all links of one node."""

    __slots__ = ("_at", "_level")

    def __init__(self) -> None:
        self._level = 0
        self._at = Nanos(0)  # time of the last setback

    def setback(self, now: Nanos) -> None:
        """Double the factor, up to 2 ** RAFT_BACKOFF_MAX: an election failed, or a slow leader or peer was taken for dead."""
        self._level = min(self._left(now) + 1, limits.RAFT_BACKOFF_MAX)
        self._at = now

    def factor(self, now: Nanos) -> int:
        """How many times as long as usual to wait at *now*: 1, 2, 4 or so on."""
        return 1 << self._left(now) if self._level else 1

    def _left(self, now: Nanos) -> int:
        """How often the factor is still doubled at *now*."""
        return max(0, self._level - (now - self._at) // limits.RAFT_STEADY)
