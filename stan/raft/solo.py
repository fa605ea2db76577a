"""Consensus of one: an entry is committed once this node's own log has it on stable storage."""

from collections import deque
from collections.abc import Sequence as Seq
from typing import Literal

from stan.errors import Aborted, Frozen, InDoubt, NotNow, fault
from stan.log.types import Entry, GroupLog
from stan.types import GroupId, RaftIndex, Term

SOLO_TERM = Term(1)


class Solo:
    """`Consensus` of a single node. With `sync` other than "always" an entry is committed as soon as it is written."""

    def __init__(self, group: GroupId, log: GroupLog, sync: Literal["always", "interval", "never"]) -> None:
        self.group = group
        self.log = log
        self.failed = ""
        self._always = sync == "always"
        self._uncommitted: deque[Entry] = deque()
        self._committed: list[Entry] = []
        self._wanted = RaftIndex(0)  # newest entry for which a sync is wanted

    @property
    def leads(self) -> bool:
        """Always True: there is no other node."""
        return True

    @property
    def wants_sync(self) -> bool:
        """True if a sync is wanted for entries that are written but not durable."""
        return self._always and not self.failed and self._wanted > self.log.durable_index

    @property
    def has_committed(self) -> bool:
        """True if `take_committed` would return entries."""
        return bool(self._committed) and not self.failed

    def freeze(self, why: str) -> None:
        """Propose and commit nothing until a restart: the disk failed, or the program did in this group."""
        self.failed = self.failed or why

    def propose(self, bodies: Seq[tuple[int, bytes]], *, urgent: bool) -> RaftIndex:
        """Write entries (kind, body) to the log; returns the index of the first. *urgent*: a sync is wanted for them.

        Raises:
            NotNow: the log refused the entries; nothing was written.
            Frozen: the group has failed before.
            InDoubt: the write failed unexpectedly; the entries may be in the log after a restart.
        """
        if self.failed:
            raise Frozen(self.failed)
        first = RaftIndex(self.log.last_index + 1)
        entries = [Entry(RaftIndex(first + at), SOLO_TERM, kind, body) for at, (kind, body) in enumerate(bodies)]
        try:
            self.log.append(entries)
        except (NotNow, Aborted):
            raise
        except Exception as error:
            self.freeze(fault(error))
            raise InDoubt(self.failed) from error
        if self._always:
            self._uncommitted += entries
            if urgent:
                self._wanted = self.log.last_index
        else:
            self._committed += entries
        return first

    def synced(self, durable: RaftIndex) -> None:
        """The log is durable up to *durable*: commit the entries up to there."""
        while self._uncommitted and self._uncommitted[0].index <= durable:
            self._committed.append(self._uncommitted.popleft())

    def take_committed(self) -> list[Entry]:
        """Entries committed since the last call, in index order, each exactly once."""
        if self.failed:
            return []
        taken, self._committed = self._committed, []
        return taken
