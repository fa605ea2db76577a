"""A leader's proposals that are not handed out yet, and whether there is room for another one. Pure.

Promises: no proposal is counted for longer than RAFT_PROPOSAL_TIMEOUT, whether it is committed or not (S10).
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
    """Pending proposals of one member of a group.

    `expired` is set when proposals are given up, and so there may be room again; the owner resets it."""

    def __init__(self) -> None:
        self.expired = False
        self.pending: dict[RaftIndex, list[_Proposal]] = {}
        self._count = 0
        self._bytes = 0

    @property
    def has_room(self) -> bool:
        """True if another proposal would be sent at once; otherwise the caller should wait and batch more into it."""
        return self._count < limits.RAFT_PROPOSALS_IN_FLIGHT and self._bytes < limits.RAFT_PROPOSAL_BYTES_IN_FLIGHT

    def check(self) -> None:
        """Raise NotNow if more than RAFT_UNCOMMITTED_BYTES_MAX bytes are pending: no proposal must be made now."""
        if self._bytes > limits.RAFT_UNCOMMITTED_BYTES_MAX:
            raise NotNow("too much waits for a majority")

    def add(self, first: RaftIndex, bodies: Seq[tuple[int, bytes]], now: Nanos) -> None:
        """Entries (kind, body) were written, the first of them at *first*."""
        deadline = Nanos(now + limits.RAFT_PROPOSAL_TIMEOUT)
        for at, (_, body) in enumerate(bodies):
            self.pending.setdefault(RaftIndex(first + at), []).append(_Proposal(len(body), deadline))
            self._count += 1
            self._bytes += len(body)

    def handed_out(self, entries: Seq[Entry]) -> None:
        """These entries are handed out: proposals at their indexes, committed or replaced, are no longer pending."""
        if self.pending:
            for entry in entries:
                self._forget(entry.index)

    def expire(self, now: Nanos) -> None:
        """Stop counting proposals whose deadline has passed."""
        if not self.pending:
            return
        for index in [index for index, pending in self.pending.items() if pending[0].deadline <= now]:
            self._forget(index)
            self.expired = True

    def _forget(self, index: RaftIndex) -> None:
        for proposal in self.pending.pop(index, ()):
            self._count -= 1
            self._bytes -= proposal.size
