"""The messages of a subscription as programs take them: one by one, several at once, or by iterating."""

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from stan_client.errors import BadSubscriptionError, ConnectionClosedError, NoMessageError, StanClientError
from stan_client.messages.messages import Callback, Message, SubscriptionOptions

log = logging.getLogger("stan_client")

Handle = Callable[[Message, Callback], Awaitable[None]]
"""Runs a callback with a message, inside a client's middleware."""


class MessageStream(AsyncIterator[Message], ABC):
    """A subscription of one channel, or of all parts of one.

    As `async with` it is drained at the end of the block, or closed if the block raises; a durable one stays on the server.
    """

    def __init__(self, channel: str, options: SubscriptionOptions, handle: Handle) -> None:
        self._channel = channel
        self._options = options
        self._handle = handle

    @property
    def channel(self) -> str:
        """The name of the channel."""
        return self._channel

    @property
    def options(self) -> SubscriptionOptions:
        """The options with which it was made."""
        return self._options

    @property
    @abstractmethod
    def closed(self) -> bool:
        """True once the subscription was closed or has ended with an error."""

    @property
    @abstractmethod
    def queued(self) -> int:
        """Number of messages that have come and wait for the program."""

    # --- messages --------------------------------------------------------------------------------------------------

    @abstractmethod
    async def _next_messages(self, n: int, timeout_s: float | None) -> list[Message]:
        """Return 1 to *n* messages, and ack those of the previous call, unless `manual_acks` is set. Errors as of next()."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        """Ack the message returned before, then wait for the next one.

        Raises:
            StopAsyncIteration: the subscription or the client was closed.
            ConnectionClosedError: the session was lost and could not be recovered.
        """
        try:
            return await self.next()
        except BadSubscriptionError:
            raise StopAsyncIteration from None

    async def next(self, timeout_s: float | None = None) -> Message:
        """Return the next message, waiting for it at most *timeout_s* seconds; None: as long as it takes.

        Unless `manual_acks` is set, each call acks the messages of earlier next() and fetch() calls, as when iterating. Several
        tasks may call at the same time if `manual_acks` is set.

        Raises:
            NoMessageError: none came in time; it is a TimeoutError, too. The call may be repeated.
            BadSubscriptionError: the subscription or the client was closed, or drained and nothing is left.
            ConnectionClosedError: the session was lost and could not be recovered.
        """
        (message,) = await self._next_messages(1, timeout_s)
        return message

    async def fetch(self, n: int, timeout_s: float | None = None) -> list[Message]:
        """Return the messages that have come, at most *n*, as soon as there is one; none if none comes in *timeout_s* seconds
        (None: waits as long as it takes). Acks and errors as of next(), except NoMessageError.
        """
        if n < 1:
            raise ValueError(f"cannot fetch {n} messages")
        try:
            return await self._next_messages(n, timeout_s)
        except NoMessageError:
            return []

    async def handle(self, message: Message, callback: Callback) -> None:
        """Run *callback* with a message, inside the client's middleware. With a callback of its own the subscription does so by
        itself; a program that iterates calls this in its loop, because the client cannot see how the body of a loop ends. Acks
        are not concerned. Whatever *callback* or a middleware raises is raised."""
        await self._handle(message, callback)

    # --- the end ---------------------------------------------------------------------------------------------------

    @abstractmethod
    async def close(self, *, timeout_s: float | None = None) -> None:
        """End the subscription; a durable one can be resumed later. *timeout_s*: seconds that the whole call takes at most; None:
        for each answer the client's `connect_timeout_s`.

        Raises:
            BadSubscriptionError: closed before. ConnectionClosedError: the client is closed.
            UnsubscribeRequestTimeoutError: no answer; close() may be called again. ServerError: the server refuses.
        """

    @abstractmethod
    async def unsubscribe(self, *, timeout_s: float | None = None) -> None:
        """End the subscription; of a durable, the server also forgets its position. Timeout and errors as of close()."""

    @abstractmethod
    async def drain(self, *, timeout_s: float | None = None) -> bool:
        """Take no new messages, have those handled that have come, ack them, and close the subscription; a durable one can be
        resumed later. Returns True if all of them were handled.

        An async callback is called for waiting messages. A task that iterates, or calls next() or fetch(), goes on until nothing
        is left; if the caller is that task, its messages in hand count as handled, and waiting ones are left. Messages that are
        left are not acked, and come again to a durable or a queue group. With `manual_acks` the program acks by then. After a
        loss of the session meanwhile nothing can be acked any more.

        Args:
            timeout_s: seconds after which the subscription is closed although not all is handled; None: never.

        Raises:
            RuntimeError: called by the subscription's own async callback, for which it would wait. Else as of close().
        """

    @abstractmethod
    async def _end(self) -> None:
        """Stop locally, without a request to the server."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.closed:
            return
        with suppress(ConnectionClosedError):
            if error is None:
                await self.drain()
                return
            try:
                await self.close()
            except StanClientError as trouble:
                log.warning("%s: the subscription was not closed: %s", self.channel, trouble)
                await self._end()
