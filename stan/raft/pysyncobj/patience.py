"""How long a member waits for a leader, a majority or votes, and when it may take a leader for gone. Pure.

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
        """True if elections have not come too soon lately."""
        return self._backoff.is_steady(self._clock.now)

    @property
    def factor(self) -> int:
        """How many times as long as usual this member waits for a leader, a majority or votes."""
        return self._backoff.factor(self._clock.now)

    def setback(self, term: Term) -> None:
        """Events in *term* show that elections come too soon. Each term counts once."""
        if term > self._counted:
            self._counted = term
            self._backoff.setback(self._clock.now)

    def late(self, silence: Nanos, usual: int) -> None:
        """The leader, or a follower, spoke after *silence* ns; *usual*: for how long it is waited for, ns."""
        self._backoff.late(silence, usual, self._clock.now)

    def excuse(self, term: Term) -> None:
        """The election of *term* was wanted by the leader before it: neither it nor what precedes it counts as a setback."""
        self._counted = max(self._counted, term)

    def election_timeout(self) -> float:
        """Draw how long a follower waits for a leader, in seconds."""
        least, most = limits.RAFT_ELECTION_TIMEOUT_MIN, limits.RAFT_ELECTION_TIMEOUT_MAX
        usual = (least + (most - least) * self._random.random()) / SECOND
        return self._backoff.factor(self._clock.now) * usual

    def election_spread(self) -> float:
        """Draw how much later than others this member campaigns when a leader is known to be gone, in seconds."""
        return self._random.uniform(0, self.factor * limits.RAFT_ELECTION_SPREAD / SECOND)


class LeaderContact:
    """When this member heard a leader last. Times are the library's, in seconds, if nothing else is said."""

    def __init__(self, clock: LibraryClock, patience: Patience, listens_since: Callable[[], Nanos]) -> None:
        """*listens_since*: since when this node has read its peers' messages (see RaftHost)."""
        self.met = False  # in this life
        self._heard = clock.seconds  # when a leader was heard last; an earlier life may just have heard one
        self._is_late_at = self._heard + _LATE_S
        self._term = Term(0)  # of the leader that was heard last
        self._clock = clock
        self._patience = patience
        self._listens_since = listens_since

    def hear(self, term: Term) -> None:
        """A message of the leader of *term*, the current one, arrives."""
        now = self._clock.seconds
        if now >= self._is_late_at and term == self._term:
            since = max(int(self._heard * SECOND), self._listens_since())
            self._patience.late(Nanos(self._clock.now - since), limits.RAFT_ELECTION_TIMEOUT_MIN)
        self._heard, self._is_late_at, self._term, self.met = now, now + _LATE_S, term, True

    def is_alive(self) -> bool:
        """True if this member believes in a live leader, against which it helps no candidate (S16).

        A member that was stopped or busy listens first: it may read a candidate's message before the leader's earlier ones."""
        silence = self._clock.seconds - self._heard
        return silence < self._patience.factor * limits.RAFT_ELECTION_TIMEOUT_MIN / SECOND or (
            self.met and self.left_to_listen() > 0
        )

    def left_to_listen(self) -> Nanos:
        """Nanoseconds that this member, after it was stopped or busy, has yet to listen before it takes a leader for silent."""
        if self._clock.seconds - self._heard >= limits.RAFT_SILENCE_MAX / SECOND:
            return Nanos(0)
        return Nanos(max(0, self._listens_since() + limits.RAFT_LISTEN - self._clock.now))

    def was_late(self) -> bool:
        """True if this node was stopped or busy lately: it may have taken a leader for dead that was not."""
        return self._clock.now - self._listens_since() < limits.RAFT_LATE_MEMORY

    def doubted_from(self) -> float:
        """Earliest time at which the other members, too, can have lost their belief in the leader: now or later."""
        believed = self._patience.factor * limits.RAFT_ELECTION_TIMEOUT_MIN / SECOND
        return max(self._clock.seconds, self._heard + believed)
