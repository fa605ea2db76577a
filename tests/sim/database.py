"""aiosqlite's face on a synchronous in-memory SQLite, so that stan.state runs unchanged inside a simulation.

What was committed is what a crash leaves: the connection outlives the node and rolls an open transaction back.
"""

import sqlite3
from pathlib import Path

from stan.state.database import SCHEMA, Database


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
        self._connection.execute(self._query)
        return iter(())

    async def __aenter__(self):
        return _Cursor(self._connection.execute(self._query))

    async def __aexit__(self, *_):
        return None


class _Connection:
    def __init__(self, connection):
        self._connection = connection

    def execute(self, query):
        return _Execution(self._connection, query)

    async def executemany(self, query, rows):
        self._connection.executemany(query, rows)

    async def close(self):
        return None


class SimDatabase:
    """The medium: outlives nodes."""

    def __init__(self):
        self.medium = sqlite3.connect(":memory:", isolation_level=None)
        self.medium.executescript(SCHEMA)

    def open(self):
        if self.medium.in_transaction:
            self.medium.execute("ROLLBACK")
        return Database(_Connection(self.medium), Path("state.db"))

    def close(self):
        self.medium.close()
