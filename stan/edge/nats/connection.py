"""The broker's connection to NATS: nats-py connects, authenticates and reconnects; the bytes are ours.

Bytes from the socket go straight to `on_data` in pieces as large as the event loop reads them, and the broker's frames are
written in one piece per turn. nats-py's parser, queues and per-message tasks are not used. Nothing is buffered while the
connection is down: a message that could not be sent is not sent later (STAN-SPEC 1.4). The subscriptions are part of the first
write, and our own nats-server reads that before it admits any client (see stan.edge.nats.gate).
"""

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from stan_protocol.nats_client import ConnectedTransport, NoServersError, RepairedClient, Srv, TcpTransport
from stan_protocol.nats_client import Error as NatsError
from stan_protocol.scalars import SECOND
from stan_protocol.secure import requires_tls

from stan import limits
from stan.config import NatsConfig, TlsConfig

if TYPE_CHECKING:
    import socket

    from stan.edge.nats.leaf import LeafPort

RECONNECT_WAIT_NS = SECOND // 4


class GatedServer(Protocol):
    """Our own nats-server, which waits at its gate after each start."""

    def pop_first(self) -> "socket.socket | None":
        """Return the first connection to it; None unless it waits at its gate."""

    def admit(self) -> None:
        """Let it accept connections."""


@dataclass(slots=True)
class FirstWrite:
    """The first write of a connection: CONNECT and the subscriptions."""

    own: GatedServer | None = None  # our own nats-server; it gets the first write before it sends anything
    subscriptions: dict[int, str] = field(default_factory=dict)  # the subscriptions in it
    has_begun: bool = False  # it was sent before nats-py asks for it
    pongs: int = 0  # still to come for the PING in it, which nats-py does not know of


class NatsConnection(RepairedClient):
    """A NATS connection with a data path of its own.

    `on_data(bytes)`: read from the server. `on_up()`: connected, subscriptions made. `on_down()`: lost.
    `on_drained()`: room to write again.
    """

    def __init__(
        self,
        subscriptions: dict[int, str],
        *,
        on_data: Callable[[bytes], None],
        on_up: Callable[[], None],
        on_down: Callable[[], None],
        on_drained: Callable[[], None],
    ) -> None:
        super().__init__()
        self.subscriptions = subscriptions  # sid -> subject
        self.leaves: dict[bytes, LeafPort] = {}
        self._on_data = on_data
        self._on_up = on_up
        self._on_down = on_down
        self._on_drained = on_drained
        self._first = FirstWrite()
        self._socket: asyncio.Transport | None = None
        self._taken_over = asyncio.Event()
        self._alone = False  # it connects to our own nats-server, and to no other
        self._problem = ""  # the last logged problem of a lost connection
        self._tasks: set[asyncio.Task[None]] = set()

    # --- connecting ---------------------------------------------------------------------------------------------------

    async def open(
        self,
        config: NatsConfig,
        urls: tuple[str, ...],
        name: str,
        error: Callable[[str], None],
        own: GatedServer | None = None,
    ) -> None:
        """Connect; raises the error of nats-py if no server can be reached at first. Afterwards it reconnects for ever.

        *own*: our own nats-server, named by *urls*."""

        async def on_error(problem: Exception) -> None:
            shown = str(problem) or type(problem).__name__
            if shown != self._problem:  # each attempt to reconnect has the same
                self._problem = shown
                error(f"NATS: {shown}")

        options: dict[str, Any] = {
            "servers": list(urls),
            "name": name,
            "error_cb": on_error,
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": RECONNECT_WAIT_NS / SECOND,
            "connect_timeout": 2,
            "ping_interval": 20,
        }
        if config.credentials:
            options["user_credentials"] = str(config.credentials)
        if config.nkey_seed_file:
            options["nkeys_seed"] = str(config.nkey_seed_file)
        options |= login_options(config)
        self._first.own = own
        self._alone = _is_alone(config)
        self._secure = requires_tls(urls, options)
        options["allow_reconnect"] = False  # the first attempt fails at once instead of trying for ever
        await self.connect(**options)
        self.options["allow_reconnect"] = True
        self.options["dont_randomize"] = True
        await self._taken_over.wait()

    def relogin(self, config: NatsConfig) -> None:
        """Connect with the user, token and certificates of *config* from now on, when nats-server asks again.

        Raises:
            OSError: certificates cannot be read.
        """
        login = login_options(config)
        self._alone = _is_alone(config)
        self._secure = requires_tls((server.uri.geturl() for server in self._server_pool), login)
        self.options.pop("tls", None)
        self.options.update({"user": None, "password": None, "token": None} | login)

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:  # noqa: FBT001, FBT002
        """Ignore other nats-servers, which do not know the user or the certificate by which ours knows us."""
        if self._alone:
            info.pop("connect_urls", None)
        await super()._process_info(info, initial_connection)

    async def _connect_to_server(self, s: Srv) -> None:
        """Connect; to our own nats-server at its gate over the first connection, then its gate is opened."""
        first = self._first
        first.has_begun = False
        made = None if first.own is None or s.discovered else first.own.pop_first()
        try:
            if made is not None:
                self._transport = ConnectedTransport(made)
                if not self._needs_info():
                    made.sendall(self._begin())
            await super()._connect_to_server(s)
        finally:
            if made is not None and first.own is not None:
                first.own.admit()

    def _needs_info(self) -> bool:
        """True if nats-server has to send first: TLS comes first, or its nonce has to be signed."""
        return bool(self._secure or self.options.get("tls") or self._signature_cb)

    def _begin(self) -> bytes:
        """Return the first write, made as if nats-server's INFO were known."""
        self._server_info = {"headers": True}
        self._auth_configured = True
        command = self._connect_command()
        self._first.has_begun = True
        return command

    def _connect_command(self) -> bytes:
        """Return CONNECT and the subscriptions, which are made before nats-server reads anything of a client that came later. Of
        the answers only that to a PING comes before messages."""
        first = self._first
        if first.has_begun:
            first.has_begun = False
            return b""
        first.subscriptions = dict(self.subscriptions)
        first.pongs = 1
        return b"".join((super()._connect_command(), b"PING\r\n", *_subs(first.subscriptions.items())))

    async def _select_next_server(self) -> None:
        """Try each server once at first; nats-py would try for ever."""
        if self._taken_over.is_set():
            await super()._select_next_server()
            return
        problem: Exception = NoServersError()
        for server in tuple(self._server_pool):
            try:
                await self._connect_to_server(server)
            except (OSError, NatsError) as error:
                problem = error
            else:
                self._current_server = server
                return
        raise problem

    async def _read_loop(self) -> None:
        """Run by nats-py after each CONNECT: take the socket over, wait for its end, then follow nats-py's way to reconnect."""
        transport = self._transport
        if not isinstance(transport, TcpTransport):
            raise TypeError("the broker speaks to NATS over TCP or TLS only")
        reader: Any = transport._io_reader  # noqa: SLF001 - nats-py has no public way
        writer: Any = transport._io_writer  # noqa: SLF001
        socket: asyncio.Transport = writer.transport
        socket.set_write_buffer_limits(high=limits.OUTBOUND_BYTES_HIGH // 2)
        protocol: Any = socket.get_protocol()
        resume = protocol.resume_writing

        def resume_writing() -> None:
            resume()
            self._on_drained()

        protocol.resume_writing = resume_writing
        early = bytes(reader._buffer)  # noqa: SLF001
        reader._buffer.clear()  # noqa: SLF001
        reader.feed_data = self._on_data
        socket.write(b"".join(_subs(self.subscriptions.items() - self._first.subscriptions.items())))
        self._socket = socket
        self._problem = ""
        self._taken_over.set()
        self._on_up()
        if early:
            self._on_data(early)
        problem: Exception
        try:
            await reader.read(1)  # never gives data: returns at the end of the stream
            problem = ConnectionResetError("connection to NATS closed")
        except asyncio.CancelledError:
            self._lost(socket)
            raise
        except OSError as error:
            problem = error
        self._lost(socket)
        lost = self._current_server
        if lost is not None:  # the others first: a dead server refuses for a while, at its other addresses too
            self._server_pool.sort(key=lambda server: (server is lost, server.uri.port == lost.uri.port))
        await self._process_op_err(problem)

    def _lost(self, socket: asyncio.Transport) -> None:
        if self._socket is socket:
            self._socket = None
            self._on_down()

    # --- data -------------------------------------------------------------------------------------------------------------

    @property
    def up(self) -> bool:
        """True if bytes can be written now."""
        return self._socket is not None and not self._socket.is_closing()

    @property
    def unsent(self) -> int:
        """Bytes that were written and have not left the process."""
        return self._socket.get_write_buffer_size() if self._socket is not None else 0

    def write(self, data: bytes) -> bool:
        """Write bytes in one piece; False if there is no connection, and they are lost."""
        if self._socket is None or self._socket.is_closing():
            return False
        self._socket.write(data)
        return True

    def hold_reading(self, hold: bool) -> None:  # noqa: FBT001 - a switch
        """Stop or go on reading: back-pressure towards NATS."""
        if self._socket is None or self._socket.is_closing():
            return
        if hold and self._socket.is_reading():
            self._socket.pause_reading()
        elif not hold and not self._socket.is_reading():
            self._socket.resume_reading()

    def break_off(self) -> None:
        """Cut a stream that makes no sense any more; nats-py connects again."""
        if self._socket is not None:
            self._socket.abort()

    async def settle(self) -> None:
        """Return once nats-server has handled all bytes written so far."""
        await self.flush()

    def ponged(self) -> None:
        """Note a PONG: nats-py counts them and wakes waiters for a flush."""
        if self._first.pongs:
            self._first.pongs -= 1
            return
        self._soon(self._process_pong())

    def informed(self, info: dict[str, Any]) -> None:
        """Note an INFO: nats-py keeps the other servers of the cluster that it may reconnect to."""
        self._soon(self._process_info(info))

    def _soon(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _subs(subscriptions: Iterable[tuple[int, str]]) -> Iterator[bytes]:
    return (b"SUB %b %d\r\n" % (subject.encode(), sid) for sid, subject in subscriptions)


def _is_alone(config: NatsConfig) -> bool:
    """True if no other nats-server of the cluster than ours knows our user, or shows the certificate that we trust."""
    return config.own or (config.tls is not None and config.tls.pinned is not None)


def hint(config: NatsConfig, error: Exception) -> str:
    """Advice against *error* while connecting, to be appended to its text; "" if the text says it all."""
    tls = config.tls
    if tls is not None and tls.pinned is not None and isinstance(error, ssl.SSLCertVerificationError):
        return f" (it is that of nats-server, {tls.pinned})"
    if tls is not None and tls.client_cert == tls.pinned is not None:
        return (
            " (our connection showed nats-server's own certificate; if that is for servers only, name another with "
            "-tls_client_cert and -tls_client_key)"
        )
    if "Authorization" in str(error) and not (config.user or config.token):
        return (
            " (say who the streaming server is: username and password, token, nkey_seed_file or credentials in the "
            "streaming part of the file)"
        )
    return ""


def login_options(config: NatsConfig) -> dict[str, Any]:
    """Options of nats-py with our identity, and the trusted certificates."""
    options: dict[str, Any] = {}
    if config.user:
        options |= {"user": config.user, "password": config.password}
    if config.token:
        options["token"] = config.token
    if config.tls is not None:
        options["tls"] = tls_context(config.tls)
        if config.tls.server_name:
            options["tls_hostname"] = config.tls.server_name
    return options


def tls_context(config: TlsConfig) -> ssl.SSLContext:
    """TLS towards NATS as configured (STAN-SPEC 12.4).

    Raises:
        OSError: a file cannot be read, or holds something else; the text names it.
    """
    with _named(config.client_ca):
        context = ssl.create_default_context(cafile=str(config.client_ca) if config.client_ca else None)
    if config.pinned is not None:
        with _named(config.pinned):
            _pin(context, config.pinned)
    if config.client_cert:
        with _named(config.client_cert):
            context.load_cert_chain(str(config.client_cert), str(config.client_key) if config.client_key else None)
    if config.skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


_END = "-----END CERTIFICATE-----"


def _pin(context: ssl.SSLContext, certificate: Path) -> None:
    """Trust this one certificate, the first of its file, whatever its signer and names; not beyond its time."""
    first, end, _ = certificate.read_text(encoding="ascii", errors="replace").partition(_END)
    context.load_verify_locations(cadata=first + end)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = False


@contextlib.contextmanager
def _named(file: Path | None) -> Iterator[None]:
    """Name the file in errors."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise OSError(f"{file}: {reason}" if file else reason) from error
