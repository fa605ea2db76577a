"""The runtime of a real event loop: alarms, and which syncs run on it."""

import asyncio
import threading

import pytest
from stan_protocol.scalars import MILLISECOND, SECOND

from stan import limits
from stan.edge import runtime as module
from stan.edge.runtime import AsyncRuntime
from stan.errors import Frozen, Shortage
from stan.log.sql.sqlfile import SqlFile
from stan.log.sql.sqllog import SqlLog
from stan.state.database import Changes, Database
from tests.kit.batches import change


class Log:
    """Counts its syncs, and where they ran."""

    syncs_alone = True

    def __init__(self):
        self.threads, self.error, self.gate = [], None, None

    def sync(self):
        self.threads.append(threading.current_thread())
        if self.gate is not None:
            self.gate.wait(10)
        if self.error is not None:
            raise self.error
        return len(self.threads)


class Group:
    def __init__(self, group=1):
        self.group, self.log = group, Log()


@pytest.fixture
async def runtime():
    made = AsyncRuntime(2)
    yield made
    made.close()


async def synced(runtime, group):
    told = asyncio.get_running_loop().create_future()
    runtime.sync(group, lambda *result: told.set_result(result))
    return await told


async def test_syncs_run_on_the_loop_once_they_were_quick(runtime, monkeypatch):
    monkeypatch.setattr(module, "SYNC_AT_ONCE_NS", 10 * SECOND)
    group = Group()
    runtime._sync_ns = 10 * SECOND
    assert not runtime.sync_now(group), "nobody knows yet"
    assert await synced(runtime, group) == (1, "")
    assert runtime.sync_now(group)
    assert group.log.threads[0] is not threading.current_thread()
    assert group.log.threads[1] is threading.current_thread()
    monkeypatch.setattr(module, "SYNC_AT_ONCE_NS", 0)
    assert not runtime.sync_now(group)
    assert len(group.log.threads) == 2


async def test_no_sync_at_once_while_one_runs(runtime):
    group, other = Group(1), Group(2)
    runtime._sync_ns = 0
    group.log.gate = threading.Event()
    told = asyncio.get_running_loop().create_future()
    runtime.sync(group, lambda *result: told.set_result(result))
    assert not runtime.sync_now(group)
    assert runtime.sync_now(other)
    group.log.gate.set()
    assert await told == (1, "")


async def test_sync_that_fails_is_told_by_the_one_off_the_loop(runtime):
    group = Group()
    runtime._sync_ns = 0
    group.log.error = Frozen("the disk is gone")
    assert not runtime.sync_now(group)
    assert await synced(runtime, group) == (None, "the disk is gone")


async def test_quick_syncs_beside_rows_of_the_state_in_the_same_file_stop_nothing(runtime, tmp_path, monkeypatch):
    """The rows are written statement by statement, and each needs the loop: who waits for them there waits for ever."""
    monkeypatch.setattr(limits, "SQL_BUSY_TIMEOUT", SECOND // 10)
    file = SqlFile(tmp_path / "stan.db")
    group, database = Group(), await Database.open(file.path)
    group.log = SqlLog(file, group.group)
    rows = Changes()
    for number in range(5):
        rows.put("first_sequences", 1, number, 1)
    for _ in range(5):
        flush = asyncio.ensure_future(database.flush(rows))
        while not flush.done():
            runtime._sync_ns = 0  # they were quick
            group.log.append([change(group.log.last_index + 1)])
            if not runtime.sync_now(group):
                assert await synced(runtime, group) == (group.log.last_index, "")
            await asyncio.sleep(0)
        await flush
    assert group.log.durable_index == group.log.last_index
    group.log.close()
    await database.close()
    file.close()


async def test_alarm_that_is_put_off_or_brought_forward_rings_once_at_its_time(runtime):
    rung = asyncio.get_running_loop().create_future()
    begun = runtime.now()
    runtime.alarm(begun + 5 * MILLISECOND, lambda: pytest.fail("it was replaced"))
    runtime.alarm(begun + 20 * MILLISECOND, lambda: rung.set_result(runtime.now()))
    assert await rung >= begun + 20 * MILLISECOND
    rung = asyncio.get_running_loop().create_future()
    runtime.alarm(runtime.now() + 1000 * SECOND, lambda: pytest.fail("it was replaced"))
    runtime.alarm(runtime.now() + MILLISECOND, lambda: rung.set_result(None))
    await asyncio.wait_for(rung, 10)


async def test_silenced_alarm_does_not_ring(runtime):
    runtime.alarm(runtime.now(), lambda: pytest.fail("it was silenced"))
    runtime.silence()
    rung = asyncio.get_running_loop().create_future()
    runtime.alarm(runtime.now(), lambda: rung.set_result(None))
    await asyncio.wait_for(rung, 10)


async def test_sync_that_lacks_a_descriptor_is_tried_again_until_it_is_done(runtime, monkeypatch):
    monkeypatch.setattr(limits, "FULL_DISK_RETRY", MILLISECOND)
    monkeypatch.setattr(module, "SYNC_AT_ONCE_NS", 10 * SECOND)
    group, tried = Group(), []
    good = group.log.sync

    def sync():
        tried.append(threading.current_thread())
        if len(tried) < 4:
            raise Shortage("no descriptor")
        return good()

    group.log.sync = sync
    runtime._sync_ns = 0
    assert not runtime.sync_now(group)
    assert await synced(runtime, group) == (1, "")
    assert len(tried) == 4
