"""The rows of one group's log: every SQL statement of a log except those that make the tables (stan.log.sql.sqlfile).

An entry is one row without the messages that it carries; each of its record batches is a row, and each message is a row until
retention removes it, in steps of whole batches. Rows that an entry refers to are copied: in the transaction that writes the entry
they become messages of their channel, so that people find them there.

Promises: a read gives the written rows, or Damage names file, group and entry. A transaction that adds or removes entries and
fails freezes the tables of the group until the log is opened again; one that only frees space may fail and be tried again.
"""

import json
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from struct import Struct
from typing import Any, NamedTuple

from stan_protocol.scalars import ChannelUid, GroupId, RaftIndex, Sequence, Term, WallNanos

from stan import limits
from stan.errors import Damage, Frozen, InDoubt
from stan.log.index import GAP
from stan.log.references import reference_rows
from stan.log.sql.sqlfile import SqlError, SqlFile, Step, row_checksum
from stan.log.types import BatchRow, Entry
from stan.log.uncommitted import Placed
from stan.protocol.entries import BATCH_HEADER, BESIDE_UID, REFERENCES_FLAG, SIZE_SHIFT, STAGING_UID, Kind
from stan.protocol.messages import data_span
from stan.protocol.staged import sealed

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
_BATCH_AT = (
    "SELECT raft_index, uid, base_sequence, count, length, crc FROM batches WHERE raft_group = ? AND uid = ? "
    "AND base_sequence = ?"
)
_PLACES = (
    "SELECT b.raft_index, b.position, b.uid, b.base_sequence, b.count FROM json_each(?) j JOIN batches b ON b.raft_group = ? "
    "AND b.raft_index = json_extract(j.value, '$[0]') AND b.position = json_extract(j.value, '$[1]')"
)


class EntryPart(NamedTuple):
    """A part of the body of a RECORDS entry: a record batch, references to such, or something else beside the batches."""

    header: bytes
    rows: list[BatchRow]  # of the batch, or of those referred to
    crc: int
    records: bytes


def parts_of(entry: Entry) -> Iterator[EntryPart]:
    """The parts of an entry's body, in order; none if it is of another kind. Positions count from the body's first byte."""
    if entry.kind != Kind.RECORDS:
        return
    body, at = entry.body, 0
    while at < len(body):
        header = body[at : at + BATCH_HEADER.size]
        uid, base, count, timestamp, first, length, crc, flags = BATCH_HEADER.unpack(header)
        at += BATCH_HEADER.size
        records, rows = body[at : at + length], []
        if uid != BESIDE_UID:
            rows = [BatchRow(ChannelUid(uid), base, count, timestamp, first, at, length, flags >> SIZE_SHIFT)]
        elif flags == REFERENCES_FLAG:
            rows = reference_rows(records, at)
        yield EntryPart(header, rows, crc, records)
        at += length


def as_written(row: BatchRow) -> BatchRow:
    """The row of a batch in the tables: of a reference, that of the messages that it becomes there."""
    return row._replace(length=row.size, size=0, staged=Sequence(0)) if row.staged else row


class GroupTables:
    """The rows of one group in the tables `logs`, `entries`, `batches` and `message_rows`."""

    def __init__(self, file: SqlFile, group: GroupId) -> None:
        self.file = file
        self._group = group
        self.frozen = ""  # the reason why no entry is written or removed any more; "" while that is possible

    # --- opening --------------------------------------------------------------------------------------------------------------

    def released(self) -> tuple[RaftIndex, Term]:
        """Return index and term of the newest released entry: the log begins after it. (0, 0) if there is none. Raises Damage."""
        rows = self.file.rows("SELECT released_index, released_term FROM logs WHERE raft_group = ?", self._group)
        return (RaftIndex(rows[0][0]), Term(rows[0][1])) if rows else (RaftIndex(0), Term(0))

    def terms_behind(self, index: RaftIndex) -> list[Term]:
        """The terms of all entries after *index*, in order. Raises Damage if one of the entries is missing."""
        entries = self.file.rows(_TERMS, self._group, index)
        if [number for number, _ in entries] != list(range(index + 1, index + 1 + len(entries))):
            raise Damage(f"{self.file.path}: entries of group {self._group} are missing behind entry {index}")
        return [Term(term) for _, term in entries]

    def check_batches(self) -> None:
        """Raise Damage if rows of batches are missing, or there are too many of them."""
        sums = self.file.rows(_SUMS, self._group, self._group)
        if len(set(*sums)) > 1:
            raise Damage(
                f"{self.file.path}: rows of batches of group {self._group} are missing, or there are too many of them"
            )

    def placed(self) -> Iterator[Placed]:
        """All entries that have record batches, in order, and the places of the batches; read lazily. Raises Damage."""
        at = 0
        while True:
            page = self.file.rows(_NEXT_BATCHES, self._group, at, self._group, at, limits.SQL_ROWS_PER_READ)
            if not page:
                return
            by_index: dict[int, list[BatchRow]] = {}
            for index, position, uid, base, count, timestamp, first, length, crc, mark in page:
                if mark != row_checksum(self._group, index, position, uid, base, count, timestamp, first, length, crc):
                    raise Damage(
                        f"{self.file.path}: a row of batches is damaged (entry {index} of group {self._group})"
                    )
                row = BatchRow(ChannelUid(uid), base, count, WallNanos(timestamp), first, position, length)
                by_index.setdefault(index, []).append(row)
            for index, rows in by_index.items():
                yield Placed(RaftIndex(index), index % GAP, rows)
                at = index

    # --- writing and removing entries -----------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise Frozen if a transaction has failed, or the log is closed."""
        if self.frozen:
            raise Frozen(self.frozen)

    def close(self) -> None:
        """Refuse all writes from now on."""
        self.frozen = self.frozen or f"{self.file.path} is closed"

    def add(self, entries: list[Entry]) -> None:
        """Write entries with their batches and messages, in one transaction. Raises InDoubt, and is frozen then."""
        self._write(self._steps(entries))

    def _steps(self, entries: list[Entry]) -> Iterator[Step]:
        written: list[tuple[Any, ...]] = []
        batches: list[tuple[Any, ...]] = []
        for entry in entries:
            frame = entry.body
            if entry.kind == Kind.RECORDS:
                parts = parts_of(entry)
                frame = b"".join(
                    part.header + (part.records if not part.rows or part.rows[0].staged else b"") for part in parts
                )
            written.append(_checked(self._group, entry.index, entry.term, int(entry.kind), bytes(frame)))
        yield _ENTRIES, written
        yield _MESSAGES, self._messages(entries, batches)
        if batches:
            yield _BATCHES, batches
            yield _LOGS, [(self._group,)]
            yield _ADD, [(sum(batch[-1] for batch in batches), self._group)]

    def _messages(self, entries: list[Entry], batches: list[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        """Yield the messages of *entries*, one batch in memory at a time, and put the rows of the batches into *batches*."""
        unwritten: dict[int, bytes] = {}  # staged in the same transaction, by sequence
        for entry in entries:
            for part in parts_of(entry):
                for row in part.rows:
                    records, crc = part.records, part.crc
                    if row.staged:
                        records = self._sealed(row, unwritten)
                        crc = zlib.crc32(records)
                    elif row.uid == STAGING_UID:
                        unwritten[row.base_sequence] = records
                    place = (
                        self._group,
                        entry.index,
                        row.position,
                        row.uid,
                        row.base_sequence,
                        row.count,
                        row.timestamp,
                    )
                    batches.append(_checked(*place, row.first_sequence, as_written(row).length, crc))
                    for sequence, message in enumerate(_messages(records), row.base_sequence):
                        yield self._group, row.uid, sequence, row.timestamp, *data_span(message), message

    def _sealed(self, row: BatchRow, unwritten: dict[int, bytes]) -> bytes:
        """The records that a reference becomes; b"" if what it refers to is damaged, and whoever reads them gets Damage."""
        staged = unwritten.get(row.staged)
        with suppress(Damage):
            for place in self.file.rows(_BATCH_AT, self._group, STAGING_UID, row.staged) if staged is None else ():
                staged = self._of_batch(*place)
            return bytes(sealed(staged or b"", row.base_sequence, row.timestamp, row.expiry))
        return b""

    def remove_after(self, index: RaftIndex) -> None:
        """Delete all entries after *index* with all their rows, in one transaction. Raises InDoubt, and is frozen then."""
        of_messages = (
            "DELETE FROM message_rows WHERE raft_group = ? AND EXISTS (SELECT 1 FROM batches b WHERE b.raft_group = "
            "message_rows.raft_group AND b.uid = message_rows.uid AND b.raft_index > ? AND message_rows.sequence "
            "BETWEEN b.base_sequence AND b.base_sequence + b.count - 1)"
        )
        after = [(self._group, index)]
        tables = [(f"DELETE FROM {name} WHERE {_AFTER}", after) for name in ("batches", "entries")]  # noqa: S608
        fewer = (_TAKE.format("b.raft_index > ?"), [(index, self._group)])
        self._write([(of_messages, after), fewer, *tables])

    def _write(self, steps: Iterable[Step]) -> None:
        try:
            self.file.write(steps)
        except (SqlError, OSError) as error:
            self.frozen = f"{self.file.path}: {error}"
            raise InDoubt(self.frozen) from error

    # --- reading --------------------------------------------------------------------------------------------------------------

    def entries(self, first: int, last: int) -> Iterator[Entry]:
        """The entries [first, last], some at a time. Raises Damage if one is missing or not as it was written."""
        while first <= last:
            rows = self.file.rows(
                "SELECT raft_index, term, kind, frame, checksum FROM entries WHERE raft_group = ? AND raft_index BETWEEN ? AND ? "
                "ORDER BY raft_index LIMIT ?",
                *(self._group, first, last, limits.SQL_ENTRIES_PER_READ),
            )
            if not rows or rows[0][0] != first:
                raise Damage(f"{self.file.path}: entry {first} of group {self._group} is missing")
            for index, term, kind, frame, mark in rows:
                if mark != row_checksum(self._group, index, term, kind, frame):
                    raise Damage(f"{self.file.path}: entry {index} of group {self._group} is damaged: wrong checksum")
                body = bytes(frame) if kind != Kind.RECORDS else self._body(index, frame)
                yield Entry(RaftIndex(index), Term(term), kind, body)
            first = rows[-1][0] + 1

    def _body(self, index: int, frame: bytes) -> bytes:
        """The body of a RECORDS entry: its frame, with the messages inserted."""
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

    def records(self, index: int, position: int) -> bytes | None:
        """The records of the batch at *position* of the entry at *index*; None if it has no row any more. Raises Damage."""
        rows = self.file.rows(
            "SELECT uid, base_sequence, count, length, crc FROM batches WHERE raft_group = ? AND raft_index = ? "
            "AND position = ?",
            *(self._group, index, position),
        )
        return self._of_batch(index, *rows[0]) if rows else None

    def _of_batch(self, index: int, uid: ChannelUid, base: int, count: int, length: int, crc: int) -> bytes:
        """The records of one batch, from the rows of its messages. Raises Damage if they are not the written ones."""
        rows = self.file.rows(
            f"SELECT message FROM message_rows WHERE {_RANGE} ORDER BY sequence",  # noqa: S608 - own words
            *(self._group, uid, base, base + count),
        )
        records = b"".join(_LENGTH.pack(len(message)) + message for (message,) in rows)
        if len(rows) != count or len(records) != length or zlib.crc32(records) != crc:
            raise Damage(
                f"{self.file.path}: messages [{base}, {base + count - 1}] of channel {uid}, entry {index} of group "
                f"{self._group}, are not as they were written"
            )
        return records

    # --- freeing space --------------------------------------------------------------------------------------------------------

    def free(self, places: list[tuple[int, int]], released: tuple[RaftIndex, Term]) -> str:
        """Delete batches with their messages, and the entries that were released, in one transaction; returns a line about it.

        Args:
            places: of the batches, each the index of its entry and its position in the entry's body.
            released: index and term of the newest released entry.

        Raises:
            SqlError, Damage: nothing was deleted; it may be tried again.
        """
        rows = self.file.rows(_PLACES, json.dumps(places), self._group)
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
        self.file.write(steps)
        return f"{self.file.path}: group {self._group}: removed {len(rows)} batches"


def _checked(*row: object) -> tuple[Any, ...]:
    """A row, with its checksum as the last column."""
    return *row, row_checksum(*row)


def _messages(records: bytes) -> Iterator[bytes]:
    """Each message of a batch's records, without the length in front of it."""
    at = 0
    while at < len(records):
        start = at + _LENGTH.size
        at = start + _LENGTH.unpack_from(records, at)[0]
        yield records[start:at]
