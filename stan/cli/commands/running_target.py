"""Running servers as the target of `stan migrate`: channels are put there by the requests of a restore.

Promises: no channel can be used until all are there with their positions; a later run with the same source goes on where an
earlier one was.
"""

import asyncio
import hashlib
import threading
from array import array
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack
from itertools import groupby
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import stan_client
from stan_client.transport.session import text_of
from stan_protocol.admin_types import CursorKind, CursorStatus, RestoredRun
from stan_protocol.kernel.rows import columns

from stan.cli.support.common import CliError, Target
from stan.cli.support.restoring import ChannelRestore, room_for_rows, row_requests
from stan.cli.support.session import session
from stan.migration.source import MessageRun
from stan.migration.subscriptions import OldPosition

if TYPE_CHECKING:
    from concurrent.futures import Future

PATIENCE_S: Final = 60.0
"""The patience of one request: a leader may be replaced meanwhile."""
ENDED_TOGETHER_MAX: Final = 16
NAME_BYTES: Final = 16

T = TypeVar("T")


class RunningTarget:
    """A cluster, or a server alone. Requests are sent by a thread of its own, so that reading goes on meanwhile.

    Raises CliError from all methods: the servers cannot be reached, or refuse.
    """

    def __init__(self, target: Target, source: str) -> None:
        """Nothing is connected yet.

        Args:
            target: the servers.
            source: a text for the store that is moved, the same in each run.
        """
        self._target = target
        self._restore = f"migrate-{hashlib.sha256(source.encode('utf-8', 'surrogateescape')).hexdigest()[:NAME_BYTES]}"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._session = AsyncExitStack()
        self._payload_max = 0
        self._channels: list[_Channel] = []

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            direct = self._do(self._session.enter_async_context(session(self._target, timeout_s=PATIENCE_S)))
            self._direct: stan_client.Direct = direct
            self._payload_max = self._do(direct.channels.message_bytes_max())
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        why = (kind, error, trace) if isinstance(error, Exception) else (None, None, None)  # Ctrl-C is not the loop's
        if self._channels:
            self._channels[-1].abandon()
        try:
            self._do(self._session.__aexit__(*why))
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def channel(self, name: bytes) -> "_Channel":
        """Begin a channel."""
        if self._channels:
            self._channels[-1].flush()
        restore = ChannelRestore(text_of(name), self._restore, self._direct)
        self._channels.append(_Channel(restore, self._loop, self._payload_max))
        return self._channels[-1]

    def finish(self) -> None:
        """Put the positions there, and make all channels usable."""
        if self._channels:
            self._channels[-1].flush()
        self._do(self._end())

    async def _end(self) -> None:
        room = asyncio.Semaphore(ENDED_TOGETHER_MAX)

        async def end(channel: _Channel) -> None:
            async with room:
                await channel.end()

        try:
            async with asyncio.TaskGroup() as group:
                for channel in self._channels:
                    group.create_task(end(channel))
        except ExceptionGroup as failed:  # not `except*`: early Pythons 3.11 put its error into a group again
            raise failed.exceptions[0] from None

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return _done(work, self._loop)


def _done(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
    """Return the result of *work*, which *loop* carries out; an interruption ends it."""
    future = asyncio.run_coroutine_threadsafe(work, loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


class _Channel:
    """A channel of the servers."""

    def __init__(self, restore: ChannelRestore, loop: asyncio.AbstractEventLoop, payload_max: int) -> None:
        self._restore = restore
        self._loop = loop
        self._room = room_for_rows(payload_max, restore.name)
        self._begun = False
        self._last = 0
        self._positions: list[CursorStatus] = []
        self._batches: list[MessageRun] = []
        self._size = 0
        self._sending: Future[None] | None = None

    def add(self, batch: MessageRun) -> None:
        """Add the next messages; they are sent when they fill a request, while the next ones are read."""
        self._begin(batch.base)
        self._last = batch.base + batch.count - 1
        if self._last <= self._restore.copied:
            return
        if self._size + len(batch.records) > self._room:
            self._send()
        self._batches.append(batch)
        self._size += len(batch.records)

    def begin_behind(self, sequence: int) -> None:
        """Begin an empty channel, whose next message comes after *sequence*."""
        self._begin(sequence + 1)
        self._last = sequence

    def position(self, position: OldPosition) -> None:
        """Remember a durable or durable group for the end."""
        runs = position.runs()
        self._positions.append(
            CursorStatus(
                channel=self._restore.name,
                kind=CursorKind.DURABLE_QUEUE if position.queue_group else CursorKind.DURABLE,
                durable_name=text_of(position.durable),
                queue_group=text_of(position.queue_group),
                client_id="" if position.queue_group else text_of(position.client_id),
                last_sent=position.last_sent,
                owed_runs=tuple(zip(runs[::2], runs[1::2], strict=True)),
                max_in_flight=position.max_in_flight,
                ack_wait_s=position.ack_wait_s,
                inbox=text_of(position.inbox),
            )
        )

    def flush(self) -> None:
        """Return when all messages are there."""
        self._begin(1)
        self._send()
        self._wait()

    def abandon(self) -> None:
        """End a request that is under way."""
        if self._sending is not None:
            self._sending.cancel()

    async def end(self) -> None:
        """Put the positions there, and end the restore."""
        await self._put(self._restore.end(self._last, self._positions))

    def _begin(self, first: int) -> None:
        if not self._begun:
            self._begun = True
            _done(self._put(self._restore.begin(first)), self._loop)

    def _send(self) -> None:
        """Send what there is, once all before it is there."""
        self._wait()
        if self._batches:
            batches, self._batches, self._size = self._batches, [], 0
            self._sending = asyncio.run_coroutine_threadsafe(self._put(self._put_rows(batches)), self._loop)

    def _wait(self) -> None:
        if self._sending is not None:
            self._sending.result()
            self._sending = None

    async def _put_rows(self, batches: list[MessageRun]) -> None:
        records = b"".join(batch.records for batch in batches)
        for request in row_requests(list(_runs(batches, records)), records, self._room):
            await self._restore.put(request.runs, request.rows)

    async def _put(self, request: Coroutine[Any, Any, None]) -> None:
        try:
            await request
        except stan_client.ServerError as error:
            raise CliError(
                f"Channel {self._restore.name} cannot be moved: {error}. No channel of this store can be used yet; the same "
                "command goes on once the reason is gone."
            ) from None


def _runs(batches: list[MessageRun], records: bytes) -> Iterator[RestoredRun]:
    """The runs of messages that follow each other and have the same time; *records*: of all batches."""
    times: array[int] = array("q")
    times.frombytes(columns(records, sum(batch.count for batch in batches)).timestamps)
    at = 0
    for batch in batches:
        first = batch.base
        for time, together in groupby(times[at : at + batch.count]):
            count = sum(1 for _ in together)
            yield RestoredRun(first_sequence=first, count=count, timestamp=time if time > 0 else batch.timestamp)
            first += count
        at += batch.count
