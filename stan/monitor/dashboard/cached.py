"""A cache of one answer that many readers share: the more CPU time the answer cost, the longer it is used."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

from stan_protocol.scalars import SECOND

from stan import limits

T = TypeVar("T")


class Cached(Generic[T]):
    """The answer of *ask*, made again when it is requested and too old. *kept_ns*: used at least that long, in ns."""

    def __init__(
        self,
        ask: Callable[[], Coroutine[Any, Any, T]],
        kept_ns: int = limits.DASHBOARD_TICK,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._ask = ask
        self._kept_ns = kept_ns
        self._clock = clock
        self._asking: asyncio.Future[T] | None = None
        self._made_at = clock()
        self._until = 0
        self._changes = 0
        self._last: T | None = None

    async def get(self) -> T:
        """Return a recent answer; an older one if a new one takes longer than DASHBOARD_WAIT. Raises the errors of *ask*."""
        now = self._clock()
        if self._last is not None and now < self._until:
            return self._last
        if self._asking is None:
            self._asking = asyncio.ensure_future(self._made())
            self._asking.add_done_callback(self._over)
        asking = self._asking
        if self._last is not None and self._until and now < self._made_at + 2 * limits.DASHBOARD_AGE_MAX:
            done, _ = await asyncio.wait({asking}, timeout=limits.DASHBOARD_WAIT / SECOND)
            return asking.result() if done else self._last
        return await asyncio.shield(asking)

    @property
    def last(self) -> T | None:
        """The last answer, however old it is; None: there was none, or a change has made it wrong."""
        return self._last if self._until else None

    @property
    def age(self) -> int:
        """Time since the last answer was made, or since the cache was, in ns."""
        return self._clock() - self._made_at

    @property
    def recent(self) -> T | None:
        """The last answer, if it is overdue by less than DASHBOARD_GRACE; None: not requested lately, or no answer came."""
        return self._last if self._clock() < self._until + limits.DASHBOARD_GRACE else None

    def outdated(self) -> None:
        """Drop the answer after a change: the cached one, and one being made, may be older than the change."""
        self._until = 0
        self._changes += 1
        self._asking = None

    async def _made(self) -> T:
        changes, work = self._changes, Work(self._ask())
        made = await work
        if changes == self._changes:
            age_max = max(self._kept_ns, limits.DASHBOARD_COST_RATIO * work.spent)
            self._made_at = self._clock()
            self._last, self._until = made, self._made_at + min(age_max, limits.DASHBOARD_AGE_MAX)
        return made

    def _over(self, asking: asyncio.Future[T]) -> None:
        if self._asking is asking:
            self._asking = None
        if not asking.cancelled():
            asking.exception()  # marks it as retrieved: waiting readers get it, and there may be none


class Work(Generic[T]):
    """Awaits *doing* and counts the CPU time of its own steps, in ns: without other work of the event loop meanwhile."""

    def __init__(self, doing: Coroutine[Any, Any, T]) -> None:
        self._doing = doing
        self.spent = 0

    def __await__(self) -> Generator[Any, Any, T]:
        step: Callable[[Any], Any] = self._doing.send
        given: Any = None
        while True:
            begun = time.thread_time_ns()
            try:
                awaited = step(given)
            except StopIteration as done:
                result: T = done.value
                return result
            finally:
                self.spent += time.thread_time_ns() - begun
            try:
                given = yield awaited
                step = self._doing.send
            except BaseException as error:  # noqa: BLE001 - also a cancellation: it is the question's
                step, given = self._doing.throw, error
