"""A subscription of a channel with parts: all of its parts, as one.

async for message in await client.subscribe_parts("sales", durable="ledger"): ...   # message.channel is its part, "sales.~2"
"""

import asyncio

from stan_client.errors import BadSubscriptionError, NoMessageError
from stan_client.messages.messages import Message
from stan_client.subscribing.message_stream import Handle, MessageStream
from stan_client.subscribing.parts import PartedDelivery
from stan_client.subscribing.subscription import Subscription
from stan_client.waiting import deadline, left_s


class PartedSubscription(MessageStream):
    """Made by Client.subscribe_parts; iterate over it, or call next() or fetch(), unless it has a callback.

    As `async with` it is drained at the end of the block, or closed if the block raises; durable parts stay on the server.
    """

    def __init__(self, delivery: PartedDelivery, handle: Handle) -> None:
        super().__init__(delivery.channel, delivery.options, handle)
        self._delivery = delivery

    def __repr__(self) -> str:
        return f"<PartedSubscription {self.channel} {len(self.parts)} parts>"

    @property
    def parts(self) -> dict[int, Subscription]:
        """The subscriptions of the parts that were begun, by number."""
        return self._delivery.parts

    @property
    def closed(self) -> bool:
        """True once it was closed, or the client was."""
        return self._delivery.handover.closed

    @property
    def queued(self) -> int:
        """Number of messages that have come and wait for the program."""
        return len(self._delivery.handover.waiting) + sum(part.queued for part in self.parts.values())

    async def _next_messages(self, n: int, timeout_s: float | None) -> list[Message]:
        if self._delivery.callback is not None:
            raise TypeError("a subscription with a callback gives its messages to that")
        try:
            async with asyncio.timeout(timeout_s):
                return await self._delivery.handover.next_messages(n)
        except TimeoutError:
            raise NoMessageError from None

    async def close(self, *, timeout_s: float | None = None) -> None:
        """End the subscriptions of all parts, see MessageStream.close."""
        until = deadline(timeout_s)
        await self._delivery.leave(lambda one: one.close(timeout_s=left_s(until)))

    async def unsubscribe(self, *, timeout_s: float | None = None) -> None:
        """End the subscriptions of all parts and their durables, see MessageStream.unsubscribe."""
        until = deadline(timeout_s)
        await self._delivery.leave(lambda one: one.unsubscribe(timeout_s=left_s(until)))

    async def drain(self, *, timeout_s: float | None = None) -> bool:
        """Drain the parts and close them, see MessageStream.drain."""
        if self.closed:
            raise BadSubscriptionError
        delivery, handover = self._delivery, self._delivery.handover
        delivery.stop_growing()
        taker, until = handover.taker, deadline(timeout_s)
        if delivery.callback is not None:
            finished = await delivery.drain(until)
        elif taker is None or taker is asyncio.current_task():
            finished = not handover.waiting  # no task takes the waiting messages
        else:
            draining = asyncio.create_task(delivery.drain(until))
            await asyncio.wait({draining, taker}, return_when=asyncio.FIRST_COMPLETED)
            finished = draining.done() and await draining
            draining.cancel()
        await self.close()
        return finished

    async def _end(self) -> None:
        self._delivery.end(None)
