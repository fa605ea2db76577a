"""A connection to SQLite, or none: one that cannot be opened leaves no thread behind."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiosqlite

if TYPE_CHECKING:
    from threading import Thread


async def connect(path: Path, **options: Any) -> aiosqlite.Connection:
    """Open or create the file at *path*, in autocommit mode; *options* are those of sqlite3.connect.

    Raises:
        aiosqlite.Error: it cannot be opened.
    """
    connection = aiosqlite.connect(path, isolation_level=None, **options)
    try:
        return await connection
    except BaseException:
        # Its thread was asked to end, and is not awaited: it answers this loop once more, which may be closed by then.
        itself: Any = connection  # before 0.22 a connection was its own thread
        thread: Thread = getattr(connection, "_thread", itself)
        if thread.is_alive():
            thread.join()
        raise


async def make_durable(connection: aiosqlite.Connection) -> None:
    """Write ahead, sync each commit, and move an earlier process's write-ahead log into the file itself.

    A commit whose sync failed there can be read, but no later sync would cover it: a loss of power would take it, and all that
    follows it in that log.
    """
    await connection.execute("PRAGMA journal_mode = WAL")
    await connection.execute("PRAGMA synchronous = FULL")
    await connection.execute_fetchall("PRAGMA wal_checkpoint(TRUNCATE)")
