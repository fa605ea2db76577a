"""The log of one group in a SQLite file that people can query: the twin of `FileLog` that `-st sql` asks for.

`append` holds entries in memory; `sync` writes all that were appended since the last sync, in one transaction, and they survive
a loss of power once it has returned. A transaction that fails freezes the log. The rows are those of stan.log.sql.group_tables.
"""

from collections import deque
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from threading import Lock

from stan_protocol.scalars import GroupId, RaftIndex, Term

from stan import limits
from stan.errors import Damage
from stan.invariant import invariant
from stan.log.channel_indexes import ChannelIndexes, Visible
from stan.log.index import GAP, Removed
from stan.log.sql.group_tables import GroupTables, as_written, parts_of
from stan.log.sql.sqlfile import SqlError, SqlFile
from stan.log.tail import TailCache
from stan.log.types import BatchRef, BatchRow, Entry, StaleRef
from stan.log.uncommitted import Placed, UncommittedEntries

Place = tuple[int, int]
"""Segment, which is the entry's index modulo GAP, and position of the first byte of the records in the entry's body."""


class EntryTerms:
    """The first and last index of the log, and the terms of its entries."""

    def __init__(self, before: tuple[RaftIndex, Term], terms: list[Term]) -> None:
        self.before = before  # index and term of the newest released entry
        self._terms = deque(terms)  # of the entries from first_index on

    @property
    def first_index(self) -> RaftIndex:
        """Oldest entry that is not released; last_index + 1 if there is none."""
        return RaftIndex(self.before[0] + 1)

    @property
    def last_index(self) -> RaftIndex:
        """Newest entry; 0 if there never was one."""
        return RaftIndex(self.before[0] + len(self._terms))

    @property
    def last_term(self) -> Term:
        """Term of the newest entry; 0 if there never was one."""
        return self._terms[-1] if self._terms else self.before[1]

    def add(self, term: Term) -> None:
        """Add the term of an appended entry."""
        self._terms.append(term)

    def truncate_after(self, index: RaftIndex) -> None:
        """Remove the terms of the entries after *index*."""
        while self.last_index > index:
            self._terms.pop()

    def release(self, index: RaftIndex) -> None:
        """Let the log begin after *index*."""
        while self._terms and self.first_index <= index:
            self.before = (self.first_index, self._terms.popleft())

    def at(self, index: RaftIndex) -> Term:
        """Term of the entry at *index*, also of the newest released one; 0 if it is not there."""
        if index == self.before[0]:
            return self.before[1]
        return self._terms[index - self.first_index] if self.first_index <= index <= self.last_index else Term(0)

    def index_of(self, segment: int) -> int:
        """The newest entry that has that segment's number, see Place."""
        return self.last_index - (self.last_index - segment) % GAP


class RowCleaner:
    """Counts the live batches (it is the `SpaceAccounting` of the channels), and deletes the rows of the others.

    A batch that is no longer live may be needed for a replay until its entry is released. Everything runs on the event loop,
    except `clean`, which may run in one worker thread beside it.
    """

    def __init__(self, tables: GroupTables, terms: EntryTerms) -> None:
        self.size = 0  # bytes of the records of all live batches
        self.dead: dict[Place, None] = {}  # neither live nor needed for a replay: to be deleted
        self.closed = False
        self._tables = tables
        self._terms = terms
        self._removed: list[Place] = []  # not live, but a replay may need them
        self._deleted_to = terms.before[0]  # entries up to there have no rows
        self._lock = Lock()  # held while rows are deleted

    # --- live batches ---------------------------------------------------------------------------------------------------------

    def added(self, segment: int, row: BatchRow) -> None:  # noqa: ARG002 - the port's
        """SpaceAccounting: count a batch that has become visible."""
        self.size += row.length

    def refused(self, segment: int, row: BatchRow) -> None:
        """SpaceAccounting: note a batch that was removed before it was committed."""
        self._removed.append((segment, row.position))

    def removed(self, removed: Removed) -> None:
        """SpaceAccounting: note batches that are no longer live."""
        for segment, position, length in zip(*removed[:3], strict=True):
            if segment != GAP:
                self._removed.append((segment, position))
                self.size -= length

    # --- freeing space --------------------------------------------------------------------------------------------------------

    def released(self) -> None:
        """Note that the log begins later: from now on, batches of released entries that are not live are dead."""
        needed = []
        for place in self._removed:
            if self._terms.index_of(place[0]) <= self._terms.before[0]:
                self.dead[place] = None
            else:
                needed.append(place)
        self._removed = needed

    def clean(self, durable: RaftIndex) -> str | None:
        """Delete rows of dead batches and of released entries that are *durable*; returns a line about it. Blocking."""
        with self._lock:
            if self.closed or self._tables.frozen:
                return None
            released = self._terms.before
            if released[0] > durable:  # not before it is written
                return None
            places = list(self.dead)[: limits.SQL_ROWS_PER_READ]
            if not places and released[0] == self._deleted_to:
                return None
            batches = [(self._terms.index_of(segment), position) for segment, position in places]
            try:
                outcome = self._tables.free(batches, released)
            except (SqlError, Damage) as error:
                return f"{self._tables.file.path}: not cleaned: {error}"
            self._deleted_to = released[0]
            for place in places:
                self.dead.pop(place, None)
            return outcome

    def close(self) -> None:
        """Delete nothing from now on; waits for a `clean` that is running."""
        with self._lock:
            self.closed = True


class SqlLog(Visible):
    """`GroupLog` over the rows of a SQLite file."""

    syncs_alone = False  # a task of the event loop writes rows of the state to the same file, and a sync waits for it

    def __init__(
        self,
        file: SqlFile,
        group: GroupId,
        *,
        overhead: int = 0,
        tail_cache_bytes_max: int = limits.TAIL_CACHE_BYTES_MAX,
    ) -> None:
        """Open the log of *group* in *file*; nothing is indexed before commit(). *overhead*: see MemoryLog. Raises Damage."""
        self._tables = GroupTables(file, group)
        released = self._tables.released()
        self._terms = EntryTerms(released, self._tables.terms_behind(released[0]))
        self._tables.check_batches()
        self._durable = self.last_index
        self._committed = RaftIndex(0)
        self._unwritten: deque[Entry] = deque()
        self._records: dict[Place, memoryview] = {}  # of unwritten entries
        self._tail = TailCache(tail_cache_bytes_max)
        self._uncommitted = UncommittedEntries(self._tables.placed(), self._durable)
        self._cleaner = RowCleaner(self._tables, self._terms)
        self._channels = ChannelIndexes(self._cleaner, overhead)
        self._sync_lock = Lock()  # held while entries are written or removed

    # --- ends of the log -------------------------------------------------------------------------------------------------

    @property
    def first_index(self) -> RaftIndex:
        """Oldest entry that is not released; last_index + 1 if there is none."""
        return self._terms.first_index

    @property
    def last_index(self) -> RaftIndex:
        """Newest appended entry; 0 if there never was one."""
        return self._terms.last_index

    @property
    def last_term(self) -> Term:
        """Term of the newest entry; 0 if none."""
        return self._terms.last_term

    @property
    def durable_index(self) -> RaftIndex:
        """Newest entry known to be on stable storage."""
        return self._durable

    @property
    def sealed_index(self) -> RaftIndex:
        """Always 0: there are no segments."""
        return RaftIndex(0)

    @property
    def size(self) -> int:
        """Bytes of the records of all committed, live batches."""
        return self._cleaner.size

    # --- writing ------------------------------------------------------------------------------------------------------------

    def has_room(self, _size: int) -> bool:
        """True: `append` puts everything into memory."""
        return True

    def append(self, entries: Seq[Entry]) -> None:
        """Append consecutive entries, the first at last_index + 1, in memory; `sync` writes them. Raises Frozen."""
        self._tables.check()
        for entry in entries:
            last, term = self.last_index, self.last_term
            invariant(entry.index == last + 1, "entries are consecutive", index=entry.index, last_index=last)
            invariant(entry.term >= term, "terms never go back", term=entry.term, last_term=term)
            segment = entry.index % GAP
            rows = [row for part in parts_of(entry) for row in part.rows]
            own = [row for row in rows if not row.staged]
            invariant(not any(row.size for row in own), "a SQL store has its messages as rows, in clear")
            view = memoryview(entry.body)
            for row in own:
                self._records[segment, row.position] = view[row.position : row.position + row.length]
            self._tail.put(segment, entry.body, 0, own)
            self._uncommitted.add(Placed(entry.index, segment, [*map(as_written, rows)]))
            self._unwritten.append(entry)
            self._terms.add(entry.term)

    def sync(self) -> RaftIndex:
        """Make everything appended before the call durable; returns the new durable_index. Blocking. Raises InDoubt, Frozen."""
        with self._sync_lock:
            self._tables.check()
            entries = list(self._unwritten)
            if entries:
                self._tables.add(entries)
                for entry in entries:
                    self._unwritten.popleft()
                    for part in parts_of(entry):
                        for row in part.rows:
                            self._records.pop((entry.index % GAP, row.position), None)
                self._durable = entries[-1].index
            return self._durable

    def truncate_after(self, index: RaftIndex) -> None:
        """Remove every entry after *index*, durably (Raft: a conflicting suffix). Never below a committed index.

        Raises Frozen; InDoubt if the transaction fails, which freezes the log."""
        self._tables.check()
        invariant(index >= self._committed, "L3: committed entries stay", index=index, committed=self._committed)
        if index >= self.last_index:
            return
        with self._sync_lock:
            if index < self._durable:
                self._tables.remove_after(index)
                self._durable = index
            while self._unwritten and self._unwritten[-1].index > index:
                self._unwritten.pop()
            self._terms.truncate_after(index)
        for placed in self._uncommitted.truncate_after(index):
            for row in placed.rows:
                self._records.pop((placed.segment, row.position), None)
        self._tail.clear()

    # --- reading ------------------------------------------------------------------------------------------------------------

    def entries(self, first: RaftIndex, last: RaftIndex, bytes_max: int) -> list[Entry]:
        """Entries [first, last], cut off after *bytes_max* bytes of bodies but at least one. Raises Damage."""
        entries: list[Entry] = []
        size = 0
        for entry in self._walk(max(first, self.first_index), min(last, self.last_index)):
            size += len(entry.body)
            if entries and size > bytes_max:
                break
            entries.append(entry)
        return entries

    def _walk(self, first: int, last: int) -> Iterator[Entry]:
        unwritten = list(self._unwritten)
        written_to = unwritten[0].index - 1 if unwritten else last
        yield from self._tables.entries(first, min(last, written_to))
        yield from (entry for entry in unwritten if first <= entry.index <= last)

    def index_of(self, ref: BatchRef) -> RaftIndex:
        """The index of the entry that has the batch: its segment number shows it."""
        return RaftIndex(self._terms.index_of(ref.segment))

    def term_at(self, index: RaftIndex) -> Term:
        """Term of the entry at *index*, also of the one before first_index if it is known; 0 if it is not there."""
        return self._terms.at(index)

    def read(self, ref: BatchRef, *, stored: bool = False) -> bytes:
        """The records of one batch; *stored*: from the rows if they are written, even if the tail cache has them.

        Raises:
            Damage: the rows are not the written ones; the text gives file, group and entry.
            StaleRef: the batch was removed and its entry released, or the log is closed.
        """
        place = ref.segment, ref.position
        recent = self._records.get(place) if stored and place not in self._cleaner.dead else self.recent(ref)
        if recent is not None:
            return bytes(recent)
        if place in self._cleaner.dead or self._cleaner.closed:
            raise StaleRef(f"batch {ref.base_sequence} is gone")
        records = self._tables.records(self._terms.index_of(ref.segment), ref.position)
        if records is None:
            raise StaleRef(f"batch {ref.base_sequence} is gone")
        return records

    def recent(self, ref: BatchRef) -> bytes | memoryview | None:
        """The records of one batch if they are in memory, else None. Never blocks."""
        place = ref.segment, ref.position
        records = self._tail.get(*place)
        return None if place in self._cleaner.dead else self._records.get(place) if records is None else records

    # --- freeing space ------------------------------------------------------------------------------------------------------

    def release(self, index: RaftIndex) -> None:
        """Allow the next `clean` to delete the rows of entries up to *index*, which durable state covers."""
        self._terms.release(min(index, self._committed))
        self._cleaner.released()

    def clean(self) -> str | None:
        """Delete rows of released entries, and of their dead batches; returns a line about it, or None. Blocking."""
        return self._cleaner.clean(self._durable)

    def close(self) -> None:
        """Sync and close the log; the SQLite file stays open until its owner closes it."""
        try:
            if not self._tables.frozen:
                self.sync()
        finally:
            self._cleaner.close()
            self._tables.close()
