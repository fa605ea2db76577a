"""Space on the disk of the store: of a disk that answers, of one that hangs or fails, and of none."""

import asyncio
import shutil
import threading
from types import SimpleNamespace

import pytest

from stan import limits
from stan.monitor.disk_space import DiskSpace


@pytest.fixture
def disk(monkeypatch):
    """A disk that answers, raises or hangs, and counts who asks it."""
    found = SimpleNamespace(free=10, total=20, answers=threading.Event(), asked=0, error=None)

    def disk_usage(_directory):
        found.asked += 1
        found.answers.wait()
        if found.error is not None:
            raise found.error
        return SimpleNamespace(free=found.free, total=found.total)

    monkeypatch.setattr(shutil, "disk_usage", disk_usage)
    monkeypatch.setattr(limits, "DISK_PATIENCE", 1_000_000)
    found.answers.set()
    yield found
    found.answers.set()


async def test_a_store_in_memory_has_no_space(disk):
    assert await DiskSpace(None).look() == (0, 0)
    assert disk.asked == 0


async def test_a_disk_that_hangs_holds_one_thread_and_its_last_answer_counts(disk, tmp_path, monkeypatch):
    space = DiskSpace(tmp_path)
    with monkeypatch.context() as patient:
        patient.setattr(limits, "DISK_PATIENCE", 20_000_000_000)
        assert await space.look() == (10, 20)
    disk.answers.clear()
    disk.free = 5
    assert await asyncio.gather(*[space.look() for _ in range(3)]) == [(10, 20)] * 3
    assert await space.look() == (10, 20)
    assert disk.asked == 2
    disk.answers.set()
    async with asyncio.timeout(20):
        while (await space.look()).free != 5:
            pass


async def test_a_disk_that_fails_is_as_last_seen(disk, tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "DISK_PATIENCE", 20_000_000_000)
    space = DiskSpace(tmp_path)
    disk.error = OSError("gone")
    assert await space.look() == (0, 0)
    disk.error = None
    assert await space.look() == (10, 20)
