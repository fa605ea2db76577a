"""PySyncObj's journal over a group's log: the Raft log is the message log, and nothing is written twice.

    base              virtual entry before the first one: its index and term are known, its body is not
    base+1 .. log     entries in the log
    log+1 .. end      pending: added by the running handler, written in one piece by `flush`

Promises: a deletion is soft. When the library handles an AppendEntries, it deletes every entry after prev_index and adds those of
the message; here an entry that is added with its old term stays without a write, and the log is truncated only where an
entry of another term takes its place (S1, S5). The entries that a handler adds reach the log when `flush` returns: all of them,
or none if the write is refused. Never compacts and never clears: the log's retention removes entries. Positions are those of the
library: 0 is the base; its questions of each message and tick `library.Library` answers from `end` and `term_at`.
"""

from typing import NamedTuple

from stan_protocol.scalars import RaftIndex, Term

from stan import limits
from stan.alias import alias
from stan.errors import NotNow
from stan.invariant import InvariantError, invariant
from stan.log.types import Entry, GroupLog
from stan.protocol.entries import Kind
from stan.raft.pysyncobj.compat import NO_OP, Journal
from stan.raft.pysyncobj.hard_state import HardState


class Command(NamedTuple):
    """An entry's content, which the library passes on without reading it, so the body is never copied."""

    kind: int  # protocol.entries.Kind
    body: bytes


class Item:
    """An entry as the library reads it, a triple (command, index, term); the command is read only if asked for."""

    __slots__ = ("_index", "_journal")

    def __init__(self, journal: "GroupJournal", index: RaftIndex) -> None:
        self._journal = journal
        self._index = index

    def __getitem__(self, part: int) -> object:
        if part == 1:
            return self._index
        if part == 2:
            return self._journal.term_at(self._index)
        entry = self._journal.entries(self._index, self._index, 0)[0]
        return Command(entry.kind, entry.body)


class GroupJournal(Journal):  # type: ignore[misc] # the library is not typed
    """The library's journal of one group, and the newest entries in memory for followers. Only the event loop calls it."""

    def __init__(self, log: GroupLog, hard_state: HardState) -> None:
        self.log = log
        self.hard_state = hard_state
        self.end = log.last_index  # newest entry as the library sees it: a soft deletion lowers it
        self.differs = False  # entries were added or deleted since `flush`
        self._pending: list[Entry] = []
        self._cut: RaftIndex | None = None  # the log ends here before the pending entries are written
        self._tail: list[Entry] = []  # newest entries of the log
        self._tail_bytes = 0

    # --- reading ------------------------------------------------------------------------------------------------------

    first_index: RaftIndex = alias("log.first_index")
    """Index of the first entry, the one after the base."""

    @property
    def base(self) -> RaftIndex:
        """Index of the virtual entry before the first; 0 for a log that has all its entries."""
        return RaftIndex(self.log.first_index - 1)

    def term_at(self, index: RaftIndex) -> Term:
        """Term of an entry, written or pending; 0 if this journal does not have it."""
        if self._pending and index >= self._pending[0].index:
            at = index - self._pending[0].index
            return self._pending[at].term if at < len(self._pending) else Term(0)
        tail = self._tail
        if tail and tail[0].index <= index <= tail[-1].index:
            return tail[index - tail[-1].index - 1].term
        return self.log.last_term if index == self.log.last_index else self.log.term_at(index)

    def first_of_term_at(self, index: RaftIndex) -> RaftIndex:
        """First entry of the term of entry *index* (binary search: terms never decrease along the log)."""
        term, low, high = self.term_at(index), RaftIndex(self.base + 1), index
        while low < high:
            middle = RaftIndex((low + high) // 2)
            if self.term_at(middle) == term:
                high = middle
            else:
                low = RaftIndex(middle + 1)
        return high

    def entries(self, first: RaftIndex, last: RaftIndex, bytes_max: int) -> list[Entry]:
        """Written entries [first, last], as many as fit into *bytes_max* and the bound of one message, at least one.

        From memory if they are new enough, else from the log, which may block for the read. Raises Damage."""
        if first > last:
            return []
        last = min(last, RaftIndex(first + limits.RAFT_APPEND_ENTRIES_MAX - 1))
        if self._pending and last >= self._pending[0].index:
            raise InvariantError("pending entries are not given out")
        if not self._tail or first < self._tail[0].index:
            return self.log.entries(first, last, bytes_max)
        start = first - self._tail[0].index
        entries = self._tail[start : start + last - first + 1]
        size = 0
        for at, entry in enumerate(entries):
            size += len(entry.body)
            if at and size > bytes_max:
                return entries[:at]
        return entries

    def __len__(self) -> int:
        return self.end - self.log.first_index + 2

    def __getitem__(self, position: int) -> Item:
        size = len(self)
        if not -size <= position < size:
            raise IndexError(position)
        return Item(self, RaftIndex(self.base + (position if position >= 0 else size + position)))

    # --- writing ------------------------------------------------------------------------------------------------------

    def add(self, command: object, idx: int, term: int) -> None:
        """Put an entry behind the end: revive it if it is there already, else leave it to `flush`.

        *command*: a `Command`, or an entry as the leader sent it; of the library's own commands only that of a new leader."""
        if idx != self.end + 1:
            raise InvariantError(f"entries are consecutive (index={idx}, end={self.end})")
        index = RaftIndex(idx)
        if isinstance(command, Entry):
            entry = command
        elif isinstance(command, Command):
            entry = Entry(index, Term(term), command.kind, command.body)
        elif command == NO_OP:
            entry = Entry(index, Term(term), Kind.NOOP, b"")
        else:
            raise InvariantError(f"only commands of this project enter the log, not {command!r:.80}")
        self.differs = True
        if not self._pending and idx <= self.log.last_index:
            if self.term_at(index) == term:
                self.end = index
                return
            self._cut = self.end
        self._pending.append(entry)
        self.end = index

    def deleteEntriesFrom(self, entryFrom: int) -> None:  # noqa: N802, N803 - the library's words
        """Delete softly: until `flush`, the library sees an entry from position *entryFrom* on only if it adds it again."""
        invariant(not self._pending, "a handler deletes before it adds")
        self.differs = True
        self.end = RaftIndex(self.base + entryFrom - 1)

    def flush(self) -> bool:
        """At the end of a handler: write the entries that it added, and restore those that it deleted and did not replace.

        Returns True if the log was changed.

        Raises:
            Shortage, Frozen: no entry was written; entries that a pending one was to replace may be truncated nevertheless.
        """
        self.differs = False
        if not self._pending and self._cut is None:
            self.end = self.log.last_index
            return False
        pending, self._pending = self._pending, []
        cut, self._cut = self._cut, None
        try:
            if cut is not None:
                self._truncate(cut)
            self.log.append(pending)
        except NotNow:
            self.end = self.log.last_index
            raise
        self.end = self.log.last_index
        self._remember(pending)
        return True

    def _truncate(self, index: RaftIndex) -> None:
        while self._tail and self._tail[-1].index > index:
            self._tail_bytes -= len(self._tail.pop().body)
        self.log.truncate_after(index)

    def _remember(self, entries: list[Entry]) -> None:
        self._tail += entries
        for entry in entries:
            self._tail_bytes += len(entry.body)
        if self._tail_bytes <= limits.RAFT_TAIL_BYTES_MAX and len(self._tail) <= limits.RAFT_TAIL_ENTRIES_MAX:
            return
        drop = 0  # a quarter at once: moving the rest costs little per entry
        while (
            self._tail_bytes > limits.RAFT_TAIL_BYTES_MAX * 3 // 4
            or len(self._tail) - drop > limits.RAFT_TAIL_ENTRIES_MAX * 3 // 4
        ):
            self._tail_bytes -= len(self._tail[drop].body)
            drop += 1
        del self._tail[:drop]

    def clear(self) -> None:
        """Raise InvariantError: the library clears a journal that does not fit a snapshot, which here would lose entries (S7)."""
        raise InvariantError("a group's log is never cleared")

    def deleteEntriesTo(self, entryTo: int) -> None:  # noqa: N802, N803
        """Raise InvariantError: the library compacts its journal, but the log's retention removes whole segments (S8)."""
        raise InvariantError(f"a group's log is never compacted in place, not even to {entryTo}")

    # --- hard state ---------------------------------------------------------------------------------------------------

    def setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None:  # noqa: N802, N803
        """Save term and vote; they are durable when this returns. Raises Frozen."""
        self.hard_state.save(Term(term), votedForNodeId)

    def getCurrentTerm(self) -> Term:  # noqa: N802
        """The saved term."""
        return self.hard_state.term

    def getVotedForNodeId(self) -> str | None:  # noqa: N802
        """Name of the member that this member voted for in that term; None if none did."""
        return self.hard_state.voted_for

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:  # noqa: N802, N803
        """Do nothing: the library calls this before the entries are written; `SafeRaft` sets the hint after that."""

    def getRaftCommitIndex(self) -> RaftIndex:  # noqa: N802
        """The commit hint, at most the end of the log: a loss of power may have cut the log before it."""
        return min(self.hard_state.commit_hint, self.log.last_index)

    def onOneSecondTimer(self) -> None:  # noqa: N802
        """Write the commit hint; the library calls this about once a second."""
        self.hard_state.write_hint()

    def _destroy(self) -> None:
        """Do nothing: the owner that opened the log and the hard state closes them."""
