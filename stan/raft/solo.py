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
        self._wanted = RaftIndex(0)  # newest entry that somebody waits for

    @property
    def leads(self) -> bool:
        """A node that is alone always leads."""
        return True

    @property
    def wants_sync(self) -> bool:
        """True if entries that are written but not durable are waited for."""
        return self._always and not self.failed and self._wanted > self.log.durable_index

    @property
    def has_committed(self) -> bool:
        """True if `take_committed` would return entries."""
        return bool(self._committed) and not self.failed

    def freeze(self, why: str) -> None:
        """The disk failed, or the program did in this group: nothing is committed or proposed until a restart."""
        self.failed = self.failed or why

    def propose(self, bodies: Seq[tuple[int, bytes]], *, urgent: bool) -> RaftIndex:
        """Write entries; see raft.consensus."""
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
        """Commit what is durable now."""
        while self._uncommitted and self._uncommitted[0].index <= durable:
            self._committed.append(self._uncommitted.popleft())

    def take_committed(self) -> list[Entry]:
        """Entries committed since the last call."""
        if self.failed:
            return []
        taken, self._committed = self._committed, []
        return taken
