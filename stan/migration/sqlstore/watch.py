"""Signs that a server of the original uses the database: it renews the lock of the store, is connected, or changes a table.

A server locks the store in a fault tolerance group only, but stays connected while it runs.
"""

import time
from collections.abc import Sequence
from typing import Final

from stan.migration.sqlstore.database import Row, SqlConnection

TABLES: Final = {
    "StoreLock": "SELECT id, tick FROM StoreLock LIMIT 10",
    "Clients": "SELECT COUNT(*) FROM Clients",
    "Channels": "SELECT COUNT(*), SUM(maxseq) FROM Channels",
    "Subscriptions": "SELECT COUNT(*), SUM(lastsent) FROM Subscriptions",
    "SubsPending": "SELECT COUNT(*), MAX(s.row) FROM SubsPending s",
    "Messages": "SELECT SUM((SELECT MAX(m.seq) FROM Messages m WHERE m.id = c.id)) FROM Channels c",
}
"""A query for each table whose answer changes when a server works."""

CLOSING_S: Final = 1.0
"""A session that its client has closed may be seen for so long."""
POLL_S: Final = 0.05


class SqlWatch:
    """Watches a database from now on, for *least_s* seconds at least; *ours*: further sessions of this program."""

    not_seen = (
        "its lock is not renewed, no other session uses the database, no table changes, and {nats}. One that is not connected "
        "at this moment is not seen: make sure that it is stopped"
    )

    def __init__(self, connection: SqlConnection, ours: Sequence[SqlConnection], least_s: float) -> None:
        self._connection = connection
        self._ours = {connection.number, *(one.number for one in ours)}
        self._until = time.monotonic() + least_s
        self._before = self._state()

    def holders(self) -> list[str]:
        """Describe the other sessions of the database, but those that end at once."""
        until = time.monotonic() + CLOSING_S
        while (sessions := self._other_sessions()) and time.monotonic() < until:
            time.sleep(POLL_S)
        return [
            f"a session of user {user} from {address} uses the database" + (f" ({program})" if program else "")
            for _, user, address, program in sessions
        ]

    def _other_sessions(self) -> list[Row]:
        return [row for row in self._connection.sessions() if row[0] not in self._ours]

    def changed(self) -> str:
        """Return the first change since the watch began, "" if there is none; waits until the watch was long enough."""
        time.sleep(max(0.0, self._until - time.monotonic()))
        after = self._state()
        tables = [table for table in TABLES if after[table] != self._before[table]]
        if "StoreLock" in tables:
            return "it renews the lock of the store (table StoreLock)"
        return f"table {tables[0]} changes" if tables else ""

    def _state(self) -> dict[str, list[Row]]:
        return {table: self._connection.rows(query) for table, query in TABLES.items()}
