"""Longer waits of a node for others after slow ones were taken for dead, or nearly. Pure.

factor   1 ── setback ──► 2 ── setback ──► 4 ── setback ──► 8          each RAFT_STEADY halves it
         └──── late ──────┘
"""

from stan_protocol.scalars import Nanos

from stan import limits

_NEVER = Nanos(-limits.RAFT_STEADY)


class Backoff:
    """The factor for one group on one node, or for all links of one node.

    It falls slower than it rises: else, while CPU is short, a leader would be lost each time that it has fallen."""

    __slots__ = ("_at", "_level", "_set_back_at")

    def __init__(self) -> None:
        self._level = 0
        self._at = Nanos(0)  # when the level was set
        self._set_back_at = _NEVER

    def setback(self, now: Nanos) -> None:
        """Double the factor, up to 2 ** RAFT_BACKOFF_MAX: an election failed, or a slow leader or peer was taken for dead."""
        self._level = min(self._doublings(now) + 1, limits.RAFT_BACKOFF_MAX)
        self._at = self._set_back_at = now

    def late(self, silence: int, usual: int, now: Nanos) -> None:
        """Note an answer after *silence* ns, for which the usual wait is *usual* ns: wait at least twice as long, if that was
        nearly too late.

        Not longer: then a leader that died would be replaced too late for clients. A silence of more than RAFT_SILENCE_MAX is an
        outage, and changes nothing."""
        if 2 * silence >= usual and silence <= limits.RAFT_SILENCE_MAX and self._doublings(now) <= 1:
            self._level, self._at = 1, now

    def factor(self, now: Nanos) -> int:
        """Return the factor at *now*: 1, 2, 4 or so on."""
        return 1 << self._doublings(now) if self._level else 1

    def is_steady(self, now: Nanos) -> bool:
        """True without a setback within the last RAFT_STEADY."""
        return now - self._set_back_at >= limits.RAFT_STEADY

    def _doublings(self, now: Nanos) -> int:
        """Return how often the factor is still doubled at *now*."""
        return max(0, self._level - (now - self._at) // limits.RAFT_STEADY)
