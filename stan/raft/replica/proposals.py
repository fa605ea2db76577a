"""What a leader has proposed and not handed out yet, and whether more would travel at once. Pure.

Promises: nothing is counted for longer than RAFT_PROPOSAL_TIMEOUT, whether it is committed or not (S10).
"""

from collections.abc import Sequence as Seq
from typing import NamedTuple

from stan import limits
from stan.errors import NotNow
from stan.log.types import Entry
from stan.types import Nanos, RaftIndex


class _Proposal(NamedTuple):
    size: int
    deadline: Nanos


class Proposals:
    """Of one member of a group. `expired`: some were given up since somebody looked, so that there may be room again."""

    def __init__(self) -> None:
        self.expired = False
        self._pending: dict[RaftIndex, list[_Proposal]] = {}
        self._count = 0
        self._bytes = 0

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._pending)

    @property
    def has_room(self) -> bool:
        """Whether another one would travel at once; if not it had better wait and grow."""
        return self._count < limits.RAFT_PROPOSALS_IN_FLIGHT and self._bytes < limits.RAFT_PROPOSAL_BYTES_IN_FLIGHT

    def check(self) -> None:
        """Raise NotNow if another one must not be made at all."""
        if self._bytes > limits.RAFT_UNCOMMITTED_BYTES_MAX:
            raise NotNow("too much waits for a majority")

    def add(self, first: RaftIndex, bodies: Seq[tuple[int, bytes]], now: Nanos) -> None:
        """Entries (kind, body) were written, the first of them at *first*."""
        deadline = Nanos(now + limits.RAFT_PROPOSAL_TIMEOUT)
        for at, (_, body) in enumerate(bodies):
            self._pending.setdefault(RaftIndex(first + at), []).append(_Proposal(len(body), deadline))
            self._count += 1
            self._bytes += len(body)

    def handed_out(self, entries: Seq[Entry]) -> None:
        """These entries are committed: whatever was proposed at their indexes waits no more."""
        if self._pending:
            for entry in entries:
                self._forget(entry.index)

    def expire(self, now: Nanos) -> None:
        """Give up what has waited for too long."""
        for index in [index for index, pending in self._pending.items() if pending[0].deadline <= now]:
            self._forget(index)
            self.expired = True

    def _forget(self, index: RaftIndex) -> None:
        for proposal in self._pending.pop(index, ()):
            self._count -= 1
            self._bytes -= proposal.size
