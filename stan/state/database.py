"""The replicated state as rows in SQLite, at an applied index per group.

A flush writes all changed rows and the applied indexes in one transaction, so a restart loads rows and replays the log
from there. The state never leads the log: the driver flushes only what is durable there. It can be rebuilt from a
snapshot and the log. Each row carries a few columns to look at and the protobuf message of entries.proto as `state`.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiosqlite

from stan.errors import Damage, NotNow, StartError
from stan.protocol import entries_pb2 as pb
from stan.state.opening import connect

SCHEMA_VERSION = 2
SCHEMA = """
CREATE TABLE cluster (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), cluster_id TEXT, raft_groups INTEGER, state BLOB);
CREATE TABLE applied (raft_group INTEGER PRIMARY KEY, raft_index INTEGER, term INTEGER, next_id INTEGER);
CREATE TABLE clients (client_id BLOB PRIMARY KEY, incarnation INTEGER, state BLOB);
CREATE TABLE channels (uid INTEGER PRIMARY KEY, name BLOB, raft_group INTEGER, state BLOB);
CREATE TABLE first_sequences (raft_group INTEGER, uid INTEGER, first_sequence INTEGER, PRIMARY KEY (raft_group, uid));
CREATE TABLE dropped (raft_group INTEGER, uid INTEGER, PRIMARY KEY (raft_group, uid));
CREATE TABLE cursors (raft_group INTEGER, cursor_id INTEGER, uid INTEGER, name BLOB, last_sent INTEGER, state BLOB,
  PRIMARY KEY (raft_group, cursor_id));
CREATE TABLE subscriptions (raft_group INTEGER, subscription_id INTEGER, cursor_id INTEGER, client_id BLOB, state BLOB,
  PRIMARY KEY (raft_group, subscription_id));
"""
PARTS = """
CREATE TABLE parts (raft_group INTEGER, kind TEXT, key BLOB, state BLOB, PRIMARY KEY (raft_group, kind, key));
"""
"""What version 2 has more than version 1."""

_UPSERTS = {
    "cluster": "INSERT OR REPLACE INTO cluster VALUES (1, ?, ?, ?)",
    "applied": "INSERT OR REPLACE INTO applied VALUES (?, ?, ?, ?)",
    "clients": "INSERT OR REPLACE INTO clients VALUES (?, ?, ?)",
    "channels": "INSERT OR REPLACE INTO channels VALUES (?, ?, ?, ?)",
    "first_sequences": "INSERT OR REPLACE INTO first_sequences VALUES (?, ?, ?)",
    "dropped": "INSERT OR REPLACE INTO dropped VALUES (?, ?)",
    "cursors": "INSERT OR REPLACE INTO cursors VALUES (?, ?, ?, ?, ?, ?)",
    "subscriptions": "INSERT OR REPLACE INTO subscriptions VALUES (?, ?, ?, ?, ?)",
    "parts": "INSERT OR REPLACE INTO parts VALUES (?, ?, ?, ?)",
}
_DELETES = {
    "clients": "DELETE FROM clients WHERE client_id = ?",
    "channels": "DELETE FROM channels WHERE uid = ?",
    "first_sequences": "DELETE FROM first_sequences WHERE raft_group = ? AND uid = ?",
    "cursors": "DELETE FROM cursors WHERE raft_group = ? AND cursor_id = ?",
    "subscriptions": "DELETE FROM subscriptions WHERE raft_group = ? AND subscription_id = ?",
    "parts": "DELETE FROM parts WHERE raft_group = ? AND kind = ? AND key = ?",
}
_META_TABLES = ("cluster", "clients", "channels")
_GROUP_TABLES = ("cursors", "subscriptions", "first_sequences", "dropped", "parts", "applied")


@dataclass(slots=True)
class Changes:
    """What one flush writes: groups whose rows go first, then parameters of the statements above, by table."""

    cleared: list[int] = field(default_factory=list)
    upserts: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    deletes: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)

    def clear(self, group: int) -> None:
        """Remove all rows of a group before anything else is done."""
        self.cleared.append(group)

    def put(self, table: str, *row: object) -> None:
        """Write or replace one row."""
        self.upserts.setdefault(table, []).append(row)

    def remove(self, table: str, *key: object) -> None:
        """Remove one row, if it is there."""
        self.deletes.setdefault(table, []).append(key)

    def add(self, others: "Changes") -> None:
        """Take in what changed in other groups at the same time."""
        self.cleared += others.cleared
        for mine, theirs in ((self.upserts, others.upserts), (self.deletes, others.deletes)):
            for table, rows in theirs.items():
                mine.setdefault(table, []).extend(rows)


class Database:
    """One SQLite file. Raises Damage when the file is none of ours or broken. A snapshot never sees half of a flush."""

    def __init__(self, connection: aiosqlite.Connection, path: Path) -> None:
        self._connection = connection
        self._turn = asyncio.Lock()  # the statements of two tasks do not mix
        self.path = path

    @classmethod
    async def open(cls, path: Path) -> "Database":
        """Open or create the file at *path*. A commit is on stable storage when it returns."""
        connection = await connect(path)
        try:
            await connection.execute("PRAGMA journal_mode = WAL")
            await connection.execute("PRAGMA synchronous = FULL")
            version = await _one(connection, "PRAGMA user_version")
            if version in (0, 1):
                made = SCHEMA + PARTS if version == 0 else PARTS
                await connection.executescript(f"BEGIN; {made} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
            elif version != SCHEMA_VERSION:
                raise StartError(f"{path}: state of version {version}, this program reads version {SCHEMA_VERSION}")
        except aiosqlite.DatabaseError as error:
            await connection.close()
            raise Damage(f"{path}: {error}") from error
        except BaseException:
            await connection.close()
            raise
        return cls(connection, path)

    @classmethod
    async def recover(cls, path: Path, lost_found: Path, note: Callable[[str], None]) -> "Database":
        """Open the file at *path*; a damaged one is moved to *lost_found*, as it can be made again, and *note* told."""
        try:
            return await cls.open(path)
        except Damage as error:
            lost_found.mkdir(exist_ok=True)  # noqa: ASYNC240 - nothing else runs yet
            note(f"{error}; moved to {lost_found}, the state is rebuilt from the logs")
            stamp = time.time_ns()
            for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
                if (path.parent / name).exists():
                    (path.parent / name).rename(lost_found / f"{stamp}-{name}")
            return await cls.open(path)

    async def flush(self, changes: Changes) -> None:
        """Write *changes* in one transaction. Who is cancelled meanwhile leaves when it has ended, never in its middle.

        Raises:
            NotNow: nothing was written, as on a full disk; the same changes may be written later.
        """
        async with self._turn:
            writing = asyncio.ensure_future(self._flush(changes))
            try:
                await asyncio.shield(writing)
            except asyncio.CancelledError:
                await asyncio.gather(writing, return_exceptions=True)
                raise
            except aiosqlite.OperationalError as error:
                raise NotNow(f"{self.path}: {error}") from error

    async def _flush(self, changes: Changes) -> None:
        db = self._connection
        await db.execute("BEGIN IMMEDIATE")
        try:
            for group in changes.cleared:
                for table in _GROUP_TABLES:
                    await db.execute(f"DELETE FROM {table} WHERE raft_group = {int(group)}")  # noqa: S608 - own names only
                for table in _META_TABLES if group == 0 else ():
                    await db.execute(f"DELETE FROM {table}")  # noqa: S608
            for table, keys in changes.deletes.items():
                await db.executemany(_DELETES[table], keys)
            for table, rows in changes.upserts.items():
                await db.executemany(_UPSERTS[table], rows)
            await db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:  # SQLite has rolled back by itself what a full disk has ended
                await db.execute("ROLLBACK")
            raise

    async def rows(self, table: str, columns: str, where: str = "") -> list[tuple[Any, ...]]:
        """All rows of a table."""
        query = f"SELECT {columns} FROM {table} {where}"  # noqa: S608 - names of this module's schema only
        async with self._connection.execute(query) as cursor:
            return [tuple(row) for row in await cursor.fetchall()]

    async def snapshot(self, group: int) -> pb.Snapshot:
        """The state of one group as a snapshot message; empty with applied_index 0 for a group that was never flushed."""
        async with self._turn:
            return await self._snapshot(group)

    async def _snapshot(self, group: int) -> pb.Snapshot:
        mine = f"WHERE raft_group = {int(group)}"
        snapshot = pb.Snapshot()
        for index, term, next_id in await self.rows("applied", "raft_index, term, next_id", mine):
            snapshot.applied_index, snapshot.applied_term, snapshot.next_id = index, term, next_id
        if group == 0:
            for (state,) in await self.rows("cluster", "state"):
                snapshot.cluster_info.ParseFromString(state)
            snapshot.clients.extend(pb.Client.FromString(s) for (s,) in await self.rows("clients", "state"))
            snapshot.channels.extend(pb.Channel.FromString(s) for (s,) in await self.rows("channels", "state"))
            return snapshot
        snapshot.cursors.extend(pb.Cursor.FromString(s) for (s,) in await self.rows("cursors", "state", mine))
        subscriptions = await self.rows("subscriptions", "state", mine)
        snapshot.subscriptions.extend(pb.Subscription.FromString(s) for (s,) in subscriptions)
        for uid, first in await self.rows("first_sequences", "uid, first_sequence", mine):
            snapshot.first_sequences.extend((uid, first))
        for kind, key, state in await self.rows("parts", "kind, key, state", mine):
            snapshot.parts.add(kind=kind, key=key, state=state)
        snapshot.dropped.extend(uid for (uid,) in await self.rows("dropped", "uid", mine))
        return snapshot

    async def close(self) -> None:
        """Close the file."""
        await self._connection.close()


async def _one(connection: aiosqlite.Connection, query: str) -> Any:
    async with connection.execute(query) as cursor:
        row = await cursor.fetchone()
    return row[0] if row is not None else None
