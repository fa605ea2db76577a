"""The client: one client id, its session, its publishes and subscriptions, and the recovery after the session is lost.

After a loss (pings unanswered, "client has been replaced ...", NATS closed) and with `resubscribe` (the default), the client
registers again under the same id and makes its subscriptions again: durables resume, others continue after the last message
that arrived. Publishes without ack fail, unless `republish`. The old clients leave all this to their users (FIELD 18, 19).
The client never closes a NATS connection that the caller has supplied.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from nats.aio.client import Client as NatsClient

from stan_client.connected import Connected
from stan_client.connection import CONNECT_FAILURES, BorrowedLink, ClientConnection, NatsLink, for_nats
from stan_client.errors import (
    BadConnectionError,
    ConnectionClosedError,
    PingOptionsError,
    PublishAckTimeoutError,
    ServerError,
    StanClientError,
)
from stan_client.inbox import Inbox
from stan_client.messages import BatchCallback, Callback, SubscriptionOptions
from stan_client.positions import Start, new_only
from stan_client.publishing import PUBLISHES_PER_TURN_MAX, OnAck, Publisher, PublishManyResult
from stan_client.session import Session, SessionOptions, check_cluster_id
from stan_client.subscription import Subscription

log = logging.getLogger("stan_client")

RETRY_FIRST_S: Final = 0.1
RETRY_MAX_S: Final = 5.0
"""Pauses between attempts to register again: doubled from the first to the longest."""

REFUSALS_MAX: Final = 5
"""Consecutive CLIENT_REGISTERED refusals after which another live client is taken to own the id, and this client closes."""

CLIENT_REGISTERED: Final = "stan: clientID already registered"


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


class Client(Connected):
    """A connected client; made by `connect`, usable as `async with`."""

    def __init__(self, session_options: SessionOptions, options: ClientOptions) -> None:
        """Keep the options; `start` connects and registers."""
        super().__init__(self._inbox, session_options.cluster_id, options.ack_timeout_s)
        self._session_options = session_options
        self._options = options
        self._session: Session | None = None  # None while lost
        self._subscriptions: list[Subscription] = []
        self._publisher = Publisher(
            in_flight_max=options.max_pub_acks_in_flight,
            ack_timeout_s=options.ack_timeout_s,
            republish=options.republish,
        )
        self._recovery: asyncio.Task[None] | None = None
        self._ready_waiters: list[asyncio.Future[None]] = []
        self._closed = False
        self._reason: StanClientError | None = None

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
            nats_options = {"name": self.client_id, **for_nats(options.nats_options)}
            connection = ClientConnection()
            await connection.open(options.servers, nats_options, self._session_options.connect_timeout_s)
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
            try:
                self._options.connection_lost(error)
            except Exception:
                log.exception("connection_lost callback failed")

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
                    self._wake()
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
            except (StanClientError, *CONNECT_FAILURES) as trouble:
                refusals = 0
                log.debug("registering %s again: %s", self.client_id, trouble)
            await asyncio.sleep(pause)
            pause = min(2 * pause, RETRY_MAX_S)

    async def _begin_again(self) -> bool:
        """Make a new session with all subscriptions; False if the session was lost meanwhile."""
        session = await self._begin_session()
        for subscription in list(self._subscriptions):
            try:
                await subscription.make(session)
            except ServerError as refusal:
                log.warning("subscription to %s not made again: %s", subscription.channel, refusal)
                await subscription.end(refusal)
            except StanClientError as trouble:
                session.lose(trouble)
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
            waiter = asyncio.get_running_loop().create_future()
            self._ready_waiters.append(waiter)
            await waiter

    async def _inbox(self) -> Inbox:
        return (await self.ready()).inbox

    def _wake(self) -> None:
        waiters, self._ready_waiters = self._ready_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # --- publishing ------------------------------------------------------------------------------------------------

    async def publish(self, channel: str, data: bytes, *, reply: str = "") -> str:
        """Publish one message and wait for its ack; returns the message's guid.

        Raises:
            ServerError: the server refused the message. PublishAckTimeoutError: no ack in time.
            MessageTooLargeError: larger than NATS accepts. InvalidNameError: *channel* is not a valid channel name.
            ConnectionClosedError: the client is closed.
            StanClientError: the session was lost before the ack came; whether the message is stored is not known.
        """
        acked: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def settle(guid: str, error: StanClientError | None) -> None:
            if acked.done():
                return
            if error is None:
                acked.set_result(guid)
            else:
                acked.set_exception(error)

        try:
            async with asyncio.timeout(self._options.ack_timeout_s):
                await self.room()
        except TimeoutError:
            raise PublishAckTimeoutError from None
        self.publish_async(channel, data, reply=reply, on_ack=settle)
        return await acked

    def publish_async(self, channel: str, data: bytes, *, reply: str = "", on_ack: OnAck | None = None) -> str:
        """Publish without waiting; returns the message's guid. *on_ack* is called exactly once, with the guid and None or the
        error.

        Raises:
            TooManyInFlightError: the window is full or the session is being recovered: `await client.room()` first.
            MessageTooLargeError, InvalidNameError, ConnectionClosedError: as of publish().
        """
        if self._closed:
            raise ConnectionClosedError from self._reason
        return self._publisher.publish(channel, data, reply, on_ack or self._log_failure)

    async def room(self) -> int:
        """Wait until publish_async may be called; returns how many calls are allowed before the next await, at least 1."""
        while True:
            session = await self.ready()
            await session.link.drained()
            free = self._publisher.free()
            if free > 0 and not self._closed:
                return free
            await self._publisher.wait_for_room()

    async def publish_many(self, channel: str, messages: Iterable[bytes]) -> int:
        """Publish all *messages*, as many at once as the window allows, and wait for all acks; returns the number of messages.

        Raises:
            PublishManyError: some messages were not acked; `failures` lists which and why. The first failure ends the
                publishing, so that the messages after a refused one are not published before it.
            ConnectionClosedError, MessageTooLargeError, InvalidNameError: as of publish(); the messages before were sent.
        """
        batch = PublishManyResult()
        room = 0
        for place, data in enumerate(messages):
            while not room:
                room = min(await self.room(), PUBLISHES_PER_TURN_MAX)
                await asyncio.sleep(0)  # lets the encoded messages reach the socket
                room = min(room, self._publisher.free())
            if batch.failures:
                break
            batch.expect(self.publish_async(channel, data, on_ack=batch.settle), place)
            room -= 1
        return await batch.result()

    def _log_failure(self, guid: str, error: StanClientError | None) -> None:
        if error is not None:
            log.warning("publish %s failed: %s", guid, error)

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
    ) -> Subscription:
        """Subscribe to a channel; iterate over the result, or give a callback.

        Args:
            channel: a name without wildcards; it is created if it does not exist.
            callback: takes one message; with *batch*, the list of messages that arrived together. A plain function is called in
                the turn of the event loop that read the messages and must not block; an async function is awaited by one
                worker of the subscription.
            queue: name of a queue group; each message goes to one of the group's members.
            durable: name under which (with the client id) the server keeps the acks after the subscription is closed.
            start: where a new subscription begins, made by stan_client.positions; only new messages by default.
            max_in_flight: messages that the server sends before it waits for acks, >= 1.
            ack_wait_s: whole seconds after which an unacked message is redelivered, >= 1.
            manual_acks: messages are acked by Message.ack(), not by the subscription.
            batch: call *callback* with lists of messages.

        Raises:
            ServerError: refused. SubscribeRequestTimeoutError: no answer. ConnectionClosedError: the client is closed.
        """
        options = SubscriptionOptions(
            queue=queue,
            durable=durable,
            start=start or new_only(),
            max_in_flight=max_in_flight,
            ack_wait_s=ack_wait_s,
            manual_acks=manual_acks,
            batch=batch,
        )
        subscription = Subscription(self, channel, callback, options)
        await subscription.make(await self.ready())
        self._subscriptions.append(subscription)
        return subscription

    def forget(self, subscription: Subscription) -> None:
        """Note that a subscription has ended: it is not made again after a loss."""
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)

    # --- the end ---------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close the client: publishes without ack fail, durables stay on the server, iterations end. A second close does nothing.

        Raises:
            CloseRequestTimeoutError, ServerError: the server did not confirm; the client is closed anyway.
        """
        if self._closed:
            return
        session = self._session
        await self._stop(ConnectionClosedError())
        try:
            if session is not None:
                await session.close()
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
        if self._recovery is not None and self._recovery is not asyncio.current_task():
            self._recovery.cancel()
        for subscription in list(self._subscriptions):
            await subscription.end(error if self._reason is not None else None)
        await self._publisher.detach(error, final=True)
        self._publisher.stop()
        self._wake()

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_exc: object) -> None:
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
) -> Client:
    """Connect to a cluster under a client id; options and defaults of the original client (STAN-SPEC 14.1).

    Args:
        cluster_id: the server's cluster id, "test-cluster" unless configured otherwise.
        client_id: letters, digits, "-" and "_"; one client at a time may use it.
        servers: NATS URLs; a comma separated string or a list.
        nats: a connected nats-py client to use instead; it is never closed here.
        nats_options: user, password, token, user_credentials, tls_ca, ... as of stan_client.connection.for_nats; also nats-py's
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

    Raises:
        PingOptionsError, InvalidNameError: ping values out of range, impossible cluster id.
        BadConnectionError: *nats* is not connected.
        nats.errors.Error, OSError, TimeoutError: NATS cannot be reached; the error is nats-py's.
        ConnectRequestTimeoutError: no server answers for this cluster id. ServerError: the server refuses.
    """
    if ping_interval_s < 1 or ping_max_out < 2:
        raise PingOptionsError(ping_interval_s, ping_max_out)
    check_cluster_id(f"{discover_prefix}.{cluster_id}")
    client = Client(
        SessionOptions(
            cluster_id=cluster_id,
            client_id=client_id,
            discover_prefix=discover_prefix,
            connect_timeout_s=connect_timeout_s,
            ping_interval_s=ping_interval_s,
            ping_max_out=ping_max_out,
        ),
        ClientOptions(
            servers=servers.split(",") if isinstance(servers, str) else servers,
            nats=nats,
            nats_options=nats_options or {},
            ack_timeout_s=ack_timeout_s,
            max_pub_acks_in_flight=max_pub_acks_in_flight,
            resubscribe=resubscribe,
            republish=republish,
            connection_lost=connection_lost,
        ),
    )
    await client.start()
    return client
