"""The registration of a client with the server: connect, heartbeats, pings, control requests, close (STAN-SPEC 3).

A session has one connection id and one inbox; after a loss the client makes another session. All requests and answers of the
server arrive on that one inbox, distinguished by the last token of the subject. A request without a receiver is sent again
within its timeout, a connect also after a silence: its id makes it the same connect. A session never decides what a loss means.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError
from stan_protocol.channels import publication
from stan_protocol.frames import Frame
from stan_protocol.nats_client import NUID
from stan_protocol.proto import wire_pb2 as wire

from stan_client.errors import (
    BadConnectionError,
    CloseRequestTimeoutError,
    ConnectRequestTimeoutError,
    InvalidNameError,
    PingFailureError,
    RequestTimeoutError,
    ServerError,
    StanClientError,
)
from stan_client.transport.connection import NatsLink
from stan_client.transport.inbox import Inbox

log = logging.getLogger("stan_client")

HEARTBEAT: Final = b"hb"
PING: Final = b"ping"
PROTOCOL: Final = 1  # connID and pings (STAN-SPEC 2.3)
CONNECT_ATTEMPTS: Final = 4
"""How often a connect is sent within its timeout while no answer comes: none may listen yet, or the one that did has died."""
NOBODY_PAUSE_S: Final = 0.01
"""The first pause before a request that no server listened to is sent again; each is twice as long."""

nuid = NUID()


def fresh_id() -> str:
    """Return a unique id of 22 characters (STAN-SPEC 1.7)."""
    return nuid.next().decode()


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """The cluster and client ids of a session, its timeout and its pings."""

    cluster_id: str
    client_id: str
    discover_prefix: str = "_STAN.discover"
    connect_timeout_s: float = 2  # of connect, subscribe, unsubscribe and close requests
    ping_interval_s: int = 5  # >= 1
    ping_max_out: int = 88  # >= 2; unanswered pings before the session counts as lost


class Session:
    """A registration of the client; usable between `open` and `close`, or until it is lost."""

    def __init__(
        self, link: NatsLink, options: SessionOptions, on_lost: Callable[["Session", StanClientError], None]
    ) -> None:
        self.link = link
        self.options = options
        self.conn_id = fresh_id().encode()
        self.answer = wire.ConnectResponse()
        self.lost: StanClientError | None = None
        self._on_lost = on_lost
        self.inbox = Inbox(
            link,
            f"_INBOX.{fresh_id()}",
            options.connect_timeout_s,
            {HEARTBEAT: self._take_heartbeat, PING: self._take_ping_answer},
        )
        self._pings_out = 0
        self._ping_timer: asyncio.TimerHandle | None = None

    async def open(self) -> None:
        """Register at the server and begin to ping.

        Raises:
            ConnectRequestTimeoutError: no server answers for this cluster id.
            ServerError: the server refuses, for example "stan: clientID already registered".
        """
        await self.inbox.open()
        try:
            self.answer = await self._register()
        except BaseException:
            await self.drop()
            raise
        if self.answer.protocol < PROTOCOL or not self.answer.ping_requests:
            self.conn_id = b""  # an old server does not know connection ids and would take it for an unknown client's
        elif self.answer.ping_interval > 0:
            self._schedule_ping()

    async def _register(self) -> wire.ConnectResponse:
        request = wire.ConnectRequest(
            client_id=self.options.client_id.encode(),
            heartbeat_inbox=f"{self.inbox.subject}.{HEARTBEAT.decode()}".encode(),
            protocol=PROTOCOL,
            conn_id=self.conn_id,
            ping_interval=self.options.ping_interval_s,
            ping_max_out=self.options.ping_max_out,
        )
        subject = f"{self.options.discover_prefix}.{self.options.cluster_id}"
        again_s = self.options.connect_timeout_s / CONNECT_ATTEMPTS
        payload = await self.request(
            subject.encode(), request.SerializeToString(), ConnectRequestTimeoutError, again_s=again_s
        )
        answer = wire.ConnectResponse.FromString(payload)
        if answer.error:
            raise ServerError(text_of(answer.error))
        return answer

    async def request(
        self,
        subject: bytes,
        payload: bytes,
        late: type[RequestTimeoutError],
        timeout_s: float | None = None,
        *,
        again_s: float | None = None,
    ) -> bytes:
        """Send one request to the server, again while no server listens; returns the payload of its answer. It waits *timeout_s*
        seconds for it; None: as long as the options say. *again_s*: seconds of silence after which it is sent once more, which
        only a request that may come twice can have; None: never.

        Raises:
            RequestTimeoutError: of class *late*: no answer in time, no server listens, or NATS is not connected.
        """
        clock, pause_s = asyncio.get_running_loop().time, NOBODY_PAUSE_S
        until = clock() + (self.options.connect_timeout_s if timeout_s is None else timeout_s)
        while True:
            frame = await self.inbox.ask(subject, payload, until - clock(), again_s)
            if frame is not None and not frame.no_responders:
                return frame.payload
            if frame is None or clock() + pause_s >= until:
                raise late
            await asyncio.sleep(pause_s)
            pause_s *= 2

    async def close(self, timeout_s: float | None = None) -> None:
        """Close the registration at the server; the session ends even if an error is raised. *timeout_s*: as of `request`.

        Raises:
            CloseRequestTimeoutError: no answer.
            ServerError: the server refuses, for example because the client was replaced.
        """
        self._stop_pings()
        request = wire.CloseRequest(client_id=self.options.client_id.encode())
        try:
            payload = await self.request(
                self.answer.close_requests, request.SerializeToString(), CloseRequestTimeoutError, timeout_s
            )
            error = wire.CloseResponse.FromString(payload).error
            if error:
                raise ServerError(text_of(error))
        finally:
            await self.drop()

    async def drop(self) -> None:
        """End the session locally, without a request to the server; a newer session of the same client can replace it at once."""
        self._stop_pings()
        await self.inbox.shut()

    # --- what arrives ----------------------------------------------------------------------------------------------

    def _take_heartbeat(self, frame: Frame) -> None:
        if frame.reply:
            self.link.send(publication(frame.reply, b""))

    def _take_ping_answer(self, frame: Frame) -> None:
        if frame.no_responders:
            return  # no server listens, it may be restarting: this counts as a ping without answer
        self._pings_out = 0
        if frame.payload:
            try:
                error = text_of(wire.PingResponse.FromString(frame.payload).error)
            except DecodeError:
                return
            if error:
                self.lose(ServerError(error))

    # --- pings -----------------------------------------------------------------------------------------------------

    def _schedule_ping(self) -> None:
        self._ping_timer = asyncio.get_running_loop().call_later(self.answer.ping_interval, self._ping)

    def _stop_pings(self) -> None:
        if self._ping_timer is not None:
            self._ping_timer.cancel()
            self._ping_timer = None

    def _ping(self) -> None:
        if self.link.closed:
            self.lose(BadConnectionError("nats: connection closed"))
            return
        self._pings_out += 1
        if self._pings_out > self.answer.ping_max_out:
            self.lose(PingFailureError())
            return
        if self.link.connected:
            payload = wire.Ping(conn_id=self.conn_id).SerializeToString()
            self.link.send(publication(self.answer.ping_requests, payload, f"{self.inbox.subject}.".encode() + PING))
        self._schedule_ping()

    def ask(self) -> None:
        """Ping at once, unless an answer is due: the server may not know this session any more."""
        if self._ping_timer is not None and not self._pings_out:
            self._stop_pings()
            self._ping()

    def lose(self, error: StanClientError) -> None:
        """Mark the session as lost and report it to the client, once."""
        self._stop_pings()
        if self.lost is None:
            self.lost = error
            self._on_lost(self, error)


def text_of(data: bytes) -> str:
    """Decode text from the wire; bytes that are not UTF-8 become surrogates."""
    return data.decode("utf-8", "surrogateescape")


def check_cluster_id(subject: str) -> None:
    """Raise InvalidNameError if a subject that contains a cluster id is not valid for NATS."""
    if "://" in subject:
        raise InvalidNameError(f"stan: {subject!r} has a URL in it, not a cluster id; URLs are `servers`")
    if len(subject.split()) != 1:
        raise InvalidNameError(f"stan: {subject!r} cannot be a NATS subject")
