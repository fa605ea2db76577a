"""The client: one client id, its session, its publishes and subscriptions, and the recovery after the session is lost.

After a loss (pings unanswered, "client has been replaced ...", NATS closed) and with `resubscribe` (the default), the client
registers again under the same id and makes its subscriptions again: durables resume, others continue after the last message
that arrived. Publishes without ack fail, unless `republish`. The old clients leave all this to their users (FIELD 18, 19).
The client never closes a NATS connection that the caller has supplied.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, cast

from stan_protocol.compaction import DELETE_HEADER

from stan_client.errors import (
    BadConnectionError,
    ConnectionClosedError,
    InvalidKeyError,
    NotSentError,
    PingOptionsError,
    ReplyTimeoutError,
    ServerError,
    StanClientError,
    SubscribeRequestTimeoutError,
)
from stan_client.messages.messages import BatchCallback, Callback, Message, OnError, SubscriptionOptions
from stan_client.messages.middleware import Chain, Middleware, MiddlewareContext, handled
from stan_client.messages.new_message import (
    NOTHING,
    Headers,
    NewMessage,
    Published,
    encode_context,
    encode_due,
    encode_ttl,
)
from stan_client.positions import Start, new_only
from stan_client.publishing import (
    ACK_LEVELS,
    PUBLISHES_PER_TURN_MAX,
    AckLevel,
    OnAck,
    Publisher,
    PublishManyResult,
)
from stan_client.reading.connected import Connected
from stan_client.subscribing import PartedSubscription, Subscription
from stan_client.subscribing.opened import OpenSubscriptions
from stan_client.transport.connection import (
    BorrowedLink,
    ClientConnection,
    NatsClient,
    NatsLink,
)
from stan_client.transport.inbox import Inbox, ReplyInbox
from stan_client.transport.session import Session, SessionOptions, check_cluster_id, fresh_id
from stan_client.waiting import Waiters, deadline, left_s, notify

log = logging.getLogger("stan_client")

RETRY_FIRST_S: Final = 0.1
RETRY_MAX_S: Final = 5.0
"""Pauses between attempts to register again: doubled from the first to the longest."""

REFUSALS_MAX: Final = 5
"""Consecutive CLIENT_REGISTERED refusals after which another live client is taken to own the id, and this client closes."""

CLIENT_REGISTERED: Final = "stan: clientID already registered"

EPOCH_BITS: Final = 32
"""The lower bits of a cluster's epoch, which tell rescues of one number apart; above them is that number."""

FROM_BEFORE_THE_RESCUE: Final = "stan: a server answers that is from before the rescue of this cluster"

_Way = Callable[[str, bytes, str, bytes, float | None], Awaitable[Published]]
"""How one message goes: channel, data, reply, context, and the loop time at which the caller gives up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """Options of a client besides those of its sessions; defaults of the original (STAN-SPEC 14.1)."""

    servers: str | list[str] = "nats://127.0.0.1:4222"
    nats: NatsClient | None = None  # a connection of the caller's, used and never closed
    nats_options: Mapping[str, Any] = field(default_factory=dict)  # as for connection.for_nats
    ack_timeout_s: float = 30
    max_pub_acks_in_flight: int = 16384
    resubscribe: bool = True
    republish: bool = False
    connection_lost: Callable[[StanClientError], None] | None = None
    middleware: Sequence[Middleware] = ()  # outermost first


class Client(Connected):
    """A connected client; made by `connect`, usable as `async with`."""

    def __init__(self, session_options: SessionOptions, options: ClientOptions) -> None:
        """Keep the options; `start` connects and registers."""
        super().__init__(self._inbox, session_options.cluster_id, options.ack_timeout_s)
        self._session_options = session_options
        self._options = options
        self._session: Session | None = None  # None while lost
        self._subscriptions = OpenSubscriptions()
        self._publisher = Publisher(
            in_flight_max=options.max_pub_acks_in_flight,
            ack_timeout_s=options.ack_timeout_s,
            republish=options.republish,
        )
        self._chain = Chain(options.middleware)
        self._replies = ReplyInbox(fresh_id())
        self._recovery: asyncio.Task[None] | None = None
        self._ready_waiters = Waiters()
        self._closed = False
        self._reason: StanClientError | None = None
        self._rescues = 0  # of the cluster, as far as its servers have told

    def __repr__(self) -> str:
        state = "closed" if self._closed else "connected" if self._session else "lost"
        return f"<Client {self.client_id} {state} in_flight={self._publisher.in_flight}>"

    @property
    def client_id(self) -> str:
        """The id under which the client is registered."""
        return self._session_options.client_id

    @property
    def closed(self) -> bool:
        """True once the client is closed, by close() or because its session could not be recovered."""
        return self._closed

    @property
    def connected(self) -> bool:
        """True while the client has a session, as far as the client knows."""
        return self._session is not None

    # --- sessions --------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect to NATS and register; raises the same errors as `connect`."""
        try:
            self._session = await self._begin_session()
        except BaseException:
            self._closed = True
            if self._link is not None:
                await self._link.shut()
            raise

    async def _begin_session(self) -> Session:
        link = await self._open_link()
        session = Session(link, self._session_options, self._on_lost)
        await session.open()
        rescues = session.answer.epoch >> EPOCH_BITS
        if rescues < self._rescues:  # a node of before, that does not hear the survivors: what it acknowledges is lost
            await session.drop()
            raise ServerError(FROM_BEFORE_THE_RESCUE)
        self._rescues = rescues
        await self._replies.listen(link)
        await self._publisher.attach(session)
        return session

    async def _open_link(self) -> NatsLink:
        if self._link is not None and not self._link.closed:
            return self._link
        options = self._options
        if options.nats is not None:
            if not options.nats.is_connected:
                raise BadConnectionError
            self._link = BorrowedLink(options.nats)
        else:
            connection = ClientConnection()
            named = {"name": self.client_id, **options.nats_options}
            await connection.open(options.servers, named, self._session_options.connect_timeout_s)
            connection.on_online = self._publisher.send_again
            self._link = connection
        return self._link

    def _on_lost(self, session: Session, error: StanClientError) -> None:
        if self._closed or session is not self._session:
            return  # a session that is still being set up: _begin_again checks session.lost itself
        log.warning("session of %s lost: %s", self.client_id, error)
        self._session = None
        self._recovery = asyncio.get_running_loop().create_task(self._recover(session, error))
        if self._options.connection_lost is not None:
            notify("connection_lost", self._options.connection_lost, error)

    async def _recover(self, old: Session, error: StanClientError) -> None:
        await self._publisher.detach(error, final=not self._options.resubscribe)
        await old.drop()
        if not self._options.resubscribe:
            await self._finish(error)
            return
        pause, refusals = RETRY_FIRST_S, 0
        while not self._closed:
            try:
                if await self._begin_again():
                    log.info("session of %s is there again", self.client_id)
                    self._ready_waiters.wake()
                    return
                refusals = 0
            except ServerError as refusal:
                refusals = refusals + 1 if str(refusal) == CLIENT_REGISTERED else 0
                log.warning("registering %s again: %s", self.client_id, refusal)
                if refusals >= REFUSALS_MAX:
                    await self._finish(refusal)
                    return
            except BadConnectionError as gone:
                await self._finish(gone)
                return
            except StanClientError as trouble:
                refusals = 0
                log.debug("registering %s again: %s", self.client_id, trouble)
            await asyncio.sleep(pause)
            pause = min(2 * pause, RETRY_MAX_S)

    async def _begin_again(self) -> bool:
        """Make a new session with all subscriptions; False if the session was lost meanwhile."""
        session = await self._begin_session()
        await self._subscriptions.make_again(session)
        if session.lost is not None:
            await self._publisher.detach(session.lost, final=False)
            await session.drop()
            return False
        self._session = session
        return True

    async def ready(self) -> Session:
        """Return the session; while the session is lost, wait for a new one.

        Raises:
            ConnectionClosedError: the client is closed.
        """
        while True:
            if self._closed:
                raise ConnectionClosedError from self._reason
            if self._session is not None:
                return self._session
            await self._ready_waiters.wait()

    async def _inbox(self) -> Inbox:
        return (await self.ready()).inbox

    # --- publishing ------------------------------------------------------------------------------------------------

    async def publish(
        self,
        channel: str,
        data: bytes,
        *,
        reply: str = "",
        headers: Headers | None = None,
        key: str | bytes = "",
        delay_s: float | None = None,
        deliver_at: datetime | None = None,
        ttl_s: float | None = None,
        timeout_s: float | None = None,
        ack: AckLevel = "commit",
    ) -> Published:
        """Publish one message and wait for its ack; returns its guid, a text with the attribute `sequence`.

        Args:
            channel: its name.
            data: the message.
            reply: a subject of the program's own, which the server passes on.
            headers: text or bytes by name; all together at most 64 KiB as encoded.
            key: of the message; at most 1 KiB; empty: none.
            delay_s: seconds from now, by this machine's clock, before which the message does not come into its channel: the
                server keeps it until its own clock shows that time. At most a year.
            deliver_at: the same as a time, which tells its offset from UTC.
            ttl_s: seconds from when the message is in its channel, by the server's clock, after which nobody gets it. The
                server rounds their end up to a second, or to a 3600th of a longer time. More than 0, at most ten years.
            timeout_s: seconds that the whole call takes at most, whatever middleware does meanwhile. None: the client's
                `ack_timeout_s` for room in the window, and once more for the ack.
            ack: "commit" waits until the message is stored for good. "none" waits for nothing but a connection that takes the
                bytes, and promises nothing: the server does not answer, a refused or lost message is not told, the sequence is
                not known, and `republish` does not send it again. For telemetry, of which the next value replaces the last.

        Raises:
            ValueError: *ack* is neither.
            ServerError: the server refused the message. PublishAckTimeoutError: no ack in time; NotSentError, a kind of it: the
                message was not even sent.
            MessageTooLargeError: larger than NATS accepts. InvalidNameError: *channel* is not a valid channel name.
            InvalidHeadersError, InvalidKeyError: no server takes these; nothing was sent.
            InvalidDelayError, InvalidTtlError: no server takes such a delay or time to live; nothing was sent.
            NotSupportedError: the server does not know headers, keys, delays or times to live, and would drop them. With
                `republish` also if it is the server of a new session that does not know them.
            ConnectionClosedError: the client is closed.
            StanClientError: the session was lost before the ack came; whether the message is stored is not known.
        """
        until, due, ttl = deadline(timeout_s), encode_due(delay_s, deliver_at), encode_ttl(ttl_s)
        send = self._way(ack)
        if self._chain:
            message = NewMessage(data, headers or NOTHING, key, reply)
            told = await self._publish_in_chain(send, channel, message, ttl + due, until)
        else:
            told = await send(channel, data, reply, ttl + due + encode_context(headers, key), until)
        if due:
            told.sequence, told.delayed_id = None, told.sequence or 0
        return told

    def _way(self, ack: AckLevel) -> _Way:
        """How a message of this ack level is published."""
        if ack not in ACK_LEVELS:
            raise ValueError(f"ack is one of {', '.join(ACK_LEVELS)}, not {ack!r}")
        return self._publish if ack == "commit" else self._publish_unacked

    async def _publish_in_chain(
        self, way: _Way, channel: str, message: NewMessage, times: bytes, until: float | None
    ) -> Published:
        async def send(message: NewMessage) -> Published:
            context = times + encode_context(message.headers, message.key)
            return await way(channel, message.data, message.reply, context, until)

        told = await self._chain.run(MiddlewareContext("publish", self, channel, deadline=until), message, send)
        return cast("Published", told)

    async def _publish_unacked(
        self, channel: str, data: bytes, reply: str, context: bytes, until: float | None
    ) -> Published:
        try:
            now = asyncio.get_running_loop().time()
            async with asyncio.timeout_at(now + self._options.ack_timeout_s if until is None else until):
                await self._connected()
        except TimeoutError:
            raise NotSentError from None
        told = Published(self._publisher.publish_unacked(channel, data, reply, context))
        told.sequence, told.delayed_id, told.ack_level = None, 0, 0
        return told

    async def _connected(self) -> None:
        """Wait for a session whose connection takes bytes."""
        while True:
            session = await self.ready()
            await session.link.drained()
            if self._publisher.attached and not self._closed:
                return
            await self._publisher.wait_for_room()

    async def request(
        self,
        channel: str,
        data: bytes,
        *,
        headers: Headers | None = None,
        key: str | bytes = "",
        ttl_s: float | None = None,
        timeout_s: float = 5,
    ) -> bytes:
        """Publish a message that asks for an answer, and return the first one that comes: what somebody who handles the message
        gives to Message.respond, or publishes to its reply subject over NATS.

        The message is stored as any other, so it is handled also if its handler dies, and though nobody waits for the answer any
        more; *ttl_s* bounds that. The answer is not stored: it comes over NATS, to an inbox of this client.

        Args:
            channel: its name.
            data: the message.
            headers: as of publish().
            key: as of publish().
            ttl_s: as of publish().
            timeout_s: seconds for the ack of the message and the answer together.

        Raises:
            ReplyTimeoutError: the message is stored, and no answer came in time. Else as of publish(), if no answer came.
        """
        until = asyncio.get_running_loop().time() + timeout_s
        reply, answer = self._replies.expect()
        try:
            try:
                async with asyncio.timeout_at(until):
                    await self._replies.listen((await self.ready()).link)
            except TimeoutError:
                raise NotSentError from None
            try:
                await self.publish(
                    channel, data, reply=reply, headers=headers, key=key, ttl_s=ttl_s, timeout_s=left_s(until)
                )
            except StanClientError:
                if not answer.done():  # else the ack alone was lost: what is answered is stored
                    raise
            try:
                async with asyncio.timeout_at(until):
                    return await answer
            except TimeoutError:
                raise ReplyTimeoutError from None
        finally:
            self._replies.forget(reply)

    async def _publish(self, channel: str, data: bytes, reply: str, context: bytes, until: float | None) -> Published:
        loop = asyncio.get_running_loop()
        acked: asyncio.Future[Published] = loop.create_future()

        def settle(guid: Published, error: StanClientError | None) -> None:
            if acked.done():
                return
            if error is None:
                acked.set_result(guid)
            else:
                acked.set_exception(error)

        try:
            async with asyncio.timeout_at(loop.time() + self._options.ack_timeout_s if until is None else until):
                await self.room()
        except TimeoutError:
            raise NotSentError from None
        timeout_s = left_s(until)
        if timeout_s == 0:
            raise NotSentError
        self._publisher.publish(channel, data, reply, settle, context, numbered=True, timeout_s=timeout_s)
        return await acked

    def publish_async(
        self,
        channel: str,
        data: bytes,
        *,
        reply: str = "",
        headers: Headers | None = None,
        key: str | bytes = "",
        delay_s: float | None = None,
        deliver_at: datetime | None = None,
        ttl_s: float | None = None,
        timeout_s: float | None = None,
        on_ack: OnAck | None = None,
        numbered: bool = False,
    ) -> str:
        """Publish without waiting; returns the message's guid. No middleware runs around it.

        Args:
            channel: its name.
            data: the message.
            reply: a subject of the program's own, which the server passes on.
            headers: as of publish().
            key: as of publish().
            delay_s: as of publish(); with `numbered`, the guid that *on_ack* gets tells as `sequence` by which number operators
                find and cancel the message.
            deliver_at: as of publish().
            ttl_s: as of publish().
            timeout_s: seconds until *on_ack* is called with PublishAckTimeoutError at the latest. None: `ack_timeout_s`.
            on_ack: is called exactly once, with the guid and None or the error.
            numbered: the guid that *on_ack* gets tells the `sequence`, too, as what publish() returns; at full speed this costs
                some CPU here and in the server, so it is asked for.

        Raises:
            TooManyInFlightError: the window is full or the session is being recovered: `await client.room()` first.
            MessageTooLargeError, InvalidNameError, InvalidHeadersError, InvalidKeyError, InvalidDelayError,
            InvalidTtlError, NotSupportedError, ConnectionClosedError: as of publish().
        """
        if self._closed:
            raise ConnectionClosedError from self._reason
        context = encode_context(headers, key) if headers or key else b""
        if delay_s is not None or deliver_at is not None:
            context = encode_due(delay_s, deliver_at) + context
        if ttl_s is not None:
            context = encode_ttl(ttl_s) + context
        return self._publisher.publish(
            channel, data, reply, on_ack or self._log_failure, context, numbered=numbered, timeout_s=timeout_s
        )

    async def room(self) -> int:
        """Wait until publish_async may be called; returns how many calls are allowed before the next await, at least 1."""
        while True:
            session = await self.ready()
            await session.link.drained()
            free = self._publisher.free()
            if free > 0 and not self._closed:
                return free
            await self._publisher.wait_for_room()

    async def publish_many(
        self,
        channel: str,
        messages: Iterable[bytes | NewMessage],
        *,
        reply: str = "",
        headers: Headers | None = None,
        key: str | bytes = "",
        timeout_s: float | None = None,
        ack: AckLevel = "commit",
    ) -> int:
        """Publish all *messages*, as many at once as the window allows, and wait for all acks; returns the number of messages.

        Args:
            channel: its name.
            messages: data alone, or with headers, key and reply of its own.
            reply: of the messages that are data alone.
            headers: of the messages that are data alone.
            key: of the messages that are data alone.
            timeout_s: seconds that each message waits at most, for room and for its ack. None: for its ack `ack_timeout_s`.
            ack: as of publish(); with "none" the number is that of the messages sent.

        Raises:
            ValueError: *ack* is neither.
            PublishManyError: some messages were not acked; `failures` lists which and why. The first failure ends the
                publishing, so that the messages after a refused one are not published before it.
            ConnectionClosedError, MessageTooLargeError, InvalidNameError, InvalidHeadersError, InvalidKeyError,
            NotSupportedError: as of publish(); the messages before were sent.
        """
        every, way = NewMessage(b"", headers or NOTHING, key, reply), self._way(ack)
        if self._chain:
            return await self._publish_many_in_chain(way, channel, messages, every, timeout_s)
        batch = PublishManyResult()
        common = encode_context(headers, key)
        acked, room = ack == "commit", 0
        for place, message in enumerate(messages):
            if not room and not (room := await self._turn_of_room(timeout_s, acked=acked)):
                batch.failures.append((place, NotSentError()))
            if batch.failures:
                break
            if isinstance(message, NewMessage):
                data, subject, context = message.data, message.reply, encode_context(message.headers, message.key)
            else:
                data, subject, context = message, reply, common
            if self._closed:
                raise ConnectionClosedError from self._reason
            if acked:
                batch.expect(
                    self._publisher.publish(channel, data, subject, batch.settle, context, timeout_s=timeout_s), place
                )
            else:
                self._publisher.publish_unacked(channel, data, subject, context)
                batch.acked += 1
            room -= 1
        return await batch.result()

    async def _turn_of_room(self, timeout_s: float | None, *, acked: bool) -> int:
        """Wait for room and let the encoded messages reach the socket; returns how many messages may be published in this turn of
        the event loop, 0 if the time is over."""
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    if not acked:
                        await self._connected()
                        await asyncio.sleep(0)
                        if self._publisher.attached:
                            return PUBLISHES_PER_TURN_MAX
                        continue
                    room = min(await self.room(), PUBLISHES_PER_TURN_MAX)
                    await asyncio.sleep(0)
                    room = min(room, self._publisher.free())
                    if room > 0:
                        return room
        except TimeoutError:
            return 0

    async def _publish_many_in_chain(
        self,
        way: _Way,
        channel: str,
        messages: Iterable[bytes | NewMessage],
        every: NewMessage,
        timeout_s: float | None,
    ) -> int:
        """As publish_many, with one task per message, because middleware may wait."""
        batch = PublishManyResult()
        broken: list[Exception] = []
        room = asyncio.Semaphore(min(self._options.max_pub_acks_in_flight, PUBLISHES_PER_TURN_MAX))
        tasks: set[asyncio.Task[None]] = set()

        async def publish(place: int, message: NewMessage) -> None:
            try:
                await self._publish_in_chain(way, channel, message, b"", deadline(timeout_s))
                batch.acked += 1
            except StanClientError as error:
                batch.failures.append((place, error))
            except Exception as error:  # noqa: BLE001 - of middleware; raised to the caller below
                broken.append(error)
            finally:
                room.release()

        try:
            for place, message in enumerate(messages):
                await room.acquire()
                if batch.failures or broken:
                    break
                whole = message if isinstance(message, NewMessage) else every._replace(data=message)
                task = asyncio.create_task(publish(place, whole))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        if broken:
            raise broken[0]
        return await batch.result()

    def _log_failure(self, guid: str, error: StanClientError | None) -> None:
        if error is not None:
            log.warning("publish %s failed: %s", guid, error)

    async def delete(self, channel: str, key: str | bytes, *, timeout_s: float | None = None) -> Published:
        """Publish a tombstone: a message that deletes *key* for whoever folds the channel by key, see `Table`.

        Raises: as publish(). InvalidKeyError also if *key* is empty.
        """
        if not key:
            raise InvalidKeyError("stan: a tombstone needs a key")
        return await self.publish(channel, b"", key=key, headers={DELETE_HEADER.decode(): b"1"}, timeout_s=timeout_s)

    # --- subscribing -----------------------------------------------------------------------------------------------

    async def subscribe(
        self,
        channel: str,
        callback: Callback | BatchCallback | None = None,
        *,
        queue: str = "",
        durable: str = "",
        start: Start | None = None,
        max_in_flight: int = 1024,
        ack_wait_s: int = 30,
        manual_acks: bool = False,
        batch: bool = False,
        on_error: OnError = "wait",
        replica: str = "",
        timeout_s: float | None = None,
    ) -> Subscription:
        """Subscribe to a channel; iterate over the result, or give a callback.

        Args:
            channel: a name without wildcards; it is created if it does not exist.
            callback: takes one message; with *batch*, the list of messages that arrived together. A plain function is called in
                the turn of the event loop that read the messages and must not block; an async function is awaited by one
                worker of the subscription. With middleware the worker runs plain functions, too; none runs around lists.
            queue: name of a queue group; each message goes to one of the group's members.
            durable: name under which (with the client id) the server keeps the acks after the subscription is closed.
            start: where a new subscription begins, made by stan_client.positions; only new messages by default.
            max_in_flight: messages that the server sends before it waits for acks, >= 1.
            ack_wait_s: whole seconds after which an unacked message is redelivered, >= 1.
            manual_acks: messages are acked by Message.ack(), not by the subscription.
            batch: call *callback* with lists of messages.
            on_error: what happens to messages whose callback raises (or a middleware around it), which is logged in any case:
                "wait": they are not acked, and come again after the ack wait; "nak": they come again after the pause of the
                operator's delivery policy, or else about at once; "reject": they never come again. The server is told the
                error's text. A server that knows no negative acks is told nothing: "wait" then.
            replica: which other node of the cluster than the channel's leader may send the messages, which spares the leader:
                "any", "zone=east", or a node's name; if there is none, or the subscription has a durable name or a queue, or
                the server does not know this, the leader does.
            timeout_s: seconds that the whole call takes at most. None: for the answer the client's `connect_timeout_s`.

        Raises:
            ServerError: refused. SubscribeRequestTimeoutError: no answer. ConnectionClosedError: the client is closed.
            ValueError: *on_error* is none of these, there is no callback that could fail, or *start* is `newest`.
        """
        if start is not None and start.is_newest:
            raise ValueError("a subscription cannot start with the newest messages: fetch or read them, then subscribe")
        options = SubscriptionOptions(
            queue=queue,
            durable=durable,
            start=start or new_only(),
            max_in_flight=max_in_flight,
            ack_wait_s=ack_wait_s,
            manual_acks=manual_acks,
            batch=batch,
            on_error=on_error,
            replica=replica,
        )
        if self._chain and callback is not None and not batch:
            callback = self._in_chain(cast("Callback", callback))
        subscription = Subscription(self, channel, callback, options)
        until = deadline(timeout_s)
        try:
            async with asyncio.timeout_at(until):
                session = await self.ready()
        except TimeoutError:
            raise SubscribeRequestTimeoutError from None
        await subscription.make(session, left_s(until))
        self._subscriptions.add(subscription)
        return subscription

    async def subscribe_parts(
        self,
        channel: str,
        callback: Callback | None = None,
        *,
        queue: str = "",
        durable: str = "",
        start: Start | None = None,
        max_in_flight: int = 1024,
        ack_wait_s: int = 30,
        manual_acks: bool = False,
        on_error: OnError = "wait",
    ) -> PartedSubscription:
        """Subscribe to all parts of a channel that has parts, as one; iterate over the result, or give a callback.

        Arguments as of subscribe(); *max_in_flight* is of each part. The messages of a key come in order, in a queue group if
        each part has one member or the policy `order: key`. Over a doubling of the parts a durable or queue group needs the
        right `admin_read` on the channel, as its position in the old parts is looked at.

        Raises:
            ServerError: refused, or the channel has no parts. Else as of subscribe().
        """
        options = SubscriptionOptions(
            queue=queue,
            durable=durable,
            start=start or new_only(),
            max_in_flight=max_in_flight,
            manual_acks=manual_acks,
            on_error=on_error,
        )

        async def make(part: str, take: Callback, begin: Start) -> Subscription:
            return await self.subscribe(
                part,
                take,
                queue=queue,
                durable=durable,
                start=begin,
                max_in_flight=max_in_flight,
                ack_wait_s=ack_wait_s,
                manual_acks=manual_acks,
                on_error=on_error,
            )

        subscription = PartedSubscription(self, channel, callback, options, make)
        await subscription.open()
        self._subscriptions.add_parted(subscription)
        return subscription

    def _in_chain(self, callback: Callback) -> Callback:
        async def handle(message: Message) -> None:
            await self.handle(message, callback)

        return handle

    async def handle(self, message: Message, callback: Callback) -> None:
        """Run *callback* with a message, inside the client's middleware. Subscriptions with a callback do that by themselves; a
        program that iterates calls this in its loop, because the client cannot see how the body of a loop ends. Acks are not
        concerned. Whatever *callback* or a middleware raises is raised."""
        context = MiddlewareContext("handle", self, message.channel, attempt=message.redelivery_count + 1)
        await self._chain.run(context, message, handled(callback))

    def forget(self, subscription: Subscription) -> None:
        """Note that a subscription has ended: it is not made again after a loss."""
        self._subscriptions.forget(subscription)

    # --- the end ---------------------------------------------------------------------------------------------------

    async def drain(self, *, timeout_s: float | None = None) -> bool:
        """Drain all subscriptions, one after the other, wait for the acks of publishes, and close the client. Returns True if all
        messages that had come were handled and no publish is without an ack. *timeout_s*: seconds after which the client is
        closed although not all is done; None: never.

        Raises:
            RuntimeError: called by an async callback of a subscription, for which it would wait. ConnectionClosedError: the
                client is closed. Else as of close().
        """
        if self._closed:
            raise ConnectionClosedError from self._reason
        until = deadline(timeout_s)
        finished = await self._subscriptions.drain(until)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                while self._publisher.in_flight and not self._closed:
                    await self._publisher.wait_for_room()
        finished &= not self._publisher.in_flight and not self._closed
        await self.close()
        return finished

    async def close(self, *, timeout_s: float | None = None) -> None:
        """Close the client: publishes without ack fail, durables stay on the server, iterations end. A second close does nothing.
        *timeout_s*: seconds to wait for the server's answer; None: the client's `connect_timeout_s`.

        Raises:
            CloseRequestTimeoutError, ServerError: the server did not confirm; the client is closed anyway.
        """
        if self._closed:
            return
        session = self._session
        await self._stop(ConnectionClosedError())
        try:
            if session is not None:
                await session.close(timeout_s)
        finally:
            if self._link is not None:
                await self._link.shut()

    async def _finish(self, reason: StanClientError) -> None:
        """Close the client because its session cannot be recovered."""
        log.error("client %s is closed: %s", self.client_id, reason)
        closed = ConnectionClosedError()
        closed.__cause__ = reason
        self._reason = reason
        await self._stop(closed)
        if self._link is not None:
            await self._link.shut()

    async def _stop(self, error: StanClientError) -> None:
        self._closed, self._session = True, None
        self._replies.end(error)
        if self._recovery is not None and self._recovery is not asyncio.current_task():
            self._recovery.cancel()
        await self._subscriptions.end(error if self._reason is not None else None)
        await self._publisher.detach(error, final=True)
        self._publisher.stop()
        self._ready_waiters.wake()

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_exc: object) -> None:
        """Close the client; an error of the body is not hidden by one of the close."""
        with contextlib.suppress(*((StanClientError,) if kind is not None else ())):
            await self.close()


async def connect(
    cluster_id: str,
    client_id: str,
    *,
    servers: str | list[str] = "nats://127.0.0.1:4222",
    nats: NatsClient | None = None,
    nats_options: Mapping[str, Any] | None = None,
    connect_timeout_s: float = 2,
    ack_timeout_s: float = 30,
    max_pub_acks_in_flight: int = 16384,
    ping_interval_s: int = 5,
    ping_max_out: int = 88,
    discover_prefix: str = "_STAN.discover",
    connection_lost: Callable[[StanClientError], None] | None = None,
    resubscribe: bool = True,
    republish: bool = False,
    middleware: Sequence[Middleware] = (),
) -> Client:
    """Connect to a cluster under a client id; options and defaults of the original client (STAN-SPEC 14.1).

    Args:
        cluster_id: the server's cluster id, "test-cluster" unless configured otherwise.
        client_id: letters, digits, "-" and "_"; one client at a time may use it.
        servers: NATS URLs; a comma separated string or a list.
        nats: a connected nats-py client to use instead; it is never closed here.
        nats_options: user, password, token, user_credentials, tls_ca, ... as of transport.connection.for_nats; also nats-py's
            callbacks (async, without arguments) disconnected_cb and reconnected_cb, which report on the NATS connection.
        connect_timeout_s: seconds that connect, subscribe, unsubscribe and close requests wait for an answer.
        ack_timeout_s: seconds after which a publish without ack or a fetch without answer fails.
        max_pub_acks_in_flight: publishes without ack at most; publish() waits beyond this.
        ping_interval_s: seconds between two pings, >= 1.
        ping_max_out: unanswered pings after which the session is lost, >= 2.
        discover_prefix: prefix of the subject on which the server takes connect requests.
        connection_lost: called once for each loss of the session, with the reason; not on close().
        resubscribe: after a loss, make the session and all subscriptions again; otherwise a loss closes the client.
        republish: send publishes without ack again, with the same guid, after a loss or a NATS reconnect. Off by default: a
            lost ack leaves open whether the message was stored, and a server that ignores guids stores it twice.
        middleware: runs around what publish(), publish_many() and callbacks do, outermost first; see messages.middleware.

    Raises:
        PingOptionsError, InvalidNameError: ping values out of range, impossible cluster id.
        BadConnectionError: *nats* is not connected.
        CannotConnectError: NATS cannot be reached; it is an OSError, too. InvalidUrlError: one of *servers* is no URL.
        ConnectRequestTimeoutError: no server answers for this cluster id. ServerError: the server refuses.
    """
    if ping_interval_s < 1 or ping_max_out < 2:
        raise PingOptionsError(ping_interval_s, ping_max_out)
    check_cluster_id(f"{discover_prefix}.{cluster_id}")
    client = Client(
        SessionOptions(cluster_id, client_id, discover_prefix, connect_timeout_s, ping_interval_s, ping_max_out),
        ClientOptions(
            servers=servers.split(",") if isinstance(servers, str) else servers,
            nats=nats,
            nats_options=nats_options or {},
            ack_timeout_s=ack_timeout_s,
            max_pub_acks_in_flight=max_pub_acks_in_flight,
            resubscribe=resubscribe,
            republish=republish,
            connection_lost=connection_lost,
            middleware=tuple(middleware),
        ),
    )
    await client.start()
    return client
