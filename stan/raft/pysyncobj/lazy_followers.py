"""Lazy followers, which a leader need not write to at once: while others make the majority, their copy may come a little later.

    up, whole, furthest ─► the majority's: every entry at once   the rest ─► lazy followers: an interval's entries in one message

A follower that is written to for every small entry wakes up, writes and syncs for each of them, and nobody waits for it. So a
lazy follower gets entries at most once an interval, sooner if much has come. That also bounds what it costs if a follower of the
majority stops: the lazy follower has the entries an interval later, is then the furthest, and changes places with it.

Without the newest entries a lazy follower cannot be elected, so those that have them must be good for a leader: while one of them
has not been there for long, and has not heard yet what clients wait for, there are no lazy followers. Pure.
"""

from collections.abc import Iterable
from collections.abc import Sequence as Seq

from stan import limits
from stan.raft.pysyncobj.compat import Peer
from stan.raft.pysyncobj.replication import Progress
from stan.types import Nanos, RaftIndex


class LazyFollowers:
    """The lazy followers of one member, while it leads."""

    def __init__(self, others: Iterable[str]) -> None:
        """*others*: the voters of the group besides this member."""
        self._others = frozenset(others)
        self._needed = (len(self._others) + 1) // 2  # of the others, for a majority with the leader
        self.due: Nanos | None = None  # when those that lack something get it; None if nobody was passed over
        self._lazy: frozenset[Peer] = frozenset()
        self._fit: frozenset[Peer] = frozenset()  # those that can make a majority
        self._fit_since = Nanos(0)
        self._all_at = Nanos(0)  # time from which on all followers are written to again
        self._bytes = 0  # written to the log since all followers were written to

    def forget(self) -> None:
        """The member begins or ends to lead: there are no lazy followers."""
        self._lazy, self._fit, self._all_at, self.due = frozenset(), frozenset(), Nanos(0), None

    def wrote(self, size: int) -> None:
        """Entries of that many bytes are to be replicated."""
        self._bytes += size

    def to_send_to(
        self, up: Seq[tuple[Peer, Progress]], end: RaftIndex, now: Nanos, *, heartbeat: bool
    ) -> Seq[tuple[Peer, Progress]]:
        """The followers of *up*, those with a link, to write to now. The log ends with *end*; a heartbeat goes to all of them."""
        lazy = self._lazy
        if lazy and not heartbeat and now < self._all_at and self._bytes < limits.RAFT_LAZY_BYTES_MAX:
            if any(progress.next_index <= end for node, progress in up if node in lazy):
                self.due = self._all_at
            return [pair for pair in up if pair[0] not in lazy]
        fit = [pair for pair in up if pair[0].id in self._others and pair[1].counts and not pair[1].needs_snapshot]
        fit.sort(key=lambda pair: (-pair[1].acked, pair[0] in lazy))
        names = frozenset(node for node, _ in fit)
        if names != self._fit:
            self._fit, self._fit_since = names, now
        steady = now - self._fit_since >= limits.RAFT_LAZY_PATIENCE
        self._lazy = frozenset(node for node, _ in fit[self._needed :]) if steady else frozenset()
        self._all_at = Nanos(now + limits.RAFT_LAZY_INTERVAL)
        self._bytes, self.due = 0, None
        return up
