"""Consensus of one: an entry is committed once this node's own log has it on stable storage."""

from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as Seq
from functools import partial
from typing import Literal

from stan_protocol.scalars import GroupId, RaftIndex, Term

from stan.errors import Aborted, Frozen, InDoubt, NotNow, fault
from stan.log.types import Entry, GroupLog

SOLO_TERM = Term(1)
_ENTRY: Callable[[tuple[RaftIndex, Term, int, bytes]], Entry] = partial(tuple.__new__, Entry)
"""Makes an Entry without the constructor of the NamedTuple, which is a Python function."""


class Solo:
    """`Consensus` of a single node. With `sync` other than "always" an entry is committed as soon as it is written."""

    def __init__(
        self, group: GroupId, log: GroupLog, sync: Literal["always", "interval", "never"], touched: set[GroupId]
    ) -> None:
        """*touched*: gets the group's number when the owner has work, until `take_committed` has no more of
        it."""
        self.group = group
        self.log = log
        self.failed = ""
        self.leads = True  # always: there is no other node
        self.wants_sync = False
        self.has_committed = False
        self._always = sync == "always"
        self._uncommitted: deque[Entry] = deque()
        self._committed: list[Entry] = []
        self._awaited = RaftIndex(0)  # newest entry that a sync has to cover
        self._touched = touched

    def freeze(self, why: str) -> None:
        """Propose and commit nothing until a restart: the disk failed, or the program did in this group."""
        self.failed = self.failed or why
        self.wants_sync = self.has_committed = False
        self._touched.add(self.group)

    def propose(self, bodies: Seq[tuple[int, bytes]], *, urgent: bool) -> RaftIndex:
        """Write entries (kind, body) to the log; returns the index of the first. *urgent*: sync them now.

        Raises:
            NotNow: the log refused the entries; nothing was written.
            Frozen: the group has failed before.
            InDoubt: the write failed unexpectedly; the entries may be in the log after a restart.
        """
        if self.failed:
            raise Frozen(self.failed)
        first = RaftIndex(self.log.last_index + 1)
        entries = [_ENTRY((RaftIndex(first + at), SOLO_TERM, kind, body)) for at, (kind, body) in enumerate(bodies)]
        try:
            self.log.append(entries)
        except (NotNow, Aborted):
            raise
        except Exception as error:
            self.freeze(fault(error))
            raise InDoubt(self.failed) from error
        if not self._always:
            self._committed += entries
            self.has_committed = True
        else:
            self._uncommitted += entries
            if urgent:
                self._awaited = self.log.last_index
                self.wants_sync = True
        self._touched.add(self.group)
        return first

    def synced(self, durable: RaftIndex) -> None:
        """The log is durable up to *durable*: commit the entries up to there."""
        if self.failed:
            return
        while self._uncommitted and self._uncommitted[0].index <= durable:
            self._committed.append(self._uncommitted.popleft())
        self.has_committed = bool(self._committed)
        self.wants_sync = self._awaited > durable
        self._touched.add(self.group)

    def take_committed(self) -> list[Entry]:
        """Entries committed since the last call, in index order, each exactly once."""
        if not self.wants_sync:
            self._touched.discard(self.group)
        if self.failed:
            return []
        committed, self._committed = self._committed, []
        self.has_committed = False
        return committed
