"""Lazy followers: those that no majority needs at the moment, to which a leader sends entries a little later than to the others.

    with a link, counting, furthest ─► the majority's: entries at once   the rest ─► lazy: an interval's entries in one message

A follower that gets every small entry at once wakes up, writes and syncs for each of them, although no commit waits for it. So a
lazy follower gets entries at most once per RAFT_LAZY_INTERVAL, or sooner after RAFT_LAZY_BYTES_MAX. This also bounds the delay if
a follower of the majority stops: the lazy follower has the entries an interval later, is then the furthest, and takes its place.

A lazy follower lacks the newest entries, so it cannot be elected; if the leader fails, one of the followers that have them has to
lead. There are no lazy followers until all of those have been there for RAFT_LAZY_PATIENCE, and so have received the messages of
clients that the next leader needs. Pure.
"""

from collections.abc import Iterable
from collections.abc import Sequence as Seq

from stan_protocol.scalars import Nanos, RaftIndex

from stan import limits
from stan.raft.pysyncobj.compat import Peer
from stan.raft.pysyncobj.replication import Progress


class LazyFollowers:
    """The choice of one member, while it leads, of its lazy followers and of the times at which they get entries."""

    def __init__(self, peers: Iterable[str]) -> None:
        """*peers*: the other voters of the group."""
        self._peers = frozenset(peers)
        self._needed = (len(self._peers) + 1) // 2  # of them, for a majority with the leader
        self.due: Nanos | None = None  # when lazy followers get the entries that are waiting; None if there are none
        self._lazy: frozenset[Peer] = frozenset()
        self._fit: frozenset[Peer] = frozenset()  # voters that can be part of a majority
        self._fit_since = Nanos(0)
        self._all_at = Nanos(0)  # time from which on entries go to all followers again
        self._bytes = 0  # written to the log since entries went to all followers

    def forget(self) -> None:
        """Have no lazy followers: the member begins to lead, or leads no more."""
        self._lazy, self._fit, self._all_at, self.due = frozenset(), frozenset(), Nanos(0), None

    def wrote(self, size: int) -> None:
        """Note that the leader has written an entry with a body of *size* bytes."""
        self._bytes += size

    def to_send_to(
        self, up: Seq[tuple[Peer, Progress]], end: RaftIndex, now: Nanos, *, heartbeat: bool
    ) -> Seq[tuple[Peer, Progress]]:
        """Choose the followers that get entries now.

        Args:
            up: followers and observers with a link.
            end: newest entry of the log.
            now: current time.
            heartbeat: a heartbeat is due, which goes to all of them.
        """
        lazy = self._lazy
        if lazy and not heartbeat and now < self._all_at and self._bytes < limits.RAFT_LAZY_BYTES_MAX:
            now_served = []
            for pair in up:
                if pair[0] not in lazy:
                    now_served.append(pair)
                elif pair[1].next_index <= end:
                    self.due = self._all_at
            return now_served
        fit = [pair for pair in up if pair[0].id in self._peers and pair[1].counts and not pair[1].needs_snapshot]
        fit.sort(key=lambda pair: (-pair[1].acked, pair[0] in lazy))
        names = frozenset([node for node, _ in fit])
        if names != self._fit:
            self._fit, self._fit_since = names, now
        steady = now - self._fit_since >= limits.RAFT_LAZY_PATIENCE
        self._lazy = frozenset([node for node, _ in fit[self._needed :]]) if steady else frozenset()
        self._all_at = Nanos(now + limits.RAFT_LAZY_INTERVAL)
        self._bytes, self.due = 0, None
        return up
