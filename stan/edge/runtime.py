"""The driver's runtime: time, a next turn, worker threads. The simulator has a twin with virtual time.

One fsync serves all writes during the previous one: at most one runs per group, off the event loop unless
it is quick; reads that are not in memory run in other threads, so that a slow read delays no ack.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from stan_protocol.scalars import MILLISECOND, SECOND, Nanos, RaftIndex, WallNanos

from stan import limits
from stan.core.base.ready import ReadResult
from stan.edge.histogram import SYNC_BOUNDS, Histogram
from stan.errors import Shortage, fault
from stan.log.types import BatchRef, GroupLog
from stan.raft.consensus import Consensus
from stan.raft.scheduler import SchedulerRuntime

CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A clock that goes on while the machine sleeps, as promises of other nodes, such as to elect no other leader during a
lease, end during the sleep. On macOS CLOCK_MONOTONIC is such a clock."""
SYNCERS_MAX = 4
"""Threads that sync logs."""
SYNC_AT_ONCE_NS = 1 * MILLISECOND
"""Syncs run on the event loop while they are faster than this: the way to a thread and back takes about as long, and longer
while the loop is busy."""
READERS = 2
"""Threads that read records from the disk."""

Synced = Callable[[RaftIndex | None, str], None]
"""Called with the durable index and "", or with None and the reason why the sync failed."""
Read = Callable[[list[ReadResult] | Exception], None]
"""Called with the batches read, or with the error."""


class Runtime(SchedulerRuntime, Protocol):
    """Port of the driver. Every callback comes on the event loop, never from inside the call that requested it."""

    def wall(self) -> WallNanos:
        """Time of day."""

    def sync(self, group: Consensus, done: Synced) -> None:
        """Make the group's log durable, off the event loop; a call while one runs for the group is ignored."""

    def sync_now(self, group: Consensus) -> bool:
        """Make the group's log durable if that is quick. False: it is slow, or failed; call `sync`, which reports the error."""

    def read(self, log: GroupLog, refs: list[BatchRef], done: Read) -> None:
        """Read record batches, off the event loop."""

    def work(self, call: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        """Run *call*, which may take long, off the event loop; *done* gets its error or None."""


def _nothing() -> None:
    """Stand for the alarm's call before an alarm was set."""


class Ticker:
    """Time and one alarm, on the running event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = Nanos(0)
        self._alarm_call: Callable[[], None] = _nothing
        self._rings_at = Nanos(0)  # end of the timer, which may be before the alarm

    def now(self) -> Nanos:
        """Monotonic time."""
        return Nanos(time.clock_gettime_ns(CLOCK))

    def wall(self) -> WallNanos:
        """Time of day."""
        return WallNanos(time.time_ns())

    def soon(self, call: Callable[[], None]) -> None:
        """Call after a look at the sockets."""
        self._loop.call_soon(call)

    def alarm(self, deadline: Nanos, call: Callable[[], None]) -> None:
        """Call at *deadline*; replaces an earlier alarm. A later deadline costs no new timer."""
        self._alarm_at, self._alarm_call = deadline, call
        if self._alarm is not None and deadline < self._rings_at:
            self._alarm.cancel()
            self._alarm = None
        if self._alarm is None:
            self._rings_at = deadline
            self._alarm = self._loop.call_later(max(0.0, (deadline - self.now()) / 1e9), self._ring)

    def _ring(self) -> None:
        self._alarm = None
        if self._rings_at < self._alarm_at:
            self.alarm(self._alarm_at, self._alarm_call)
        else:
            self._alarm_call()

    def silence(self) -> None:
        """Cancel the alarm."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None


class AsyncRuntime(Ticker):
    """The real runtime, on the running event loop."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self._syncers = ThreadPoolExecutor(max_workers=max(1, min(groups, SYNCERS_MAX)), thread_name_prefix="sync")
        self._readers = ThreadPoolExecutor(max_workers=READERS, thread_name_prefix="read")
        self._syncing: set[int] = set()
        self._closed = False
        self._sync_ns = SYNC_AT_ONCE_NS  # duration of the newest syncs
        self.syncs = Histogram(SYNC_BOUNDS)

    def sync(self, group: Consensus, done: Synced) -> None:
        """Make the group's log durable in a worker thread."""
        if group.group in self._syncing:
            return
        self._syncing.add(group.group)
        self._syncers.submit(self._sync_aside, group, done)

    def sync_now(self, group: Consensus) -> bool:
        """Make the group's log durable if the newest syncs were quick and none runs for the group."""
        quick = group.log.syncs_alone and self._sync_ns < SYNC_AT_ONCE_NS
        if not quick or group.group in self._syncing:
            return False
        try:
            return self._sync(group)[0] is not None
        except Shortage:
            return False

    def _sync(self, group: Consensus) -> tuple[RaftIndex | None, str]:
        """Sync the log. Raises Shortage: the rest of the sync is to be tried again."""
        started = time.monotonic_ns()
        try:
            return group.log.sync(), ""
        except Shortage:
            raise
        except Exception as error:  # noqa: BLE001 - after any error the log cannot be relied on
            return None, fault(error)
        finally:
            took = time.monotonic_ns() - started
            self._sync_ns = (7 * self._sync_ns + took) // 8
            self.syncs.add(took)

    def _sync_aside(self, group: Consensus, done: Synced) -> None:
        try:
            self._loop.call_soon_threadsafe(self._synced, group, done, *self._sync(group))
        except Shortage:
            self._loop.call_soon_threadsafe(
                self._loop.call_later, limits.FULL_DISK_RETRY / SECOND, self._again, group, done
            )

    def _again(self, group: Consensus, done: Synced) -> None:
        self._syncing.discard(group.group)
        if not self._closed:
            self.sync(group, done)

    def _synced(self, group: Consensus, done: Synced, durable: RaftIndex | None, why: str) -> None:
        self._syncing.discard(group.group)
        done(durable, why)

    def read(self, log: GroupLog, refs: list[BatchRef], done: Read) -> None:
        """Read record batches in a worker thread."""

        def work() -> None:
            result: list[ReadResult] | Exception
            try:
                result = [ReadResult(ref.base_sequence, ref.count, log.read(ref), ref.as_stored) for ref in refs]
            except Exception as error:  # noqa: BLE001 - the caller waits for a result or an error
                result = error
            self._loop.call_soon_threadsafe(done, result)

        self._readers.submit(work)

    def work(self, call: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        """Run *call* in a worker thread."""

        def run() -> None:
            problem: Exception | None = None
            try:
                call()
            except Exception as error:  # noqa: BLE001 - the caller waits for the end or an error
                problem = error
            self._loop.call_soon_threadsafe(done, problem)

        self._readers.submit(run)

    def close(self) -> None:
        """Wait until the worker threads have ended."""
        self.silence()
        self._closed = True
        self._syncers.shutdown(wait=True)
        self._readers.shutdown(wait=True)
