"""A NATS connection with its own data path: nats-py connects, authenticates and reconnects; data bypasses nats-py.

Promises: what the socket reads goes straight to a parser of whole reads (no task, queue or object of nats-py per message), and
everything sent during one turn of the event loop leaves in one write. Works on asyncio's loop and on uvloop, over TCP and TLS.
Never decodes a STAN message and never drops outgoing frames while nats-py reconnects: they wait, and every sender here is
bounded by its own window (acks outstanding, messages in flight).

How: the StreamReader of nats-py's transport gets another `feed_data`; frames of the connection itself (PING, INFO, -ERR, ...) are
fed to nats-py's reader as before, so that its own read loop, parser and error handling go on unchanged.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from stan_protocol.frames import Frame
from stan_protocol.kernel.client import split
from stan_protocol.nats_client import Client, Msg, NoServersError, RepairedClient, TcpTransport, Transport
from stan_protocol.nats_client import ConnectionClosedError as NatsClosedError
from stan_protocol.nats_client import Error as NatsError
from stan_protocol.nats_client import Subscription as NatsSubscription
from stan_protocol.secure import requires_tls, without_secrets

from stan_client.errors import CannotConnectError, InvalidUrlError
from stan_client.transport.pieces import Pieces

log = logging.getLogger("stan_client")

Handler = Callable[[list[Frame]], None]
"""Takes the frames of one subscription that arrived together, at least one, in order."""

OUTBOUND_BYTES_HIGH = 4 * 1024 * 1024
"""Unsent bytes above which `drained` waits for the socket."""

RECONNECT_WAIT_S = 0.25
"""Pause of nats-py between two attempts to reach the same server."""

NatsClient = Client
"""nats-py's client, as callers may hand one in."""

_FAILURES = (NatsError, OSError, TimeoutError)
"""Errors that nats-py raises if it cannot connect."""

_NO_SERVER = (NoServersError, OSError, TimeoutError)
"""Those of them that it raises while no server runs, but for ssl.SSLError, which is an OSError."""

_SID = itemgetter(0)


SCHEMES: Final = ("nats", "tls", "ws", "wss")
"""Of the URLs of NATS servers."""

TLS_OPTIONS = ("tls_ca", "tls_cert", "tls_key", "tls_ciphers", "tls_min_version")
TLS_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


def for_nats(options: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments for nats-py's connect: user, password, token, user_credentials and nkeys_seed (files), tls_hostname, tls (an
    SSLContext) and so on as they are; instead of tls: tls_ca, tls_cert, tls_key (files), tls_ciphers (of TLS 1.2, in OpenSSL's
    words) and tls_min_version ("1.2" or "1.3").

    Raises:
        OSError: one of the files cannot be read, or is not valid for TLS, or there is no such cipher (ssl.SSLError).
        ValueError: another tls_min_version.
    """
    given = {key: value for key, value in options.items() if key not in TLS_OPTIONS}
    ca, cert, key, ciphers, least = (options.get(name) for name in TLS_OPTIONS)
    if ca or cert or key or ciphers or least:
        given["tls"] = context = ssl.create_default_context(cafile=ca)
        if cert:
            context.load_cert_chain(cert, key)
        if ciphers:
            context.set_ciphers(ciphers)
        if least:
            if least not in TLS_VERSIONS:
                raise ValueError(f"tls_min_version: {least!r} is not one of {', '.join(TLS_VERSIONS)}")
            context.minimum_version = TLS_VERSIONS[least]
    return given


def check_urls(urls: Sequence[str]) -> None:
    """Raise InvalidUrlError unless all are URLs of NATS servers: `nats://host:port`, or other schemes, or none."""
    for url in urls:
        reason = _fault_of(url.strip())
        if reason:
            raise InvalidUrlError(without_secrets(url), reason)


def _fault_of(url: str) -> str:
    scheme, separator, _ = url.partition("://")
    if separator and scheme.lower() not in SCHEMES:
        return f"its scheme is none of {', '.join(SCHEMES)}"
    try:
        parts = urlsplit(url if separator else f"nats://{url}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        return str(error)
    if not host:
        return "it names no host"
    return "0 is no port to connect to" if port == 0 else ""


class NatsLink(Protocol):
    """The NATS connection of a STAN client; there are two implementations, ClientConnection and BorrowedLink."""

    @property
    def connected(self) -> bool:
        """True if bytes sent now reach the NATS server now."""

    @property
    def closed(self) -> bool:
        """True once the NATS connection is closed for good."""

    @property
    def max_payload(self) -> int:
        """Largest payload the NATS server takes, in bytes."""

    async def listen(self, subject: str, handler: Handler) -> int:
        """Subscribe; frames go to *handler* in the turn that read them. Returns the sid."""

    async def unlisten(self, sid: int) -> None:
        """Drop a subscription; its handler is not called again."""

    def send(self, frames: bytes) -> None:
        """Send whole NATS frames; they leave together with all others of this turn."""

    async def drained(self) -> None:
        """Wait while too many bytes are unsent."""

    async def shut(self) -> None:
        """Close the NATS connection if it is ours; a borrowed one only loses our subscriptions."""


class ClientConnection(RepairedClient):
    """nats-py's client with the data path of this module; `open` instead of `connect`."""

    def __init__(self) -> None:
        super().__init__()
        self.on_online: Callable[[], None] | None = None
        """Called whenever a connection is up, after its subscriptions were replayed."""
        self._handlers: dict[int, Handler] = {}
        self._pieces = Pieces()  # an incomplete frame, waiting for its end
        self._out: list[bytes] = []
        self._flush_due = False
        self._to_nats_py: Callable[[bytes], None] = _nowhere

    async def open(self, servers: str | list[str], options: Mapping[str, Any], connect_timeout_s: float) -> None:
        """Connect: each server is tried without delay; after later losses nats-py reconnects without a limit. With `tls://` in
        one of the URLs or with an option for TLS nothing is ever sent in clear text, whatever a server asks for.

        Raises:
            CannotConnectError: no server could be used, or a file of *options* (as of for_nats) cannot be read.
            InvalidUrlError: one of the URLs is none; nothing was tried.
        """
        urls = [servers] if isinstance(servers, str) else servers
        check_urls(urls)
        try:
            await self._open(urls, for_nats(options), connect_timeout_s)
        except _FAILURES as error:
            passing = isinstance(error, _NO_SERVER) and not isinstance(error, ssl.SSLError)
            where, reason = without_secrets(", ".join(urls)), str(error) or type(error).__name__
            raise CannotConnectError(where, reason, passing=passing) from error

    async def _open(self, servers: list[str], options: Mapping[str, Any], connect_timeout_s: float) -> None:
        self._secure = requires_tls(servers, options)
        cause: list[Exception] = []
        tell = options.get("error_cb", self.note_error)

        async def error_cb(error: Exception) -> None:
            cause[:] = [error]
            await tell(error)

        given: dict[str, Any] = {**options, "error_cb": error_cb}
        first = {"allow_reconnect": False, "max_reconnect_attempts": 1, "reconnect_time_wait": 0}
        try:
            await self.connect(
                servers,
                **{**given, **first, "pending_size": 0, "connect_timeout": connect_timeout_s},
            )
        except BaseException as error:
            why = list(cause)
            if self._transport is not None:  # else nats-py's close() fails, and hides the reason
                await self.close()
            if why and isinstance(error, _FAILURES):
                raise why[0] from None  # nats-py's own "no servers available" hides the reason
            raise
        self.options["allow_reconnect"] = given.get("allow_reconnect", True)
        self.options["max_reconnect_attempts"] = given.get("max_reconnect_attempts", -1)
        self.options["reconnect_time_wait"] = given.get("reconnect_time_wait", RECONNECT_WAIT_S)

    async def note_error(self, error: Exception) -> None:
        """nats-py's error callback when the caller gave none: one line, not a traceback."""
        if not isinstance(error, NatsClosedError):
            log.debug("nats: %s", error)

    # --- reading ---------------------------------------------------------------------------------------------------

    async def _read_loop(self) -> None:
        # nats-py starts this once per connection, after CONNECT was answered and subscriptions were replayed.
        self._pieces = Pieces()
        if isinstance(self._transport, TcpTransport):
            self._take_over(self._transport)
        self._flush()
        if self.on_online is not None:
            self.on_online()
        await super()._read_loop()

    def _take_over(self, transport: TcpTransport) -> None:
        reader = transport._io_reader  # noqa: SLF001 - the one place where nats-py's transport is opened up
        if reader is None:
            return
        buffered: bytearray = reader._buffer  # type: ignore[attr-defined]  # noqa: SLF001
        # At the end of the stream nothing more may be fed, but nats-py still reads the buffer.
        ended = reader._eof  # type: ignore[attr-defined]  # noqa: SLF001
        self._to_nats_py = buffered.extend if ended else reader.feed_data
        early = bytes(buffered)
        buffered.clear()

        def feed(data: bytes) -> None:
            whole = self._pieces.joined(data)
            if whole is None:
                return
            try:
                self._pieces.keep(whole[self.handle_data(whole) :])
            except ValueError as error:
                log.warning("nats: protocol error, reconnecting: %s", error)
                reader.set_exception(ConnectionError(f"nats: {error}"))

        reader.feed_data = feed  # type: ignore[method-assign, assignment]
        if early:
            feed(early)

    def handle_data(self, data: bytes) -> int:
        """Handle all whole frames of *data*; returns their length in bytes. A load generator overrides this."""
        consumed, frames = split(data, 0)
        self.dispatch(frames)
        return consumed

    def dispatch(self, frames: list[Frame]) -> None:
        """Pass frames to the handlers of their subscriptions, and frames of the connection itself to nats-py."""
        for sid, group in groupby(frames, _SID):
            together = list(group)
            if sid == 0:
                for frame in together:
                    self._to_nats_py(_line(frame))
                continue
            handler = self._handlers.get(sid)
            if handler is not None:
                try:
                    handler(together)
                except Exception:
                    log.exception("nats: handler of subscription %d failed", sid)
            elif sid in self._subs:
                for frame in together:
                    self._to_nats_py(frame.encoded())

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        # Called by nats-py's parser: for its own subscriptions, and for ours where it has a transport that is not TCP.
        if sid in self._handlers:
            self.dispatch([Frame(sid, bytes(subject), bytes(reply or b""), bytes(headers or b""), bytes(data))])
        else:
            await super()._process_msg(sid, subject, reply, data, headers)

    # --- writing ---------------------------------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        """True if bytes sent now reach the NATS server now."""
        return self.is_connected

    @property
    def closed(self) -> bool:
        """True once the NATS connection is closed for good."""
        return self.is_closed

    def send(self, frames: bytes) -> None:
        """Send whole NATS frames; they leave together with all others of this turn."""
        self._out.append(frames)
        if not self._flush_due:
            self._flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        if self._out and self.is_connected and self._transport is not None and not self._broken(self._transport):
            self._transport.write(b"".join(self._out))
            self._out.clear()

    @staticmethod
    def _broken(transport: Transport) -> bool:
        """True if the socket is closed already and nats-py has not noticed yet: unsent bytes wait for the next connection."""
        if not isinstance(transport, TcpTransport) or transport._io_writer is None:  # noqa: SLF001
            return False
        return transport._io_writer.is_closing()  # noqa: SLF001

    async def drained(self) -> None:
        """Wait while more than OUTBOUND_BYTES_HIGH bytes are unsent."""
        transport = self._transport
        if isinstance(transport, TcpTransport) and transport._io_writer is not None:  # noqa: SLF001
            socket = transport._io_writer.transport  # noqa: SLF001
            if socket.get_write_buffer_size() > OUTBOUND_BYTES_HIGH:
                await transport.drain()  # type: ignore[no-untyped-call]

    # --- subscriptions ---------------------------------------------------------------------------------------------

    async def listen(self, subject: str, handler: Handler) -> int:
        """Subscribe; frames go to *handler* in the turn that read them. Returns the sid."""
        self._sid += 1
        sid = self._sid
        # Registered with nats-py, so that nats-py subscribes again after a reconnect; never started, because messages bypass it.
        self._subs[sid] = NatsSubscription(self, sid, subject)
        self._handlers[sid] = handler
        if self.is_connected:
            self.send(f"SUB {subject}  {sid}\r\n".encode())
        return sid

    async def unlisten(self, sid: int) -> None:
        """Drop a subscription; its handler is not called again."""
        self._subs.pop(sid, None)
        if self._handlers.pop(sid, None) is not None and self.is_connected:
            self.send(f"UNSUB {sid}\r\n".encode())

    async def shut(self) -> None:
        """Send the waiting frames and close the connection."""
        self._flush()
        self._handlers.clear()
        await self.close()


def _nowhere(_data: bytes) -> None:
    """Discard nats-py's frames: the sink before there is a connection."""


def _line(frame: Frame) -> bytes:
    """Encode a frame of the connection itself (PING, INFO, ...) as it came from the server."""
    rest = frame.payload.strip()
    return frame.subject + (b" " + rest if rest else b"") + b"\r\n"


class BorrowedLink:
    """A nats-py client of the caller, used through its own subscribe and never closed here."""

    def __init__(self, nats: NatsClient) -> None:
        """Borrow a connected client; the caller keeps owning it."""
        self._nats = nats
        self._subscriptions: dict[int, NatsSubscription] = {}
        self._out: list[bytes] = []
        self._flushing: asyncio.Task[None] | None = None

    @property
    def connected(self) -> bool:
        """True if bytes sent now reach the NATS server now."""
        return self._nats.is_connected

    @property
    def closed(self) -> bool:
        """True once the NATS connection is closed for good."""
        return self._nats.is_closed

    @property
    def max_payload(self) -> int:
        """Largest payload the NATS server takes, in bytes."""
        return self._nats.max_payload

    async def listen(self, subject: str, handler: Handler) -> int:
        """Subscribe through nats-py, with unlimited pending (STAN-SPEC 14.3); frames come one by one."""

        def pass_on(message: Msg) -> None:
            headers = message.headers or {}
            status = headers.get("Status", "")
            header = f"NATS/1.0 {status}\r\n\r\n".encode() if headers else b""
            handler([Frame(sid, message.subject.encode(), message.reply.encode(), header, message.data)])

        async def callback(message: Msg) -> None:
            pass_on(message)

        cb: Callable[[Msg], Awaitable[None]] = callback
        subscription = await self._nats.subscribe(subject, cb=cb, pending_msgs_limit=-1, pending_bytes_limit=-1)
        sid = subscription._id  # noqa: SLF001 - nats-py has no public name for it
        self._subscriptions[sid] = subscription
        return sid

    async def unlisten(self, sid: int) -> None:
        """Drop a subscription made by `listen`."""
        subscription = self._subscriptions.pop(sid, None)
        if subscription is not None and not self._nats.is_closed:
            await subscription.unsubscribe()

    def send(self, frames: bytes) -> None:
        """Queue whole NATS frames; one task per turn hands them to nats-py."""
        self._out.append(frames)
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().create_task(self._flush())

    async def _flush(self) -> None:
        out, self._out, self._flushing = b"".join(self._out), [], None
        if self._nats.is_closed:
            return
        await self._nats._send_command(out)  # noqa: SLF001 - publish() would cost a call per message
        await self._nats._flush_pending()  # noqa: SLF001

    async def drained(self) -> None:
        """Wait until nats-py has handed its buffer to the socket, if it holds more than OUTBOUND_BYTES_HIGH bytes."""
        if self._nats.pending_data_size > OUTBOUND_BYTES_HIGH:
            await self._nats._flush_pending(force_flush=True)  # noqa: SLF001

    async def shut(self) -> None:
        """Drop our subscriptions; the connection stays open."""
        if self._flushing is not None:
            await self._flushing
        for sid in list(self._subscriptions):
            await self.unlisten(sid)
