"""The messages of one subscription that wait to be handled: bounded, because the server sends again what is dropped.

`put` never waits; one worker or one iterator takes the messages, in order of arrival.
"""

import asyncio
from collections import deque
from typing import Final

from stan_client.errors import StanClientError
from stan_client.messages import Message

QUEUED_WINDOWS_MAX: Final = 2
"""Redelivered messages are dropped while this many windows of messages are queued: the server sends them again."""


class MessageQueue(deque[Message]):
    """Messages that have arrived and are not taken yet, until the subscription ends."""

    def __init__(self, window: int) -> None:
        """*window*: messages that the server sends before it waits for acks."""
        super().__init__()
        self.closed = False
        self.error: StanClientError | None = None  # with which the subscription has ended
        self._window = window
        self._arrival: asyncio.Future[None] | None = None

    def put(self, messages: list[Message]) -> None:
        """Append *messages*; of more than there is room for, only those that were not sent before."""
        if len(messages) > QUEUED_WINDOWS_MAX * self._window - len(self):
            messages = [message for message in messages if not message.redelivered]
        self.extend(messages)
        self._wake()

    async def arrived(self) -> bool:
        """Wait until there is a message to take; returns False once the queue is closed."""
        while not self:
            if self.closed:
                return False
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival
        return not self.closed

    def close(self, error: StanClientError | None) -> None:
        """End the queue, with the *error* that has ended the subscription if there is one; messages still in it are not taken."""
        self.closed, self.error = True, error
        self._wake()

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)
