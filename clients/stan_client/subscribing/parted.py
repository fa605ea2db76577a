"""A subscription of a channel with parts: all of its parts, as one.

async for message in await client.subscribe_parts("sales", durable="ledger"): ...   # message.channel is its part, "sales.~2"
"""

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from stan_client.errors import BadSubscriptionError, NoMessageError
from stan_client.messages.messages import Message
from stan_client.subscribing.parts import PartedDelivery
from stan_client.subscribing.subscription import Subscription
from stan_client.waiting import deadline


class PartedSubscription(AsyncIterator[Message]):
    """Made by Client.subscribe_parts; iterate over it, or call next(), unless it has a callback.

    As `async with` its parts are closed at the end of the block; durable ones stay on the server.
    """

    def __init__(self, delivery: PartedDelivery) -> None:
        self._delivery = delivery

    def __repr__(self) -> str:
        return f"<PartedSubscription {self.channel} {len(self.parts)} parts>"

    @property
    def channel(self) -> str:
        """The name of the channel."""
        return self._delivery.channel

    @property
    def parts(self) -> dict[int, Subscription]:
        """The subscriptions of the parts that were begun, by number."""
        return self._delivery.parts

    @property
    def closed(self) -> bool:
        """True once it was closed, or the client was."""
        return self._delivery.handover.closed

    def __aiter__(self) -> "PartedSubscription":
        return self

    async def __anext__(self) -> Message:
        """Ack the message returned before, then wait for the next one.

        Raises:
            StopAsyncIteration: the subscription was closed.
        """
        try:
            return await self.next()
        except BadSubscriptionError:
            raise StopAsyncIteration from None

    async def next(self, timeout_s: float | None = None) -> Message:
        """Return the next message, waiting at most *timeout_s* seconds; the one before is acked, unless `manual_acks` is set.

        Raises:
            NoMessageError: none came in time. BadSubscriptionError: the subscription or the client was closed.
            ConnectionClosedError: the session was lost and could not be recovered.
        """
        if self._delivery.callback is not None:
            raise TypeError("a subscription with a callback gives its messages to that")
        try:
            async with asyncio.timeout(timeout_s):
                return await self._delivery.handover.take()
        except TimeoutError:
            raise NoMessageError from None

    # --- the end --------------------------------------------------------------------------------------------------------

    async def drain(self, *, timeout_s: float | None = None) -> bool:
        """Take no new messages, have those handled that have come, ack them, and close the parts; durable ones can be resumed
        later. Returns True if all that had come was handled. Rules and errors as of Subscription.drain."""
        if self.closed:
            raise BadSubscriptionError
        delivery, handover = self._delivery, self._delivery.handover
        delivery.stop_growing()
        taker, until = handover.taker, deadline(timeout_s)
        if delivery.callback is not None:
            finished = await delivery.drain(until)
        elif taker is None or taker is asyncio.current_task():
            finished = not handover.waiting  # nobody takes what waits
        else:
            draining = asyncio.create_task(delivery.drain(until))
            await asyncio.wait({draining, taker}, return_when=asyncio.FIRST_COMPLETED)
            finished = draining.done() and await draining
            draining.cancel()
        await self.close()
        return finished

    async def close(self) -> None:
        """End the subscriptions of all parts; durable ones can be resumed later. Errors as of Subscription.close."""
        await self._delivery.leave(lambda one: one.close())

    async def unsubscribe(self) -> None:
        """End the subscriptions of all parts, and their durables."""
        await self._delivery.leave(lambda one: one.unsubscribe())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.closed:
            await self.close()
