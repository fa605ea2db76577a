"""nats-py's client as the broker and the client library build on it: without its faults, and never in clear if TLS is set.

Promises: a cancelled connect ends, a failed TLS handshake leaves nothing behind, and no name or password is sent before TLS
starts if TLS is required. Has no data path of its own: subclasses add it. Besides these subclasses, this is the only place that
uses nats-py's private attributes; it is the only one that imports nats-py, without its slow, seldom needed parts.
"""

import asyncio
import socket
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stan_protocol.lazy_import import lazy_nats, with_web_sockets
from stan_protocol.scalars import SECOND
from stan_protocol.secure import offered

with lazy_nats():
    from nats.aio import transport as transports
    from nats.aio.client import Client, Srv
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription
    from nats.aio.transport import TcpTransport, Transport
    from nats.errors import ConnectionClosedError, Error, NoServersError, SecureConnWantedError
    from nats.nuid import NUID

if TYPE_CHECKING:
    from urllib.parse import ParseResult

__all__ = [
    "NUID",
    "Client",
    "ConnectedTransport",
    "ConnectionClosedError",
    "Error",
    "Msg",
    "NoServersError",
    "RepairedClient",
    "Srv",
    "Subscription",
    "TcpTransport",
    "Transport",
    "signed_login",
]


class RepairedClient(Client):
    """nats-py's client with repaired connects and enforced TLS."""

    def __init__(self) -> None:
        super().__init__()
        self._secure = False  # True: connect with TLS only

    async def _connect_to_server(self, s: Srv) -> None:
        """Keep a cancellation that Python 3.11's wait_for, used in there, loses when a connect is refused in the same turn;
        else nats-py goes on reconnecting behind a close()."""
        task = asyncio.current_task()
        cancellations = task.cancelling() if task is not None else 0
        if self._secure and s.uri.scheme == "ws":
            raise SecureConnWantedError
        if s.uri.scheme in ("ws", "wss"):
            with_web_sockets(transports)
        try:
            await super()._connect_to_server(s)
        finally:
            if task is not None and task.cancelling() > cancellations:
                raise asyncio.CancelledError

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:  # noqa: FBT001, FBT002
        wss = self._current_server is not None and self._current_server.uri.scheme == "wss"
        if initial_connection and self._secure and not wss and not offered(info):
            raise SecureConnWantedError
        await super()._process_info(info, initial_connection)

    async def _process_connect_init(self) -> None:
        """Abort the writer of a failed TLS handshake: the writer never reports its end, and close() would wait for it."""
        try:
            await super()._process_connect_init()
        except BaseException:
            transport, self._transport = self._transport, None
            writer = transport._io_writer if isinstance(transport, TcpTransport) else None  # noqa: SLF001
            if writer is not None:
                writer.transport.abort()
            raise
        self._tell_of_tls()

    @property
    def certificate_until_ns(self) -> int:
        """The end of the connected server's certificate, Unix ns; 0: there is none, as without TLS, or it was not checked."""
        writer = self._transport._io_writer if isinstance(self._transport, TcpTransport) else None  # noqa: SLF001
        tls = writer.get_extra_info("ssl_object") if writer is not None else None
        end = ((tls.getpeercert() or {}) if tls is not None else {}).get("notAfter")
        return int(ssl.cert_time_to_seconds(end)) * SECOND if isinstance(end, str) else 0

    def _tell_of_tls(self) -> None:
        """Let asyncio's protocol know that it is above TLS, which `loop.start_tls` does not: else its end is a warning."""
        writer = self._transport._io_writer if isinstance(self._transport, TcpTransport) else None  # noqa: SLF001
        if writer is not None and writer.get_extra_info("ssl_object") is not None:
            protocol = writer.transport.get_protocol()
            if isinstance(protocol, asyncio.StreamReaderProtocol):
                protocol._over_ssl = True  # type: ignore[attr-defined] # noqa: SLF001


class ConnectedTransport(TcpTransport):
    """A transport over a TCP connection that is made already; it connects itself only when it is used once more."""

    def __init__(self, made: socket.socket) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._made: socket.socket | None = made

    def __bool__(self) -> bool:
        """True before it is used, too: nats-py replaces a transport that is false."""
        return self._made is not None or bool(super().__bool__())  # type: ignore[no-untyped-call]

    async def connect(self, uri: "ParseResult", buffer_size: int, connect_timeout: int) -> None:
        """Take the connection over."""
        made, self._made = self._made, None
        if made is None:
            await super().connect(uri, buffer_size, connect_timeout)
            return
        reader, writer = await asyncio.open_connection(sock=made, limit=buffer_size)
        self._bare_io_reader = self._io_reader = reader
        self._bare_io_writer = self._io_writer = writer


class _Signer(Client):
    """Answers the nonce of a server to which another connection is made."""

    def __init__(self, credentials: Path | None, nkey_seed_file: Path | None) -> None:
        super().__init__()
        self._user_credentials = str(credentials) if credentials is not None else None
        self._nkeys_seed = str(nkey_seed_file) if nkey_seed_file is not None else None

    def login(self, nonce: str) -> dict[str, str]:
        """The fields of a CONNECT."""
        self._setup_nkeys_connect()
        found = {"sig": self._signature_cb(nonce).decode()} if self._signature_cb is not None else {}
        if self._user_jwt_cb is not None:
            return found | {"jwt": self._user_jwt_cb().decode()}
        return found | {"nkey": self._public_nkey or ""}


def signed_login(nonce: str, *, credentials: Path | None, nkey_seed_file: Path | None) -> dict[str, str]:
    """The fields of a CONNECT that answer a server's nonce, by a file of credentials or, without one, of an nkey's seed. Raises
    OSError: the file cannot be read, or holds something else."""
    try:
        return _Signer(credentials, nkey_seed_file).login(nonce)
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"{credentials or nkey_seed_file}: {str(error) or type(error).__name__}") from error
