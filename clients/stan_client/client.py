"""The client: one client id, its publishes and its subscriptions, over the sessions of stan_client.sessions."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol, cast

from stan_protocol.channels import is_channel_name
from stan_protocol.compaction import DELETE_HEADER

from stan_client.errors import (
    InvalidKeyError,
    InvalidNameError,
    NotSentError,
    PingOptionsError,
    ReplyTimeoutError,
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
    PublishManyResult,
)
from stan_client.reading.connected import Connected
from stan_client.reading.consumer import Position
from stan_client.reading.exactly_once import ExactlyOnce, reader
from stan_client.sessions import ClientOptions, Sessions
from stan_client.subscribing import PartedDelivery, PartedSubscription, Subscription, SubscriptionDelivery
from stan_client.transport.connection import NatsClient
from stan_client.transport.session import Session, SessionOptions, check_cluster_id
from stan_client.waiting import deadline, left_s

log = logging.getLogger("stan_client")


class _Way(Protocol):
    """The way of one message: with its encoded context, until the loop time at which the caller gives up."""

    def __call__(
        self, channel: str, data: bytes, reply: str, context: bytes, until: float | None, *, delayed: bool
    ) -> Awaitable[Published]: ...


class PublishWindow:
    """The publishes without ack of one client, and the room for more: publishing at full speed, without a task, future or timer
    for each message.

    for number in range(await client.window.room()):
        client.window.publish("orders", b"%d" % number, on_ack=note)
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    @property
    def in_flight(self) -> int:
        """Publishes without ack."""
        return self._sessions.publisher.in_flight

    async def room(self) -> int:
        """Wait until `publish` may be called; returns how many calls are allowed before the next await, at least 1.

        Raises:
            ConnectionClosedError: the client is closed.
        """
        return await self._sessions.room()

    def publish(
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

        Arguments as of Client.publish(), but for *timeout_s*, after which *on_ack* is called with PublishAckTimeoutError, and
        two more: *on_ack* is called exactly once, with the known facts of the message and None or the error; None: failures are
        logged. With *numbered* it gets the `sequence`, too (of a delayed message the `delayed_id`); this is an option, as it
        costs some CPU here and in the server at full speed.

        Raises:
            TooManyInFlightError: the window is full or the session is being recovered: `await room()` first. Else as of
                Client.publish().
        """
        self._sessions.check_open()
        context = encode_context(headers, key) if headers or key else b""
        delayed = delay_s is not None or deliver_at is not None
        if delayed:
            context = encode_due(delay_s, deliver_at) + context
        if ttl_s is not None:
            context = encode_ttl(ttl_s) + context
        return self._sessions.publisher.publish(
            channel,
            data,
            reply,
            on_ack or _log_failure,
            context,
            numbered=numbered,
            delayed=delayed,
            timeout_s=timeout_s,
        )


class Client(Connected):
    """A connected client; made by `connect`, usable as `async with`."""

    def __init__(self, sessions: Sessions) -> None:
        """Use sessions that were started."""
        session_options, options = sessions.session_options, sessions.options
        super().__init__(sessions.inbox, session_options.cluster_id, options.ack_timeout_s, sessions.payload_max)
        self._sessions = sessions
        self._publisher = sessions.publisher
        self._window = PublishWindow(sessions)
        self._chain = Chain(options.middleware)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "connected" if self.connected else "lost"
        return f"<Client {self.client_id} {state} in_flight={self._publisher.in_flight}>"

    @property
    def client_id(self) -> str:
        """The id under which the client is registered."""
        return self._sessions.session_options.client_id

    @property
    def closed(self) -> bool:
        """True once the client is closed, by close() or because its session could not be recovered."""
        return self._sessions.closed

    @property
    def connected(self) -> bool:
        """True while the client has a session, as far as the client knows."""
        return self._sessions.current is not None

    @property
    def window(self) -> PublishWindow:
        """The publishes without ack: room for more, and how to publish without a wait."""
        return self._window

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
        """Publish one message and wait for its ack; returns the contents of the ack, with the guid and `sequence` of the message.

        Args:
            channel: its name.
            data: the message.
            reply: a subject of the program's own, which the server passes on.
            headers: text or bytes by name; all together at most 64 KiB as encoded.
            key: of the message; at most 1 KiB; empty: none.
            delay_s: seconds from now, by this machine's clock, before which the message does not come into its channel: the
                server stores it until its own clock shows that time. At most a year.
            deliver_at: the same as a time with its offset from UTC.
            ttl_s: seconds from when the message is in its channel, by the server's clock, after which no reader gets it. The
                server rounds their end up to a second, or to a 3600th of a longer time. More than 0, at most ten years.
            timeout_s: seconds that the whole call takes at most, whatever middleware does meanwhile. None: the client's
                `ack_timeout_s` for room in the window, and once more for the ack.
            ack: "commit" waits until the message is stored for good. "none" waits for nothing but a connection that takes the
                bytes, and promises nothing: the server does not answer, a refused or lost message is not reported, the sequence
                is not known, and `republish` does not send it again. For telemetry, of which the next value replaces the last.

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
            return await self._publish_in_chain(send, channel, message, ttl + due, until, delayed=bool(due))
        return await send(channel, data, reply, ttl + due + encode_context(headers, key), until, delayed=bool(due))

    def _way(self, ack: AckLevel) -> _Way:
        """Return the way of messages of this ack level."""
        if ack not in ACK_LEVELS:
            raise ValueError(f"ack is one of {', '.join(ACK_LEVELS)}, not {ack!r}")
        return self._publish if ack == "commit" else self._publish_unacked

    async def _publish_in_chain(
        self,
        way: _Way,
        channel: str,
        message: NewMessage,
        times: bytes,
        until: float | None,
        *,
        delayed: bool = False,
    ) -> Published:
        async def send(message: NewMessage) -> Published:
            context = times + encode_context(message.headers, message.key)
            return await way(channel, message.data, message.reply, context, until, delayed=delayed)

        published = await self._chain.run(MiddlewareContext("publish", self, channel, deadline=until), message, send)
        return cast("Published", published)

    async def _publish_unacked(
        self, channel: str, data: bytes, reply: str, context: bytes, until: float | None, *, delayed: bool
    ) -> Published:
        del delayed  # an unacked message has no number
        await self._sessions.room(self._given_up_at(until), acked=False)
        return Published(self._publisher.publish_unacked(channel, data, reply, context))

    def _given_up_at(self, until: float | None) -> float:
        """The loop time at which a publish that was not sent is given up."""
        if until is None:
            return asyncio.get_running_loop().time() + self._sessions.options.ack_timeout_s
        return until

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
        """Publish a message that asks for an answer, and return the first one that comes: the data that a handler of the message
        gives to Message.respond, or publishes to its reply subject over NATS.

        The message is stored as any other, so it is handled also if its handler dies, and after the caller has given up; *ttl_s*
        bounds that. The answer is not stored: it comes over NATS, to an inbox of this client.

        Arguments as of publish(); *timeout_s*: seconds for the ack of the message and the answer together.

        Raises:
            ReplyTimeoutError: the message is stored, and no answer came in time. Else as of publish(), if no answer came.
        """
        until = asyncio.get_running_loop().time() + timeout_s
        reply, answer = self._sessions.replies.expect()
        try:
            try:
                async with asyncio.timeout_at(until):
                    await self._sessions.replies.listen((await self._sessions.ready()).link)
            except TimeoutError:
                raise NotSentError from None
            try:
                await self.publish(
                    channel, data, reply=reply, headers=headers, key=key, ttl_s=ttl_s, timeout_s=left_s(until)
                )
            except StanClientError:
                if not answer.done():  # else the ack alone was lost: an answered message is stored
                    raise
            try:
                async with asyncio.timeout_at(until):
                    return await answer
            except TimeoutError:
                raise ReplyTimeoutError from None
        finally:
            self._sessions.replies.forget(reply)

    async def _publish(
        self, channel: str, data: bytes, reply: str, context: bytes, until: float | None, *, delayed: bool
    ) -> Published:
        await self._sessions.room(self._given_up_at(until))
        return await self._sent(channel, data, reply, context, until, delayed=delayed)

    def _sent(
        self, channel: str, data: bytes, reply: str, context: bytes, until: float | None, *, delayed: bool
    ) -> asyncio.Future[Published]:
        """Send one message, for which there is room; returns a future of its ack."""
        acked: asyncio.Future[Published] = asyncio.get_running_loop().create_future()

        def settle(published: Published, error: StanClientError | None) -> None:
            if acked.done():
                return
            if error is None:
                acked.set_result(published)
            else:
                acked.set_exception(error)

        timeout_s = left_s(until)
        if timeout_s == 0:
            raise NotSentError
        self._publisher.publish(
            channel, data, reply, settle, context, numbered=True, delayed=delayed, timeout_s=timeout_s
        )
        return acked

    async def publish_async(
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
    ) -> asyncio.Future[Published]:
        """Publish one message once there is room in the window, and return a future of its result, as of publish(). No
        middleware runs around it.

        Arguments as of publish(). Errors before the message is sent are raised, later ones are the future's.
        """
        until, due = deadline(timeout_s), encode_due(delay_s, deliver_at)
        context = encode_ttl(ttl_s) + due + encode_context(headers, key)
        await self._sessions.room(self._given_up_at(until))
        return self._sent(channel, data, reply, context, until, delayed=bool(due))

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

        *messages* are data alone, with *reply*, *headers* and *key* of all, or have their own. Other arguments as of publish();
        *timeout_s* is of each message, for room and for its ack (None: for its ack `ack_timeout_s`); with the ack level "none"
        the number is that of the messages sent.

        Raises:
            ValueError: *ack* is neither.
            PublishManyError: some messages were not acked; `failures` lists which and why. The first failure ends the
                publishing, so that the messages after a refused one are not published before it.
            Others as of publish(), before a message is sent: those before it were sent.
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
            self._sessions.check_open()
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
        room, until = 0, deadline(timeout_s)
        with contextlib.suppress(NotSentError):
            while not room:
                room = await self._sessions.room(until, acked=acked)
                await asyncio.sleep(0)
                room = min(room, self._sessions.free(acked=acked), PUBLISHES_PER_TURN_MAX)
        return room

    async def _publish_many_in_chain(
        self,
        way: _Way,
        channel: str,
        messages: Iterable[bytes | NewMessage],
        every: NewMessage,
        timeout_s: float | None,
    ) -> int:
        """Do what publish_many does, with one task per message, because middleware may wait."""
        batch = PublishManyResult()
        broken: list[Exception] = []
        room = asyncio.Semaphore(min(self._sessions.options.max_pub_acks_in_flight, PUBLISHES_PER_TURN_MAX))
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

    async def publish_tombstone(self, channel: str, key: str | bytes, *, timeout_s: float | None = None) -> Published:
        """Publish a tombstone: a message that deletes *key* for readers that fold the channel by key, see `Table`.

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
                operator's delivery policy, or else about at once; "reject": they never come again. The server gets the
                error's text. With a server that knows no negative acks: "wait".
            replica: which other node of the cluster than the channel's leader may send the messages, which spares the leader:
                "any", "zone=east", or a node's name; if there is none, or the subscription has a durable name or a queue, or
                the server does not know this, the leader does.
            timeout_s: seconds that the whole call takes at most. None: for the answer the client's `connect_timeout_s`.

        Raises:
            ServerError: refused. SubscribeRequestTimeoutError: no answer. ConnectionClosedError: the client is closed.
            InvalidNameError: *channel* is not a valid channel name. TypeError: *start* is no start.
            ValueError: *on_error* is none of these, there is no callback that could fail, or *start* is `newest`.
        """
        options = SubscriptionOptions(
            queue=queue,
            durable=durable,
            start=_start_of(start),
            max_in_flight=max_in_flight,
            ack_wait_s=ack_wait_s,
            manual_acks=manual_acks,
            batch=batch,
            on_error=on_error,
            replica=replica,
        )
        return await self._subscribe(channel, callback, options, timeout_s)

    async def _subscribe(
        self,
        channel: str,
        callback: Callback | BatchCallback | None,
        options: SubscriptionOptions,
        timeout_s: float | None,
    ) -> Subscription:
        if not is_channel_name(channel.encode("utf-8", "surrogateescape")):
            raise InvalidNameError.of_channel(channel)
        if self._chain and callback is not None and not options.batch:
            callback = self._in_chain(cast("Callback", callback))
        delivery = SubscriptionDelivery(self._sessions, channel, callback, options)
        until = deadline(timeout_s)
        try:
            async with asyncio.timeout_at(until):
                session = await self._sessions.ready()
        except TimeoutError:
            raise SubscribeRequestTimeoutError from None
        await delivery.make(session, left_s(until))
        subscription = Subscription(delivery, self._handle)
        self._sessions.subscriptions.add(delivery, subscription)
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
        replica: str = "",
        timeout_s: float | None = None,
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
            start=_start_of(start),
            max_in_flight=max_in_flight,
            ack_wait_s=ack_wait_s,
            manual_acks=manual_acks,
            on_error=on_error,
            replica=replica,
        )

        async def make(part: str, handler: Callback, begin: Start) -> Subscription:
            return await self._subscribe(part, handler, replace(options, start=begin), None)

        delivery = PartedDelivery(self, channel, callback, options, make)
        try:
            async with asyncio.timeout(timeout_s):
                await delivery.open()
        except TimeoutError as late:
            raise late if isinstance(late, StanClientError) else SubscribeRequestTimeoutError() from None
        subscription = PartedSubscription(delivery, self._handle)
        self._sessions.subscriptions.add_parted(delivery, subscription)
        return subscription

    def _in_chain(self, callback: Callback) -> Callback:
        async def handle(message: Message) -> None:
            await self._handle(message, callback)

        return handle

    async def _handle(self, message: Message, callback: Callback) -> None:
        """Run *callback* with a message, inside the middleware."""
        context = MiddlewareContext("handle", self, message.channel, attempt=message.redelivery_count + 1)
        await self._chain.run(context, message, handled(callback))

    def exactly_once(
        self,
        name: str,
        channel: str,
        database: Any = None,
        *,
        start: Position | int = 1,
        follow: bool = True,
        skip_lost: bool = False,
        timeout_s: float | None = None,
    ) -> ExactlyOnce:
        """Read a channel so that the effects of each message happen exactly once: use as `async with`, and iterate.

        Args:
            name: of the reader; the position is stored under it and the channel's name.
            channel: its name.
            database: a connection that nothing else uses, of sqlite3, aiosqlite, psycopg or asyncpg; the position is in its
                table `stan_positions`, and moves in the transaction of the program's own rows. None: the effects are messages
                for other channels, which the servers commit with the position.
            start: where a reader without a position begins.
            follow: wait for new messages at the end of the channel.
            skip_lost: as of PullConsumer.
            timeout_s: of each request, in seconds; None: the client's.

        Raises:
            TypeError: *database* is no connection that is known. ValueError: *start* is damaged.
        """
        return reader(self, name, channel, database, start, follow=follow, skip_lost=skip_lost, timeout_s=timeout_s)

    # --- the end ---------------------------------------------------------------------------------------------------

    async def drain(self, *, timeout_s: float | None = None) -> bool:
        """Drain all subscriptions, one after the other, wait for the acks of publishes, and close the client. Returns True if all
        messages that had come were handled and no publish is without an ack. *timeout_s*: seconds after which the client is
        closed although not all is done; None: never.

        Raises:
            RuntimeError: called by an async callback of a subscription, for which it would wait. ConnectionClosedError: the
                client is closed. Else as of close().
        """
        self._sessions.check_open()
        until = deadline(timeout_s)
        finished = await self._sessions.subscriptions.drain(until)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                while self._publisher.in_flight and not self.closed:
                    await self._publisher.wait_for_room()
        finished &= not self._publisher.in_flight and not self.closed
        await self.close()
        return finished

    async def close(self, *, timeout_s: float | None = None) -> None:
        """Close the client: publishes without ack fail, durables stay on the server, iterations end. A second close does nothing.
        *timeout_s*: seconds to wait for the server's answer; None: the client's `connect_timeout_s`.

        Raises:
            CloseRequestTimeoutError, ServerError: the server did not confirm; the client is closed anyway.
        """
        await self._sessions.close(timeout_s)

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_exc: object) -> None:
        """Close the client; an error of the body is not hidden by one of the close."""
        with contextlib.suppress(*((StanClientError,) if kind is not None else ())):
            await self.close()


def _start_of(start: Start | None) -> Start:
    """The start of a subscription. Raises ValueError if no subscription can begin there, TypeError if it is no start."""
    if start is not None and not isinstance(start, Start):
        raise TypeError(
            f"a start is made by everything(), new_only(), from_sequence(), ... of stan_client, it is not {start!r}"
        )
    if start is not None and start.is_newest:
        raise ValueError("a subscription cannot start with the newest messages: fetch or read them, then subscribe")
    return start or new_only()


def _log_failure(published: Published, error: StanClientError | None) -> None:
    if error is not None:
        log.warning("publish %s failed: %s", published.guid, error)


async def connect(
    servers: str | list[str] = "nats://127.0.0.1:4222",
    *,
    client_id: str,
    cluster_id: str = "test-cluster",
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
        servers: NATS URLs; a comma separated string or a list.
        client_id: letters, digits, "-" and "_"; one client at a time may use it.
        cluster_id: of the streaming servers; the default is theirs.
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
    sessions = Sessions(
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
    await sessions.start()
    return Client(sessions)


async def session_of(client: Client) -> Session:
    """Return the session of a client, waiting until there is one, for the parts of this project that build on clients.

    Raises:
        ConnectionClosedError: the client is closed.
    """
    return await client._sessions.ready()  # noqa: SLF001 - clients do not show it to programs
