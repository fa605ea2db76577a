"""Virtual time: a heap of things to do, and the driver's runtime on top of it."""

import heapq
import random
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from stan_protocol.scalars import MICROSECOND, MILLISECOND, SECOND, Nanos, RaftIndex, WallNanos

from stan.core.base.ready import ReadResult
from stan.edge.runtime import Read, Synced
from stan.errors import StanError
from stan.log.types import BatchRef, GroupLog
from stan.raft.consensus import Consensus

T = TypeVar("T")

WALL_START: Final = 1_700_000_000 * SECOND
"""Time of day when the loop's time is 0."""
QUICK_SYNCS: Final = 0.5
"""Share of the syncs that are done at once."""


class Loop:
    """Things to do, in order of time; equal times in the order in which they were requested."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now: int = SECOND
        self.wall_offset = 0  # by how much the clocks of all machines were set
        self._heap: list[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = []
        self._made = 0

    @property
    def next_at(self) -> int | None:
        """Time of the next thing to do; None: there is nothing."""
        return self._heap[0][0] if self._heap else None

    def at(self, when: int, call: Callable[..., object], *args: Any) -> None:
        """Call at a time, now if that is over."""
        self._made += 1
        heapq.heappush(self._heap, (max(when, self.now), self._made, call, args))

    def after(self, delay: int, call: Callable[..., object], *args: Any) -> None:
        """Call *delay* nanoseconds from now."""
        self.at(self.now + delay, call, *args)

    def run_next(self) -> None:
        """Do the next thing, at its time."""
        self.now, _, call, args = heapq.heappop(self._heap)
        call(*args)

    def run_until(self, end: int) -> None:
        """Do all things up to a time, which it is then."""
        while self._heap and self._heap[0][0] <= end:
            self.now, _, call, args = heapq.heappop(self._heap)
            call(*args)
        self.now = max(self.now, end)


class SimRuntime:
    """`stan.edge.runtime.Runtime` on the loop; dies with its node."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.dead = False
        self._alarm = 0
        self._syncing: set[int] = set()

    def now(self) -> Nanos:
        """Monotonic time."""
        return Nanos(self.loop.now)

    def wall(self) -> WallNanos:
        """Time of day."""
        return WallNanos(WALL_START + self.loop.now + self.loop.wall_offset)

    def _later(self, delay: int, call: Callable[..., object], *args: Any) -> None:
        self.loop.after(delay, lambda: None if self.dead else call(*args))

    def soon(self, call: Callable[[], None]) -> None:
        """Call in a microsecond."""
        self._later(MICROSECOND, call)

    def alarm(self, deadline: Nanos, call: Callable[[], None]) -> None:
        """Call at *deadline*; replaces an earlier alarm."""
        self._alarm += 1
        mine = self._alarm
        self.loop.at(deadline, lambda: call() if not self.dead and mine == self._alarm else None)

    def sync(self, group: Consensus, done: Synced) -> None:
        """Sync, which takes its time; it covers the entries that were written when it began."""
        if group.group in self._syncing:
            return
        self._syncing.add(group.group)

        def work() -> None:
            durable: RaftIndex | None
            try:
                durable, why = group.log.sync(), ""
            except (OSError, StanError) as error:
                durable, why = None, str(error)
            self._later(self.loop.random.randint(10, 3000) * MICROSECOND, report, durable, why)

        def report(durable: RaftIndex | None, why: str) -> None:
            self._syncing.discard(group.group)
            done(durable, why)

        self._later(self.loop.random.randint(0, 500) * MICROSECOND, work)

    def sync_now(self, group: Consensus) -> bool:
        """Sync at once, which some syncs do."""
        if group.group in self._syncing or self.loop.random.random() >= QUICK_SYNCS:
            return False
        try:
            group.log.sync()
        except (OSError, StanError):
            return False
        return True

    def read(self, log: GroupLog, refs: list[BatchRef], done: Read) -> None:
        """Read record batches some milliseconds from now."""

        def work() -> None:
            result: list[ReadResult] | Exception
            try:
                result = [ReadResult(ref.base_sequence, ref.count, log.read(ref), ref.as_stored) for ref in refs]
            except (OSError, StanError) as error:
                result = error
            done(result)

        self._later(self.loop.random.randint(0, 5) * MILLISECOND, work)

    def work(self, call: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        """Run *call* some milliseconds from now; *done* gets its error or None."""

        def run() -> None:
            problem: Exception | None = None
            try:
                call()
            except (OSError, StanError) as error:
                problem = error
            done(problem)

        self._later(self.loop.random.randint(0, 5) * MILLISECOND, run)


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, and return its result. Raises AssertionError if it touches the real world."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    coroutine.close()
    raise AssertionError("the simulator awaited something real")
