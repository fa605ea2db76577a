"""The log on a real disk, used from the event loop's thread and from workers at once."""

import errno
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from stan.errors import Frozen, InDoubt
from stan.log.files.disk import OsFiles
from stan.log.files.filelog import FileLog
from stan.log.types import StaleRef
from tests.kit.batches import batch, entry, records

STORE = b"0123456789abcdef"
ALL = 10**9
DEADLINE = 20


class SlowSync(OsFiles):
    """fdatasync waits until it is let go; what was on the file when it began is what it covers."""

    def __init__(self):
        super().__init__()
        self.begun = threading.Event()
        self.go = threading.Event()
        self.slow = False

    def fdatasync(self, descriptor):
        if self.slow:
            self.begun.set()
            assert self.go.wait(DEADLINE)
        super().fdatasync(descriptor)


@pytest.fixture
def worker():
    with ThreadPoolExecutor(1) as pool:
        yield pool


def one(index, uid=7, size=20):
    return entry(index, batch(uid, index, 1, size=size))


def test_append_during_a_sync_does_not_wait_and_is_not_durable(tmp_path, worker):
    files = SlowSync()
    log, _ = FileLog.open(tmp_path / "1", 1, STORE, files=files)
    log.append([one(1)])
    files.slow = True
    running = worker.submit(log.sync)
    assert files.begun.wait(DEADLINE)
    log.append([one(2)])
    assert (log.last_index, log.durable_index) == (2, 0)
    files.go.set()
    assert running.result(DEADLINE) == 1
    assert log.durable_index == 1
    assert log.sync() == 2
    log.close()


def test_roll_during_a_sync_waits_for_it_and_covers_the_old_segment(tmp_path, worker):
    files = SlowSync()
    log, _ = FileLog.open(tmp_path / "1", 1, STORE, files=files, segment_bytes_max=200)
    log.append([one(1), one(2)])
    files.slow = True
    running = worker.submit(log.sync)
    assert files.begun.wait(DEADLINE)
    threading.Timer(0.01, files.go.set).start()
    log.append([one(3)])
    assert log.durable_index == log.sealed_index == 2
    assert running.result(DEADLINE) >= 2
    assert log.sync() == 3
    log.close()


class SlowWorker(SlowSync):
    """Only a worker's fdatasync has to wait; whatever fails to reach the medium is told once, to whose call returns first."""

    fails = full = False

    def fdatasync(self, descriptor):
        self.slow = threading.current_thread() is not threading.main_thread()
        super().fdatasync(descriptor)
        if self.fails:
            self.fails = False
            raise OSError(errno.EIO, "the medium")

    def pwritev(self, descriptor, buffers, position):
        if self.full:
            raise OSError(errno.ENOSPC, "full")
        super().pwritev(descriptor, buffers, position)


class Relay:
    """A lock after which whoever waits for it comes before the loop goes on."""

    def __init__(self, lock, begin, let_in):
        self.lock, self.begin, self.let_in = lock, begin, let_in

    def __enter__(self):
        self.lock.acquire()
        if threading.current_thread() is threading.main_thread():
            self.begin()

    def __exit__(self, *_):
        self.lock.release()
        if threading.current_thread() is threading.main_thread():
            self.let_in()


def test_sync_that_waited_for_a_truncation_makes_nothing_durable_that_was_cut(tmp_path, worker):
    files, running = SlowWorker(), []
    log, _ = FileLog.open(tmp_path / "1", 1, STORE, files=files)
    log.append([one(index) for index in range(1, 101)])
    assert log.durable_index == 0

    def begin():
        running.append(worker.submit(log.sync))
        running[0].add_done_callback(lambda _: files.begun.set())

    plain = log._writer.lock
    log._writer.lock = Relay(plain, begin, lambda: files.begun.wait(DEADLINE))
    log.truncate_after(10)
    log._writer.lock = plain
    log.append([one(index) for index in range(11, 61)])
    files.go.set()
    assert running[0].result(DEADLINE) == 10
    assert (log.last_index, log.durable_index) == (60, 10)
    assert log.sync() == 60
    log.close()


def test_failed_write_is_told_to_the_sync_that_it_concerns(tmp_path, worker):
    files = SlowWorker()
    log, _ = FileLog.open(tmp_path / "1", 1, STORE, files=files)
    log.append([one(1)])
    running = worker.submit(log.sync)
    assert files.begun.wait(DEADLINE)
    files.fails = files.full = True
    threading.Timer(0.01, files.go.set).start()
    with pytest.raises(InDoubt):
        log.append([one(2)])
    assert isinstance(running.exception(DEADLINE), InDoubt)
    assert log.durable_index == 0
    with pytest.raises(Frozen):
        log.append([one(2)])
    log.close()


def test_sync_read_and_clean_beside_the_loop_see_only_what_was_written(tmp_path):
    log, _ = FileLog.open(tmp_path / "1", 1, STORE, segment_bytes_max=2000, tail_cache_bytes_max=500)
    stop = threading.Event()
    places = []
    counts = {"read": 0, "stale": 0, "cleaned": 0}

    def sync():
        while not stop.is_set():
            before = log.durable_index
            assert before <= log.sync() <= log.last_index

    def read():
        while not stop.is_set():
            for uid, ref in places[-50:] + places[:50]:
                try:
                    assert log.read(ref) == records(uid, ref.base_sequence, 1, size=20 if uid == 1 else 150)
                    counts["read"] += 1
                except StaleRef:
                    counts["stale"] += 1

    def replay():
        while not stop.is_set():
            for found in log.entries(max(1, log.last_index - 40), ALL, ALL):
                assert found == made(found.index)

    def clean():
        while not stop.is_set():
            counts["cleaned"] += log.clean() is not None

    def made(index):
        large = [batch(2, index, 1, size=150)]
        return entry(index, batch(1, index // 8 + 1, 1), *large) if index % 8 == 0 else entry(index, *large)

    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(act) for act in (sync, read, replay, clean)]
        try:
            for index in range(1, 1500):
                log.append([made(index)])
                log.commit(log.durable_index)
                for uid in (1, 2):
                    places += [(uid, ref) for ref in log.channel(uid).refs(index - 2, ALL, ALL, ALL)]
                log.trim(2, log.channel(2).last_sequence)
                if index % 20 == 0:
                    log.release(log.durable_index)
                    places = places[-400:] + [(1, ref) for ref in log.channel(1).refs(0, ALL, ALL, 50)]
        finally:
            stop.set()
        for future in running:
            future.result(DEADLINE)
    log.commit(log.sync())
    log.release(log.durable_index)
    counts["cleaned"] += log.clean() is not None
    log.commit(log.last_index)
    assert log.last_index == 1499
    assert [log.read(ref) for ref in log.channel(1).refs(0, ALL, ALL, ALL)] == [
        records(1, at, 1) for at in range(2, 189)
    ]
    assert counts["read"] > 0
    assert counts["cleaned"] > 0
    log.close()
