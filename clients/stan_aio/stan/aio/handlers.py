"""Acks of publishes that a program does not wait for: its handlers are called one after the other, as in the original.

An ack keeps its place among the publishes in flight until its handler is called; so a slow handler slows down the
publisher.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

AckHandler = Callable[[Any], Awaitable[None]]
"""Called with the PubAck of a message; its `error` is empty if the message was stored."""


class AckHandlers:
    """Calls the handlers of acks that have come, in their order."""

    def __init__(self, logger: logging.Logger, done: Callable[[str], None]) -> None:
        """*done*: called with the guid of a message just before the handler of its ack."""
        self._logger = logger
        self._done = done
        self._came: asyncio.Queue[tuple[AckHandler, Any]] = asyncio.Queue()
        self._worker: asyncio.Task[None] | None = None

    def put(self, handler: AckHandler, ack: Any) -> None:
        """Have *handler* called with *ack*."""
        self._came.put_nowait((handler, ack))
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        while True:
            handler, ack = await self._came.get()
            self._done(ack.guid)
            try:
                await handler(ack)
            except Exception:
                self._logger.exception("Exception in ack handler of %s", ack.guid)

    async def end(self) -> None:
        """Call no more handlers; one that runs is cancelled, unless it made this call."""
        worker, self._worker = self._worker, None
        while not self._came.empty():
            self._came.get_nowait()
        if worker is not None and worker is not asyncio.current_task():
            worker.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait({worker})
