"""One subscription as programs have it: its messages are taken one by one, several at once, or by iterating.

When iterating, a message is acked when the next one is requested. A subscription that drains takes nothing new, has what has come
handled, and then closes.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any, Self

from stan_client.errors import BadSubscriptionError, ConnectionClosedError, NoMessageError, StanClientError
from stan_client.messages.messages import Callback, Message, SubscriptionOptions
from stan_client.subscribing.delivery import SubscriptionDelivery
from stan_client.transport.session import text_of

log = logging.getLogger("stan_client")

Handle = Callable[[Message, Callback], Awaitable[None]]
"""Runs a callback with a message, inside a client's middleware."""


class Subscription(AsyncIterator[Message]):
    """Made by Client.subscribe; iterate over it, or call next() or fetch(), unless it has a callback.

    As `async with` it is drained at the end of the block, or closed if the block raises; a durable one stays on the server.
    """

    def __init__(self, delivery: SubscriptionDelivery, handle: Handle) -> None:
        self._delivery = delivery
        self._handle = handle
        self._in_hand: list[int] = []  # sequences that the program took last and that are not acked
        self._taker: asyncio.Task[Any] | None = None  # the task that took them

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<Subscription {self.channel} {state} last_sequence={self.last_sequence} queued={self.queued}>"

    @property
    def channel(self) -> str:
        """The name of the channel."""
        return self._delivery.channel

    @property
    def options(self) -> SubscriptionOptions:
        """The options with which it was made."""
        return self._delivery.options

    @property
    def last_sequence(self) -> int:
        """The highest sequence that has come; 0: none."""
        return self._delivery.last_sequence

    @property
    def closed(self) -> bool:
        """True once the subscription was closed or has ended with an error."""
        return self._delivery.queue.closed

    @property
    def queued(self) -> int:
        """How many messages have come and are not taken yet."""
        return len(self._delivery.queue)

    @property
    def inboxes(self) -> tuple[str, str]:
        """The NATS subjects where its messages come and where its acks go, on its newest session."""
        path = self._delivery.path
        return (path.inbox, text_of(path.ack_inbox)) if path is not None else ("", "")

    async def handle(self, message: Message, callback: Callback) -> None:
        """Run *callback* with a message, inside the client's middleware. With a callback of its own the subscription does so by
        itself; a program that iterates calls this in its loop, because the client cannot see how the body of a loop ends. Acks
        are not concerned. Whatever *callback* or a middleware raises is raised."""
        await self._handle(message, callback)

    def __aiter__(self) -> "Subscription":
        self._taker = asyncio.current_task()
        return self

    async def __anext__(self) -> Message:
        """Ack the message returned before, then wait for the next one.

        Raises:
            StopAsyncIteration: the subscription or the client was closed.
            ConnectionClosedError: the session was lost and could not be recovered.
        """
        if self._delivery.callback is not None:
            raise TypeError("a subscription with a callback cannot be iterated over")
        if self._taker is None:
            self._taker = asyncio.current_task()
        self._settle_in_hand()
        if not await self._delivery.queue.arrived():
            if self._delivery.queue.error is not None:
                raise self._delivery.queue.error
            raise StopAsyncIteration
        message = self._delivery.queue.popleft()
        self._in_hand.append(message.sequence)
        return message

    async def next(self, timeout_s: float | None = None) -> Message:
        """Return the next message, waiting for it at most *timeout_s* seconds; None: as long as it takes.

        Unless `manual_acks` is set, what next() and fetch() returned before is acked by each call, as when iterating. Several
        tasks may call at the same time if `manual_acks` is set.

        Raises:
            NoMessageError: none came in time; it is a TimeoutError, too. The call may be repeated.
            BadSubscriptionError: the subscription or the client was closed, or drained and nothing is left.
            ConnectionClosedError: the session was lost and could not be recovered.
        """
        (message,) = await self._taken(1, timeout_s)
        return message

    async def fetch(self, n: int, timeout_s: float | None = None) -> list[Message]:
        """Return the messages that have come, at most *n*, as soon as there is one; none if none comes in *timeout_s* seconds
        (None: waits as long as it takes). Acks and errors as of next(), except NoMessageError.
        """
        if n < 1:
            raise ValueError(f"cannot fetch {n} messages")
        try:
            return await self._taken(n, timeout_s)
        except NoMessageError:
            return []

    async def _taken(self, n: int, timeout_s: float | None) -> list[Message]:
        if self._delivery.callback is not None:
            raise TypeError("a subscription with a callback gives its messages to that")
        queue, self._taker = self._delivery.queue, asyncio.current_task()
        self._settle_in_hand()
        try:
            async with asyncio.timeout(timeout_s):
                there = await queue.arrived()
        except TimeoutError:
            raise NoMessageError from None
        if not there:
            raise queue.error or BadSubscriptionError()
        messages = [queue.popleft() for _ in range(min(n, len(queue)))]
        self._in_hand.extend(message.sequence for message in messages)
        return messages

    def _settle_in_hand(self) -> None:
        """Ack what the program took before."""
        if self._in_hand and not self._delivery.options.manual_acks and self._delivery.path is not None:
            for sequence in self._in_hand:
                self._delivery.path.ack(sequence)
        self._in_hand.clear()

    # --- the end ---------------------------------------------------------------------------------------------------

    async def close(self, *, timeout_s: float | None = None) -> None:
        """End the subscription; a durable one can be resumed later. *timeout_s*: seconds that the whole call takes at most; None:
        for the answer the client's `connect_timeout_s`.

        Raises:
            BadSubscriptionError: closed before. ConnectionClosedError: the client is closed.
            UnsubscribeRequestTimeoutError: no answer; close() may be called again. ServerError: the server refuses.
        """
        await self._delivery.leave(timeout_s, unsubscribe=False)

    async def unsubscribe(self, *, timeout_s: float | None = None) -> None:
        """End the subscription; of a durable, the server also forgets its position. Timeout and errors as of close()."""
        await self._delivery.leave(timeout_s, unsubscribe=True)

    async def drain(self, *, timeout_s: float | None = None) -> bool:
        """Take no new messages, have those handled that have come, ack them, and close the subscription; a durable one can be
        resumed later. Returns True if all that had come was handled.

        An async callback is called for what waits. A task that iterates, or calls next() or fetch(), goes on until nothing is
        left; if the caller is that task, what it has in hand counts as handled and what it has not taken is left. What is left is
        not acked, and comes again to a durable or a queue group. With `manual_acks` the program acks by then. After a loss of
        the session meanwhile nothing can be acked any more.

        Args:
            timeout_s: seconds after which the subscription is closed although not all is handled; None: never.

        Raises:
            RuntimeError: called by the subscription's own async callback, for which it would wait. Else as of close().
        """
        delivery, queue = self._delivery, self._delivery.queue
        if delivery.sessions.closed:
            raise ConnectionClosedError
        if queue.closed:
            raise BadSubscriptionError
        caller = asyncio.current_task()
        if caller is delivery.worker:
            raise RuntimeError("drain() in the subscription's own callback would wait for itself")
        if delivery.path is not None:
            await delivery.path.stop_listening()
        queue.drain()
        handler = delivery.worker or self._taker
        if delivery.callback is None and handler is caller:
            self._settle_in_hand()
        elif handler is not None:
            await queue.drained(handler, timeout_s)
        finished = not queue and not self._in_hand and (delivery.worker is None or delivery.worker.done())
        if not queue.closed:
            await delivery.leave(None, unsubscribe=False)
        return finished

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._delivery.queue.closed or self._delivery.sessions.closed:
            return
        if error is None:
            await self.drain()
            return
        try:
            await self.close()
        except StanClientError as trouble:
            log.warning("%s: the subscription was not closed: %s", self.channel, trouble)
            await self._delivery.end()
