"""The leafnode connection to NATS: deliveries of JetStream consumers leave here, and NATS's interest comes in.

nats-server hands what a client publishes to subscribers under the subject that was published. What comes from a leafnode with a
reply that begins with `$JS.ACK.` and ends in `@<subject>` reaches a client under that subject, and with the reply in front of the
`@`; that is how JetStream's own servers deliver.

Promises: it connects again for ever; bytes that are written while it is down are lost, and the caller knows. Where TLS is wanted
nothing is sent before it. It subscribes to nothing, so nothing but interest comes in. Modelled on the protocol of nats-server's
leafnodes: INFO, CONNECT, LS+, LS-, LMSG, PING, PONG.
"""

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from stan_protocol.scalars import SECOND
from stan_protocol.secure import offered

from stan import limits
from stan.core.base.interest import Change
from stan.product import VERSION


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
    """News since the last turn."""

    changed: bool = False  # it came up, went down, or has room again
    interest: list[Change] = field(default_factory=list)
    forgotten: bool = False  # the connection was lost: what was known before `interest` is not known any more

    @property
    def any(self) -> bool:
        """True if a turn has something to do."""
        return self.changed or self.forgotten or bool(self.interest)


@dataclass(frozen=True, slots=True)
class LeafTls:
    """TLS towards the listener."""

    context: Callable[[], ssl.SSLContext]  # raises OSError: a file cannot be read
    server_name: str  # that is verified
    required: bool  # also of a listener that does not ask for it


@dataclass(frozen=True, slots=True)
class LeafAddress:
    """Address of the listener for leafnodes, and our login there."""

    host: str
    port: int
    user: str = ""
    password: str = field(default="", repr=False)
    sign: Callable[[str], Mapping[str, str]] | None = None
    """Answers the listener's nonce with the fields of a login, instead of the user; raises OSError."""
    tls: LeafTls | None = None  # None: a listener that wants TLS is refused


class LeafConnection:
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
        self._link: _Link | None = None
        self._problem = ""
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
        if self._link is not None:
            self._link.close()

    async def _connect_for_ever(self) -> None:
        while True:
            address = self._address()
            if address is not None:
                link = _Link(self, address, self._name)
                try:
                    async with asyncio.timeout(limits.LEAF_CONNECT_TIMEOUT / SECOND):
                        await asyncio.get_running_loop().create_connection(lambda: link, address.host, address.port)  # noqa: B023
                        await link.secure()
                    self._link = link
                    await link.ended.wait()
                except (OSError, TimeoutError) as error:
                    link.close()
                    self.complain(str(error) or "no answer in time")
            await asyncio.sleep(limits.LEAF_RETRY_PAUSE / SECOND)

    # --- what its link tells ------------------------------------------------------------------------------------------------

    def complain(self, problem: str) -> None:
        """Write a line to the log, once: each attempt to connect may have the same problem."""
        if problem != self._problem:
            self._problem = problem
            self._note("WRN", f"leafnode connection to NATS: {problem}; consumers of JetStream wait for it")

    def came_up(self) -> None:
        """nats-server knows this leafnode, and all its interest is reported."""
        self.news.changed = True
        if self._problem:
            self._note("INF", "leafnode connection to NATS is back")
        self._problem = ""
        self._came_up.set()

    def went_down(self, why: str) -> None:
        """The interest is not known any more; the next connection reports it again."""
        self.complain(why)
        self.news.forgotten = True
        self.news.interest.clear()
        self.has_news()

    def has_news(self) -> None:
        """There is room again, or none; or the interest has changed."""
        self.news.changed = True
        self._wake()

    # --- port ---------------------------------------------------------------------------------------------------------------

    @property
    def up(self) -> bool:
        """True if bytes can be written now, and not too much waits to leave."""
        return self._link is not None and self._link.up and not self._link.full

    @property
    def unsent(self) -> int:
        """Bytes that were written and have not left the process."""
        return 0 if self._link is None else self._link.unsent

    def write(self, data: bytes) -> bool:
        """Write frames in one piece; False if there is no connection, and they are lost."""
        if self._link is None or not self._link.up:
            return False
        self._link.write(data)
        return True


class _Link(asyncio.Protocol):
    """A single life of the connection."""

    def __init__(self, owner: LeafConnection, address: LeafAddress, name: str) -> None:
        self._owner = owner
        self._address = address
        self._name = name
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._nonce: str | None = None  # of the first INFO, once that is here
        self._waits_for_tls = False
        self._informed_or_ended = asyncio.Event()
        self.up = False  # its answer is here
        self.full = False
        self.ended = asyncio.Event()

    # --- what asyncio calls -------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for INFO."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is not derived from it
        self._transport.set_write_buffer_limits(high=limits.OUTBOUND_BYTES_HIGH // 2)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is over; another link takes its place."""
        was_up, self.up, self._transport = self.up, False, None
        if was_up:
            self._owner.went_down(str(exc) if exc is not None else "it was closed")
        self._informed_or_ended.set()
        self.ended.set()

    def pause_writing(self) -> None:
        """Much waits to leave: deliveries wait, too."""
        self.full = True
        self._owner.has_news()

    def resume_writing(self) -> None:
        """There is room again."""
        self.full = False
        self._owner.has_news()

    def data_received(self, data: bytes) -> None:
        """Take lines; a line that is none of the protocol ends the connection."""
        data = self._rest + data
        at, news = 0, self._owner.news
        while (end := data.find(b"\n", at)) >= 0:
            line = data[at:end].rstrip(b"\r")
            at = end + 1
            if line[:4] in (b"LMSG", b"HMSG"):  # we have subscribed to nothing
                self._break_off("it sent a message")
                return
            self._read_line(line)
            if self._waits_for_tls and at < len(data):
                self._break_off("it sent more than INFO before TLS")
                return
        self._rest = data[at:]
        if len(self._rest) > limits.LEAF_LINE_BYTES_MAX:
            self._break_off("it sent a line that is too long")
        if news.any:
            self._owner.has_news()

    def _break_off(self, why: str) -> None:
        self._owner.complain(why)
        if self._transport is not None:
            self._transport.abort()

    # --- protocol -----------------------------------------------------------------------------------------------------------

    def _read_line(self, line: bytes) -> None:
        verb, _, rest = line.partition(b" ")
        if verb in (b"LS+", b"LS-"):
            subject, _, behind = rest.partition(b" ")
            self._owner.news.interest.append((verb == b"LS+", subject, behind.partition(b" ")[0]))
        elif verb == b"PING":
            self.write(b"PONG\r\n")
        elif verb == b"PONG" and not self.up:  # nats-server has sent its interest in front of this
            self.up = True
            self._owner.came_up()
        elif verb == b"INFO":
            self._informed(rest)
        elif verb == b"-ERR":
            self._owner.complain(rest.decode(errors="replace").strip(" '"))

    def _informed(self, text: bytes) -> None:
        """Answer the first INFO with CONNECT, or wait for TLS; later ones tell of changes that do not matter here."""
        if self._nonce is not None:
            return
        try:
            info = json.loads(text)
        except ValueError:
            self._break_off("it sent an INFO that is no JSON")
            return
        self._nonce, tls = str(info.get("nonce", "")), self._address.tls
        if offered(info):
            self._waits_for_tls = tls is not None
            if tls is None:
                self._break_off("it wants TLS")
        elif tls is not None and tls.required:
            self._break_off("it has no TLS")
        else:
            self._connect()
        self._informed_or_ended.set()

    async def secure(self) -> None:
        """Wait for INFO, and for TLS if that is wanted. Raises OSError: no TLS with this listener."""
        await self._informed_or_ended.wait()
        tls, transport = self._address.tls, self._transport
        if not self._waits_for_tls or tls is None or transport is None:
            return
        loop = asyncio.get_running_loop()
        made = await loop.start_tls(transport, self, tls.context(), server_hostname=tls.server_name)
        if made is None:
            raise ConnectionError("it closed the connection before TLS")
        self._waits_for_tls = False
        self.connection_made(made)
        self._connect()

    def _connect(self) -> None:
        """Say who we are, and ask for an answer to that."""
        connect: dict[str, object] = {
            "name": self._name,
            "version": VERSION,
            "verbose": False,
            "pedantic": False,
            "headers": True,
            "tls_required": False,
        }
        if self._address.sign is not None:
            try:
                connect |= self._address.sign(self._nonce or "")
            except OSError as error:
                self._break_off(str(error))
                return
        elif self._address.user:
            connect |= {"user": self._address.user, "pass": self._address.password}
        self.write(b"CONNECT %b\r\nPING\r\n" % json.dumps(connect).encode())

    # --- out ----------------------------------------------------------------------------------------------------------------

    @property
    def unsent(self) -> int:
        """Bytes that were written and have not left the process."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def write(self, data: bytes) -> None:
        """Write bytes in one piece."""
        if self._transport is not None:
            self._transport.write(data)

    def close(self) -> None:
        """End the connection."""
        if self._transport is not None:
            self._transport.close()
