"""The sessions of one client, one after the other, and the parts that outlive them: unacked publishes, subscriptions, replies.

After a loss (pings unanswered, "client has been replaced ...", NATS closed) and with `resubscribe` (the default), the client
registers again under the same id and makes its subscriptions again: durables resume, others continue after the last message
that arrived. Publishes without ack fail, unless `republish`. The old clients leave all this to their users (FIELD 18, 19).
The client never closes a NATS connection that the caller has supplied.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from stan_client.errors import (
    BadConnectionError,
    ConnectionClosedError,
    NotSentError,
    ServerError,
    StanClientError,
)
from stan_client.messages.middleware import Middleware
from stan_client.publishing import PUBLISHES_PER_TURN_MAX, Publisher
from stan_client.subscribing.delivery import SubscriptionDelivery
from stan_client.subscribing.opened import OpenSubscriptions
from stan_client.transport.connection import BorrowedLink, ClientConnection, NatsClient, NatsLink
from stan_client.transport.inbox import Inbox, ReplyInbox
from stan_client.transport.session import Session, SessionOptions, fresh_id
from stan_client.waiting import Waiters, notify

log = logging.getLogger("stan_client")

RETRY_FIRST_S: Final = 0.1
RETRY_MAX_S: Final = 5.0
"""Pauses between attempts to register again: doubled from the first to the longest."""

REFUSALS_MAX: Final = 5
"""Consecutive refusals because the id is registered, after which another live client is taken to own it, and this one closes."""

EPOCH_BITS: Final = 32
"""The lower bits of a cluster's epoch, which tell rescues of one number apart; above them is that number."""

FROM_BEFORE_THE_RESCUE: Final = "stan: a server answers that is from before the rescue of this cluster"


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


class Sessions:
    """The sessions of one client; usable between `start` and `close`, or until one that was lost cannot be recovered."""

    def __init__(self, session_options: SessionOptions, options: ClientOptions) -> None:
        """Keep the options; `start` connects and registers."""
        self.session_options = session_options
        self.options = options
        self.link: NatsLink | None = None
        self.current: Session | None = None  # None while lost
        self.closed = False
        self.subscriptions = OpenSubscriptions()
        self.publisher = Publisher(
            in_flight_max=options.max_pub_acks_in_flight,
            ack_timeout_s=options.ack_timeout_s,
            republish=options.republish,
        )
        self.replies = ReplyInbox(fresh_id())
        self._recovery: asyncio.Task[None] | None = None
        self._waiters = Waiters()
        self._reason: StanClientError | None = None
        self._rescues = 0  # of the cluster, as far as its servers have reported

    async def start(self) -> None:
        """Connect to NATS and register; raises the same errors as `connect`."""
        try:
            self.current = await self._begin_session()
        except BaseException:
            self.closed = True
            if self.link is not None:
                await self.link.shut()
            raise

    async def _begin_session(self) -> Session:
        link = await self._open_link()
        session = Session(link, self.session_options, self._on_lost)
        await session.open()
        rescues = session.answer.epoch >> EPOCH_BITS
        if rescues < self._rescues:  # an old node, cut off from the survivors: messages that it acknowledges are lost
            await session.drop()
            raise ServerError(FROM_BEFORE_THE_RESCUE)
        self._rescues = rescues
        await self.replies.listen(link)
        await self.publisher.attach(session)
        return session

    async def _open_link(self) -> NatsLink:
        if self.link is not None and not self.link.closed:
            return self.link
        options = self.options
        if options.nats is not None:
            if not options.nats.is_connected:
                raise BadConnectionError
            self.link = BorrowedLink(options.nats)
        else:
            connection = ClientConnection()
            named = {"name": self.session_options.client_id, **options.nats_options}
            await connection.open(options.servers, named, self.session_options.connect_timeout_s)
            connection.on_online = self.publisher.send_again
            self.link = connection
        return self.link

    def _on_lost(self, session: Session, error: StanClientError) -> None:
        if self.closed or session is not self.current:
            return  # a session that is still being set up: _begin_again checks session.lost itself
        log.warning("session of %s lost: %s", self.session_options.client_id, error)
        self.current = None
        self._recovery = asyncio.get_running_loop().create_task(self._recover(session, error))
        if self.options.connection_lost is not None:
            notify("connection_lost", self.options.connection_lost, error)

    async def _recover(self, old: Session, error: StanClientError) -> None:
        await self.publisher.detach(error, final=not self.options.resubscribe)
        await old.drop()
        if not self.options.resubscribe:
            await self._finish(error)
            return
        pause, refusals = RETRY_FIRST_S, 0
        while not self.closed:
            try:
                if await self._begin_again():
                    log.info("session of %s is there again", self.session_options.client_id)
                    self._waiters.wake()
                    return
                refusals = 0
            except ServerError as refusal:
                refusals = refusals + 1 if refusal.code == "client_registered" else 0
                log.warning("registering %s again: %s", self.session_options.client_id, refusal)
                if refusals >= REFUSALS_MAX:
                    await self._finish(refusal)
                    return
            except BadConnectionError as gone:
                await self._finish(gone)
                return
            except StanClientError as trouble:
                refusals = 0
                log.debug("registering %s again: %s", self.session_options.client_id, trouble)
            await asyncio.sleep(pause)
            pause = min(2 * pause, RETRY_MAX_S)

    async def _begin_again(self) -> bool:
        """Make a new session with all subscriptions; False if the session was lost meanwhile."""
        session = await self._begin_session()
        await self.subscriptions.make_again(session)
        if session.lost is not None:
            await self.publisher.detach(session.lost, final=False)
            await session.drop()
            return False
        self.current = session
        return True

    async def ready(self) -> Session:
        """Return the session; while the session is lost, wait for a new one.

        Raises:
            ConnectionClosedError: the client is closed.
        """
        while True:
            self.check_open()
            if self.current is not None:
                return self.current
            await self._waiters.wait()

    async def inbox(self) -> Inbox:
        """Return the inbox of the session, as of `ready`."""
        return (await self.ready()).inbox

    def payload_max(self) -> int:
        """Return the largest payload that the NATS server accepts, in bytes; 0 before the first connection."""
        return self.link.max_payload if self.link is not None else 0

    def check_open(self) -> None:
        """Raise ConnectionClosedError if the client is closed."""
        if self.closed:
            raise ConnectionClosedError from self._reason

    def free(self, *, acked: bool = True) -> int:
        """Return how many messages may be published now; those that are not *acked* take no room in the window."""
        if self.closed or not self.publisher.attached:
            return 0
        return self.publisher.free() if acked else PUBLISHES_PER_TURN_MAX

    async def room(self, until: float | None = None, *, acked: bool = True) -> int:
        """Wait until something is `free`, and return how much; until that loop time, None: as long as it takes.

        Raises:
            NotSentError: the time is over. ConnectionClosedError: the client is closed.
        """
        try:
            async with asyncio.timeout_at(until):
                while True:
                    session = await self.ready()
                    await session.link.drained()
                    if free := self.free(acked=acked):
                        return free
                    await self.publisher.wait_for_room()
        except TimeoutError:
            raise NotSentError from None

    def forget(self, delivery: SubscriptionDelivery) -> None:
        """Note that a subscription has ended: it is not made again after a loss."""
        self.subscriptions.forget(delivery)

    # --- the end ---------------------------------------------------------------------------------------------------

    async def close(self, timeout_s: float | None) -> None:
        """End all. Errors as of Client.close."""
        if self.closed:
            return
        session = self.current
        await self._stop(ConnectionClosedError())
        try:
            if session is not None:
                await session.close(timeout_s)
        finally:
            if self.link is not None:
                await self.link.shut()

    async def _finish(self, reason: StanClientError) -> None:
        """Close the client because its session cannot be recovered."""
        log.error("client %s is closed: %s", self.session_options.client_id, reason)
        closed = ConnectionClosedError()
        closed.__cause__ = reason
        self._reason = reason
        await self._stop(closed)
        if self.link is not None:
            await self.link.shut()

    async def _stop(self, error: StanClientError) -> None:
        self.closed, self.current = True, None
        self.replies.end(error)
        if self._recovery is not None and self._recovery is not asyncio.current_task():
            self._recovery.cancel()
        await self.subscriptions.end(error if self._reason is not None else None)
        await self.publisher.detach(error, final=True)
        self.publisher.stop()
        self._waiters.wake()
