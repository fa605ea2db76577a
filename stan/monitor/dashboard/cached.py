"""What many look at is asked once: an answer is kept for a while, the longer the more it took to get."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from stan import limits
from stan.types import SECOND

T = TypeVar("T")


class Cached(Generic[T]):
    """The answer of *ask*, made again when somebody wants it and it is too old. *kept_ns*: at least that long, in ns."""

    def __init__(
        self,
        ask: Callable[[], Awaitable[T]],
        kept_ns: int = limits.DASHBOARD_TICK,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._ask = ask
        self._kept_ns = kept_ns
        self._clock = clock
        self._asking: asyncio.Future[T] | None = None
        self._made_at = 0
        self._until = 0
        self._changes = 0
        self.last: T | None = None

    async def get(self) -> T:
        """A recent answer; an older one if a new one takes long. Raises what *ask* raises."""
        now = self._clock()
        if self.last is not None and now < self._until:
            return self.last
        if self._asking is None:
            self._asking = asyncio.ensure_future(self._made())
            self._asking.add_done_callback(self._over)
        asking = self._asking
        if self.last is not None and self._until and now < self._made_at + 2 * limits.DASHBOARD_AGE_MAX:
            done, _ = await asyncio.wait({asking}, timeout=limits.DASHBOARD_WAIT / SECOND)
            return asking.result() if done else self.last
        return await asyncio.shield(asking)

    def outdated(self) -> None:
        """Something was changed: what is known, or on its way, may be from before."""
        self._until = 0
        self._changes += 1
        self._asking = None

    async def _made(self) -> T:
        begun, changes = time.thread_time_ns(), self._changes
        made = await self._ask()
        if changes == self._changes:
            cost = time.thread_time_ns() - begun
            kept = max(self._kept_ns, limits.DASHBOARD_COST_RATIO * cost)
            self._made_at = self._clock()
            self.last, self._until = made, self._made_at + min(kept, limits.DASHBOARD_AGE_MAX)
        return made

    def _over(self, asking: asyncio.Future[T]) -> None:
        if self._asking is asking:
            self._asking = None
        if not asking.cancelled():
            asking.exception()  # who waits was told; nobody need wait
