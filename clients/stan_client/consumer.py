"""A consumer that keeps its own position: the servers remember nothing of it, the caller stores where it is.

consumer = PullConsumer(direct, "orders", load_position())
async for batch in consumer:
    handle(batch.messages())
    store(consumer.position)  # behind the batch: after a crash, it comes again or it does not

Promises: batches come in order, none twice, none left out in silence: what the server's limits have removed before it was read,
and a channel that was deleted and made again, is an error, or skipped with a note in the log, as the caller wants it.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final, NamedTuple

from stan.errors import UNKNOWN_CHANNEL
from stan_client.connected import Connected
from stan_client.errors import ChannelReplacedError, DataLossError, ServerError, StanClientError
from stan_client.fetching import FOLLOW_WAIT_S, Fetched
from stan_client.positions import from_sequence

log = logging.getLogger("stan_client")

CURSOR_INTERVAL_S: Final = 1.0
"""How often the position is told to the servers, where that is wanted."""


class Position(NamedTuple):
    """Where a consumer is in a channel."""

    sequence: int = 1  # the next one to be read
    uid: int = 0  # of the channel; 0: not known yet


class PullConsumer(AsyncIterator[Fetched]):
    """See the module's docstring. Iterate once; `aclose` when it is left before its end."""

    def __init__(
        self,
        client: Connected,
        channel: str,
        position: Position | int = Position(),  # noqa: B008 - never changes
        *,
        follow: bool = True,
        skip_lost: bool = False,
        cursor: str = "",
        max_in_flight: int = 4,
        max_bytes: int = 0,
        from_replica: bool = False,
    ) -> None:
        """Ask nothing yet.

        Args:
            client: a Direct or a Client; it stays open.
            channel: its name; with *follow* it may come later.
            position: where to begin: of an earlier consumer, or a sequence.
            follow: wait for more at the end.
            skip_lost: go on behind what is lost; else DataLossError or ChannelReplacedError ends the iteration.
            cursor: a name under which the position is told to the servers now and then, so that others see how far it is.
            max_in_flight: requests on their way, >= 1.
            max_bytes: of one batch; 0: as many as NATS takes.
            from_replica: read replicas are asked.
        """
        self.channel = channel
        self.lost = 0  # messages skipped because they were gone
        self._client = client
        self._at = position if isinstance(position, Position) else Position(position)
        self._told = 0  # what the servers know
        self._done = 0  # what the caller has asked beyond
        self._follow = follow
        self._skip_lost = skip_lost
        self._cursor = cursor
        self._max_in_flight, self._max_bytes, self._from_replica = max_in_flight, max_bytes, from_replica
        self._batches = self._read()

    def __repr__(self) -> str:
        return f"<PullConsumer {self.channel} at {self._at.sequence}>"

    @property
    def position(self) -> Position:
        """Behind the batch that was given out last."""
        return self._at

    def __aiter__(self) -> "PullConsumer":
        return self

    async def __anext__(self) -> Fetched:
        """The next batch, at least one message.

        Raises:
            StopAsyncIteration: the end, without *follow*.
            DataLossError, ChannelReplacedError: as told above; `position` is still that of the last batch.
            ServerError, FetchTimeoutError, ConnectionClosedError: as of fetch().
        """
        return await anext(self._batches)

    async def aclose(self) -> None:
        """End it; what was asked for and is on its way is dropped."""
        await self._batches.aclose()

    async def _read(self) -> AsyncGenerator[Fetched, None]:
        telling = asyncio.create_task(self._tell_now_and_then()) if self._cursor else None
        try:
            while True:
                try:
                    async with contextlib.aclosing(self._answers()) as answers:
                        async for found in answers:
                            self._look_for_loss(found)
                            self._at = Position(max(self._at.sequence, found.next_sequence), found.uid or self._at.uid)
                            if found.count:
                                yield found
                                self._done = self._at.sequence
                    if not self._follow:
                        return
                except ChannelReplacedError:
                    self._start_again()
                except ServerError as refusal:
                    if str(refusal) != UNKNOWN_CHANNEL or not self._follow:
                        raise
                    if self._at.uid:
                        self._start_again()
                    await self._client.info(newer_than={self.channel: 0}, wait_s=FOLLOW_WAIT_S)
        finally:
            if telling is not None:
                telling.cancel()
                with contextlib.suppress(StanClientError, TimeoutError):
                    await asyncio.wait_for(self._tell(), CURSOR_INTERVAL_S)

    def _answers(self) -> AsyncGenerator[Fetched, None]:
        return self._client.read_batches(
            self.channel,
            start_at=from_sequence(self._at.sequence),
            follow=self._follow,
            max_in_flight=self._max_in_flight,
            max_bytes=self._max_bytes,
            from_replica=self._from_replica,
            uid=self._at.uid,
        )

    # --- losses ------------------------------------------------------------------------------------------------------

    def _look_for_loss(self, found: Fetched) -> None:
        wanted = self._at.sequence
        if found.uid and not self._from_replica and found.last_sequence + 1 < wanted:
            raise ChannelReplacedError  # it ends before what was read of it
        first = found.first_sequence if found.uid else found.runs[0].first_sequence
        if first <= wanted:
            return
        loss = DataLossError(self.channel, wanted, first - 1)
        if not self._skip_lost:
            raise loss
        log.warning("%s; going on behind them", loss)
        self.lost += first - wanted

    def _start_again(self) -> None:
        """The channel is another one; called where its error is handled."""
        if not self._skip_lost:
            raise ChannelReplacedError
        log.warning("channel %s was deleted; going on with the one that has its name", self.channel)
        self._at = Position()

    # --- the position, for others to see -------------------------------------------------------------------------------

    async def _tell_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(CURSOR_INTERVAL_S)
            try:
                await self._tell()
            except StanClientError as trouble:  # nothing depends on it
                log.debug("cursor %s of %s: %s", self._cursor, self.channel, trouble)

    async def _tell(self) -> None:
        done = self._done
        if done and done != self._told:
            await self._client.cursor_set(self._cursor, {self.channel: done})
            self._told = done
