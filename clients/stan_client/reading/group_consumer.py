"""A member of a consumer group: the servers divide the channels of a pattern among the members, each of which pulls its own.

async with GroupConsumer(direct, "orders.*", group="ledger") as consumer:
    async for batch in consumer:
        handle(batch.channel, batch.messages())  # asking for the next batch commits this one

Promises: a channel's batches come in order, one at a time, and only to the member that owns the channel. A position that is
committed is not read again by anybody. A member that was too slow, so that another one owns its channel now, cannot commit: the
batch that it had comes again to the other. Channels come and go while the others are read on.
"""

import asyncio
import contextlib
import logging
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, Self

from stan_protocol.proto import extension_pb2 as pb

from stan_client.errors import (
    ChannelLostError,
    ChannelReplacedError,
    ConnectionClosedError,
    ServerError,
    StanClientError,
)
from stan_client.messages.messages import Message
from stan_client.positions import Start, everything, from_sequence
from stan_client.reading.connected import Connected, requester_of
from stan_client.reading.fetching import LOST, Fetched
from stan_client.requests.membership import MembershipRequests
from stan_client.requests.names import raw
from stan_client.transport.session import text_of

log = logging.getLogger("stan_client")

LEASE_S: Final = 10.0
"""A member that is silent for this long loses its channels, if it asks for nothing else."""
BEATS: Final = 4
"""Requests of a member in each lease."""
PAUSE_S: Final = 0.2
"""Pause before a channel that could not be read is read again."""
LEAVE_PATIENCE_S: Final = 1.0
MEMBER_ID_BYTES: Final = 16
"""Knowing a member's id is enough to speak for it."""
GONE: Final = ("outdated_generation", "unknown_channel", "channel_deleting")
"""Refusals that say that the channel is no longer this member's."""


class GroupBatch:
    """Messages of one channel, for the member that owns it."""

    def __init__(self, share: "_Share", answer: Fetched, done: "asyncio.Future[None]") -> None:
        self.channel = answer.channel
        self.next_sequence = answer.next_sequence
        """Position after these messages."""
        self._share = share
        self._answer = answer
        self._done = done

    def __repr__(self) -> str:
        return f"<GroupBatch {self.channel} {self.count} messages, next {self.next_sequence}>"

    @property
    def count(self) -> int:
        """Number of messages."""
        return self._answer.count

    @property
    def valid(self) -> bool:
        """False once it is known that the channel is no longer this member's: another member handles these messages again."""
        return not self._share.lost

    def messages(self) -> list[Message]:
        """Decode the messages."""
        return self._answer.messages()

    async def commit(self) -> None:
        """Note the position after this batch. Asking for the next batch does so by itself, unless `auto_commit` is off.

        Raises:
            ChannelLostError: the channel is another member's; this batch comes again to that one.
            StanClientError: no server answered in time; it may be noted or not.
        """
        try:
            await self._share.commit(self.next_sequence, self._answer.newest_ns)
        finally:
            _settle(self._done)


def _settle(done: "asyncio.Future[None]") -> None:
    """Note that a batch is done with: the next one of its channel may come."""
    if not done.done():
        done.set_result(None)


class _Share:
    """A channel that this member owns."""

    def __init__(self, membership: "_Membership", owned: pb.OwnedChannel) -> None:
        self.channel = text_of(owned.channel)
        self.lost = False
        self._membership = membership
        self._uid, self._generation = owned.uid, owned.generation
        self._cluster = membership.requests.cluster
        self._releasing = False
        self._handed = False  # the batch is with the application
        self.task = asyncio.create_task(self._read())
        # A task that is cancelled before its first step runs none of its own code.
        self.task.add_done_callback(lambda _task: membership.ended(self))

    @property
    def key(self) -> tuple[int, int]:
        """Uid of the channel, and generation of the ownership."""
        return self._uid, self._generation

    def release(self) -> None:
        """Stop reading: at once, or after the batch that the application has."""
        self._releasing = True
        if not self._handed:
            self.task.cancel()

    def end(self) -> None:
        """The channel is no longer this member's."""
        self.lost = True
        self.task.cancel()

    def hand(self) -> bool:
        """The application is to get the batch; False if it may not any more."""
        self._handed = not (self.lost or self._releasing)
        return self._handed

    async def commit(self, sequence: int, read_ns: int) -> None:
        """Note the position. Errors as of GroupBatch.commit."""
        if self.lost:
            raise ChannelLostError(self.channel)
        try:
            await self._note(sequence, claim=False, read_ns=read_ns)
        except ServerError as refusal:
            if refusal.code not in GONE:
                raise
            self.end()
            raise ChannelLostError(self.channel) from None

    async def _note(self, sequence: int, *, claim: bool, read_ns: int = 0) -> int:
        return await self._membership.requests.note(
            self.channel,
            sequence,
            generation=self._generation,
            claim=claim,
            uid=self._uid,
            cluster=self._cluster,
            read_ns=read_ns,
        )

    async def _read(self) -> None:
        while not self._releasing:
            try:
                await self._read_on(await self._note(await self._begin(), claim=True))
            except ChannelReplacedError:
                return
            except ServerError as refusal:
                if refusal.code in GONE:
                    return
                log.warning("consumer group %s: %s: %s", self._membership.group, self.channel, refusal)
            except StanClientError as trouble:
                log.debug("consumer group %s: %s: %s", self._membership.group, self.channel, trouble)
            if not self._releasing:
                await asyncio.sleep(PAUSE_S)

    async def _begin(self) -> int:
        """Return the sequence at which a channel is begun that has no position yet."""
        client, start = self._membership.client, self._membership.start
        where = start.fetch_start()
        if "from_sequence" in where:
            return where["from_sequence"]
        if where:
            answer = await client.batches.fetch(self.channel, start=start, count=1)
            if answer.runs:
                return answer.runs[0].first_sequence
        info = await client.channels.info([self.channel])
        return info[self.channel].last + 1 if self.channel in info else 1

    async def _read_on(self, position: int) -> None:
        membership = self._membership
        answers = membership.client.batches.read(
            self.channel,
            start=from_sequence(position),
            follow=True,
            requests_in_flight=1,
            max_bytes=membership.max_bytes,
            uid=self._uid,
            cluster=self._cluster.hex(),
        )
        async with contextlib.aclosing(answers):
            async for answer in answers:
                if not answer.count:
                    continue
                for first, last in answer.lost(position):
                    text = "%s: messages %d to %d are lost: %s; going on behind them"
                    log.warning(text, self.channel, first, last, LOST)
                position = answer.next_sequence
                done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                membership.ready.put_nowait((GroupBatch(self, answer, done), self, done))
                await done
                self._handed = False
                if self._releasing:
                    return


class GroupConsumer(AsyncIterator[GroupBatch]):
    """A member of a consumer group; within `async with` an async iterator over the batches of the channels that it owns."""

    def __init__(
        self,
        client: Connected,
        pattern: str,
        *,
        group: str,
        start: Start | None = None,
        lease_s: float = LEASE_S,
        auto_commit: bool = True,
        max_bytes: int = 0,
        name: str = "",
    ) -> None:
        """Make a member; it joins with `async with`.

        Args:
            client: a Direct or a Client; it stays open.
            pattern: the channels to read: `*` stands for one token, `>` for all that follow.
            group: name of the group and of its positions.
            start: where to begin a channel in which the group has no position yet; with the oldest message by default.
            lease_s: seconds of silence after which this member's channels go to others: 0.5 to 300.
            auto_commit: a batch is committed when the next one is asked for; else only `batch.commit()` does.
            max_bytes: of one batch; 0: 2 MiB. Never more than NATS accepts.
            name: of the member, for operators; that of the machine by default.
        """
        self.group = group
        self._auto_commit = auto_commit
        self._membership = _Membership(
            client, pattern, group, start or everything(), lease_s, max_bytes, name or socket.gethostname()
        )
        self._current: _Offered | None = None

    def __repr__(self) -> str:
        return f"<GroupConsumer {self.group} {len(self.channels)} channels>"

    @property
    def channels(self) -> list[str]:
        """The channels that this member owns now, sorted."""
        return sorted(share.channel for share in self._membership.shares.values())

    async def __aenter__(self) -> Self:
        """Join.

        Raises:
            ServerError: refused. RequestTimeoutError: no answer in time.
        """
        await self._membership.join()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """Leave: the channels go to other members at once. The batch at hand is not committed by this."""
        await self._membership.leave()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> GroupBatch:
        """Commit the previous batch, and return the next one of any channel.

        Raises:
            ServerError: the membership was refused, for example because a right was revoked.
            StanClientError: the previous batch could not be committed in time.
        """
        offered, self._current = self._current, None
        if offered is not None:
            await self._finish(offered)
        self._current = await self._membership.next_offered()
        return self._current[0]

    async def run(self, handler: Callable[[GroupBatch], Awaitable[object]], *, at_once: int = 8) -> None:
        """Call *handler* with each batch, for *at_once* channels at the same time, until it raises; a batch is committed when its
        handler has returned. In place of the iteration. Errors: those of *handler*, and as of the iteration, in an
        ExceptionGroup."""

        async def work() -> None:
            while True:
                offered = await self._membership.next_offered()
                await handler(offered[0])
                await self._finish(offered)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(at_once):
                tasks.create_task(work())

    async def _finish(self, offered: "_Offered") -> None:
        """The application is done with a batch."""
        batch, _, done = offered
        if not self._auto_commit:
            _settle(done)
            return
        try:
            await batch.commit()
        except ChannelLostError as lost:
            log.warning("consumer group %s: %s", self.group, lost)


_Offered = tuple[GroupBatch, _Share, "asyncio.Future[None]"]
"""A batch, its channel, and the future that is set when the batch is done with."""


class _Membership:
    """Renews the lease of one member, and follows the servers' assignment of shares."""

    def __init__(
        self, client: Connected, pattern: str, group: str, start: Start, lease_s: float, max_bytes: int, name: str
    ) -> None:
        self.client, self.group, self.start, self.max_bytes = client, group, start, max_bytes
        self.requests = MembershipRequests(requester_of(client), group)
        self.shares: dict[tuple[int, int], _Share] = {}
        self.ready: asyncio.Queue[_Offered | None] = (
            asyncio.Queue()
        )  # for the application; None: the membership is over
        self._failure: StanClientError | None = None
        self._renewal = pb.ConsumerGroupRequest(
            group=raw(group),
            member=secrets.token_hex(MEMBER_ID_BYTES).encode(),
            pattern=raw(pattern),
            lease_ms=int(1000 * lease_s),
            name=raw(name)[:255],
        )
        self._released: set[tuple[int, int]] = set()
        self._news = asyncio.Event()  # there is something to report at once
        self._task: asyncio.Task[None] | None = None

    async def join(self) -> None:
        """Become a member. Errors as of GroupConsumer.__aenter__."""
        self._apply(await self.requests.renew(self._request(), None))
        self._task = asyncio.create_task(self._run())

    async def leave(self) -> None:
        """Stop, and report that; without an answer the lease ends the membership."""
        tasks = [share.task for share in self.shares.values()] + ([self._task] if self._task is not None else [])
        for share in list(self.shares.values()):
            share.end()
        if self._task is not None:
            self._task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        request = self._request()
        request.leave, request.wait_ms = True, 0
        with contextlib.suppress(StanClientError):
            await self.requests.renew(request, LEAVE_PATIENCE_S)
        self.ready.put_nowait(None)

    async def next_offered(self) -> "_Offered":
        """Return the next batch for the application. Errors as of GroupConsumer.__anext__."""
        while True:
            offered = await self.ready.get()
            if offered is None:
                self.ready.put_nowait(None)  # for other waiters
                raise self._failure or StopAsyncIteration
            _, share, done = offered
            if share.hand():
                return offered
            _settle(done)

    def ended(self, share: _Share) -> None:
        """A channel is read no more: it may be given to others."""
        if self.shares.get(share.key) is share:
            del self.shares[share.key]
            self._released.add(share.key)
            self._news.set()

    def _request(self) -> pb.ConsumerGroupRequest:
        del self._renewal.released[:]
        for uid, generation in sorted(self._released):
            self._renewal.released.add(uid=uid, generation=generation)
        request = pb.ConsumerGroupRequest()
        request.CopyFrom(self._renewal)
        return request

    async def _run(self) -> None:
        """Renew the lease until the servers refuse it."""
        self._renewal.wait_ms = self._renewal.lease_ms // BEATS
        news: asyncio.Task[object] = asyncio.create_task(self._news.wait())
        asking: asyncio.Task[pb.ConsumerGroupResponse] | None = None
        try:
            while True:
                asking = asyncio.create_task(self._ask())
                await asyncio.wait({asking, news}, return_when=asyncio.FIRST_COMPLETED)
                if asking.done():
                    if not self._follow(asking):
                        await asyncio.sleep(PAUSE_S)
                else:
                    asking.cancel()  # the next request says more
                if self._failure is not None:
                    return
                if news.done():
                    self._news.clear()
                    news = asyncio.create_task(self._news.wait())
        finally:
            news.cancel()
            if asking is not None:
                asking.cancel()

    async def _ask(self) -> pb.ConsumerGroupResponse:
        return await self.requests.renew(self._request(), 2 * self._renewal.lease_ms / 1000 / BEATS)

    def _follow(self, asking: "asyncio.Task[pb.ConsumerGroupResponse]") -> bool:
        """Apply the answer; returns False if there was none of use."""
        try:
            self._apply(asking.result())
        except (ServerError, ConnectionClosedError) as refusal:
            self._failure = refusal
            for share in list(self.shares.values()):
                share.end()
            self.ready.put_nowait(None)
        except StanClientError as trouble:
            log.debug("consumer group %s: %s", self.group, trouble)
        else:
            return True
        return False

    def _apply(self, answer: pb.ConsumerGroupResponse) -> None:
        """Follow the servers' assignment of channels to this member."""
        if answer.cluster != self.requests.cluster:
            self._begin_cluster(answer.cluster)
        if answer.unchanged:
            return
        self._renewal.known = answer.assignment
        owned = {(one.uid, one.generation): one for one in answer.channels}
        self._released &= owned.keys()
        for key in self.shares.keys() - owned.keys():
            self.shares.pop(key).end()
        for key, one in owned.items():
            if key not in self.shares and key not in self._released:
                self.shares[key] = _Share(self, one)
            if one.release and key in self.shares:
                self.shares[key].release()

    def _begin_cluster(self, cluster: bytes) -> None:
        """End the shares of another cluster, whose uids and generations may belong to other channels now."""
        shares, self.shares = self.shares, {}
        for share in shares.values():
            share.end()
        self._released.clear()
        self._renewal.known, self.requests.cluster = 0, cluster
