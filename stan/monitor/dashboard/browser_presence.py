"""The presence of browsers on the dashboard, which decides how often the cluster is polled. Times are monotonic ns."""

import asyncio
import contextlib
from collections.abc import Callable

from stan_protocol.scalars import SECOND

from stan import limits


class BrowserPresence:
    """Remembers the time of the last request of a browser, and ends a pause early when the first one comes."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._requested_at = 0
        self._came = asyncio.Event()

    def note(self) -> None:
        """Note that a browser looks at the pages now."""
        if not self.watched():
            self._came.set()
        self._requested_at = self._clock()

    def watched(self) -> bool:
        """Return True if a browser has looked within the last DASHBOARD_LINGER."""
        return bool(self._requested_at) and self._clock() - self._requested_at < limits.DASHBOARD_LINGER

    def begin_round(self) -> bool:
        """Return `watched`; a browser that comes from now on ends the next `pause`."""
        self._came.clear()
        return self.watched()

    async def pause(self, nanos: int) -> None:
        """Wait that long, or until a browser has come since the round began."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(nanos / SECOND):
                await self._came.wait()
