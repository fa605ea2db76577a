"""Writing the state is all or nothing, also for a task that is cancelled in the middle of it, as a stop does."""

import asyncio
import contextlib
import shutil
import sqlite3

import pytest

from stan.errors import NotNow
from stan.state.database import Changes, Database


def one_row(group):
    changes = Changes()
    changes.put("applied", group, 7, 1, 1)
    return changes


@pytest.mark.parametrize("statement", ["BEGIN IMMEDIATE", "COMMIT"])
async def test_cancelled_flush_leaves_no_transaction_behind(tmp_path, monkeypatch, statement):
    database = await Database.open(tmp_path / "state.db")
    execute = database._connection.execute

    def cancelling(sql, *arguments):
        if sql == statement:
            writing.cancel()
        return execute(sql, *arguments)

    monkeypatch.setattr(database._connection, "execute", cancelling)
    writing = asyncio.create_task(database.flush(one_row(1)))
    with pytest.raises(asyncio.CancelledError):
        await writing
    monkeypatch.undo()

    await database.flush(one_row(2))

    assert await database.rows("applied", "raft_group", "ORDER BY raft_group") == [(1,), (2,)]
    await database.close()


async def test_flush_that_fails_leaves_nothing_of_it_behind(tmp_path):
    database = await Database.open(tmp_path / "state.db")
    broken = one_row(1)
    broken.put("clients", "one column only")
    with pytest.raises(Exception, match="columns"):
        await database.flush(broken)

    await database.flush(one_row(2))

    assert await database.rows("applied", "raft_group") == [(2,)]
    await database.close()


async def test_flush_on_a_full_disk_is_not_now_and_works_once_there_is_room(tmp_path):
    database = await Database.open(tmp_path / "state.db")
    pages = (await database.rows("pragma_page_count", "page_count"))[0][0]
    await (await database._connection.execute(f"PRAGMA max_page_count = {pages}")).close()
    large = one_row(1)
    for number in range(50):
        large.put("parts", 1, "kind", b"%d" % number, bytes(4096))
    for _ in range(2):
        with pytest.raises(NotNow, match=r"state\.db.*full"):
            await database.flush(large)
    assert await database.rows("applied", "raft_group") == []

    await (await database._connection.execute("PRAGMA max_page_count = 100000")).close()
    await database.flush(large)

    assert await database.rows("applied", "raft_group") == [(1,)]
    await database.close()


async def test_what_a_start_has_read_lies_in_the_file_itself(tmp_path):
    """A commit whose sync failed may be lost with the write-ahead log, although the next process reads it there."""
    left = await Database.open(tmp_path / "state.db")
    await left.flush(one_row(1))
    killed = tmp_path / "killed"
    killed.mkdir()
    for path in tmp_path.glob("state.db*"):
        shutil.copy(path, killed)
    await left.close()

    database = await Database.open(killed / "state.db")
    power_lost = shutil.copy(killed / "state.db", tmp_path / "power_lost.db")
    await database.close()

    with contextlib.closing(sqlite3.connect(power_lost)) as found:
        assert found.execute("SELECT raft_group FROM applied").fetchall() == [(1,)]
