"""The newest entry that a member has handed out, and the voters in those entries (format: `raft.configuration`). Pure."""

from collections.abc import Sequence as Seq

from stan_protocol.scalars import RaftIndex

from stan.errors import NotNow
from stan.invariant import InvariantError
from stan.log.types import Entry
from stan.protocol.entries import Kind
from stan.raft.configuration import decode, objection


class Applied:
    """State of one member of a group: *voters* according to entry *configured*, and entries up to *index* handed out."""

    def __init__(self, me: str, voters: Seq[str], configured: int, index: RaftIndex) -> None:
        self.index = index
        self.voters = tuple(sorted(voters))
        self.newer: tuple[RaftIndex, tuple[str, ...]] | None = None  # entry and voters of a change that was handed out
        self.proposed = RaftIndex(0)  # the change that this leader has proposed
        self._configured = configured
        self._me = me

    @property
    def changes(self) -> bool:
        """True if a change of the voters is under way: proposed here, or handed out since this object was made."""
        return self.proposed > self.index or self.newer is not None

    def check(self, voters: Seq[str]) -> None:
        """Raise NotNow if these must not be proposed as the next voters."""
        if self.changes:
            raise NotNow("another change of the voters is under way")
        if why := objection(self.voters, voters, self._me):
            raise NotNow(why)

    def advance(self, entries: Seq[Entry]) -> None:
        """Note that the next entries are handed out."""
        if entries[0].index != self.index + 1:
            raise InvariantError(f"entries are handed out in order (first={self.index + 1}, found={entries[0].index})")
        self.index = entries[-1].index
        for entry in entries:
            if entry.kind == Kind.CONFIG and entry.index > self._configured:
                self.newer = entry.index, decode(entry.body)
