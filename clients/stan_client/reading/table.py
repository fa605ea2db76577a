"""A channel as a table: of each key the newest message, made from the channel's content and then followed live.

async with Table(client, "prices") as prices:
    print(prices["EURUSD"].data, len(prices))

The channel is the table's changelog, so it is best compacted by key (policy `compact: last`): then it holds little more than the
table. Promises: a table that is entered has everything that was in the channel at that time; it goes on over lost connections and
changes of leaders; and it keeps no key that was deleted, however long it was cut off: where it may have missed
tombstones, it is made again from the beginning, and each difference is reported as a change.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing, suppress
from typing import Final, Self, TypeVar, overload

from stan_client.errors import ChannelReplacedError, ConnectionClosedError, FetchTimeoutError, StanClientError
from stan_client.messages.messages import Message
from stan_client.messages.new_message import bytes_of
from stan_client.positions import from_sequence
from stan_client.reading.connected import Connected
from stan_client.reading.fetching import Fetched, is_deletion
from stan_client.waiting import ended, notify

log = logging.getLogger("stan_client")

T = TypeVar("T")

PAUSE_S: Final = 0.5
"""Before a table that could not be read goes on."""

Changed = Callable[[bytes, Message | None], None]
"""Told of each key that has changed, with its message; None: it is deleted. Called in the turn that has read it: be short."""


class Table(Mapping[bytes, Message]):
    """The newest message of each key of a channel; messages without a key are left out. A mapping that changes by itself, to be
    read between two awaits: keys are bytes, in the order of the channel, and text stands for its UTF-8."""

    def __init__(self, client: Connected, channel: str, *, on_change: Changed | None = None) -> None:
        """*client*: a Client or Direct that outlives the table; *on_change*: called with each change, first
        with each row at the beginning."""
        self._client = client
        self._channel = channel
        self._on_change = on_change
        self._rows: dict[bytes, Message] = {}
        self._uid, self._cluster = 0, ""  # of the channel
        self._read_ns = 0  # timestamp of its newest message when it was read
        self._task: asyncio.Task[None] | None = None
        self._moved = asyncio.Condition()
        self.sequence = 0
        """Everything up to this sequence of the channel is in the table."""

    def __repr__(self) -> str:
        return f"<Table {self._channel} {len(self)} keys, up to {self.sequence}>"

    async def __aenter__(self) -> Self:
        """Read the channel to its end, and follow it from then on.

        Raises:
            ServerError: refused, for example because there is no such channel. FetchTimeoutError: no answer in time.
            ConnectionClosedError: the client is closed.
        """
        await self._make()
        self._task = asyncio.create_task(self._follow_for_ever())
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Follow the channel no longer; the table stays as it is."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await ended(task)

    # --- what is in it ------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str | bytes) and bytes_of(key) in self._rows

    def __getitem__(self, key: str | bytes) -> Message:
        return self._rows[bytes_of(key)]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._rows)

    @overload
    def get(self, key: str | bytes) -> Message | None: ...
    @overload
    def get(self, key: str | bytes, default: Message | T) -> Message | T: ...
    def get(self, key: str | bytes, default: object = None) -> object:
        """The newest message of a key; *default* if it is deleted or was never set."""
        return self._rows.get(bytes_of(key), default)

    async def reached(self, sequence: int) -> None:
        """Wait until the table has applied *sequence*. Pass `published.sequence` to read your own write.

        Raises ConnectionClosedError: the client is closed, or the table was left.
        """
        while self.sequence < sequence:
            if self._task is None or self._task.done():
                raise ConnectionClosedError
            async with self._moved:
                with suppress(TimeoutError):
                    async with asyncio.timeout(PAUSE_S):
                        await self._moved.wait()

    # --- reading ------------------------------------------------------------------------------------------------------

    async def _follow_for_ever(self) -> None:
        from_start = False
        while True:
            try:
                if from_start:
                    await self._make()
                from_start = not await self._follow()
            except ChannelReplacedError:
                from_start, self._uid, self._cluster, self._read_ns = True, 0, "", 0
            except ConnectionClosedError:
                return
            except StanClientError as trouble:
                if not isinstance(trouble, FetchTimeoutError):
                    log.warning("table of %s: %s", self._channel, trouble)
                await asyncio.sleep(PAUSE_S)

    async def _make(self) -> None:
        """Read the channel from its beginning, and adopt the differences. Repeat it if tombstones have gone meanwhile."""
        while True:
            rows: dict[bytes, Message] = {}
            done, known = 0, -1
            complete = True
            answers = self._client.batches.read(self._channel, uid=self._uid, cluster=self._cluster)
            async with aclosing(answers):
                async for answer in answers:
                    known = answer.tombstones_until if known < 0 else known
                    complete = complete and answer.tombstones_until <= max(known, done)
                    for message in answer.messages():
                        _fold(rows, message)
                    done = max(done, answer.next_sequence - 1)
                    self._read_ns = max(self._read_ns, answer.newest_ns)
                    self._uid, self._cluster = self._uid or answer.uid, self._cluster or answer.cluster
            if complete:
                await self._replace(rows, done)
                return

    async def _replace(self, rows: dict[bytes, Message], done: int) -> None:
        before, self._rows, self.sequence = self._rows, rows, done
        for key in before.keys() - rows.keys():
            self._report(key, None)
        for key, message in rows.items():
            known = before.get(key)
            if known is None or known.sequence != message.sequence:
                self._report(key, message)
        await self._wake()

    async def _follow(self) -> bool:
        """Follow the channel. Returns False if the table may have missed tombstones."""
        start = from_sequence(self.sequence + 1)
        answers = self._client.batches.read(
            self._channel, start=start, follow=True, uid=self._uid, cluster=self._cluster, read_ns=self._read_ns
        )
        async with aclosing(answers):
            async for answer in answers:
                if answer.tombstones_until > self.sequence:
                    return False
                await self._apply(answer)
        return True

    async def _apply(self, answer: Fetched) -> None:
        for message in answer.messages():
            if message.key:
                _fold(self._rows, message)
                self._report(message.key, self._rows.get(message.key))
        self._read_ns = max(self._read_ns, answer.newest_ns)
        if answer.next_sequence - 1 > self.sequence:
            self.sequence = answer.next_sequence - 1
            await self._wake()

    async def _wake(self) -> None:
        async with self._moved:
            self._moved.notify_all()

    def _report(self, key: bytes, message: Message | None) -> None:
        if self._on_change is not None:
            notify(f"on_change of the table of {self._channel}", self._on_change, key, message)


def _fold(rows: dict[bytes, Message], message: Message) -> None:
    if message.key:
        rows.pop(message.key, None)
        if not is_deletion(message):
            rows[message.key] = message
