"""Calls that wait for a change of the client's state; who gives up waiting leaves nothing behind, however long the wait lasts."""

import asyncio


class Waiters:
    """Those who wait for the same change, in the order in which they came."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self) -> None:
        """Wait for the next `wake`."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = None
        try:
            await waiter
        finally:
            self._waiting.pop(waiter, None)

    def wake(self) -> None:
        """Let all go on that wait now; each checks for itself what has changed."""
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)
