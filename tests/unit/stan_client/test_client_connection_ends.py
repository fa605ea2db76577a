"""A NATS connection of a client that ends before its first bytes are looked at."""

import asyncio

from nats.aio.transport import TcpTransport
from stan_client.transport.connection import ClientConnection


async def test_connection_that_ended_while_it_began_gives_nats_py_what_was_said_and_its_end() -> None:
    """nats-server says something and dies before the client has taken the socket over: nats-py must hear of both, to go on."""
    transport = TcpTransport()
    reader = transport._io_reader = asyncio.StreamReader()
    reader.feed_data(b"PING\r\n-ERR 'stale'\r\n")
    reader.feed_eof()
    nats = ClientConnection()
    nats._take_over(transport)
    assert await reader.read(100) == b"PING\r\n-ERR 'stale'\r\n"
    assert await reader.read(100) == b""
