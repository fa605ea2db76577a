"""Client, Subscription and Msg of asyncio-nats-streaming 0.4.0, on top of `stan_client`.

sc = Client()
await sc.connect("test-cluster", "me", nats=nc)  # nc: a connection of nats-py; without it, one is made
await sc.subscribe("orders", start_at="first", cb=callback)
await sc.publish("orders", b"one")

Names, arguments, defaults, results and errors are those of the original, among them attributes with an underscore that programs
use for want of others. The README of this distribution has the differences and their reasons.
"""

import asyncio
import logging
import sys
import time as clock
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import stan_client
from nats.aio.client import Client as Nats
from nats.aio.errors import ErrConnectionClosed
from stan.aio.errors import ErrConnectReqTimeout, ErrTimeoutError, StanError, as_of_old, old_error
from stan.aio.handlers import AckHandler, AckHandlers
from stan.aio.loops import let_nats_take_loops
from stan.pb import protocol_pb2 as protocol
from stan_client.client import session_of
from stan_client.errors import ConnectionClosedError, InvalidNameError, PingOptionsError, ServerError, StanClientError
from stan_client.transport.session import Session, fresh_id

__all__ = ["Client", "ErrConnectReqTimeout", "ErrTimeoutError", "Msg", "StanError", "Subscription", "new_guid"]

__version__ = "0.4.0"
"""Version of the original whose API this is."""

DEFAULT_ACKS_SUBJECT: Final = "_STAN.acks.%s"
DEFAULT_DISCOVER_SUBJECT: Final = "_STAN.discover.%s"
DEFAULT_INBOX_SUBJECT: Final = "_INBOX.%s"
DEFAULT_ACK_WAIT: Final = 30
DEFAULT_MAX_INFLIGHT: Final = 1024
DEFAULT_CONNECT_TIMEOUT: Final = 2
DEFAULT_MAX_PUB_ACKS_INFLIGHT: Final = 16384
DEFAULT_PENDING_LIMIT: Final = 8192
DEFAULT_PING_INTERVAL: Final = 5
DEFAULT_PING_MAX_OUT: Final = 3
PROTOCOL_ONE: Final = 1

UNKNOWN: Final = "stan: unknown clientID"
"""Answer of a server to a client that is not registered any more."""
INVALID_PUBLISH: Final = "stan: invalid publish request"
"""Answer of a server to a publish whose channel has no valid name."""

logger = logging.getLogger(__name__)

Callback = Callable[["Msg"], Awaitable[None]]
OnError = Callable[[Exception], Awaitable[None]]

let_nats_take_loops()


def new_guid() -> str:
    """Return a unique id."""
    return fresh_id()


class Client:
    """A client of a cluster, between connect() and close(); after that, and after a loss, connect() may be called again."""

    def __init__(self) -> None:
        self._nc: Any = None
        self._nats_conn_is_borrowed = False
        self._cluster_id = ""
        self._client_id = ""
        self._client: stan_client.Client | None = None
        self._session: Session | None = None
        self._conn_lost_cb: OnError | None = None
        self._pending_pub_acks_queue: asyncio.Queue[None] = asyncio.Queue()
        self._pub_ack_map: dict[str, AckHandler | None] = {}
        self._sub_map: dict[str, Subscription] = {}
        self._ack_handlers: AckHandlers | None = None
        self._losses: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<stan.aio client {self._client_id or 'not connected'}>"

    # --- what programs look at -------------------------------------------------------------------------------------

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    @property
    def _conn_id(self) -> bytes | None:
        return self._session.conn_id if self._session is not None else None

    @property
    def _pub_prefix(self) -> str | None:
        return self._subject("pub_prefix")

    @property
    def _sub_req_subject(self) -> str | None:
        return self._subject("sub_requests")

    @property
    def _unsub_req_subject(self) -> str | None:
        return self._subject("unsub_requests")

    @property
    def _close_req_subject(self) -> str | None:
        return self._subject("close_requests")

    @property
    def _sub_close_req_subject(self) -> str | None:
        return self._subject("sub_close_requests")

    @property
    def _hb_inbox(self) -> str | None:
        return self._session.inbox.subject if self._session is not None and self._open else None

    _hb_inbox_sid = _ack_subject = _ack_subject_sid = _hb_inbox

    def _subject(self, name: str) -> str | None:
        return getattr(self._session.answer, name).decode() if self._session is not None else None

    @property
    def _open(self) -> bool:
        return self._client is not None and not self._client.closed

    # --- the session -----------------------------------------------------------------------------------------------

    async def connect(
        self,
        cluster_id: str,
        client_id: str,
        nats: Any = None,
        connect_timeout: float = DEFAULT_CONNECT_TIMEOUT,
        max_pub_acks_inflight: int = DEFAULT_MAX_PUB_ACKS_INFLIGHT,
        ping_interval: int = DEFAULT_PING_INTERVAL,
        ping_max_out: int = DEFAULT_PING_MAX_OUT,
        conn_lost_cb: OnError | None = None,
        loop: Any = None,
        nats_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """Connect to a cluster under a client id.

        Args:
            cluster_id: the server's.
            client_id: letters, digits, "-" and "_"; one client at a time may use it.
            nats: a connected client of nats-py, which is used and never closed; None: one is made, and closed with this client.
            connect_timeout: seconds that requests other than publishes wait for an answer.
            max_pub_acks_inflight: publishes without ack at most; publish() waits beyond this.
            ping_interval: seconds between two pings.
            ping_max_out: pings without an answer after which the session is lost.
            conn_lost_cb: called once, with a StanError, when the session is lost; not on close().
            loop: not used; the loop is the one that runs.
            nats_kwargs: for nats-py's connect, if the connection is made here.

        Raises:
            ErrConnectReqTimeout: no server answers. StanError: the server refuses.
            ErrConnectionClosed (of nats-py): *nats* is closed. ValueError: both *nats* and *nats_kwargs* are given.
        """
        del loop
        if nats is not None and nats_kwargs is not None:
            raise ValueError("nats_kwargs are for a connection that is made here, and `nats` was given")
        self._cluster_id, self._client_id = cluster_id, client_id
        self._nats_conn_is_borrowed = nats is not None
        self._nc = nats if nats is not None else await _connected(nats_kwargs or {})
        self._conn_lost_cb = conn_lost_cb
        self._pending_pub_acks_queue = asyncio.Queue(max_pub_acks_inflight)
        self._ack_handlers = AckHandlers(logger, self._settled)
        try:
            await self._register(connect_timeout, ping_interval, ping_max_out)
        except BaseException:
            if not self._nats_conn_is_borrowed:
                await self._nc.close()
            raise

    async def _register(self, timeout_s: float, ping_interval: int, ping_max_out: int) -> None:
        self._client = self._session = None
        try:
            self._client = await stan_client.connect(
                client_id=self._client_id,
                cluster_id=self._cluster_id,
                nats=self._nc,
                connect_timeout_s=timeout_s,
                max_pub_acks_in_flight=sys.maxsize,  # the queue here is the bound
                ping_interval_s=ping_interval,
                ping_max_out=ping_max_out,
                connection_lost=self._note_lost,
                resubscribe=False,
            )
            self._session = await session_of(self._client)
        except (ServerError, PingOptionsError) as refusal:
            raise StanError(str(refusal)) from refusal
        except StanClientError as error:
            if self._nc.is_closed:
                raise ErrConnectionClosed from error
            raise ErrConnectReqTimeout(f"stan: failed connecting to '{self._cluster_id}'") from error

    def _note_lost(self, error: StanClientError) -> None:
        loss = asyncio.get_running_loop().create_task(self._lose(self._client, error))
        self._losses.add(loss)
        loss.add_done_callback(self._losses.discard)

    async def _lose(self, client: stan_client.Client | None, error: StanClientError) -> None:
        if client is not None:
            with suppress(ConnectionClosedError):
                await session_of(client)  # until it has closed itself, which it does without another session
        await self._end()
        tell, self._conn_lost_cb = self._conn_lost_cb, None
        if tell is not None:
            try:
                await tell(StanError(str(error)))
            except Exception:
                logger.exception("Exception in the callback for a lost connection")

    async def close(self) -> None:
        """Close the session: callbacks end, publishes without ack are given up, durables stay on the server.

        Raises:
            StanError: the server refuses, or the client is closed. ErrTimeout, ErrConnectionClosed: of nats-py.
        """
        client = self._client
        try:
            if client is None or client.closed:
                raise ErrConnectionClosed if self._nc is not None and self._nc.is_closed else StanError(UNKNOWN)
            with as_of_old(self._nc):
                await client.close()
        finally:
            await self._end()
            if self._nc is not None and not self._nats_conn_is_borrowed:
                await self._nc.close()

    async def _end(self) -> None:
        """Drop the state of the session; publishes that wait for room go on, and fail."""
        self._sub_map.clear()
        self._pub_ack_map.clear()
        while not self._pending_pub_acks_queue.empty():
            self._pending_pub_acks_queue.get_nowait()
        if self._ack_handlers is not None:
            await self._ack_handlers.end()

    def _connected(self) -> stan_client.Client:
        if self._client is None or self._client.closed:
            raise old_error(ConnectionClosedError(), self._nc) if self._nc is not None else StanError(UNKNOWN)
        return self._client

    # --- publishing ------------------------------------------------------------------------------------------------

    async def publish(
        self, subject: str, payload: bytes, ack_handler: AckHandler | None = None, ack_wait: float = DEFAULT_ACK_WAIT
    ) -> Any:
        """Publish one message; returns its PubAck, or None at once if there is a handler for it.

        Args:
            subject: the channel.
            payload: the message.
            ack_handler: called with the PubAck when it comes; its `error` says whether the server has refused the message.
            ack_wait: seconds to wait for the ack.

        Raises:
            ErrTimeoutError: no ack in time, and no handler. StanError: the session is gone.
            ErrConnectionClosed, ErrMaxPayload: of nats-py.
        """
        room = self._pending_pub_acks_queue
        self._connected()
        await room.put(None)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def on_ack(published: stan_client.Published, error: StanClientError | None) -> None:
            guid = published.guid
            if error is None or isinstance(error, ServerError):
                self._note_ack(protocol.PubAck(guid=guid, error=str(error or "")), ack_handler, answer)
                return
            self._settled(guid)
            if ack_handler is not None:
                logger.warning("no ack for %s on %s: %s", guid, subject, error)
            elif not answer.done():
                answer.set_exception(old_error(error, self._nc))

        try:
            with as_of_old(self._nc):
                guid = await self._send(subject, payload, ack_wait, on_ack)
        except BaseException:
            _free(room)
            raise
        if not guid:
            self._note_ack(protocol.PubAck(guid=new_guid(), error=INVALID_PUBLISH), ack_handler, answer)
        else:
            self._pub_ack_map[guid] = ack_handler
        return await answer if ack_handler is None else None

    async def _send(self, subject: str, payload: bytes, ack_wait: float, on_ack: Any) -> str:
        """Publish; returns the guid, or "" if no server would take a message for such a channel."""
        client = self._connected()
        await client.window.room()
        try:
            return client.window.publish(subject, payload, timeout_s=ack_wait, on_ack=on_ack)
        except InvalidNameError:
            return ""

    def _note_ack(self, ack: Any, handler: AckHandler | None, answer: "asyncio.Future[Any]") -> None:
        if handler is not None and self._ack_handlers is not None:
            self._ack_handlers.put(handler, ack)
            return
        self._settled(ack.guid)
        if not answer.done():
            answer.set_result(ack)

    def _settled(self, guid: str) -> None:
        """Note that a publish is not in flight any more."""
        self._pub_ack_map.pop(guid, None)
        _free(self._pending_pub_acks_queue)

    # --- subscribing -----------------------------------------------------------------------------------------------

    async def subscribe(
        self,
        subject: str,
        cb: Callback | None = None,
        error_cb: OnError | None = None,
        start_at: str | None = None,
        deliver_all_available: bool = False,  # noqa: FBT001, FBT002 - as in the original
        sequence: int | None = None,
        time: float | None = None,
        manual_acks: bool = False,  # noqa: FBT001, FBT002 - as in the original
        queue: str | None = None,
        ack_wait: int = DEFAULT_ACK_WAIT,
        max_inflight: int = DEFAULT_MAX_INFLIGHT,
        durable_name: str | None = None,
        pending_limits: int = DEFAULT_PENDING_LIMIT,
    ) -> "Subscription":
        """Subscribe to a channel.

        Args:
            subject: the channel.
            cb: called with each Msg, one after the other; the message is acked when it has ended without an error.
            error_cb: called with errors of *cb*.
            start_at: "new_only" (also None), "first", "last_received", "sequence" or "time".
            deliver_all_available: the same as "first".
            sequence: where to start, with "sequence".
            time: Unix time in seconds from which on to start, with "time".
            manual_acks: the program acks with Client.ack().
            queue: name of a queue group.
            ack_wait: seconds after which a message without ack comes again.
            max_inflight: messages without ack that the server sends at most.
            durable_name: the server remembers the position under this name.
            pending_limits: not used: *max_inflight* is a bound of what waits here, too.

        Raises:
            StanError: the server refuses, or the session is gone. ErrTimeout, ErrConnectionClosed: of nats-py.
        """
        del pending_limits
        start = _start("first" if deliver_all_available else start_at, sequence, time)
        subscription = Subscription(subject, queue, cb, error_cb, None, durable_name, None, manual_acks, self)

        async def handle(message: stan_client.Message) -> None:
            await self._handle(subscription, message)

        with as_of_old(self._nc):
            made = await self._connected().subscribe(
                subject,
                handle,
                queue=queue or "",
                durable=durable_name or "",
                start=start,
                max_in_flight=max_inflight,
                ack_wait_s=ack_wait,
                manual_acks=True,  # they are sent here, because programs may send them at any time
            )
        subscription._begin(made)  # noqa: SLF001 - the two belong together
        self._sub_map[subscription.inbox] = subscription
        return subscription

    async def _handle(self, subscription: "Subscription", message: stan_client.Message) -> None:
        msg = Msg()
        msg.sub = subscription
        msg.proto = protocol.MsgProto(
            sequence=message.sequence,
            subject=message.channel,
            reply=message.reply.encode("utf-8", "replace"),
            data=message.data,
            timestamp=message.timestamp_ns,
            redelivered=message.redelivered,
            redeliveryCount=message.redelivery_count,
        )
        try:
            await subscription.cb(msg)
            if not subscription.manual_acks:
                await self.ack(msg)
        except Exception as error:  # noqa: BLE001 - it is reported to the program
            await _report(subscription, error)

    async def ack(self, msg: "Msg") -> None:
        """Acknowledge a message. Its `proto` and the `ack_inbox` of its `sub` are looked at, and nothing else.

        Raises:
            ErrConnectionClosed: of nats-py.
        """
        ack = protocol.Ack(subject=msg.proto.subject, sequence=msg.proto.sequence)
        await self._nc.publish(msg.sub.ack_inbox, ack.SerializeToString())


class Subscription:
    """A subscription to a channel, made by Client.subscribe()."""

    def __init__(
        self,
        subject: str = "",
        queue: str | None = "",
        cb: Callback | None = None,
        error_cb: OnError | None = None,
        sid: Any = None,
        durable_name: str | None = None,
        ack_inbox: str | None = None,
        manual_acks: bool = False,  # noqa: FBT001, FBT002 - as in the original
        stan: Client | None = None,
    ) -> None:
        self.subject = subject
        self.queue = queue
        self.cb: Any = cb
        self.error_cb = error_cb
        self.sid = sid
        self.durable_name = durable_name
        self.ack_inbox = ack_inbox
        self.manual_acks = manual_acks
        self.inbox = ""
        self._sc: Any = stan
        self._made: stan_client.Subscription | None = None

    @property
    def pending_queue_size(self) -> int:
        """Number of messages that have come and wait for the callback."""
        return self._made.queued if self._made is not None else 0

    def _begin(self, made: stan_client.Subscription) -> None:
        self._made = made
        self.inbox, self.ack_inbox = made.inboxes
        self.sid = self.inbox

    async def unsubscribe(self) -> None:
        """End the subscription; of a durable, the server also forgets its position.

        Raises:
            StanError: the server refuses, or it has ended before. ErrTimeout, ErrConnectionClosed: of nats-py.
        """
        await self._leave(forget=True)

    async def close(self) -> None:
        """End the subscription; a durable one can be resumed later. Errors as of unsubscribe()."""
        await self._leave(forget=False)

    async def _leave(self, *, forget: bool) -> None:
        if self._made is None or self._sc is None:
            raise StanError(str(stan_client.BadSubscriptionError()))
        self._sc._sub_map.pop(self.inbox, None)  # noqa: SLF001 - the two belong together
        with as_of_old(self._sc._nc):  # noqa: SLF001
            await (self._made.unsubscribe() if forget else self._made.close())


class Msg:
    """A message that was delivered; `proto` has all that the server has sent, `sub` is its subscription."""

    def __init__(self) -> None:
        self.proto: Any = None
        self.sub: Any = None

    def __repr__(self) -> str:
        return f"<Msg sequence={self.sequence} time={self.timestamp}>"

    @property
    def data(self) -> bytes:
        """The payload, as it was published."""
        payload: bytes = self.proto.data
        return payload

    @property
    def sequence(self) -> int:
        """Number of the message in its channel; the first is 1."""
        sequence: int = self.proto.sequence
        return sequence

    @property
    def seq(self) -> int:
        """The same as `sequence`."""
        return self.sequence

    @property
    def timestamp(self) -> int:
        """Unix time in nanoseconds, given by the server."""
        timestamp: int = self.proto.timestamp
        return timestamp


async def _report(subscription: Subscription, error: Exception) -> None:
    if subscription.error_cb is None:
        return
    try:
        await subscription.error_cb(error)
    except Exception:
        logger.exception("Exception in error callback for subscription to '%s'", subscription.subject)


async def _connected(options: Mapping[str, Any]) -> Nats:
    made = Nats()
    await made.connect(**options)
    return made


def _free(room: "asyncio.Queue[None]") -> None:
    if not room.empty():
        room.get_nowait()


def _start(position: str | None, sequence: int | None, time: float | None) -> stan_client.Start:
    if position == "first":
        return stan_client.everything()
    if position == "last_received":
        return stan_client.last_received()
    if position == "sequence":
        if sequence is None:
            raise TypeError("start_at='sequence' needs a sequence")
        return stan_client.from_sequence(sequence)
    if position == "time":
        if time is None:
            raise TypeError("start_at='time' needs a time")
        return stan_client.ago(max(0.0, clock.time() - time))
    return stan_client.new_only()
