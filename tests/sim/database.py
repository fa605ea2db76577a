"""aiosqlite's face on a synchronous in-memory SQLite, so that stan.state runs unchanged inside a simulation.

With pauses, something else may happen before each statement. What was committed is what a crash leaves: the connection outlives
the node and rolls an open transaction back.
"""

import sqlite3
from contextlib import contextmanager
from pathlib import Path

from stan.errors import NotNow
from stan.state.database import SCHEMA, Database
from tests.sim.tasks import Pause, Turn

_ENDS = ("BEGIN IMMEDIATE", "ROLLBACK")
"""Statements that write nothing."""


class _NoPause:
    def __await__(self):
        return iter(())


class _Cursor:
    def __init__(self, cursor):
        self._cursor = cursor

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        return None

    async def fetchall(self):
        return self._cursor.fetchall()


class _Execution:
    def __init__(self, connection, query):
        self._connection, self._query = connection, query

    def __await__(self):
        if self._connection.alive:
            yield from self._connection.pause().__await__()
            self._connection.needs_room(self._query)
            self._connection.medium.execute(self._query)

    async def __aenter__(self):
        await self._connection.pause()
        return _Cursor(self._connection.medium.execute(self._query))

    async def __aexit__(self, *_):
        return None


class _Connection:
    def __init__(self, owner, pause):
        self.owner, self.medium, self.pause = owner, owner.medium, pause
        self.alive = True

    @property
    def in_transaction(self):
        return self.medium.in_transaction

    def needs_room(self, query):
        if self.owner.full and query not in _ENDS:
            raise sqlite3.OperationalError("database or disk is full")

    def execute(self, query):
        return _Execution(self, query)

    async def executemany(self, query, rows):
        await self.pause()
        self.needs_room(query)
        self.medium.executemany(query, rows)

    async def close(self):
        return None


class _Undisturbed(Database):
    """Nobody cancels a flush here, and there are no tasks that could go on with one."""

    @contextmanager
    def _reader(self):
        medium = self._connection.medium
        if medium.in_transaction:  # it would see half of a flush
            raise NotNow("the rows are being written")
        yield medium

    async def flush(self, *changes):
        async with self._turn:
            for one in changes:
                if not one.sealed:
                    self.seal(one)
            try:
                await self._flush(changes)
            except sqlite3.OperationalError as error:
                raise NotNow(str(error)) from error


class SimDatabase:
    """The medium: outlives nodes."""

    def __init__(self, *, pauses=False):
        self._pause = Pause if pauses else _NoPause
        self._connection = None
        self.full = False  # there is no room on its disk
        self.medium = sqlite3.connect(":memory:", isolation_level=None)
        self.medium.executescript(SCHEMA)

    def open(self):
        if self.medium.in_transaction:
            self.medium.execute("ROLLBACK")
        self._connection = _Connection(self, self._pause)
        database = _Undisturbed(self._connection, Path("state.db"))
        database._turn = Turn()
        return database

    def cut(self):
        """The process is gone: nothing that it still does reaches the medium."""
        if self._connection is not None:
            self._connection.alive = False

    def close(self):
        self.medium.close()
