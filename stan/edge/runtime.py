"""What the driver needs of the world: time, a next turn, worker threads. The simulator has a twin with virtual time.

One fsync serves everything that was written while the previous one ran: at most one runs per group, off the event loop; reads
that are not in memory run in other threads, so that a slow read delays no ack.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from stan.core.ready import Fetched
from stan.errors import StanError
from stan.log.types import BatchRef, GroupLog
from stan.raft.consensus import Consensus
from stan.types import MICROSECOND, Nanos, RaftIndex, WallNanos

CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Goes on while the machine sleeps: what others have promised for some seconds ends meanwhile. On macOS CLOCK_MONOTONIC does."""
SYNCERS_MAX = 4
"""Threads that sync logs."""
SYNC_AT_ONCE_NS = 500 * MICROSECOND
"""While syncs are faster than this they run on the event loop: handing one over to a thread and back would take longer."""
READERS = 2
"""Threads that read records from the disk."""

Synced = Callable[[RaftIndex | None, str], None]
"""Called with the durable index, or with None and why the sync failed."""
Read = Callable[[list[Fetched] | Exception], None]
"""Called with what was read, or with the error."""


class Runtime(Protocol):
    """Port of the driver. Every callback comes on the event loop, never from inside the call that asked for it."""

    def now(self) -> Nanos:
        """Monotonic time."""

    def wall(self) -> WallNanos:
        """Time of day."""

    def soon(self, call: Callable[[], None]) -> None:
        """Call once the sockets were looked at."""

    def alarm(self, deadline: Nanos, call: Callable[[], None]) -> None:
        """Call at *deadline*; replaces the alarm that was set before."""

    def sync(self, group: Consensus, done: Synced) -> None:
        """Make the group's log durable, off the event loop; a call while one runs for the group is ignored."""

    def read(self, log: GroupLog, refs: list[BatchRef], done: Read) -> None:
        """Read record batches, off the event loop."""

    def work(self, call: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        """Do something that takes long, off the event loop; *done* gets what went wrong with it (StanError, OSError)."""


class Ticker:
    """Time and one alarm, on the running event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = 0

    def now(self) -> Nanos:
        """Monotonic time."""
        return Nanos(time.clock_gettime_ns(CLOCK))

    def wall(self) -> WallNanos:
        """Time of day."""
        return WallNanos(time.time_ns())

    def soon(self, call: Callable[[], None]) -> None:
        """Call once the sockets were looked at."""
        self._loop.call_soon(call)

    def alarm(self, deadline: Nanos, call: Callable[[], None]) -> None:
        """Call at *deadline*; replaces the alarm that was set before."""
        if self._alarm is not None:
            if self._alarm_at == deadline and not self._alarm.cancelled():
                return
            self._alarm.cancel()
        self._alarm_at = deadline

        def ring() -> None:
            self._alarm = None
            call()

        self._alarm = self._loop.call_later(max(0.0, (deadline - self.now()) / 1e9), ring)

    def silence(self) -> None:
        """No alarm any more."""
        if self._alarm is not None:
            self._alarm.cancel()


class AsyncRuntime(Ticker):
    """The real one, on the running event loop."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self._syncers = ThreadPoolExecutor(max_workers=max(1, min(groups, SYNCERS_MAX)), thread_name_prefix="sync")
        self._readers = ThreadPoolExecutor(max_workers=READERS, thread_name_prefix="read")
        self._syncing: set[int] = set()
        self._sync_ns = SYNC_AT_ONCE_NS  # how long the slowest of the newest syncs took, as far as it matters still

    def sync(self, group: Consensus, done: Synced) -> None:
        """Make the group's log durable in a worker thread."""
        if group.group in self._syncing:
            return
        self._syncing.add(group.group)

        def work() -> tuple[RaftIndex | None, str]:
            started = time.monotonic_ns()
            try:
                return group.log.sync(), ""
            except (OSError, StanError) as error:
                return None, str(error)
            finally:
                self._sync_ns = max(time.monotonic_ns() - started, self._sync_ns * 7 // 8)

        def work_aside() -> None:
            self._loop.call_soon_threadsafe(told, *work())

        def told(durable: RaftIndex | None, why: str) -> None:
            self._syncing.discard(group.group)
            done(durable, why)

        if self._sync_ns < SYNC_AT_ONCE_NS:
            self._loop.call_soon(told, *work())
        else:
            self._syncers.submit(work_aside)

    def read(self, log: GroupLog, refs: list[BatchRef], done: Read) -> None:
        """Read record batches in a worker thread."""

        def work() -> None:
            result: list[Fetched] | Exception
            try:
                result = [Fetched(ref.base_sequence, ref.count, log.read(ref)) for ref in refs]
            except (OSError, StanError) as error:
                result = error
            self._loop.call_soon_threadsafe(done, result)

        self._readers.submit(work)

    def work(self, call: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        """Do something that takes long in a worker thread."""

        def run() -> None:
            problem: Exception | None = None
            try:
                call()
            except (OSError, StanError) as error:
                problem = error
            self._loop.call_soon_threadsafe(done, problem)

        self._readers.submit(run)

    def close(self) -> None:
        """Wait for what runs in threads."""
        self.silence()
        self._syncers.shutdown(wait=True)
        self._readers.shutdown(wait=True)
