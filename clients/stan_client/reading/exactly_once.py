"""Messages of a channel whose effects happen exactly once: the position and the effects are one transaction.

async with client.exactly_once("billing", "orders", database) as orders:
    async for order, rows in orders:
        rows.execute("INSERT INTO bills VALUES (?)", (order.text,))

The transaction is of the user's database, or of the servers: messages for other channels. It is committed when the loop asks for
the next message, and rolled back when the block ends, so a message comes again until its transaction is committed, and never
after that. Nothing depends on acks: the reader reads by position. Two readers of one name exclude each other message by message.
"""

import hashlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import Any, Final, Protocol, Self

from stan_client.errors import ChannelReplacedError
from stan_client.messages.messages import Message
from stan_client.messages.new_message import NOTHING, Headers, NewMessage, encode_rows
from stan_client.reading.connected import Connected
from stan_client.reading.consumer import Position, PullConsumer
from stan_client.reading.databases import PositionTable
from stan_client.requests.transactions import StagedRows, Transactions
from stan_client.transport.session import fresh_id

APP_BYTES_MAX: Final = 255
"""Bytes of the name of an app, at most."""


class Effects(Protocol):
    """The place of the position and the effects."""

    takes_batches: bool
    """True if several messages may have one transaction."""

    async def open(self, start: Position) -> Position:
        """Return the position, which is *start* if there is none."""

    async def begin(self, before: Position, after: Position) -> Any:
        """Begin a transaction that moves the position; returns what the program gets."""

    async def commit(self) -> None:
        """Commit the transaction."""

    async def rollback(self) -> None:
        """Roll the transaction back, if there is one."""


class Outputs:
    """Messages for other channels, which become visible together, each once."""

    def __init__(self) -> None:
        self.by_channel: dict[str, list[NewMessage]] = {}
        """Those that were added, in their order."""

    def publish(self, channel: str, data: bytes, *, headers: Headers = NOTHING, key: str | bytes = "") -> None:
        """Add a message; it is published when the loop asks for the next one.

        Args:
            channel: its name.
            data: the message.
            headers: as of Client.publish().
            key: as of Client.publish().
        """
        self.by_channel.setdefault(channel, []).append(NewMessage(data, headers, key))


class PublishedEffects:
    """Outputs as the effects: those of a message are a version of an application, which the servers commit once. The newest
    version is the position; versions are the messages' sequences, so that each life of a program counts alike."""

    takes_batches = False

    def __init__(self, transactions: Transactions, name: str, channel: str) -> None:
        self._transactions = transactions
        self._app = app_of(name, channel)
        self._outputs: Outputs | None = None
        self._version = 0

    async def open(self, start: Position) -> Position:
        """Return the position behind the newest version that is committed."""
        last = await self._transactions.last_committed(self._app)
        return start._replace(sequence=last + 1) if last >= start.sequence else start

    async def begin(self, before: Position, after: Position) -> Outputs:
        """Begin the outputs of one message. Raises ChannelReplacedError: its version is used up."""
        if after.sequence <= before.sequence:
            raise ChannelReplacedError
        self._outputs, self._version = Outputs(), after.sequence - 1
        return self._outputs

    async def commit(self) -> None:
        """Stage the outputs, then commit their version. A part that an earlier life has committed is left as it is."""
        outputs, self._outputs = self._outputs, None
        by_channel: Mapping[str, list[NewMessage]] = outputs.by_channel if outputs is not None else {}
        txn = fresh_id()
        rows = [StagedRows(name, 0, encode_rows(messages), len(messages)) for name, messages in by_channel.items()]
        if rows:
            await self._transactions.stage_together(self._app, self._version, txn, rows)
        await self._transactions.commit(self._app, self._version, {name: [(txn, 1)] for name in by_channel})

    async def rollback(self) -> None:
        """Forget the outputs; those that are staged are never seen."""
        self._outputs = None


def app_of(name: str, channel: str) -> str:
    """The name under which the servers know the versions of a reader: a digest where the text is too long for them."""
    text = f"{name} of {channel}"
    encoded = text.encode()
    return text if len(encoded) <= APP_BYTES_MAX else hashlib.sha256(encoded).hexdigest()


class ExactlyOnce(AsyncIterator[tuple[Message, Any]]):
    """Made by Client.exactly_once; iterate over it or over `batches`, inside `async with`."""

    def __init__(self, consumer: Callable[[Position], PullConsumer], effects: Effects, start: Position) -> None:
        """*consumer*: makes the consumer that reads from a position on."""
        self._make_consumer = consumer
        self._effects = effects
        self._at = start
        self._consumer: PullConsumer | None = None
        self._read: deque[Message] = deque()  # and not begun
        self._begun = False  # a transaction is

    def __repr__(self) -> str:
        return f"<ExactlyOnce at {self._at.sequence}>"

    @property
    def position(self) -> Position:
        """The position behind the message that was returned last."""
        return self._at

    async def __aenter__(self) -> Self:
        self._at = await self._effects.open(self._at)
        self._consumer = self._make_consumer(self._at)
        return self

    async def __aexit__(self, *_exc: object) -> None:
        try:
            if self._begun:
                self._begun = False
                await self._effects.rollback()
        finally:
            if self._consumer is not None:
                await self._consumer.aclose()

    async def __anext__(self) -> tuple[Message, Any]:
        """Commit the transaction of the message before, then wait for the next message; returns it and its transaction: the
        connection to the database, or the Outputs.

        Raises:
            PositionTakenError: another reader of this name has moved the position.
            StopAsyncIteration: the end of the channel, without *follow*.
            Others as of PullConsumer, and of the database.
        """
        [message], transaction = await self._next(1)
        return message, transaction

    async def batches(self) -> AsyncGenerator[tuple[list[Message], Any], None]:
        """Iterate over lists of messages, as many as have come together, each list with one transaction. Errors as of the
        iteration by messages.

        Raises:
            ValueError: the effects are messages for other channels, which are committed for one message at a time.
        """
        if not self._effects.takes_batches:
            raise ValueError("outputs are committed for one message at a time")
        while True:
            try:
                following = await self._next(None)
            except StopAsyncIteration:
                return
            yield following

    async def _next(self, count: int | None) -> tuple[list[Message], Any]:
        if self._consumer is None:
            raise RuntimeError("iterate inside of `async with`")
        if self._begun:
            await self._effects.commit()
            self._begun = False
        while not self._read:
            self._read.extend((await anext(self._consumer)).messages())
        messages = [self._read.popleft() for _ in range(count or len(self._read))]
        after = self._consumer.position._replace(sequence=messages[-1].sequence + 1)
        transaction = await self._effects.begin(self._at, after)
        self._at, self._begun = after, True
        return messages, transaction


def reader(
    client: Connected,
    name: str,
    channel: str,
    database: Any,
    start: Position | int,
    *,
    follow: bool,
    skip_lost: bool,
    timeout_s: float | None,
) -> ExactlyOnce:
    """Make an ExactlyOnce; arguments as of Client.exactly_once."""

    def consumer(at: Position) -> PullConsumer:
        return PullConsumer(client, channel, at, follow=follow, skip_lost=skip_lost, timeout_s=timeout_s)

    effects: Effects = (
        PublishedEffects(client.transactions, name, channel)
        if database is None
        else PositionTable(database, name, channel)
    )
    return ExactlyOnce(consumer, effects, start if isinstance(start, Position) else Position(start))
