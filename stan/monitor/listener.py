"""The listener of the HTTP server: it accepts connections from anybody, so their number and the time of each are bounded.

Promises: besides streams of the dashboard, which are bounded where they begin, no more connections exist than are allowed: for a
new one the oldest is closed. One that finishes neither its TLS handshake nor the head of a request in time, is idle, or does not
read its data, is closed. A lack of descriptors or memory ends no listener.
"""

import asyncio
import contextlib
import errno
import os
import resource
import socket
import ssl
from collections.abc import Collection
from typing import Any

from aiohttp import web
from stan_protocol.scalars import MILLISECOND, SECOND

from stan import limits

BACKLOG = 128
"""Connections that wait in the system to be accepted."""


def connections_allowed() -> int:
    """Return how many connections there may be; with few descriptors it is a quarter of them, as logs need the others."""
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if descriptors == resource.RLIM_INFINITY:
        return limits.HTTP_CONNECTIONS_MAX
    return max(1, min(limits.HTTP_CONNECTIONS_MAX, descriptors // 4))


class Listener:
    """Accepts connections for aiohttp's *server*, until `close`."""

    def __init__(self, server: web.Server, tls: ssl.SSLContext | None, streams: Collection[web.RequestHandler]) -> None:
        """Accept nothing yet. *tls*: None for plain HTTP. *streams*: connections that are not counted, nor closed for others."""
        self._server = server
        self._tls = tls
        self._streams = streams
        self._allowed = connections_allowed()
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._starting: set[asyncio.Task[None]] = set()  # set up a connection, with its handshake
        self._accepted: dict[socket.socket, None] = {}  # the oldest first; closed ones until the next is accepted

    async def open(self, host: str, port: int) -> int:
        """Listen on all addresses of *host*, "" for all of this machine; returns the port of the first one. Raises OSError,
        OverflowError."""
        loop = asyncio.get_running_loop()
        addresses = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, _, _, _, address in dict.fromkeys(addresses):
                self._bind(family, address)
            if not self._sockets:
                raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
        except BaseException:
            await self.close()
            raise
        for one in self._sockets:
            one.setblocking(False)  # noqa: FBT003 - the socket's own method
            self._accepting.append(loop.create_task(self._accept(one)))
        return int(self._sockets[0].getsockname()[1])

    def _bind(self, family: int, address: tuple[Any, ...]) -> None:
        try:
            self._sockets.append(socket.create_server(address, family=family, backlog=BACKLOG))
        except OSError as error:
            if error.errno not in {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}:  # else this machine has no such addresses
                raise

    async def close(self) -> None:
        """Accept nothing more; connections that were set up go on."""
        tasks = [*self._accepting, *self._starting]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for one in self._sockets:
            one.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listening)
            except OSError:  # no descriptor or memory, or the other side has gone meanwhile
                await asyncio.sleep(limits.HTTP_ACCEPT_RETRY / SECOND)
                continue
            self._make_room()
            self._accepted[accepted] = None
            task = loop.create_task(self._set_up(accepted))
            self._starting.add(task)
            task.add_done_callback(self._starting.discard)

    def _make_room(self) -> None:
        """Close the oldest connection if there are as many as allowed."""
        self._accepted = {one: None for one in self._accepted if one.fileno() >= 0}
        streams = {_descriptor(one) for one in self._streams}
        counted = [one for one in self._accepted if one.fileno() not in streams]
        if len(counted) >= self._allowed:
            del self._accepted[counted[0]]
            with contextlib.suppress(OSError):  # the other side has just closed it
                counted[0].shutdown(socket.SHUT_RDWR)  # so the loop, whose descriptor it is, closes it

    async def _set_up(self, accepted: socket.socket) -> None:
        """Give a connection to the server, after the handshake if there is one."""
        loop = asyncio.get_running_loop()
        patience = None if self._tls is None else limits.HTTP_HEAD_TIMEOUT / SECOND
        with contextlib.suppress(OSError):  # strangers' errors are no news; those of TLS are OSErrors, too
            accepted.setblocking(False)  # noqa: FBT003 - the socket's own method
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                ms = limits.HTTP_READER_PATIENCE // MILLISECOND
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, ms)
            await loop.connect_accepted_socket(
                self._server, accepted, ssl=self._tls, ssl_handshake_timeout=patience, ssl_shutdown_timeout=patience
            )


def _descriptor(connection: web.RequestHandler) -> int:
    """Return the descriptor of a connection; -1 if it has ended."""
    own = None if connection.transport is None else connection.transport.get_extra_info("socket")
    return -1 if own is None else int(own.fileno())
