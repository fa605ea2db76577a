"""A consumer that keeps its own position: the servers keep no state for it, the caller stores the position.

consumer = PullConsumer(direct, "orders", start=load_position())
async for batch in consumer:
    handle(batch.messages())
    store(consumer.position)  # after the batch: a crash in between makes the batch come again

Promises: batches come in order, none twice, none silently left out: messages that the server's limits removed before they were
read, or that damage has taken, and a channel that was deleted and made again, raise an error or are skipped with a line in the
log, as the caller chooses.
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator
from numbers import Integral
from typing import Final, NamedTuple

from stan_client.errors import ChannelReplacedError, DataLossError, ServerError, StanClientError
from stan_client.positions import from_sequence
from stan_client.reading.connected import Connected
from stan_client.reading.fetching import FOLLOW_WAIT_S, LOST, Fetched

log = logging.getLogger("stan_client")

NOTE_INTERVAL_S: Final = 1.0
"""Interval at which the position is reported to the servers, for a consumer with a `bookmark`."""
_HEX: Final = re.compile(r"(?:[0-9a-f]{2})*")


class Position(NamedTuple):
    """Position of a consumer in a channel."""

    sequence: int = 1  # the next one to be read
    uid: int = 0  # of the channel; 0: not known yet
    cluster: str = ""  # of the channel; "": not known yet
    read_ns: int = 0  # timestamp of the channel's newest message when it was read; 0: not known


def _checked(position: Position) -> Position:
    """Return *position*. Raises ValueError: it is damaged."""
    sequence, uid, cluster, read_ns = position
    numbers = all(isinstance(one, Integral) and one >= 0 for one in (sequence, uid, read_ns))
    if not (numbers and sequence and isinstance(cluster, str) and _HEX.fullmatch(cluster)):
        raise ValueError(f"stan: {position} is damaged: restore the stored position, or begin with Position()")
    return position


class BookmarkReporter:
    """Reports the position of one consumer to the servers, at intervals and at the end, for monitoring only: failures are logged
    and tried again. Without a name it reports nothing."""

    def __init__(self, client: Connected, name: str, channel: str) -> None:
        self.finished = Position(0)
        """Position after the batches that the caller has finished by requesting the next one. Sequence 0: none yet."""
        self._client = client
        self._name = name
        self._channel = channel
        self._reported = Position(0)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        if self._name:
            self._task = asyncio.create_task(self._run())

    async def __aexit__(self, *_exc: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(StanClientError, TimeoutError):
                await asyncio.wait_for(self._report(), NOTE_INTERVAL_S)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(NOTE_INTERVAL_S)
            try:
                await self._report()
            except StanClientError as trouble:
                log.debug("bookmark %s of %s: %s", self._name, self._channel, trouble)

    async def _report(self) -> None:
        finished = self.finished
        if finished.sequence and finished != self._reported:
            place, uids = {self._channel: finished.sequence}, {self._channel: finished.uid}
            read_ns = {self._channel: finished.read_ns}
            await self._client.bookmarks.set(self._name, place, uids=uids, cluster=finished.cluster, read_ns=read_ns)
            self._reported = finished


class PullConsumer(AsyncIterator[Fetched]):
    """Async iterator over a channel's batches from the caller's position on. Iterate once; call `aclose` if the iteration is left
    before its end."""

    def __init__(
        self,
        client: Connected,
        channel: str,
        start: Position | int = Position(),  # noqa: B008 - never changes
        *,
        follow: bool = True,
        skip_lost: bool = False,
        bookmark: str = "",
        requests_in_flight: int = 4,
        max_bytes: int = 0,
        from_replica: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Make a consumer; no request is sent before the iteration begins. Raises ValueError: *start* is damaged.

        Args:
            client: a Direct or a Client; it stays open.
            channel: its name; with *follow* the channel may be created later.
            start: where to begin: the position of an earlier consumer, or a sequence.
            follow: wait for new messages at the end of the channel.
            skip_lost: continue after lost messages; else DataLossError or ChannelReplacedError ends the iteration.
            bookmark: a name under which the position is noted on the servers every NOTE_INTERVAL_S, for others to look at.
            requests_in_flight: requests ahead of the reader, >= 1.
            max_bytes: of one batch; 0: 2 MiB. Never more than NATS accepts.
            from_replica: ask read replicas.
            timeout_s: of each request, in seconds; None: that of the client.
        """
        self.channel = channel
        self.lost = 0  # messages skipped because the server has removed them
        self._client = client
        self._at = _checked(start if isinstance(start, Position) else Position(start))
        self._follow = follow
        self._skip_lost = skip_lost
        self._reporter = BookmarkReporter(client, bookmark, channel)
        self._max_in_flight, self._max_bytes, self._from_replica = requests_in_flight, max_bytes, from_replica
        self._timeout_s = timeout_s
        self._batches = self._read()

    def __repr__(self) -> str:
        return f"<PullConsumer {self.channel} at {self._at.sequence}>"

    @property
    def position(self) -> Position:
        """The position after the batch that was returned last."""
        return self._at

    def __aiter__(self) -> "PullConsumer":
        return self

    async def __anext__(self) -> Fetched:
        """Return the next batch, at least one message.

        Raises:
            StopAsyncIteration: the end of the channel, without *follow*.
            DataLossError, ChannelReplacedError: messages are lost or the channel is another one, without *skip_lost*; `position`
                is still that of the last batch.
            ServerError, FetchTimeoutError, ConnectionClosedError: as of fetch().
        """
        return await anext(self._batches)

    async def aclose(self) -> None:
        """End the iteration; answers in flight are dropped."""
        await self._batches.aclose()

    async def _read(self) -> AsyncGenerator[Fetched, None]:
        async with self._reporter:
            while True:
                try:
                    async with contextlib.aclosing(self._answers()) as answers:
                        async for reply in answers:
                            self._look_for_loss(reply)
                            self._at = self._after(reply)
                            if reply.count:
                                yield reply
                                self._reporter.finished = self._at
                    if not self._follow:
                        return
                except ChannelReplacedError:
                    self._start_again()
                except ServerError as refusal:
                    if refusal.code != "unknown_channel" or not self._follow:
                        raise
                    if self._at.uid:
                        self._start_again()
                    await self._client.channels.info(
                        newer_than={self.channel: 0}, wait_s=FOLLOW_WAIT_S, timeout_s=self._timeout_s
                    )

    def _answers(self) -> AsyncGenerator[Fetched, None]:
        return self._client.batches.read(
            self.channel,
            start=from_sequence(self._at.sequence),
            follow=self._follow,
            requests_in_flight=self._max_in_flight,
            max_bytes=self._max_bytes,
            from_replica=self._from_replica,
            uid=self._at.uid,
            cluster=self._at.cluster,
            read_ns=self._at.read_ns,
            timeout_s=self._timeout_s,
        )

    def _after(self, answer: Fetched) -> Position:
        at = self._at
        sequence = max(at.sequence, answer.next_sequence)
        return Position(sequence, answer.uid or at.uid, answer.cluster or at.cluster, max(at.read_ns, answer.newest_ns))

    def _look_for_loss(self, answer: Fetched) -> None:
        expected = self._at.sequence
        if answer.uid and not self._from_replica and answer.last_sequence + 1 < expected:
            raise ChannelReplacedError  # the channel ends before sequences that were read from it
        for first, last in answer.lost(expected):
            text = f"stan: messages {first} to {last} of channel {self.channel} are lost: {LOST}"
            loss = DataLossError(text, self.channel, first, last)
            if not self._skip_lost:
                raise loss
            log.warning("%s; going on behind them", loss)
            self.lost += last + 1 - first
            self._at = self._at._replace(sequence=last + 1)

    def _start_again(self) -> None:
        """Begin at the start of the channel that has taken the name of another; without *skip_lost*, ChannelReplacedError."""
        if not self._skip_lost:
            raise ChannelReplacedError
        log.warning("channel %s is another one now; going on from its beginning", self.channel)
        self._at = Position()
