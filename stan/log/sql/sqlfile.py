"""The SQLite file of the SQL log: blocking calls from any thread, which aiosqlite carries out.

One connection writes, in transactions that are durable when the call returns; a second one reads meanwhile. Both belong to an
event loop that runs in a thread of its own, so the caller needs none. Failures of SQLite or the system are raised as SqlError by
a write and as Damage by a read. `fence` is called before each transaction and refuses it by raising an exception.
"""

import asyncio
import zlib
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from threading import Lock, Thread
from typing import Any, TypeVar

import aiosqlite
from stan_protocol.scalars import SECOND

from stan import limits
from stan.errors import Damage, StartError
from stan.state.opening import connect, make_durable

T = TypeVar("T")
Step = tuple[str, Iterable[tuple[Any, ...]]]
"""A statement, and the parameters of each of its executions; an iterator of these may read the file meanwhile."""

SqlError = aiosqlite.Error
"""SQLite or the operating system refused the call."""

VERSION = "1"
"""The format of the tables, as the row `format` of the table `store` has it."""
SCHEMA = """
CREATE TABLE IF NOT EXISTS store (key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS logs (raft_group INTEGER PRIMARY KEY, released_index INTEGER, released_term INTEGER,
  batches_sum INTEGER);
CREATE TABLE IF NOT EXISTS entries (raft_group INTEGER, raft_index INTEGER, term INTEGER, kind INTEGER, frame BLOB,
  checksum INTEGER, PRIMARY KEY (raft_group, raft_index)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS batches (raft_group INTEGER, raft_index INTEGER, position INTEGER, uid INTEGER,
  base_sequence INTEGER, count INTEGER, timestamp INTEGER, first_sequence INTEGER, length INTEGER, crc INTEGER,
  checksum INTEGER, PRIMARY KEY (raft_group, raft_index, position)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS batches_of_channel ON batches (raft_group, uid, base_sequence);
CREATE TABLE IF NOT EXISTS message_rows (raft_group INTEGER, uid INTEGER, sequence INTEGER, timestamp INTEGER,
  data_at INTEGER, data_length INTEGER, message BLOB, PRIMARY KEY (raft_group, uid, sequence)) WITHOUT ROWID;
"""
VIEWS = """
CREATE VIEW IF NOT EXISTS messages AS
  SELECT CAST(c.name AS TEXT) AS channel, m.sequence AS sequence, m.timestamp AS timestamp,
    strftime('%Y-%m-%d %H:%M:%f', m.timestamp / 1000000000.0, 'unixepoch') AS time, m.data_length AS size,
    CAST(substr(m.message, m.data_at + 1, m.data_length) AS BLOB) AS data
  FROM channels c JOIN message_rows m ON m.raft_group = c.raft_group AND m.uid = c.uid
  LEFT JOIN first_sequences f ON f.raft_group = c.raft_group AND f.uid = c.uid
  WHERE m.sequence >= COALESCE(f.first_sequence, 0);
CREATE VIEW IF NOT EXISTS channel_overview AS
  SELECT CAST(c.name AS TEXT) AS channel, MAX(MIN(b.base_sequence), COALESCE(f.first_sequence, 0)) AS first_sequence,
    MAX(b.base_sequence + b.count - 1) AS last_sequence,
    MAX(b.base_sequence + b.count - 1) - MAX(MIN(b.base_sequence), COALESCE(f.first_sequence, 0)) + 1 AS messages,
    SUM(b.length) AS bytes
  FROM channels c LEFT JOIN batches b ON b.raft_group = c.raft_group AND b.uid = c.uid
  LEFT JOIN first_sequences f ON f.raft_group = c.raft_group AND f.uid = c.uid GROUP BY c.uid;
CREATE VIEW IF NOT EXISTS subscription_overview AS
  SELECT CAST(c.name AS TEXT) AS channel, CAST(k.name AS TEXT) AS name, CAST(s.client_id AS TEXT) AS client_id,
    k.last_sent AS last_sent
  FROM cursors k JOIN channels c ON c.uid = k.uid
  LEFT JOIN subscriptions s ON s.raft_group = k.raft_group AND s.cursor_id = k.cursor_id;
"""
"""Views for people who query the file; they join the tables of the log with those of stan.state.database."""


def row_checksum(*row: object) -> int:
    """The checksum of a row: CRC-32 of the `repr` of its columns, in their order."""
    return zlib.crc32(repr(row).encode())


class SqlFile:
    """An open SQLite file that has the tables of the log."""

    def __init__(self, path: Path) -> None:
        """Open the file, or make it.

        Raises:
            Damage: it is no SQLite database, or a broken one.
            StartError: it cannot be opened, or its tables have another format than VERSION.
        """
        self.path = path
        self.fence: Callable[[], None] | None = None
        self._turn = Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="sql", daemon=True)
        self._thread.start()
        self._connections: list[aiosqlite.Connection] = []
        try:
            self._writer = self._call(self._connect())
            self._reader = self._call(self._connect())
            self._call(self._make())
        except SqlError as error:
            self.close()
            kind = StartError if isinstance(error, aiosqlite.OperationalError) else Damage
            raise kind(f"{path}: {error}") from error
        except BaseException:
            self.close()
            raise

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _connect(self) -> aiosqlite.Connection:
        connection = await connect(self.path, timeout=limits.SQL_BUSY_TIMEOUT / SECOND, cached_statements=64)
        self._connections.append(connection)
        return connection

    async def _make(self) -> None:
        await make_durable(self._writer)
        await self._writer.executescript(f"BEGIN IMMEDIATE; {SCHEMA} COMMIT;")
        await self._writer.execute("INSERT OR IGNORE INTO store VALUES ('format', ?)", (VERSION,))
        await self._writer.commit()
        ((version,),) = await self._fetch("SELECT value FROM store WHERE key = 'format'", ())
        if version != VERSION:
            raise StartError(f"{self.path}: messages in format {version}, this program reads format {VERSION}")

    def make_views(self) -> None:
        """Make the views for people; they are of use once the tables of the state exist, too."""
        with self._turn:
            self._call(self._run_script(VIEWS))

    async def _run_script(self, script: str) -> None:
        await self._writer.executescript(script)

    def write(self, steps: Iterable[Step]) -> None:
        """Carry out all statements in one transaction, or none of them; it is on stable storage when this returns.

        Raises SqlError, or what `fence` raises.
        """
        with self._turn:
            if self.fence is not None:
                self.fence()
            self._call(self._write(steps))

    async def _write(self, steps: Iterable[Step]) -> None:
        db = self._writer
        await db.execute("BEGIN IMMEDIATE")
        try:
            for statement, rows in steps:
                await db.executemany(statement, rows)
            await db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                await db.execute("ROLLBACK")
            raise

    def rows(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Return the committed rows that match a query. Raises Damage."""
        try:
            return self._call(self._fetch(query, parameters))
        except SqlError as error:
            raise Damage(f"{self.path}: {error}") from error

    async def _fetch(self, query: str, parameters: tuple[object, ...]) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self._reader.execute_fetchall(query, parameters)]

    def value(self, key: str) -> str:
        """Return the value of *key* in the table `store`, in which a file describes itself; "" if there is none."""
        rows = self.rows("SELECT value FROM store WHERE key = ?", key)
        return str(rows[0][0]) if rows else ""

    def note(self, **values: str) -> None:
        """Put pairs of key and value into the table `store`, durably. Raises as `write` does."""
        self.write([("INSERT OR REPLACE INTO store VALUES (?, ?)", list(values.items()))])

    def close(self) -> None:
        """Close the connections and end the thread."""
        with self._turn:
            while self._connections:
                self._call(self._connections.pop().close())
            if self._thread.is_alive():
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()
                self._loop.close()
