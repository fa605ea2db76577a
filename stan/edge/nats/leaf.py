"""The leafnode connection to NATS: deliveries of JetStream consumers leave here, and NATS's interest comes in.

nats-server hands what a client publishes to subscribers under the subject that was published. What comes from a leafnode with a
reply that begins with `$JS.ACK.` and ends in `@<subject>` reaches a client under that subject, and with the reply in front of the
`@`; that is how JetStream's own servers deliver.

Promises: it connects again for ever; bytes that are written while it is down are lost, and the caller knows. It subscribes to
nothing, so nothing but interest comes in. Modelled on the protocol of nats-server's leafnodes: INFO, CONNECT, LS+, LS-, LMSG,
PING, PONG.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, cast
from urllib.parse import unquote

from stan_protocol.scalars import SECOND

from stan import limits
from stan.config import NatsConfig
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
class LeafAddress:
    """Address of the listener for leafnodes, and our login there."""

    host: str
    port: int
    user: str = ""
    password: str = field(default="", repr=False)


def leaf_address(place: str, config: NatsConfig) -> LeafAddress:
    """Address of the listener of an outside NATS: *place* is `[user:password@]host:port`, else the user is that of *config*."""
    login, _, address = place.removeprefix("nats://").removeprefix("nats-leaf://").rpartition("@")
    host, _, port = address.rpartition(":")
    user, _, password = login.partition(":")
    named = (unquote(user), unquote(password)) if login else (config.user, config.password)
    return LeafAddress(host.strip("[]"), int(port), *named)


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
                    self._link = link
                    await link.ended.wait()
                except (OSError, TimeoutError) as error:
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
        self._greeted = False  # CONNECT was sent
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
            self._take(line)
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

    def _take(self, line: bytes) -> None:
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
        """Answer the first INFO with CONNECT; later ones tell of changes that do not matter here."""
        if self._greeted:
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
        connect: dict[str, object] = {
            "name": self._name,
            "version": VERSION,
            "verbose": False,
            "pedantic": False,
            "headers": True,
            "tls_required": False,
        }
        if self._address.user:
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
