"""The leafnode connection to NATS: deliveries of JetStream consumers leave here, and NATS's interest comes in.

nats-server hands what a client publishes to subscribers under the subject that was published. What comes from a leafnode with a
reply that begins with `$JS.ACK.` and ends in `@<subject>` reaches a client under that subject, and with the reply in front of the
`@`; that is how JetStream's own servers deliver.

Promises: it connects again for ever; what is written while it is down is lost, and the caller knows. It subscribes to nothing, so
nothing but interest comes in. Modelled on the protocol of nats-server's leafnodes: INFO, CONNECT, LS+, LS-, LMSG, PING, PONG.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, cast
from urllib.parse import unquote

from stan_protocol.scalars import SECOND

from stan import limits
from stan.config import NatsConfig
from stan.core.base.interest import Change
from stan.core.base.ready import Delivery
from stan.product import VERSION
from stan.protocol.jetstream.leaf_frames import leaf_frames


class LeafPort(Protocol):
    """The leafnode connection as the gateway sees it (`LeafConnection`, or the simulator's)."""

    news: "LeafNews"

    @property
    def up(self) -> bool:
        """True if bytes can be written now."""

    @property
    def unsent(self) -> int:
        """Bytes that were written and have not left the process."""

    def write(self, data: bytes) -> bool:
        """Write frames in one piece; False if there is no connection, and they are lost."""


@dataclass(slots=True)
class LeafNews:
    """What has happened since the last turn."""

    changed: bool = False  # it came up, went down, or has room again
    interest: list[Change] = field(default_factory=list)
    forgotten: bool = False  # the connection was lost: what was known before `interest` is not known any more

    @property
    def any(self) -> bool:
        """True if a turn has something to do."""
        return self.changed or self.forgotten or bool(self.interest)


@dataclass(frozen=True, slots=True)
class LeafAddress:
    """Where nats-server listens for leafnodes, and as whom we connect."""

    host: str
    port: int
    user: str = ""
    password: str = field(default="", repr=False)


def leaf_address(place: str, config: NatsConfig) -> LeafAddress:
    """Where an outside NATS listens for leafnodes: *place* is `[user:password@]host:port`, else the user is that of *config*."""
    login, _, address = place.removeprefix("nats://").removeprefix("nats-leaf://").rpartition("@")
    host, _, port = address.rpartition(":")
    user, _, password = login.partition(":")
    named = (unquote(user), unquote(password)) if login else (config.user, config.password)
    return LeafAddress(host.strip("[]"), int(port), *named)


class LeafConnection(asyncio.Protocol):
    """A leafnode connection that is made again whenever it ends."""

    def __init__(
        self,
        address: Callable[[], LeafAddress | None],
        name: str,
        wake: Callable[[], None],
        note: Callable[[str, str], None],
    ) -> None:
        """Prepare; `start` connects.

        Args:
            address: returns where to connect, None while that is unknown.
            name: under which nats-server shows it.
            wake: called when `news` has something.
            note: called with level and text to write a line to the log.
        """
        self._address = address
        self._name = name
        self._wake = wake
        self._note = note
        self.news = LeafNews()
        self._transport: asyncio.Transport | None = None
        self._login: LeafAddress | None = None
        self._rest = b""
        self._greeted = False  # CONNECT was sent
        self._up = False  # its answer is here: nats-server knows this leafnode
        self._full = False
        self._problem = ""
        self._ended = asyncio.Event()
        self._came_up = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # --- life -------------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Connect, now and whenever the connection ends."""
        self._task = asyncio.get_running_loop().create_task(self._connect_for_ever(), name="leafnode connection")

    def wait_until_up(self) -> Awaitable[Any]:
        """Return once it is up for the first time."""
        return self._came_up.wait()

    async def close(self) -> None:
        """End the connection, and make no other."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        if self._transport is not None:
            self._transport.close()

    async def _connect_for_ever(self) -> None:
        while True:
            self._ended.clear()
            login = self._login = self._address()
            if login is not None:
                try:
                    await self._within(
                        asyncio.get_running_loop().create_connection(lambda: self, login.host, login.port)
                    )
                    await self._ended.wait()
                except (OSError, TimeoutError) as error:
                    self._complain(str(error) or "no answer in time")
            await asyncio.sleep(limits.LEAF_RETRY_PAUSE / SECOND)

    @staticmethod
    async def _within(connecting: Coroutine[Any, Any, object]) -> None:
        async with asyncio.timeout(limits.LEAF_CONNECT_TIMEOUT / SECOND):
            await connecting

    def _complain(self, problem: str) -> None:
        if problem != self._problem:  # each attempt has the same
            self._problem = problem
            self._note("WRN", f"leafnode connection to NATS: {problem}; consumers of JetStream wait for it")

    # --- what asyncio calls -------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for INFO."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not derived from it
        self._transport.set_write_buffer_limits(high=limits.OUTBOUND_BYTES_HIGH // 2)
        self._rest, self._greeted = b"", False

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the interest: it is told again."""
        was_up, self._up, self._full, self._transport = self._up, False, False, None
        if was_up:
            self._complain(str(exc) if exc is not None else "it was closed")
            self.news.forgotten = self.news.changed = True
            self.news.interest.clear()
            self._wake()
        self._ended.set()

    def pause_writing(self) -> None:
        """Much waits to leave: deliveries wait, too."""
        self._full = self.news.changed = True
        self._wake()

    def resume_writing(self) -> None:
        """There is room again."""
        self._full, self.news.changed = False, True
        self._wake()

    def data_received(self, data: bytes) -> None:
        """Take lines; what is no line of the protocol ends the connection."""
        data = self._rest + data
        at = 0
        while (end := data.find(b"\n", at)) >= 0:
            line = data[at:end].rstrip(b"\r")
            at = end + 1
            if line[:4] in (b"LMSG", b"HMSG"):  # we have subscribed to nothing
                self._break_off("it sent a message")
                return
            self._take(line)
        self._rest = data[at:]
        if len(self._rest) > limits.LEAF_LINE_BYTES_MAX:
            self._break_off("it sent a line that is too long")
        if self.news.any:
            self._wake()

    def _break_off(self, why: str) -> None:
        self._complain(why)
        if self._transport is not None:
            self._transport.abort()

    # --- protocol -----------------------------------------------------------------------------------------------------------

    def _take(self, line: bytes) -> None:
        verb, _, rest = line.partition(b" ")
        if verb in (b"LS+", b"LS-"):
            subject, _, behind = rest.partition(b" ")
            self.news.interest.append((verb == b"LS+", subject, behind.partition(b" ")[0]))
        elif verb == b"PING":
            self._write(b"PONG\r\n")
        elif verb == b"PONG":
            self._ponged()
        elif verb == b"INFO":
            self._informed(rest)
        elif verb == b"-ERR":
            self._complain(rest.decode(errors="replace").strip(" '"))

    def _informed(self, text: bytes) -> None:
        """Answer the first INFO with CONNECT; later ones tell of changes that do not matter here."""
        if self._greeted or self._login is None:
            return
        try:
            info = json.loads(text)
        except ValueError:
            self._break_off("it sent an INFO that is no JSON")
            return
        self._greeted = True
        if info.get("tls_required"):
            self._break_off("it wants TLS")
            return
        connect = {
            "name": self._name,
            "version": VERSION,
            "verbose": False,
            "pedantic": False,
            "headers": True,
            "tls_required": False,
        }
        if self._login.user:
            connect |= {"user": self._login.user, "pass": self._login.password}
        self._write(b"CONNECT %b\r\nPING\r\n" % json.dumps(connect).encode())

    def _ponged(self) -> None:
        """nats-server has handled CONNECT, and sent the interest in front of this."""
        if not self._up:
            self._up = self.news.changed = True
            if self._problem:
                self._note("INF", "leafnode connection to NATS is back")
            self._problem = ""
            self._came_up.set()

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    # --- port ---------------------------------------------------------------------------------------------------------------

    @property
    def up(self) -> bool:
        """True if bytes can be written now, and not too much waits to leave."""
        return self._up and not self._full and self._transport is not None and not self._transport.is_closing()

    @property
    def unsent(self) -> int:
        """Bytes that were written and have not left the process."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def write(self, data: bytes) -> bool:
        """Write frames in one piece; False if there is no connection, and they are lost."""
        if not self._up or self._transport is None or self._transport.is_closing():
            return False
        self._transport.write(data)
        return True


def delivery_frames(delivery: Delivery) -> Iterator[bytes]:
    """The frames of a delivery to a consumer of JetStream, one piece after the other."""
    parcel = delivery.leaf
    assert parcel is not None  # noqa: S101 - for mypy
    for piece in parcel.pieces:
        first, last = max(piece.first, delivery.first), min(piece.last, delivery.last)
        if first > last:
            continue
        ahead = first - piece.first
        part = piece.to, first, last, piece.consumer_sequence + ahead, piece.pending - ahead
        yield leaf_frames(
            delivery.records,
            delivery.base_sequence,
            part,
            parcel.ack_prefix,
            delivery.redelivery_count + 1,
            parcel.subject,
            parcel.queue,
            parcel.headers_only,
        )
