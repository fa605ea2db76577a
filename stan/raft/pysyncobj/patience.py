"""The waits of a member for a leader, a majority or votes, and the signs that a leader is gone. Pure.

A member that has taken slow members for dead waits longer (Patience); one that was stopped or busy itself reads its messages
before it takes a silent leader for dead (LeaderContact).
"""

from collections.abc import Callable
from random import Random

from stan_protocol.scalars import SECOND, Nanos, Term

from stan import limits
from stan.raft.backoff import Backoff
from stan.raft.pysyncobj.library import LibraryClock

_LATE_S = limits.RAFT_ELECTION_TIMEOUT_MIN / 2 / SECOND
"""A leader that is silent for so long has nearly been taken for dead."""


class Patience:
    """Timeouts of one member of a group: random, and longer after setbacks."""

    def __init__(self, random: Random, clock: LibraryClock) -> None:
        self._random = random
        self._clock = clock
        self._backoff = Backoff()
        self._counted = Term(0)  # the newest term whose leader or candidate was counted as a setback, or was excused

    @property
    def is_steady(self) -> bool:
        """True if no recent election came too soon."""
        return self._backoff.is_steady(self._clock.now)

    @property
    def factor(self) -> int:
        """The factor by which this member waits longer for a leader, a majority or votes."""
        return self._backoff.factor(self._clock.now)

    def setback(self, term: Term) -> None:
        """Note that an election came too soon in *term*. Each term counts once."""
        if term > self._counted:
            self._counted = term
            self._backoff.setback(self._clock.now)

    def late(self, silence: Nanos, usual: int) -> None:
        """Note a message of the leader, or a follower, after *silence* ns; *usual*: the usual wait for it, ns."""
        self._backoff.late(silence, usual, self._clock.now)

    def excuse(self, term: Term) -> None:
        """Note that the leader before *term* requested its election: neither it nor events before it count as a setback."""
        self._counted = max(self._counted, term)

    def election_timeout(self) -> float:
        """Draw the wait of a follower for a leader, in seconds."""
        least, most = limits.RAFT_ELECTION_TIMEOUT_MIN, limits.RAFT_ELECTION_TIMEOUT_MAX
        usual = (least + (most - least) * self._random.random()) / SECOND
        return self._backoff.factor(self._clock.now) * usual

    def election_spread(self) -> float:
        """Draw the delay of this member's campaign when a leader is known to be gone, in seconds."""
        return self._random.uniform(0, self.factor * limits.RAFT_ELECTION_SPREAD / SECOND)


class LeaderContact:
    """The last contact of this member with a leader. Times are the library's, in seconds, unless noted."""

    def __init__(self, clock: LibraryClock, patience: Patience, listens_since: Callable[[], Nanos]) -> None:
        """*listens_since*: the time since which this node has read its peers' messages (see RaftHost)."""
        self.met = False  # in this life
        self._last_contact = clock.seconds  # of a leader's message; an earlier life may just have had one
        self._is_late_at = self._last_contact + _LATE_S
        self._term = Term(0)  # of the leader of the last contact
        self._clock = clock
        self._patience = patience
        self._listens_since = listens_since

    def receive(self, term: Term) -> None:
        """Note a message of the leader of *term*, the current one."""
        now = self._clock.seconds
        if now >= self._is_late_at and term == self._term:
            since = max(int(self._last_contact * SECOND), self._listens_since())
            self._patience.late(Nanos(self._clock.now - since), limits.RAFT_ELECTION_TIMEOUT_MIN)
        self._last_contact, self._is_late_at, self._term, self.met = now, now + _LATE_S, term, True

    def is_alive(self) -> bool:
        """True if this member takes a leader for alive, against which it helps no candidate (S16).

        A member that was stopped or busy listens first: it may read a candidate's message before the leader's earlier ones."""
        silence = self._clock.seconds - self._last_contact
        return silence < self._patience.factor * limits.RAFT_ELECTION_TIMEOUT_MIN / SECOND or (
            self.met and self.left_to_listen() > 0
        )

    def left_to_listen(self) -> Nanos:
        """Nanoseconds for which this member, after a stop or long work, has yet to listen before it takes a leader for silent."""
        if self._clock.seconds - self._last_contact >= limits.RAFT_SILENCE_MAX / SECOND:
            return Nanos(0)
        return Nanos(max(0, self._listens_since() + limits.RAFT_LISTEN - self._clock.now))

    def was_late(self) -> bool:
        """True if this node was stopped or busy lately: it may have taken a live leader for dead."""
        return self._clock.now - self._listens_since() < limits.RAFT_LATE_MEMORY

    def doubted_from(self) -> float:
        """Earliest time at which the other members, too, can take the leader for gone: now or later."""
        believed = self._patience.factor * limits.RAFT_ELECTION_TIMEOUT_MIN / SECOND
        return max(self._clock.seconds, self._last_contact + believed)
