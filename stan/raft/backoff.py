"""How much more patient than usual somebody is who has been wrong lately: who took slowness for death. Pure.

factor   1 ── setback ──► 2 ── setback ──► 4 ── setback ──► 8          each RAFT_STEADY without a setback halves it
"""

from stan import limits
from stan.types import Nanos


class Backoff:
    """Of one group on one node, or of one node's links."""

    __slots__ = ("_at", "_level")

    def __init__(self) -> None:
        self._level = 0
        self._at = Nanos(0)  # of the last setback

    def setback(self, now: Nanos) -> None:
        """An election failed, or a leader or peer was given up that was only slow."""
        self._level = min(self._left(now) + 1, limits.RAFT_BACKOFF_MAX)
        self._at = now

    def factor(self, now: Nanos) -> int:
        """How many times as long as usual to wait."""
        return 1 << self._left(now) if self._level else 1

    def _left(self, now: Nanos) -> int:
        return max(0, self._level - (now - self._at) // limits.RAFT_STEADY)
