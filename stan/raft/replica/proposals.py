"""A leader's proposals that are not handed out yet, and the room for another one. Pure.

Promises: no proposal is counted for longer than RAFT_PROPOSAL_TIMEOUT, whether it is committed or not (S10).
"""

from collections.abc import Iterable
from collections.abc import Sequence as Seq

from stan_protocol.scalars import Nanos, RaftIndex

from stan import limits


class Proposals:
    """Pending proposals of one member of a group.

    `expired` is set when proposals are given up, and so there may be room again; the owner resets it."""

    def __init__(self) -> None:
        self.expired = False
        self.expires_at = Nanos(0)  # no proposal that is pending has an earlier deadline
        self.has_room = (
            True  # another proposal would be sent at once; otherwise the caller should wait and batch more into it
        )
        self.bytes = 0
        self.pending: dict[int, list[tuple[int, Nanos]]] = {}  # by index: bytes and deadline, the oldest first
        self._count = 0

    def add(self, first: RaftIndex, bodies: Seq[tuple[int, bytes]], now: Nanos) -> None:
        """Count entries (kind, body) that were written, the first of them at *first*."""
        pending, deadline = self.pending, Nanos(now + limits.RAFT_PROPOSAL_TIMEOUT)
        if not pending:
            self.expires_at = deadline
        index: int = first
        for _, body in bodies:
            size = len(body)
            pending.setdefault(index, []).append((size, deadline))
            self.bytes += size
            index += 1
        self._count += len(bodies)
        self.has_room = (
            self._count < limits.RAFT_PROPOSALS_IN_FLIGHT and self.bytes < limits.RAFT_PROPOSAL_BYTES_IN_FLIGHT
        )

    def forget(self, indexes: Iterable[int]) -> None:
        """Drop proposals at these indexes, committed or replaced, as the entries there are handed out."""
        pending = self.pending
        if not pending:
            return
        for index in indexes:
            for size, _ in pending.pop(index, ()):
                self._count -= 1
                self.bytes -= size
        self.has_room = (
            self._count < limits.RAFT_PROPOSALS_IN_FLIGHT and self.bytes < limits.RAFT_PROPOSAL_BYTES_IN_FLIGHT
        )

    def expire(self, now: Nanos) -> None:
        """Stop counting proposals whose deadline has passed; from `expires_at` on there may be some."""
        late = [index for index, pending in self.pending.items() if pending[0][1] <= now]
        self.forget(late)
        self.expired = self.expired or bool(late)
        if self.pending:
            self.expires_at = next(iter(self.pending.values()))[0][1]
