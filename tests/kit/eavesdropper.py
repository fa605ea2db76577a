"""A NATS server for tests that keeps what clients say to it in clear: one that offers no TLS, or one that is left after TLS.

Promises nothing of NATS but INFO, and PONG to PING: enough for a client to connect.
"""

import asyncio
import contextlib
import json
import ssl
from typing import Any, Self

from tests.kit.ports import free_port

INFO = {"server_id": "X", "version": "2.10.0", "max_payload": 1 << 20, "proto": 1, "headers": True, "client_id": 1}


class Eavesdropper:
    """Listens on *port*. *clear*: every byte that came before TLS; *connections*: how many there were."""

    def __init__(self, port: int = 0, tls: ssl.SSLContext | None = None, **info: Any) -> None:
        """*tls*: speak it after INFO, and end each connection once it is made; *info*: what INFO says beside."""
        self.port = port or free_port()
        self.clear = b""
        self.connections = 0
        self._tls = tls
        self._info = b"INFO %b\r\n" % json.dumps({**INFO, **info}).encode()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(OSError):  # ssl's errors among them
            writer.write(self._info)
            if self._tls is not None:
                await writer.start_tls(self._tls)
            while line := await reader.readline():
                if self._tls is None:
                    self.clear += line
                elif line.startswith(b"PING"):
                    writer.write(b"PONG\r\n")
                    await writer.drain()
                    break
            writer.close()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
