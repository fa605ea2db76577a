"""The copy of a channel of a running server of NATS Streaming, which grows in the new server as the channel does.

Promises: the copy has the messages that the old server has, none left out. A message that does not follow the one before it is
not taken unless the old server has none between them. The newest one is compared with the old server's at each beginning, as a
server that was killed may have sent messages that it has no more: then the channel is copied again from its first message.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from itertools import count
from typing import Final

import stan_client
from stan_client.requests.names import raw
from stan_protocol.admin_types import ChannelStatus, Limits, RestoredRun

from stan.cli.commands.exchange import ImportRow, packed_rows
from stan.cli.commands.old_server import RunningChannel, RunningPosition
from stan.cli.support.common import CliError
from stan.cli.support.restoring import room_for_rows

IN_FLIGHT_MAX: Final = 4096
"""Messages of a channel that the old server sends before they are copied ..."""
IN_FLIGHT_BYTES: Final = 1 << 24
"""... and about how many bytes."""
ACK_WAIT_S: Final = 60
SILENCE_S: Final = 3.0
"""A copy that lacks messages, and gets none for so long, subscribes again."""
GAPS_MAX: Final = 3
"""Subscriptions in a row that leave out the same messages, after which the old server has none there."""
ROW_ROOM: Final = 96
"""Bytes of a request for each message beside its payload, its reply and its run."""


@dataclass(frozen=True, slots=True)
class Copying:
    """Both ends of all copies. *payload_max*: bytes of a request; *advance* takes how many messages were copied."""

    client: stan_client.Client
    direct: stan_client.Direct
    restore: str
    payload_max: int
    advance: Callable[[int], None]
    notes: list[str]


async def is_under_way(direct: stan_client.Direct, channel: str, restore: str) -> bool:
    """True if the channel of the new server is a copy of this restore, and the restore has not ended."""
    other = f"{restore}-other"
    try:
        await direct.admin.restore_channel(channel, other, 1)
    except stan_client.ServerError as error:
        if error.code != "channel_restoring":
            return False
    else:  # it is empty, and is left so
        await direct.admin.restore_end(channel, other)
        return False
    try:
        await direct.admin.restore_channel(channel, restore, 1)
    except stan_client.ServerError:
        return False
    return True


@dataclass(slots=True)
class ChannelCopy:
    """The copy of one channel. *old*: as the pages have shown it last."""

    ends: Copying
    old: RunningChannel
    copied: int = 0
    """The newest sequence that the new server has ..."""
    time: int = 0
    """... and its time, 0: it has no message."""
    compared: bool = True
    """That message is the old server's."""
    lost: bool = False
    """The old server has less."""
    gaps: int = 0
    done: bool = False
    """An earlier run has ended the restore."""
    waiting: asyncio.Queue[list[stan_client.Message]] = field(default_factory=asyncio.Queue)
    task: asyncio.Task[None] | None = None

    @property
    def behind(self) -> int:
        """How many messages are not copied yet, at least 1 while the newest one is not compared."""
        if self.done or not self.old.messages:
            return 0
        known = self.compared or self.copied < self.old.first
        return max(self.old.last - self.copied, 0 if known else 1)

    async def begin(self) -> None:
        """Make the channel in the new server, or find the copy of an earlier run; then follow the old server."""
        admin, old = self.ends.direct.admin, self.old
        first = max(old.first, 1) if old.messages else old.last + 1
        try:
            if await admin.channel(old.name) is None:
                await admin.create_channel(old.name)
            answer = await admin.restore_channel(old.name, self.ends.restore, first, await self._other_limits())
        except stan_client.ServerError as error:
            raise CliError(f"Channel {old.name} cannot be copied: {error}.") from None
        there = await admin.channel(old.name)
        if there is None:
            raise CliError(f"Channel {old.name} was removed from the new server meanwhile.")
        if not answer.changed and not await is_under_way(self.ends.direct, old.name, self.ends.restore):
            if not await self._is_taken_over(there):
                raise CliError(
                    f"Channel {old.name} is taken over already, up to message {there.last_sequence:,}; the old server has "
                    f"{old.last:,}. To copy it again remove it from the new server first (stan channel delete)."
                )
            self.done, self.copied = True, old.last
            return
        self.copied = max(there.last_sequence, first - 1)
        self.time = there.last_timestamp if there.messages else 0
        self.compared = not self.time
        if self.copied > old.last:
            await self.restart()
        elif self.task is None:
            self.task = asyncio.create_task(self._run())

    async def _is_taken_over(self, there: ChannelStatus) -> bool:
        """True if a channel of the new server, which is in use, has all of the old server: its newest message is the same."""
        last = self.old.last
        if there.last_sequence < last or not self.old.messages:
            return there.last_sequence == last
        stored = await self.ends.direct.fetch(self.old.name, start=stan_client.from_sequence(last), count=1)
        start = stan_client.from_sequence(last)
        subscription = await self.ends.client.subscribe(self.old.name, start=start, max_in_flight=1, manual_acks=True)
        try:
            newest = await subscription.next(timeout_s=SILENCE_S)
        except stan_client.NoMessageError:
            return False
        finally:
            await subscription.close()
        same = [(one.sequence, one.timestamp_ns, one.data) for one in stored]
        if same != [(newest.sequence, newest.timestamp_ns, newest.data)]:
            return False
        if there.last_sequence > last:
            self.ends.notes.append(f"{self.old.name} was taken over before, and is in use at the new server")
        return True

    async def _other_limits(self) -> Limits | None:
        """The old server's limits that are others in the new one, whose configuration has the rest."""
        there = await self.ends.direct.admin.channel(self.old.name)
        if there is None or self.old.limits is None:
            return None
        names = [one.name for one in fields(Limits)]
        wanted = {name: getattr(self.old.limits, name) for name in names}
        other = {name: value for name, value in wanted.items() if value != getattr(there.limits, name)}
        return Limits(**other) if other else None

    def compare_again(self, *, lost: bool) -> None:
        """The old server was started again; *lost*: it has less than the copy."""
        if self.task is not None:
            self.compared, self.lost = not self.time, lost
            self.waiting.put_nowait([])

    def check(self) -> None:
        """Raise the error of copying, if it has failed."""
        if self.task is not None and self.task.done():
            self.task.result()

    async def _run(self) -> None:
        while True:
            self.waiting = asyncio.Queue()
            self.compared = not self.time
            subscription = await self._subscribe()
            while await self._take():
                pass
            with contextlib.suppress(stan_client.StanClientError):
                await subscription.close()

    async def _subscribe(self) -> stan_client.Subscription:
        old = self.old
        fitting = max(IN_FLIGHT_BYTES * old.messages // max(old.bytes, 1), 1) if old.messages else IN_FLIGHT_MAX
        return await self.ends.client.subscribe(
            old.name,
            self.waiting.put_nowait,
            start=stan_client.from_sequence(max(self.copied, 1)),
            max_in_flight=min(IN_FLIGHT_MAX, fitting),
            ack_wait_s=ACK_WAIT_S,
            manual_acks=True,
            batch=True,
        )

    async def _take(self) -> bool:
        """Copy the messages that have come. False: subscribe again."""
        try:
            batches = [await asyncio.wait_for(self.waiting.get(), SILENCE_S)]
        except TimeoutError:
            return not self.behind
        while not self.waiting.empty():
            batches.append(self.waiting.get_nowait())
        if not all(batches):  # of compare_again
            if self.lost:
                await self.restart()
            return False
        messages = [one for batch in batches for one in batch]
        by_sequence = {one.sequence: one for one in messages}
        if not await self._is_same(by_sequence):
            return False
        fresh = self._following(by_sequence)
        while fresh:
            part = self._part(fresh)
            await self._put(part)
            fresh = fresh[len(part) :]
        for message in messages:
            message.ack()
        return max(by_sequence) <= self.copied

    async def _is_same(self, by_sequence: dict[int, stan_client.Message]) -> bool:
        """Compare the newest message that was copied with the old server's. False: it is another one, so the copy was removed."""
        newest = by_sequence.get(self.copied)
        if newest is None or not self.time:
            return True
        self.compared = True
        if newest.timestamp_ns == self.time:
            return True
        await self.restart()
        return False

    async def restart(self) -> None:
        """Remove the copy and begin it again."""
        self.ends.notes.append(
            f"{self.old.name} was copied again: the old server has no more what it had sent before it was started again"
        )
        self.lost = False
        await self.ends.direct.admin.delete_channel(self.old.name)
        await self.begin()

    def _following(self, by_sequence: dict[int, stan_client.Message]) -> list[stan_client.Message]:
        """The messages that follow the newest copied one, and each other."""
        newer = sorted(sequence for sequence in by_sequence if sequence > self.copied)
        if not newer:
            return []
        first = self.copied + 1
        if newer[0] > first:  # removed by limits, or lost on the way
            self.gaps += 1
            if newer[0] > self.old.first and self.gaps < GAPS_MAX:
                return []
            first = newer[0]
        self.gaps = 0
        fresh: list[stan_client.Message] = []
        for sequence in count(first):
            if sequence not in by_sequence:
                return fresh
            fresh.append(by_sequence[sequence])
        return fresh

    def _part(self, messages: list[stan_client.Message]) -> list[stan_client.Message]:
        """The first of *messages*, as many as one request takes."""
        size, room = 0, room_for_rows(self.ends.payload_max, self.old.name)
        for at, message in enumerate(messages):
            size += len(message.data) + len(message.reply) + ROW_ROOM
            if at and size > room:
                return messages[:at]
        return messages

    async def _put(self, messages: list[stan_client.Message]) -> None:
        runs = [RestoredRun(first_sequence=one.sequence, count=1, timestamp=one.timestamp_ns) for one in messages]
        rows = packed_rows([ImportRow(one.data, raw(one.reply)) for one in messages])
        await self.ends.direct.admin.restore_rows(self.old.name, self.ends.restore, runs, rows)
        self.copied, self.time = messages[-1].sequence, messages[-1].timestamp_ns
        self.compared = True
        self.ends.advance(len(messages))

    def stop(self) -> None:
        """Follow no more."""
        if self.task is not None:
            self.task.cancel()

    async def end(self, positions: list[tuple[RunningPosition, set[int]]]) -> None:
        """Put the positions there, and end the restore."""
        self.stop()
        if self.done:
            return
        admin = self.ends.direct.admin
        for position, owed in positions:
            await admin.restore_cursor(self.old.name, self.ends.restore, position.status(owed))
        await admin.restore_end(self.old.name, self.ends.restore, self.old.last)
