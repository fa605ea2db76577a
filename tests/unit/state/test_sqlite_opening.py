"""A SQLite file that cannot be opened leaves nothing behind: no thread that still answers a loop which may be closed."""

import asyncio
import threading

import pytest

from stan.errors import StartError
from stan.log.sql.sqlfile import SqlFile
from stan.state.database import Database


@pytest.fixture
def slow_end(monkeypatch):
    """Threads of connections end late, as they do on a loaded machine."""
    run = threading.Thread.run

    def late(thread):
        run(thread)
        if thread.name != "sql":  # which is no connection's
            threading.Event().wait(0.05)

    monkeypatch.setattr(threading.Thread, "run", late)


@pytest.mark.usefixtures("slow_end")
def test_state_that_cannot_be_opened_leaves_no_thread(tmp_path):
    async def opening():
        with pytest.raises(StartError, match="unable to open"):
            await Database.open(tmp_path / "nowhere" / "state.db")
        return set(threading.enumerate())

    before = set(threading.enumerate())
    assert asyncio.run(opening()) <= before


@pytest.mark.usefixtures("slow_end")
def test_log_that_cannot_be_opened_leaves_no_thread(tmp_path):
    before = set(threading.enumerate())
    with pytest.raises(StartError):
        SqlFile(tmp_path / "nowhere" / "log.db")
    assert set(threading.enumerate()) <= before


@pytest.mark.usefixtures("slow_end")
async def test_cancelled_opening_leaves_no_thread(tmp_path):
    before = set(threading.enumerate())
    opening = asyncio.create_task(Database.open(tmp_path / "state.db"))
    await asyncio.sleep(0)  # it has begun
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert set(threading.enumerate()) <= before
