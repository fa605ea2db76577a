"""The messages of one subscription that wait to be handled: bounded, because the server sends dropped ones again.

`put` never waits; one worker, one iterator, or several tasks that share the work take the messages, in order of arrival.
"""

import asyncio
from collections import deque
from typing import Any, Final

from stan_client.errors import StanClientError
from stan_client.messages.messages import Message
from stan_client.waiting import Waiters

QUEUED_WINDOWS_MAX: Final = 2
"""Redelivered messages are dropped while this many windows of messages are queued: the server sends them again."""


class MessageQueue(deque[Message]):
    """Messages that have arrived and wait for the program, until the subscription ends."""

    def __init__(self, window: int) -> None:
        """*window*: messages that the server sends before it waits for acks."""
        super().__init__()
        self.closed = False
        self.draining = False  # no more messages come in
        self.error: StanClientError | None = None  # with which the subscription has ended
        self._window = window
        self._takers = Waiters()
        self._emptied = asyncio.Event()

    def put(self, messages: list[Message]) -> None:
        """Append *messages*; of more than there is room for, only those that were not sent before."""
        if len(messages) > QUEUED_WINDOWS_MAX * self._window - len(self):
            messages = [message for message in messages if not message.redelivered]
        self.extend(messages)
        self._takers.wake()

    async def arrived(self) -> bool:
        """Wait until there is a message to take; returns False once the queue is closed, or is empty and nothing more comes."""
        while not self and not self.closed:
            if self.draining:
                self._emptied.set()
                return False
            await self._takers.wait()
        return not self.closed

    def drain(self) -> None:
        """Report to the waiting tasks that nothing more comes in."""
        self.draining = True
        self._takers.wake()

    async def drained(self, handler: "asyncio.Task[Any]", timeout_s: float | None) -> None:
        """Wait, after `drain`, until *handler* has come for a message and there was none left, or has ended, or the queue is
        closed; at most *timeout_s* seconds."""
        emptied = asyncio.create_task(self._emptied.wait())
        try:
            await asyncio.wait({emptied, handler}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            emptied.cancel()

    def close(self, error: StanClientError | None) -> None:
        """End the queue, with the *error* that has ended the subscription if there is one; messages still in it are not taken."""
        self.closed, self.error = True, error
        self._takers.wake()
        self._emptied.set()
