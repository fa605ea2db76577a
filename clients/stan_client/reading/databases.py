"""Positions in users' databases: a row for each reader of a channel, changed in the transaction of the reader's own rows.

Works over a connection of the caller's, by its face: sqlite3, aiosqlite, psycopg (plain and asyncio), asyncpg, and others of
Python's database API over SQLite and PostgreSQL. Imports none of them.
"""

import inspect
import sys
from typing import Any, Final, Protocol

from stan_client.errors import PositionTakenError
from stan_client.reading.consumer import Position

TABLE: Final = "stan_positions"
_CREATE: Final = (
    f"CREATE TABLE IF NOT EXISTS {TABLE} (name TEXT NOT NULL, channel TEXT NOT NULL, "
    "sequence BIGINT NOT NULL, uid BIGINT NOT NULL, cluster TEXT NOT NULL, read_ns BIGINT NOT NULL, "
    "PRIMARY KEY (name, channel))"
)
_INSERT: Final = f"INSERT INTO {TABLE} VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"  # noqa: S608 - no text of users
_SELECT: Final = f"SELECT sequence, uid, cluster, read_ns FROM {TABLE} WHERE name = ? AND channel = ?"  # noqa: S608
_UPDATE: Final = (
    f"UPDATE {TABLE} SET sequence = ?, uid = ?, cluster = ?, read_ns = ? "  # noqa: S608
    "WHERE name = ? AND channel = ? AND sequence = ?"
)


class DatabaseLink(Protocol):
    """A connection to a database, whatever its face."""

    async def execute(self, statement: str, *values: object) -> tuple[int, list[Any]]:
        """Execute a statement with `?` for each value; returns the number of changed rows, and the rows."""

    async def begin(self) -> None:
        """Begin a transaction. Raises RuntimeError: the connection is in one."""

    async def commit(self) -> None:
        """Commit the transaction. Raises RuntimeError: it is over already."""

    async def rollback(self) -> None:
        """Roll the transaction back, if there is one."""


class PositionTable:
    """The position of one reader of a channel, in a database."""

    takes_batches = True

    def __init__(self, database: Any, name: str, channel: str) -> None:
        self._database = database
        self._link = link_of(database)
        self._key = (name, channel)

    async def open(self, start: Position) -> Position:
        """Return the position, which is *start* if there is none; makes the table if there is none."""
        link = self._link
        await link.begin()
        try:
            await link.execute(_CREATE)
            await link.execute(_INSERT, *self._key, *start)
            _, [row] = await link.execute(_SELECT, *self._key)
            await link.commit()
        except BaseException:
            await link.rollback()
            raise
        return Position(*row)

    async def begin(self, before: Position, after: Position) -> Any:
        """Begin a transaction that moves the position; returns the connection.

        Raises:
            PositionTakenError: the position is not *before*: another reader has moved it.
        """
        await self._link.begin()
        try:
            changed, _ = await self._link.execute(_UPDATE, *after, *self._key, before.sequence)
            if changed != 1:
                raise PositionTakenError(*self._key)
        except BaseException:
            await self._link.rollback()
            raise
        return self._database

    async def commit(self) -> None:
        """Commit the position with the rows of the caller."""
        await self._link.commit()

    async def rollback(self) -> None:
        """Undo the rows and the position since `begin`."""
        await self._link.rollback()


def link_of(connection: Any) -> DatabaseLink:
    """Return the link over a connection. Raises TypeError: it has no face that is known."""
    module = type(connection).__module__.partition(".")[0]
    if module == "asyncpg":
        return AsyncpgLink(connection)
    if hasattr(connection, "in_transaction") and hasattr(connection, "total_changes"):
        return SqliteLink(connection, "?")
    if hasattr(connection, "cursor") and hasattr(connection, "commit"):
        style = getattr(sys.modules.get(module), "paramstyle", "")
        if style not in ("qmark", "format", "pyformat"):
            raise TypeError(f"{module} marks values by {style or 'nothing known'}: no qmark, format or pyformat")
        return CursorLink(connection, "?" if style == "qmark" else "%s")
    raise TypeError(f"{connection!r} is no connection to a database")


class CursorLink:
    """A connection of Python's database API, whose methods may be async."""

    def __init__(self, connection: Any, mark: str) -> None:
        self._connection = connection
        self._mark = mark

    async def execute(self, statement: str, *values: object) -> tuple[int, list[Any]]:
        """Execute a statement, see DatabaseLink."""
        cursor = await _settled(self._connection.cursor())
        try:
            await _settled(cursor.execute(statement.replace("?", self._mark), values))
            rows = await _settled(cursor.fetchall()) if statement.startswith("SELECT") else []
            return cursor.rowcount, list(rows)
        finally:
            await _settled(cursor.close())

    async def begin(self) -> None:
        """Begin a transaction, see DatabaseLink; without autocommit the first statement does it."""
        if self._connection.autocommit is True:
            await self.execute("BEGIN")

    async def commit(self) -> None:
        """Commit the transaction, see DatabaseLink."""
        await _settled(self._connection.commit())

    async def rollback(self) -> None:
        """Roll the transaction back, see DatabaseLink."""
        await _settled(self._connection.rollback())


class SqliteLink(CursorLink):
    """A connection of sqlite3 or aiosqlite, in any of its modes of transactions."""

    async def begin(self) -> None:
        """Begin a transaction that waits for those of other writers, see DatabaseLink."""
        connection = self._connection
        if connection.in_transaction and getattr(connection, "autocommit", None) is not False:
            raise RuntimeError("the connection is in a transaction: give one that nothing else uses")
        if connection.in_transaction:
            await self.commit()  # of autocommit=False, which begins the next one by itself
        else:
            await self.execute("BEGIN IMMEDIATE")

    async def commit(self) -> None:
        """Commit the transaction, see DatabaseLink."""
        connection = self._connection
        if not connection.in_transaction:
            raise RuntimeError("the transaction is over: the loop commits it, the program does not")
        if getattr(connection, "autocommit", None) is False:
            await _settled(connection.commit())
        else:
            await self.execute("COMMIT")

    async def rollback(self) -> None:
        """Roll the transaction back, see DatabaseLink."""
        connection = self._connection
        if getattr(connection, "autocommit", None) is False:
            await _settled(connection.rollback())
        elif connection.in_transaction:
            await self.execute("ROLLBACK")


class AsyncpgLink:
    """A connection of asyncpg."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._transaction: Any = None

    async def execute(self, statement: str, *values: object) -> tuple[int, list[Any]]:
        """Execute a statement, see DatabaseLink."""
        first, *others = statement.split("?")
        numbered = first + "".join(f"${number}{text}" for number, text in enumerate(others, 1))
        if statement.startswith("SELECT"):
            rows = await self._connection.fetch(numbered, *values)
            return len(rows), list(map(tuple, rows))
        status = await self._connection.execute(numbered, *values)  # "UPDATE 1"
        count = status.rpartition(" ")[2]
        return int(count) if count.isdigit() else 0, []

    async def begin(self) -> None:
        """Begin a transaction, see DatabaseLink."""
        if self._connection.is_in_transaction():
            raise RuntimeError("the connection is in a transaction: give one that nothing else uses")
        self._transaction = self._connection.transaction()
        await self._transaction.start()

    async def commit(self) -> None:
        """Commit the transaction, see DatabaseLink."""
        transaction, self._transaction = self._transaction, None
        await transaction.commit()

    async def rollback(self) -> None:
        """Roll the transaction back, see DatabaseLink."""
        transaction, self._transaction = self._transaction, None
        if transaction is not None and self._connection.is_in_transaction():
            await transaction.rollback()


async def _settled(result: Any) -> Any:
    """The result of a call, plain or async."""
    return await result if inspect.isawaitable(result) else result
