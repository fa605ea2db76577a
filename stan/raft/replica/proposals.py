"""Proposals of a leader that are not handed out yet, and whether there is room to send more at once. Pure.

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
    """Proposals of one member of a group. `expired`: some were given up since the owner reset it, so there may be room again."""

    def __init__(self) -> None:
        self.expired = False
        self._pending: dict[RaftIndex, list[_Proposal]] = {}
        self._count = 0
        self._bytes = 0

    def __bool__(self) -> bool:
        """True if there are pending proposals."""
        return bool(self._pending)

    @property
    def has_room(self) -> bool:
        """True if another proposal would be sent at once; otherwise the caller should wait and batch more into it."""
        return self._count < limits.RAFT_PROPOSALS_IN_FLIGHT and self._bytes < limits.RAFT_PROPOSAL_BYTES_IN_FLIGHT

    def check(self) -> None:
        """Raise NotNow if no proposal must be made: too many bytes are uncommitted."""
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
