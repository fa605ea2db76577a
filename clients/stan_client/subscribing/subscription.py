"""The subscription of one channel, as programs see it."""

import asyncio
from typing import Any, Self

from stan_client.errors import BadSubscriptionError, ConnectionClosedError, NoMessageError
from stan_client.messages.messages import Message
from stan_client.subscribing.delivery import SubscriptionDelivery
from stan_client.subscribing.message_stream import Handle, MessageStream
from stan_client.transport.session import text_of


class Subscription(MessageStream):
    """Made by Client.subscribe; iterate over it, or call next() or fetch(), unless it has a callback.

    As `async with` it is drained at the end of the block, or closed if the block raises; a durable one stays on the server.
    """

    def __init__(self, delivery: SubscriptionDelivery, handle: Handle) -> None:
        super().__init__(delivery.channel, delivery.options, handle)
        self._delivery = delivery
        self._in_hand: list[int] = []  # sequences that the program took last and that are not acked
        self._taker: asyncio.Task[Any] | None = None  # the task that took them

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<Subscription {self.channel} {state} last_sequence={self.last_sequence} queued={self.queued}>"

    @property
    def closed(self) -> bool:
        """True once the subscription was closed or has ended with an error."""
        return self._delivery.queue.closed

    @property
    def queued(self) -> int:
        """Number of messages that have come and wait for the program."""
        return len(self._delivery.queue)

    @property
    def last_sequence(self) -> int:
        """The highest sequence that has come; 0: none."""
        return self._delivery.last_sequence

    @property
    def inboxes(self) -> tuple[str, str]:
        """The NATS subjects where its messages come and where its acks go, on its newest session."""
        path = self._delivery.path
        return (path.inbox, text_of(path.ack_inbox)) if path is not None else ("", "")

    def __aiter__(self) -> Self:
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

    async def _next_messages(self, n: int, timeout_s: float | None) -> list[Message]:
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
        """Ack the messages that the program took earlier."""
        if self._in_hand and not self._delivery.options.manual_acks and self._delivery.path is not None:
            for sequence in self._in_hand:
                self._delivery.path.ack(sequence)
        self._in_hand.clear()

    async def close(self, *, timeout_s: float | None = None) -> None:
        """End the subscription, see MessageStream.close."""
        await self._delivery.leave(timeout_s, unsubscribe=False)

    async def unsubscribe(self, *, timeout_s: float | None = None) -> None:
        """End the subscription and its durable, see MessageStream.unsubscribe."""
        await self._delivery.leave(timeout_s, unsubscribe=True)

    async def drain(self, *, timeout_s: float | None = None) -> bool:
        """Drain the subscription and close it, see MessageStream.drain."""
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

    async def _end(self) -> None:
        await self._delivery.end()
