"""The parts of a channel, as the deliveries of one subscription: begun in turn, handed to the program one after the other.

Promises: messages of a key come one after the other, in their order, also over a doubling: a new part is begun when the messages
of the part from which its keys came are handled. Messages of different parts come in any order. There is one durable, or one
queue group, of the same name in each part.
"""

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from stan_protocol.admin_types import CursorStatus, PartedStatus, PartSplitStatus

from stan_client.errors import BadSubscriptionError, ServerError, StanClientError
from stan_client.messages.messages import Callback, Message, SubscriptionOptions
from stan_client.positions import Start, everything
from stan_client.requests.admin import Admin
from stan_client.requests.names import part_names
from stan_client.subscribing.delivery import check_on_error
from stan_client.subscribing.subscription import Subscription
from stan_client.waiting import left_s

log = logging.getLogger("stan_client")

LOOK_INTERVAL_S: Final = 2.0
"""Pause between looks for new parts, and at the position in the parts from which their keys come."""
Make = Callable[[str, Callback, Start], Awaitable[Subscription]]
"""Subscribes to one part: its channel, the callback for its messages, and its start."""


class PartedOwner(Protocol):
    """The client that made the subscription."""

    @property
    def client_id(self) -> str:
        """The client's id."""

    @property
    def admin(self) -> Admin:
        """Requests of operators, among them which parts a channel has."""


class PartHandover:
    """The place where the workers of the parts give messages to the program, one by one, and wait until each is handled."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[Message, asyncio.Future[None]]] = deque()  # not taken yet
        self.taker: asyncio.Task[Any] | None = None  # the task that took the newest message
        self.closed = False
        self._in_hand: list[asyncio.Future[None]] = []  # of the messages returned last
        self._arrived = asyncio.Event()
        self._error: StanClientError | None = None  # with which the client has ended

    async def hand(self, message: Message) -> None:
        """Offer a message, and return when the program has handled it: it asks for the next one."""
        done = asyncio.get_running_loop().create_future()
        self.waiting.append((message, done))
        self._arrived.set()
        await done

    async def next_messages(self, n: int) -> list[Message]:
        """Return the next messages, 1 to *n*; earlier ones count as handled.

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
        entries = [self.waiting.popleft() for _ in range(min(n, len(self.waiting)))]
        self._in_hand = [done for _, done in entries]
        return [message for message, _ in entries]

    def release(self) -> None:
        """Let the parts go on whose messages the program took last: they are handled."""
        for done in self._in_hand:
            if not done.done():
                done.set_result(None)
        self._in_hand.clear()

    def end(self, error: StanClientError | None) -> None:
        """Let `take` fail once nothing waits any more."""
        self.closed, self._error = True, error
        self._arrived.set()


class PartedDelivery:
    """The messages of all parts of a channel."""

    def __init__(
        self, client: PartedOwner, channel: str, callback: Callback | None, options: SubscriptionOptions, make: Make
    ) -> None:
        check_on_error(options.on_error, callback)
        self.channel = channel
        self.callback = callback
        self.parts: dict[int, Subscription] = {}  # those that were begun, by number
        self.handover = PartHandover()
        self.options = options
        self._client, self._make = client, make
        self._handled: dict[int, int] = {}  # of each part the newest sequence that was handled
        self._grower: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Subscribe to the parts with which the channel was made; new ones follow when it is their turn. Errors as of
        Client.subscribe_parts."""
        status = await self._status()
        first = status.splits[0].parts if status.splits else status.parts
        resumed = bool(status.splits) and await self._position(0) is not None
        try:
            for number in range(first):
                await self._begin(number, self.options.start)
        except BaseException:
            await self.leave(lambda one: one.close())
            raise
        self._grower = asyncio.get_running_loop().create_task(self._grow(0 if resumed else status.parts))

    async def _status(self) -> PartedStatus:
        parted = await self._client.admin.parts(self.channel)
        if not parted:
            raise ServerError(f"stan: channel {self.channel} has no parts")
        return parted[0]

    def _name(self, number: int) -> str:
        return part_names(self.channel, number + 1)[number]

    async def _begin(self, number: int, start: Start) -> None:
        async def handle(message: Message) -> None:
            await self._hand(message)
            self._handled[number] = max(self._handled.get(number, 0), message.sequence)

        self.parts[number] = await self._make(self._name(number), handle, start)

    async def _position(self, number: int) -> CursorStatus | None:
        """The durable or queue group in a part; None: there is none."""
        options = self.options
        if not options.durable and not options.queue:
            return None
        for one in await self._client.admin.subscriptions(self._name(number)):
            named = one.durable_name, one.queue_group
            if named == (options.durable, options.queue) and (options.queue or one.client_id == self._client.client_id):
                return one
        return None

    async def _grow(self, new_below: int) -> None:
        """Begin the new parts of each doubling, in turn; those below *new_below* as the first ones, as all are new."""
        while not self.handover.closed:
            try:
                status = await self._status()
                for split in status.splits:
                    for number in range(split.parts, 2 * split.parts):
                        before = number - split.parts
                        if number not in self.parts and before in self.parts and await self._passed(before, split):
                            await self._begin(number, self.options.start if number < new_below else everything())
            except StanClientError as error:
                log.warning("%s: new parts are looked for again: %s", self.channel, error)
            await asyncio.sleep(LOOK_INTERVAL_S)

    async def _passed(self, number: int, split: PartSplitStatus) -> bool:
        """True if all members of the group have handled the messages that a part had when it was split."""
        last = split.last[number]
        if not last or (self._handled.get(number, 0) >= last and not self.options.queue and not self.options.durable):
            return True
        position = await self._position(number)
        if position is not None:
            return position.acked_up_to >= last
        status = await self._client.admin.channel(self._name(number))
        return status is None or status.first_sequence > last or self.options.start != everything()

    # --- messages -------------------------------------------------------------------------------------------------------

    async def _hand(self, message: Message) -> None:
        """Give a message to the program, and return when it is done with it."""
        if self.callback is not None:
            result = self.callback(message)
            if inspect.isawaitable(result):
                await result
            return
        await self.handover.hand(message)

    # --- the end --------------------------------------------------------------------------------------------------------

    async def drain(self, until: float | None) -> bool:
        """Drain the parts, one after the other, until that loop time; returns True if all that had come was handled."""
        opened = [one for one in self.parts.values() if not one.closed]
        return all([await one.drain(timeout_s=left_s(until)) for one in opened])

    async def leave(self, leave: Callable[[Subscription], Awaitable[Any]]) -> None:
        """End the subscriptions of all parts with *leave*."""
        self.handover.release()
        await asyncio.sleep(0)  # handled messages are acked
        self.end(None)
        for one in list(self.parts.values()):
            if not one.closed:
                await leave(one)

    def end(self, error: StanClientError | None) -> None:
        """Stop locally, without a request to the server: iteration ends, with *error* if there is one."""
        self.stop_growing()
        self.handover.end(error)

    def stop_growing(self) -> None:
        """Begin no more parts."""
        if self._grower is not None:
            self._grower.cancel()
