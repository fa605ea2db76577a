"""The replicated state as rows in SQLite, at an applied index per group.

A flush writes all changed rows and the applied indexes in one transaction, so a restart loads rows and replays the log
from there. The state never leads the log: the driver flushes only durable state. It can be rebuilt from a
snapshot and the log. Each row carries a few columns to look at, the protobuf message of entries.proto as `state`, and its
checksum; the row of `applied` carries the sum of all checksums of its group (stan.state.ledger), so that a load detects a
changed or missing row.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiosqlite
from stan_protocol.scalars import RaftIndex, Term

from stan.errors import Damage, NotNow, StanError, StartError
from stan.protocol.proto import entries_pb2 as pb
from stan.state.ledger import Ledger, Row, checksum
from stan.state.opening import connect, make_durable

SCHEMA_VERSION = 1
SCHEMA = """
CREATE TABLE cluster (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), cluster_id TEXT, raft_groups INTEGER, state BLOB,
  checksum INTEGER);
CREATE TABLE applied (raft_group INTEGER PRIMARY KEY, raft_index INTEGER, term INTEGER, next_id INTEGER, rows_sum INTEGER,
  checksum INTEGER);
CREATE TABLE clients (client_id BLOB PRIMARY KEY, incarnation INTEGER, state BLOB, checksum INTEGER);
CREATE TABLE channels (uid INTEGER PRIMARY KEY, name BLOB, raft_group INTEGER, state BLOB, checksum INTEGER);
CREATE TABLE first_sequences (raft_group INTEGER, uid INTEGER, first_sequence INTEGER, checksum INTEGER,
  PRIMARY KEY (raft_group, uid));
CREATE TABLE cursors (raft_group INTEGER, cursor_id INTEGER, uid INTEGER, name BLOB, last_sent INTEGER, state BLOB,
  checksum INTEGER, PRIMARY KEY (raft_group, cursor_id));
CREATE TABLE subscriptions (raft_group INTEGER, subscription_id INTEGER, cursor_id INTEGER, client_id BLOB, state BLOB,
  checksum INTEGER, PRIMARY KEY (raft_group, subscription_id));
CREATE TABLE parts (raft_group INTEGER, kind TEXT, key BLOB, state BLOB, checksum INTEGER, PRIMARY KEY (raft_group, kind, key));
"""

_KEYS: Final = {
    "cluster": ("only_row",),
    "applied": ("raft_group",),
    "clients": ("client_id",),
    "channels": ("uid",),
    "first_sequences": ("raft_group", "uid"),
    "cursors": ("raft_group", "cursor_id"),
    "subscriptions": ("raft_group", "subscription_id"),
    "parts": ("raft_group", "kind", "key"),
}
"""By table: the columns that tell its rows apart, which are the first ones of a row."""
ROWS_AT_ONCE: Final = 1000
"""Rows that are serialized in one piece: meanwhile no other thread runs."""
_META_TABLES: Final = ("cluster", "clients", "channels")
_GROUP_TABLES: Final = ("cursors", "subscriptions", "first_sequences", "parts")
_DAMAGE: Final = frozenset(
    (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH)
)
"""SQLite's error codes for a damaged file; all others come from the disk, or pass."""


class StoredState(NamedTuple):
    """The state of a group, read from its rows."""

    applied_index: RaftIndex  # of the newest entry in it; 0: the group was never flushed
    applied_term: Term
    content: bytes  # a pb.Snapshot, serialized


@dataclass(slots=True)
class Changes:
    """The changes of one flush: groups to clear first, then rows to write by table, and keys of rows to remove."""

    cleared: list[int] = field(default_factory=list)
    upserts: dict[str, list[Row]] = field(default_factory=dict)
    deletes: dict[str, list[Row]] = field(default_factory=dict)
    sealed: bool = False  # the rows have their checksums

    def clear(self, group: int) -> None:
        """Remove all rows of a group before anything else is done."""
        self.cleared.append(group)

    def put(self, table: str, *row: object) -> None:
        """Write or replace one row."""
        self.upserts.setdefault(table, []).append(row)

    def remove(self, table: str, *key: object) -> None:
        """Remove one row, if it is there."""
        self.deletes.setdefault(table, []).append(key)

    @staticmethod
    def joined(several: "Iterable[Changes]") -> "Changes":
        """Return sealed changes, oldest first, as one: of each row the newest version."""
        both = Changes(sealed=True)
        newest: dict[tuple[str, Row], tuple[dict[str, list[Row]], Row]] = {}
        for changes in several:
            both.cleared += changes.cleared
            if changes.cleared:
                stay = {place: row for place, row in newest.items() if _group(place[0], row[1]) not in changes.cleared}
                newest = stay
            for rows_of, into in ((changes.deletes, both.deletes), (changes.upserts, both.upserts)):
                for table, rows in rows_of.items():
                    newest |= {(table, row[: len(_KEYS[table])]): (into, row) for row in rows}
        for (table, _), (into, row) in newest.items():
            into.setdefault(table, []).append(row)
        return both


class Database:
    """The SQLite file of the state. Raises Damage: it is none of ours, or broken. A snapshot never sees half of a flush."""

    def __init__(self, connection: aiosqlite.Connection, path: Path) -> None:
        self._connection = connection
        self._turn = asyncio.Lock()  # the statements of two tasks do not mix
        self._ledgers: dict[int, Ledger] = {}  # of groups that were loaded, or begun
        self.path = path

    @classmethod
    async def open(cls, path: Path) -> "Database":
        """Open or create the file at *path*. A commit is on stable storage when it returns.

        Raises:
            Damage: the file is not as it was written.
            StartError: it cannot be used.
        """
        connection = None
        try:
            connection = await connect(path)
            self = cls(connection, path)
            await make_durable(connection)
            await self._make_tables()
        except BaseException as error:
            if connection is not None:
                await connection.close()
            if isinstance(error, aiosqlite.Error):
                raise why_not(path, error, StartError) from error
            raise
        return self

    async def _make_tables(self) -> None:
        """Make the tables of a new file, all of them or none."""
        ((version,),) = await self.rows("pragma_user_version", "user_version")
        if version == SCHEMA_VERSION:
            return
        if version:
            raise StartError(f"{self.path}: state of version {version}, this program reads version {SCHEMA_VERSION}")
        script = f"BEGIN IMMEDIATE; {SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
        try:
            await self._connection.executescript(script)
        except BaseException:
            if self._connection.in_transaction:
                await self._connection.execute("ROLLBACK")
            raise

    @classmethod
    async def recover(cls, path: Path, lost_found: Path, note: Callable[[str], None]) -> "Database":
        """Open the file at *path*. A damaged one, which can be rebuilt, is moved to *lost_found* and reported to *note*."""
        try:
            self = await cls.open(path)
            try:
                await self._check()
            except BaseException:
                await self.close()
                raise
        except Damage as error:
            lost_found.mkdir(exist_ok=True)  # noqa: ASYNC240 - nothing else runs yet
            note(f"{error}; moved to {lost_found}, the state is rebuilt from the logs")
            stamp = time.time_ns()
            for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
                if (path.parent / name).exists():
                    (path.parent / name).rename(lost_found / f"{stamp}-{name}")
            return await cls.open(path)
        return self

    async def _check(self) -> None:
        """Check that pages and indexes fit together; rows are checked when they are loaded. Raises Damage."""
        try:
            # Not with an argument: SQLite 3.46 takes it for the name of a table.
            ((result,),) = await self.rows("pragma_integrity_check", "*", "LIMIT 1")
        except aiosqlite.Error as error:
            raise why_not(self.path, error, StartError) from error
        if result != "ok":
            raise Damage(f"{self.path}: {' '.join(str(result).split())}")

    # --- writing ----------------------------------------------------------------------------------------------------------

    def seal(self, changes: Changes) -> None:
        """Give the rows their checksums. Changes must be written in the order of their sealing."""
        for group in changes.cleared:
            self._ledgers[group] = Ledger()
        for table, keys in changes.deletes.items():
            for key in keys:
                self.ledger(_group(table, key)).remove(table, key)
        applied = changes.upserts.pop("applied", [])
        for table, rows in changes.upserts.items():
            width = len(_KEYS[table])
            for at, row in enumerate(rows):
                mark = checksum(table, row)
                self.ledger(_group(table, row)).put(table, row[:width], mark)
                rows[at] = (*row, mark)
        for row in applied:
            ledger = self.ledger(row[0])
            whole = (*row, ledger.sum)
            mark = checksum("applied", whole)
            changes.put("applied", *whole, mark)
            ledger.note(row[1], mark)
        changes.sealed = True

    def ledger(self, group: int) -> Ledger:
        """Return the ledger of a group's rows, including those that are sealed and not written yet."""
        return self._ledgers.setdefault(group, Ledger())

    async def flush(self, *changes: Changes) -> None:
        """Write *changes* in one transaction. A cancelled caller leaves at its end, never in its middle.

        Raises:
            NotNow: nothing was written, as on a full disk; the same changes may be written later.
            Damage: the file is not as it was written; nothing can be written any more.
        """
        async with self._turn:
            for one in changes:
                if not one.sealed:
                    self.seal(one)
            writing = asyncio.ensure_future(self._flush(changes))
            try:
                await asyncio.shield(writing)
            except asyncio.CancelledError:
                await asyncio.gather(writing, return_exceptions=True)
                raise
            except (sqlite3.ProgrammingError, sqlite3.InterfaceError):  # of this program
                raise
            except aiosqlite.DatabaseError as error:
                raise why_not(self.path, error, NotNow) from error

    async def _flush(self, changes: Iterable[Changes]) -> None:
        db = self._connection
        await db.execute("BEGIN IMMEDIATE")
        try:
            for one in changes:
                await self._write(one)
            await db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:  # SQLite has rolled back by itself a transaction that a full disk has ended
                await db.execute("ROLLBACK")
            raise

    async def _write(self, changes: Changes) -> None:
        db = self._connection
        for group in changes.cleared:
            for table in (*_tables(group), "applied"):
                await db.execute(f"DELETE FROM {table} {_where_in(table, group)}")  # noqa: S608 - own names only
        for table, keys in changes.deletes.items():
            condition = " AND ".join(f"{column} = ?" for column in _KEYS[table])
            await db.executemany(f"DELETE FROM {table} WHERE {condition}", keys)  # noqa: S608
        for table, rows in changes.upserts.items():
            marks = ", ".join("?" * len(rows[0]))
            await db.executemany(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", rows)  # noqa: S608

    # --- reading ----------------------------------------------------------------------------------------------------------

    async def rows(self, table: str, columns: str, where: str = "") -> list[tuple[Any, ...]]:
        """All rows of a table."""
        query = f"SELECT {columns} FROM {table} {where}"  # noqa: S608 - names of this module's schema only
        async with self._connection.execute(query) as cursor:
            return [tuple(row) for row in await cursor.fetchall()]

    async def snapshot(self, group: int) -> pb.Snapshot:
        """The state of one group as a snapshot message; empty with applied_index 0 for a group that was never flushed.

        Raises:
            Damage: the rows are not those that were written; the text names one.
        """
        async with self._turn:
            try:
                return _as_snapshot(await self._verified(group))
            except aiosqlite.DatabaseError as error:
                raise why_not(self.path, error, StartError) from error

    async def drop_strays(self, groups: int) -> list[str]:
        """Remove rows of groups above *groups*: such rows are damaged ones of other groups. Returns a text for each of them."""
        problems = []
        async with self._turn:
            with suppress(aiosqlite.DatabaseError):  # reading the groups' own rows reports damage of the file
                for table in ("applied", *_GROUP_TABLES):
                    where = f"WHERE raft_group NOT BETWEEN 0 AND {int(groups)}"
                    of = [_shown(number) for (number,) in await self.rows(table, "DISTINCT raft_group", where)]
                    problems += [
                        f"{self.path}: rows of {table} are damaged (of group {number}, which there is not)"
                        for number in of
                    ]
                    await self._connection.execute(f"DELETE FROM {table} {where}")  # noqa: S608 - own names only
        return problems

    async def _verified(self, group: int) -> dict[str, list[Row]]:
        """Return all rows of a group without their checksums. Raises Damage: one is changed or missing, or one too many."""
        verified: dict[str, list[Row]] = {}
        ledger = Ledger()
        for table in (*_tables(group), "applied"):
            verified[table] = []
            for row, mark in self._right(table, await self.rows(table, "*", _where_in(table, group))):
                verified[table].append(row)
                if table != "applied":
                    ledger.put(table, row[: len(_KEYS[table])], mark)
                else:
                    ledger.note(RaftIndex(row[1]), mark)
        self._expect_all(group, verified["applied"], ledger.sum)
        self._ledgers[group] = ledger
        return verified

    def _right(self, table: str, stored: Iterable[Row]) -> Iterator[tuple[Row, int]]:
        """Yield each row without its checksum, and the checksum. Raises Damage at one that is not as it was written."""
        for *values, mark in stored:
            row = tuple(values)
            if mark != checksum(table, row):
                key = ", ".join(f"{name} {_shown(value)}" for name, value in zip(_KEYS[table], row, strict=False))
                raise Damage(f"{self.path}: a row of {table} is damaged ({key}: wrong checksum)")
            yield row, mark

    def _expect_all(self, group: int, applied: list[Row], added_up: int) -> None:
        """Raise Damage if the other rows of a group do not add up to the sum in its row of `applied`."""
        if ([row[-1] for row in applied] or [0]) != [added_up]:
            raise Damage(f"{self.path}: rows of group {group} are missing, or there are too many of them")

    def read_state(self, group: int) -> StoredState:
        """The state of a group as of the last flush. Blocking, for a worker thread: reads beside the flushes;
        the time grows with the size of the state.

        Raises:
            Damage: the rows are not those that were written; the text names one.
            NotNow: they cannot be read at the moment.
        """
        pieces: list[bytes] = []
        applied: list[Row] = []
        added_up = 0
        try:
            with self._reader() as reader:
                for table in (*_tables(group), "applied"):
                    stored = reader.execute(f"SELECT * FROM {table} {_where_in(table, group)}")  # noqa: S608 - own names only
                    while some := stored.fetchmany(ROWS_AT_ONCE):
                        rows = [*self._right(table, some)]
                        part = {table: [row for row, _ in rows]}
                        pieces.append(_as_snapshot(part).SerializeToString())
                        applied += part.get("applied", ())
                        for _, mark in rows if table != "applied" else ():
                            added_up ^= mark
        except sqlite3.DatabaseError as error:
            raise why_not(self.path, error, NotNow) from error
        self._expect_all(group, applied, added_up)
        index, term = applied[0][1:3] if applied else (0, 0)
        return StoredState(RaftIndex(index), Term(term), b"".join(pieces))

    @contextmanager
    def _reader(self) -> Iterator[sqlite3.Connection]:
        """A connection for one thread, which sees one flush of all of them."""
        with closing(sqlite3.connect(self.path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            yield reader

    async def close(self) -> None:
        """Close the file."""
        await self._connection.close()


def _as_snapshot(rows: dict[str, list[Row]]) -> pb.Snapshot:
    snapshot = pb.Snapshot()
    for _, index, term, next_id, _ in rows.get("applied", ()):
        snapshot.applied_index, snapshot.applied_term, snapshot.next_id = index, term, next_id
    for *_, state in rows.get("cluster", ()):
        snapshot.cluster_info.ParseFromString(state)
    snapshot.clients.extend(pb.Client.FromString(state) for *_, state in rows.get("clients", ()))
    snapshot.channels.extend(pb.Channel.FromString(state) for *_, state in rows.get("channels", ()))
    snapshot.cursors.extend(pb.Cursor.FromString(state) for *_, state in rows.get("cursors", ()))
    snapshot.subscriptions.extend(pb.Subscription.FromString(state) for *_, state in rows.get("subscriptions", ()))
    for _, uid, first in rows.get("first_sequences", ()):
        snapshot.first_sequences.extend((uid, first))
    for _, kind, key, state in rows.get("parts", ()):
        snapshot.parts.add(kind=kind, key=key, state=state)
    return snapshot


def _tables(group: int) -> tuple[str, ...]:
    """Tables with rows of a group, except `applied`; group 0 is that of the metadata."""
    return _GROUP_TABLES if group else (*_META_TABLES, "parts")


def _group(table: str, row: Row) -> int:
    """The group of a row."""
    return 0 if table in _META_TABLES else int(row[0])


def _where_in(table: str, group: int) -> str:
    """The condition for the rows of a group in a table."""
    return "" if table in _META_TABLES else _where(group)


def _where(group: int) -> str:
    return f"WHERE raft_group = {int(group)}"


def _shown(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def why_not(path: Path, error: aiosqlite.Error, otherwise: type[StanError]) -> StanError:
    """Return the error for one of SQLite: Damage, or *otherwise* for one of the disk."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF  # undecodable text has none
    return (Damage if code in _DAMAGE else otherwise)(f"{path}: {error}")
