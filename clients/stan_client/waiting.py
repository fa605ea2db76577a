"""Waiting: until a time that all waits of one call share, and for a change of the client's state; and calls of callbacks whose
result is not used.

A wait that is given up leaves nothing behind, however long it lasts.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable

from stan_client.errors import StanClientError

log = logging.getLogger("stan_client")


def deadline(timeout_s: float | None) -> float | None:
    """Return when *timeout_s* seconds from now are over, on the event loop's clock; None stays None: the call sets no bound."""
    return None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s


def left_s(until: float | None) -> float | None:
    """Return the seconds that are left until a `deadline`, at least 0; None without one."""
    return None if until is None else max(0.0, until - asyncio.get_running_loop().time())


def notify(name: str, callback: Callable[..., object], *arguments: object) -> None:
    """Call *callback*, for the log *name*. Whatever it raises is logged; so is an async function, as it would not be awaited."""
    try:
        result = callback(*arguments)
        if result is None or not inspect.isawaitable(result):
            return
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError("it is not awaited: give a plain function, which may create a task")
    except Exception:
        log.exception("%s failed", name)


async def ended(task: "asyncio.Task[object]") -> None:
    """Wait until a cancelled *task* has ended, and raise its error unless that is one of this package. A cancellation of the
    caller is raised, not mistaken for that of the task."""
    await asyncio.wait({task})
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, StanClientError):
        raise error


class Waiters:
    """Tasks that wait for the same change, in the order of arrival."""

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
        """Wake all that wait now; each checks the change for itself."""
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)
