"""The log of one group in a SQLite file that people can query: the twin of `FileLog` that `-st sql` asks for.

An entry is one row, without the messages that it carries; each message is a row of its own until retention removes it, in steps
of whole batches. `append` only remembers; `sync` writes everything since the last one in one transaction, and what it returned
for survives a loss of power. A transaction that fails freezes the log. The tables are in stan.log.sql.sqlfile.
"""

import json
import zlib
from collections import deque
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from struct import Struct
from threading import Lock
from typing import Any, NamedTuple

from stan import limits
from stan.errors import Damage, Frozen, InDoubt
from stan.invariant import invariant
from stan.log.channel_indexes import ChannelIndexes, Visible
from stan.log.index import GAP, Removed
from stan.log.sql.sqlfile import SqlError, SqlFile, Step, row_checksum
from stan.log.tail import TailCache
from stan.log.types import BatchRef, BatchRow, Entry, StaleRef
from stan.log.uncommitted import Placed, UncommittedEntries
from stan.protocol.entries import BATCH_HEADER, BESIDE_UID, Kind
from stan.protocol.messages import data_span
from stan.types import ChannelUid, GroupId, RaftIndex, Term, WallNanos

_LENGTH = Struct("<I")
_ENTRIES = "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?)"
_BATCHES = "INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_MESSAGES = "INSERT OR REPLACE INTO message_rows VALUES (?, ?, ?, ?, ?, ?, ?)"
_LOGS = "INSERT OR IGNORE INTO logs VALUES (?, 0, 0, 0)"
_ADD = "UPDATE logs SET batches_sum = batches_sum + ? WHERE raft_group = ?"
_TAKE = (
    "UPDATE logs SET batches_sum = batches_sum - (SELECT COALESCE(SUM(checksum), 0) FROM batches b "
    "WHERE b.raft_group = logs.raft_group AND {}) WHERE raft_group = ?"
)
_AFTER = "raft_group = ? AND raft_index > ?"
_RANGE = "raft_group = ? AND uid = ? AND sequence >= ? AND sequence < ?"
_TERMS = "SELECT raft_index, term FROM entries WHERE raft_group = ? AND raft_index > ? ORDER BY raft_index"
_NEXT_BATCHES = (
    "SELECT raft_index, position, uid, base_sequence, count, timestamp, first_sequence, length, crc, checksum FROM batches "
    "WHERE raft_group = ? AND raft_index > ? AND raft_index <= (SELECT MAX(raft_index) FROM (SELECT raft_index FROM batches "
    "WHERE raft_group = ? AND raft_index > ? ORDER BY raft_index LIMIT ?)) ORDER BY raft_index, position"
)
_SUMS = (
    "SELECT COALESCE((SELECT batches_sum FROM logs WHERE raft_group = ?), 0), "
    "(SELECT COALESCE(SUM(checksum), 0) FROM batches WHERE raft_group = ?)"
)
_PLACES = (
    "SELECT b.raft_index, b.position, b.uid, b.base_sequence, b.count FROM json_each(?) j JOIN batches b ON b.raft_group = ? "
    "AND b.raft_index = json_extract(j.value, '$[0]') AND b.position = json_extract(j.value, '$[1]')"
)

Place = tuple[int, int]
"""Segment, which is the entry's index modulo GAP, and position of the first byte of the records in the entry's body."""


class _Part(NamedTuple):
    """One part of a RECORDS body: a batch, or what is beside the batches."""

    header: bytes
    row: BatchRow | None
    crc: int
    records: bytes


class SqlLog(Visible):
    """`GroupLog` over rows. See the module's docstring."""

    syncs_alone = False  # the rows of the state are written to the same file, by a task of the loop

    def __init__(
        self,
        file: SqlFile,
        group: GroupId,
        *,
        overhead: int = 0,
        tail_cache_bytes_max: int = limits.TAIL_CACHE_BYTES_MAX,
    ) -> None:
        """Open the log of *group* in *file*; nothing is indexed before commit(). *overhead*: see MemoryLog. Raises Damage."""
        self._file = file
        self._group = group
        self._tail = TailCache(tail_cache_bytes_max)
        self._unwritten: deque[Entry] = deque()
        self._records: dict[Place, memoryview] = {}  # of what is not written
        self._removed: list[Place] = []  # not kept, but a replay may need them
        self._dead: dict[Place, None] = {}  # to be deleted
        self._deleted_to = RaftIndex(0)  # entries up to there have no rows
        self._committed = RaftIndex(0)
        self._size = 0
        self._sync_lock = Lock()
        self._clean_lock = Lock()
        self._frozen = ""
        self._closed = False
        self._channels = ChannelIndexes(self, overhead)
        found = file.rows("SELECT released_index, released_term FROM logs WHERE raft_group = ?", group)
        self._before = (RaftIndex(0), Term(0)) if not found else (RaftIndex(found[0][0]), Term(found[0][1]))
        self._deleted_to = self._before[0]
        entries = file.rows(_TERMS, group, self._before[0])
        self._terms = deque(Term(term) for _, term in entries)  # of the entries from first_index on
        if [index for index, _ in entries] != list(range(self.first_index, self.first_index + len(entries))):
            raise Damage(f"{file.path}: entries of group {group} are missing behind entry {self._before[0]}")
        sums = file.rows(_SUMS, group, group)
        if len(set(*sums)) > 1:
            raise Damage(f"{file.path}: rows of batches of group {group} are missing, or there are too many of them")
        self._durable = self.last_index
        self._uncommitted = UncommittedEntries(self._recovered(), self._durable)

    def _recovered(self) -> Iterator[Placed]:
        """The batches that the file holds, some at a time."""
        at = 0
        while True:
            found = self._file.rows(_NEXT_BATCHES, self._group, at, self._group, at, limits.SQL_ROWS_PER_READ)
            if not found:
                return
            by_index: dict[int, list[BatchRow]] = {}
            for index, position, uid, base, count, timestamp, first, length, crc, mark in found:
                if mark != row_checksum(self._group, index, position, uid, base, count, timestamp, first, length, crc):
                    raise Damage(
                        f"{self._file.path}: a row of batches is damaged (entry {index} of group {self._group})"
                    )
                row = BatchRow(ChannelUid(uid), base, count, WallNanos(timestamp), first, position, length)
                by_index.setdefault(index, []).append(row)
            for index, rows in by_index.items():
                yield Placed(RaftIndex(index), index % GAP, rows)
                at = index

    # --- where the log begins and ends ------------------------------------------------------------------------------------

    @property
    def first_index(self) -> RaftIndex:
        """Oldest entry that can still be read by `entries`; last_index + 1 if none."""
        return RaftIndex(self._before[0] + 1)

    @property
    def last_index(self) -> RaftIndex:
        """Newest written entry; 0 if none."""
        return RaftIndex(self._before[0] + len(self._terms))

    @property
    def last_term(self) -> Term:
        """Term of the newest entry; 0 if none."""
        return self._terms[-1] if self._terms else self._before[1]

    @property
    def durable_index(self) -> RaftIndex:
        """Newest entry known to be on stable storage."""
        return self._durable

    @property
    def sealed_index(self) -> RaftIndex:
        """See GroupLog; there are no segments."""
        return RaftIndex(0)

    @property
    def size(self) -> int:
        """Bytes of all records that are kept, or may be needed for a replay."""
        return self._size

    # --- writing ------------------------------------------------------------------------------------------------------------

    def append(self, entries: Seq[Entry]) -> None:
        """See GroupLog; nothing is written before `sync`."""
        self._check()
        for entry in entries:
            last, term = self.last_index, self.last_term
            invariant(entry.index == last + 1, "entries are consecutive", index=entry.index, last_index=last)
            invariant(entry.term >= term, "terms never go back", term=entry.term, last_term=term)
            segment = entry.index % GAP
            rows = [part.row for part in _parts(entry) if part.row is not None]
            view = memoryview(entry.body)
            for row in rows:
                self._records[segment, row.position] = view[row.position : row.position + row.length]
            self._tail.put(segment, entry.body, 0, rows)
            self._uncommitted.add(Placed(entry.index, segment, rows))
            self._unwritten.append(entry)
            self._terms.append(entry.term)

    def sync(self) -> RaftIndex:
        """Make everything appended before the call durable; returns the new durable_index. Blocking. Raises Frozen."""
        with self._sync_lock:
            self._check()
            entries = list(self._unwritten)
            if entries:
                self._write(self._steps(entries))
                for entry in entries:
                    self._unwritten.popleft()
                    for part in _parts(entry):
                        if part.row is not None:
                            self._records.pop((entry.index % GAP, part.row.position), None)
                self._durable = entries[-1].index
            return self._durable

    def _steps(self, entries: list[Entry]) -> list[Step]:
        group = self._group
        written: list[tuple[Any, ...]] = []
        batches: list[tuple[Any, ...]] = []
        messages: list[tuple[Any, ...]] = []
        for entry in entries:
            if entry.kind != Kind.RECORDS:
                written.append(_checked(group, entry.index, entry.term, int(entry.kind), bytes(entry.body)))
                continue
            frame = []
            for part in _parts(entry):
                frame.append(part.header)
                row = part.row
                if row is None:
                    frame.append(part.records)
                    continue
                place = (group, entry.index, row.position, row.uid, row.base_sequence, row.count, row.timestamp)
                batches.append(_checked(*place, row.first_sequence, row.length, part.crc))
                for sequence, message in enumerate(_messages(part.records), row.base_sequence):
                    messages.append((group, row.uid, sequence, row.timestamp, *data_span(message), message))
            written.append(_checked(group, entry.index, entry.term, int(entry.kind), b"".join(frame)))
        added: list[tuple[Any, ...]] = [(sum(batch[-1] for batch in batches), group)]
        known: list[Step] = [(_LOGS, [(group,)]), (_ADD, added)] if batches else []
        return [(_ENTRIES, written), (_BATCHES, batches), *known, (_MESSAGES, messages)]

    def _write(self, steps: list[Step]) -> None:
        try:
            self._file.write(steps)
        except (SqlError, OSError) as error:
            self._frozen = f"{self._file.path}: {error}"
            raise InDoubt(self._frozen) from error

    def _check(self) -> None:
        if self._frozen:
            raise Frozen(self._frozen)

    def truncate_after(self, index: RaftIndex) -> None:
        """Remove every entry after *index*, durably (Raft: a conflicting suffix). Never below a committed index."""
        self._check()
        invariant(index >= self._committed, "L3: committed entries stay", index=index, committed=self._committed)
        if index >= self.last_index:
            return
        with self._sync_lock:
            if index < self._durable:
                of_messages = (
                    "DELETE FROM message_rows WHERE raft_group = ? AND EXISTS (SELECT 1 FROM batches b WHERE b.raft_group = "
                    "message_rows.raft_group AND b.uid = message_rows.uid AND b.raft_index > ? AND message_rows.sequence "
                    "BETWEEN b.base_sequence AND b.base_sequence + b.count - 1)"
                )
                after = [(self._group, index)]
                tables = [(f"DELETE FROM {name} WHERE {_AFTER}", after) for name in ("batches", "entries")]  # noqa: S608
                fewer = (_TAKE.format("b.raft_index > ?"), [(index, self._group)])
                self._write([(of_messages, after), fewer, *tables])
                self._durable = index
            while self._unwritten and self._unwritten[-1].index > index:
                self._unwritten.pop()
            while self.last_index > index:
                self._terms.pop()
        for placed in self._uncommitted.truncate_after(index):
            for row in placed.rows:
                self._records.pop((placed.segment, row.position), None)
        self._tail.clear()

    # --- reading ------------------------------------------------------------------------------------------------------------

    def entries(self, first: RaftIndex, last: RaftIndex, bytes_max: int) -> list[Entry]:
        """Entries [first, last], cut off after *bytes_max* bytes of bodies but at least one. Raises Damage."""
        found: list[Entry] = []
        size = 0
        for entry in self._walk(max(first, self.first_index), min(last, self.last_index)):
            size += len(entry.body)
            if found and size > bytes_max:
                break
            found.append(entry)
        return found

    def _walk(self, first: int, last: int) -> Iterator[Entry]:
        unwritten = list(self._unwritten)
        written_to = unwritten[0].index - 1 if unwritten else last
        while first <= min(last, written_to):
            rows = self._file.rows(
                "SELECT raft_index, term, kind, frame, checksum FROM entries WHERE raft_group = ? AND raft_index BETWEEN ? AND ? "
                "ORDER BY raft_index LIMIT ?",
                *(self._group, first, min(last, written_to), limits.SQL_ENTRIES_PER_READ),
            )
            if not rows or rows[0][0] != first:
                raise Damage(f"{self._file.path}: entry {first} of group {self._group} is missing")
            for index, term, kind, frame, mark in rows:
                if mark != row_checksum(self._group, index, term, kind, frame):
                    raise Damage(f"{self._file.path}: entry {index} of group {self._group} is damaged: wrong checksum")
                body = bytes(frame) if kind != Kind.RECORDS else self._body(index, frame)
                yield Entry(RaftIndex(index), Term(term), kind, body)
            first = rows[-1][0] + 1
        yield from (entry for entry in unwritten if first <= entry.index <= last)

    def _body(self, index: int, frame: bytes) -> bytes:
        """The body of a RECORDS entry, its messages put back."""
        parts = []
        at = 0
        while at < len(frame):
            header = frame[at : at + BATCH_HEADER.size]
            uid, base, count, _, _, length, crc, _ = BATCH_HEADER.unpack(header)
            at += BATCH_HEADER.size
            parts.append(header)
            if uid == BESIDE_UID:
                parts.append(frame[at : at + length])
                at += length
            else:
                parts.append(self._of_batch(index, ChannelUid(uid), base, count, length, crc))
        return b"".join(parts)

    def _of_batch(self, index: int, uid: ChannelUid, base: int, count: int, length: int, crc: int) -> bytes:
        """The records of one batch. Raises Damage."""
        rows = self._file.rows(
            f"SELECT message FROM message_rows WHERE {_RANGE} ORDER BY sequence",  # noqa: S608 - own words
            *(self._group, uid, base, base + count),
        )
        records = b"".join(_LENGTH.pack(len(message)) + message for (message,) in rows)
        if len(rows) != count or len(records) != length or zlib.crc32(records) != crc:
            raise Damage(
                f"{self._file.path}: messages [{base}, {base + count - 1}] of channel {uid}, entry {index} of group "
                f"{self._group}, are not as they were written"
            )
        return records

    def term_at(self, index: RaftIndex) -> Term:
        """Term of the entry at *index*, also of the one before first_index if it is known; 0 if it is not there."""
        if index == self._before[0]:
            return self._before[1]
        return self._terms[index - self.first_index] if self.first_index <= index <= self.last_index else Term(0)

    def read(self, ref: BatchRef, *, stored: bool = False) -> bytes:
        """See GroupLog; what is not written yet is in memory alone."""
        place = ref.segment, ref.position
        recent = self._records.get(place) if stored and place not in self._dead else self.recent(ref)
        if recent is not None:
            return bytes(recent)
        if place in self._dead or self._closed:
            raise StaleRef(f"batch {ref.base_sequence} is gone")
        index = self._index_of(ref.segment)
        rows = self._file.rows(
            "SELECT uid, base_sequence, count, length, crc FROM batches WHERE raft_group = ? AND raft_index = ? "
            "AND position = ?",
            *(self._group, index, ref.position),
        )
        if not rows:
            raise StaleRef(f"batch {ref.base_sequence} is gone")
        return self._of_batch(index, *rows[0])

    def recent(self, ref: BatchRef) -> bytes | memoryview | None:
        """The records of one batch if they are in memory, else None. Never blocks."""
        place = ref.segment, ref.position
        found = self._tail.get(*place)
        return None if place in self._dead else self._records.get(place) if found is None else found

    def _index_of(self, segment: int) -> int:
        """The newest entry that has that segment's number."""
        return self.last_index - (self.last_index - segment) % GAP

    # --- what is visible, what is kept ------------------------------------------------------------------------------------

    def kept(self, segment: int, row: BatchRow) -> None:  # noqa: ARG002 - the port's
        """SpaceAccounting: a batch became visible."""
        self._size += row.length

    def refused(self, segment: int, row: BatchRow) -> None:
        """SpaceAccounting: the batch was gone before it was committed."""
        self._removed.append((segment, row.position))

    def removed(self, removed: Removed) -> None:
        """SpaceAccounting: batches are no longer kept."""
        for segment, position, length in zip(*removed, strict=True):
            if segment != GAP:
                self._removed.append((segment, position))
                self._size -= length

    # --- getting rid of what is not kept ------------------------------------------------------------------------------------

    def release(self, index: RaftIndex) -> None:
        """See GroupLog; the rows go with the next `clean`."""
        index = min(index, self._committed)
        while self._terms and self.first_index <= index:
            self._before = (self.first_index, self._terms.popleft())
        kept = []
        for place in self._removed:
            if self._index_of(place[0]) <= self._before[0]:
                self._dead[place] = None
            else:
                kept.append(place)
        self._removed = kept

    def clean(self) -> str | None:
        """See GroupLog: delete the rows of what was released and is not kept."""
        with self._clean_lock:
            if self._closed or self._frozen:
                return None
            released, durable = self._before, self._durable
            if released[0] > durable:  # not before it is written
                return None
            places = list(self._dead)[: limits.SQL_ROWS_PER_READ]
            if not places and released[0] == self._deleted_to:
                return None
            wanted = json.dumps([(self._index_of(segment), position) for segment, position in places])
            try:
                rows = self._file.rows(_PLACES, wanted, self._group)
                of_messages = [(self._group, uid, base, base + count) for _, _, uid, base, count in rows]
                of_batches = [(self._group, index, position) for index, position, *_ in rows]
                steps: list[Step] = [
                    (f"DELETE FROM message_rows WHERE {_RANGE}", of_messages),  # noqa: S608 - own words
                    (
                        _TAKE.format("b.raft_index = ? AND b.position = ?"),
                        [(*place[1:], place[0]) for place in of_batches],
                    ),
                    ("DELETE FROM batches WHERE raft_group = ? AND raft_index = ? AND position = ?", of_batches),
                    ("DELETE FROM entries WHERE raft_group = ? AND raft_index <= ?", [(self._group, released[0])]),
                    (_LOGS, [(self._group,)]),
                    (
                        "UPDATE logs SET released_index = ?, released_term = ? WHERE raft_group = ?",
                        [(*released, self._group)],
                    ),
                ]
                self._file.write(steps)
            except (SqlError, Damage) as error:
                return f"{self._file.path}: not cleaned: {error}"
            self._deleted_to = released[0]
            for place in places:
                self._dead.pop(place, None)
            return f"{self._file.path}: group {self._group}: removed {len(rows)} batches"

    def close(self) -> None:
        """Sync and close the log; the SQLite file stays open until its owner closes it."""
        try:
            if not self._frozen:
                self.sync()
        finally:
            with self._clean_lock:
                self._closed = True
            self._frozen = self._frozen or f"{self._file.path} is closed"


def _checked(*row: object) -> tuple[Any, ...]:
    """A row and its checksum."""
    return *row, row_checksum(*row)


def _parts(entry: Entry) -> Iterator[_Part]:
    """The parts of an entry's body."""
    if entry.kind != Kind.RECORDS:
        return
    body, at = entry.body, 0
    while at < len(body):
        header = body[at : at + BATCH_HEADER.size]
        uid, base, count, timestamp, first, length, crc, _ = BATCH_HEADER.unpack(header)
        at += BATCH_HEADER.size
        row = BatchRow(ChannelUid(uid), base, count, timestamp, first, at, length) if uid != BESIDE_UID else None
        yield _Part(header, row, crc, body[at : at + length])
        at += length


def _messages(records: bytes) -> Iterator[bytes]:
    """Each message of a batch."""
    at = 0
    while at < len(records):
        start = at + _LENGTH.size
        at = start + _LENGTH.unpack_from(records, at)[0]
        yield records[start:at]
