"""A subscription of a channel with parts: all of its parts, as one.

    async for message in await client.subscribe_parts("sales", durable="ledger"): ...   # message.channel is its part, "sales.~2"

Promises: messages of a key come one after the other, in their order, also over a doubling: a new part is begun when what the part
has from which its keys came is handled. Messages of different parts come in any order. There is one durable, or one queue group,
of the same name in each part.
"""

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any, Final, Protocol, Self

from stan_protocol.proto import admin_pb2 as pb

from stan_client.errors import BadSubscriptionError, NoMessageError, ServerError, StanClientError
from stan_client.messages.messages import Callback, Message, SubscriptionOptions
from stan_client.positions import Start, everything
from stan_client.requests.admin import Admin
from stan_client.requests.requests import part_names
from stan_client.subscribing.subscription import Subscription, check_on_error
from stan_client.transport.session import text_of
from stan_client.waiting import deadline, left_s

log = logging.getLogger("stan_client")

LOOK_INTERVAL_S: Final = 2.0
"""Pause between looks for new parts, and at the position in the parts from which their keys come."""
Make = Callable[[str, Callback, Start], Awaitable[Subscription]]
"""Subscribes to one part: its channel, what takes its messages, and where it begins."""


class PartedOwner(Protocol):
    """The client that made the subscription."""

    @property
    def client_id(self) -> str:
        """Its id."""

    @property
    def admin(self) -> Admin:
        """Requests of operators, among them which parts a channel has."""


class PartHandover:
    """Where the workers of the parts give their messages to the program, one after the other, and wait until each is handled."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[Message, asyncio.Future[None]]] = deque()  # not taken yet
        self.taker: asyncio.Task[Any] | None = None  # the task that took the newest message
        self.closed = False
        self._in_hand: asyncio.Future[None] | None = None  # of the message that was taken last
        self._arrived = asyncio.Event()
        self._error: StanClientError | None = None  # with which the client has ended

    async def hand(self, message: Message) -> None:
        """Offer a message, and return when the program asks for the one behind it."""
        done = asyncio.get_running_loop().create_future()
        self.waiting.append((message, done))
        self._arrived.set()
        await done

    async def take(self) -> Message:
        """Return the next message; the one before is handled.

        Raises:
            BadSubscriptionError: `end` was called. ConnectionClosedError: with that error.
        """
        self.taker = asyncio.current_task()
        self.release()
        while not self.waiting:
            if self.closed:
                raise self._error or BadSubscriptionError()
            self._arrived.clear()
            await self._arrived.wait()
        message, self._in_hand = self.waiting.popleft()
        return message

    def release(self) -> None:
        """Let the part go on whose message the program took last: it is handled."""
        if self._in_hand is not None and not self._in_hand.done():
            self._in_hand.set_result(None)

    def end(self, error: StanClientError | None) -> None:
        """Let `take` fail once nothing waits any more."""
        self.closed, self._error = True, error
        self._arrived.set()


class PartedSubscription(AsyncIterator[Message]):
    """Made by Client.subscribe_parts; iterate over it, or call next(), unless it has a callback.

    As `async with` its parts are closed at the end of the block; durable ones stay on the server.
    """

    def __init__(
        self, client: PartedOwner, channel: str, callback: Callback | None, options: SubscriptionOptions, make: Make
    ) -> None:
        check_on_error(options.on_error, callback)
        self.channel = channel
        self.parts: dict[int, Subscription] = {}
        """The subscriptions of the parts that were begun, by number."""
        self._client, self._callback, self._options, self._make = client, callback, options, make
        self._handled: dict[int, int] = {}  # of each part the newest sequence that was handled
        self._handover = PartHandover()
        self._grower: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<PartedSubscription {self.channel} {len(self.parts)} parts>"

    @property
    def closed(self) -> bool:
        """True once it was closed, or the client was."""
        return self._handover.closed

    # --- parts ----------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Subscribe to the parts with which the channel was made; new ones follow when it is their turn. Errors as of
        Client.subscribe_parts."""
        status = await self._status()
        first = status.splits[0].parts if status.splits else status.parts
        resumed = bool(status.splits) and await self._position(0) is not None
        try:
            for number in range(first):
                await self._begin(number, self._options.start)
        except BaseException:
            await self.close()
            raise
        self._grower = asyncio.get_running_loop().create_task(self._grow(0 if resumed else status.parts))

    async def _status(self) -> pb.PartedStatus:
        found = await self._client.admin.parts(self.channel)
        if not found:
            raise ServerError(f"stan: channel {self.channel} has no parts")
        return found[0]

    def _name(self, number: int) -> str:
        return part_names(self.channel, number + 1)[number]

    async def _begin(self, number: int, start: Start) -> None:
        async def take(message: Message) -> None:
            await self._hand(message)
            self._handled[number] = max(self._handled.get(number, 0), message.sequence)

        self.parts[number] = await self._make(self._name(number), take, start)

    async def _position(self, number: int) -> pb.CursorStatus | None:
        """The durable or queue group in a part; None: there is none."""
        options = self._options
        if not options.durable and not options.queue:
            return None
        for one in await self._client.admin.subscriptions(self._name(number)):
            named = text_of(one.durable_name), text_of(one.queue_group)
            if named == (options.durable, options.queue) and (
                options.queue or text_of(one.client_id) == self._client.client_id
            ):
                return one
        return None

    async def _grow(self, anew: int) -> None:
        """Begin the new parts of each doubling, in turn; those below *anew* as the others, as the position is new in all."""
        while not self.closed:
            try:
                status = await self._status()
                for split in status.splits:
                    for number in range(split.parts, 2 * split.parts):
                        before = number - split.parts
                        if number not in self.parts and before in self.parts and await self._passed(before, split):
                            await self._begin(number, self._options.start if number < anew else everything())
            except StanClientError as error:
                log.warning("%s: new parts are looked for again: %s", self.channel, error)
            await asyncio.sleep(LOOK_INTERVAL_S)

    async def _passed(self, number: int, split: pb.PartSplitStatus) -> bool:
        """True if what a part had before it was split is handled, by all members of the group."""
        last = split.last[number]
        if not last or (self._handled.get(number, 0) >= last and not self._options.queue and not self._options.durable):
            return True
        position = await self._position(number)
        if position is not None:
            return position.acked_up_to >= last
        status = await self._client.admin.channel(self._name(number))
        return status is None or status.first_sequence > last or self._options.start != everything()

    # --- messages -------------------------------------------------------------------------------------------------------

    async def _hand(self, message: Message) -> None:
        """Give a message to the program, and return when it is done with it."""
        if self._callback is not None:
            result = self._callback(message)
            if inspect.isawaitable(result):
                await result
            return
        await self._handover.hand(message)

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
        if self._callback is not None:
            raise TypeError("a subscription with a callback gives its messages to that")
        try:
            async with asyncio.timeout(timeout_s):
                return await self._handover.take()
        except TimeoutError:
            raise NoMessageError from None

    # --- the end --------------------------------------------------------------------------------------------------------

    async def drain(self, *, timeout_s: float | None = None) -> bool:
        """Take no new messages, have those handled that have come, ack them, and close the parts; durable ones can be resumed
        later. Returns True if all that had come was handled. Rules and errors as of Subscription.drain."""
        if self.closed:
            raise BadSubscriptionError
        self._stop_growing()
        taker, until = self._handover.taker, deadline(timeout_s)
        if self._callback is not None:
            finished = await self._drain_parts(until)
        elif taker is None or taker is asyncio.current_task():
            finished = not self._handover.waiting  # nobody takes what waits
        else:
            draining = asyncio.create_task(self._drain_parts(until))
            await asyncio.wait({draining, taker}, return_when=asyncio.FIRST_COMPLETED)
            finished = draining.done() and await draining
            draining.cancel()
        await self.close()
        return finished

    async def _drain_parts(self, until: float | None) -> bool:
        opened = [one for one in self.parts.values() if not one.closed]
        return all([await one.drain(timeout_s=left_s(until)) for one in opened])

    async def close(self) -> None:
        """End the subscriptions of all parts; durable ones can be resumed later. Errors as of Subscription.close."""
        await self._leave(lambda one: one.close())

    async def unsubscribe(self) -> None:
        """End the subscriptions of all parts, and their durables."""
        await self._leave(lambda one: one.unsubscribe())

    async def _leave(self, leave: Callable[[Subscription], Awaitable[Any]]) -> None:
        self._handover.release()
        await asyncio.sleep(0)  # what is handled is acked
        self.end(None)
        for one in list(self.parts.values()):
            if not one.closed:
                await leave(one)

    def end(self, error: StanClientError | None) -> None:
        """Stop locally, without a request to the server: iteration ends, with *error* if there is one."""
        self._stop_growing()
        self._handover.end(error)

    def _stop_growing(self) -> None:
        if self._grower is not None:
            self._grower.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.closed:
            await self.close()
