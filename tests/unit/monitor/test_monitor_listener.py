"""The listener of the pages: strangers get so many connections and so much time, and no more."""

import asyncio
import resource
import ssl

import pytest
from aiohttp import web
from stan_protocol.scalars import MILLISECOND, SECOND

from stan import limits
from stan.monitor import listener as module
from stan.monitor.listener import Listener, connections_allowed
from tests.kit.certificates import Authority

HALF = b"GET / HTTP/1.1\r\nHost: a\r\n"
WHOLE = HALF + b"\r\n"


class Pages:
    """A server of one page, whose listener allows *allowed* connections."""

    def __init__(self, monkeypatch, allowed, tls=None, idle=60.0):
        monkeypatch.setattr(module, "connections_allowed", lambda: allowed)
        self.streams, self.tls, self.idle = set(), tls, idle
        self.port = 0

    async def answer(self, request):
        self.streams.add(request.protocol)
        return web.Response(text="a page")

    async def __aenter__(self):
        app = web.Application()
        app.router.add_get("/", self.answer)
        self.runner = web.AppRunner(app, keepalive_timeout=self.idle)
        await self.runner.setup()
        self.listener = Listener(self.runner.server, self.tls, self.streams)
        self.port = await self.listener.open("127.0.0.1", 0)
        return self

    async def __aexit__(self, *_):
        await self.listener.close()
        await self.runner.cleanup()

    async def connect(self, data=HALF):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        await writer.drain()
        return reader, writer


async def is_closed(connection):
    reader, writer = connection
    try:
        closed = await reader.read() == b""
    except ConnectionResetError:
        closed = True
    writer.close()
    return closed


async def page(connection):
    reader, _ = connection
    return (await reader.readuntil(b"a page")).partition(b"\r\n")[0]


async def test_oldest_connections_are_closed_for_new_ones_and_a_page_is_still_served(monkeypatch):
    async with Pages(monkeypatch, 3) as pages:
        strangers = [await pages.connect() for _ in range(20)]
        honest = await pages.connect(WHOLE)
        assert await page(honest) == b"HTTP/1.1 200 OK"
        assert all([await is_closed(one) for one in strangers[:17]])
        assert len(pages.runner.server.connections) <= 3, "closed by the server, not by these clients"
        for _, writer in (honest, *strangers[17:]):
            writer.close()


async def test_streams_are_neither_counted_nor_closed_for_others(monkeypatch):
    async with Pages(monkeypatch, 2) as pages:
        streams = [await pages.connect(WHOLE) for _ in range(2)]
        assert [await page(one) for one in streams] == [b"HTTP/1.1 200 OK"] * 2
        strangers = [await pages.connect() for _ in range(9)]
        assert all([await is_closed(one) for one in strangers[:7]])
        for stream in streams:
            stream[1].write(WHOLE)
            assert await page(stream) == b"HTTP/1.1 200 OK"
        for _, writer in (*streams, *strangers[7:]):
            writer.close()


@pytest.mark.parametrize("sent", [b"", HALF, WHOLE + HALF], ids=["nothing", "half a head", "idle, then half a head"])
async def test_connection_that_does_not_finish_a_head_is_closed(monkeypatch, sent):
    async with Pages(monkeypatch, 9, idle=0.05) as pages:
        connection = await pages.connect(sent)
        if sent.startswith(WHOLE):
            await page(connection)
        assert await is_closed(connection)


async def test_connection_that_does_not_finish_its_handshake_is_closed(monkeypatch, tmp_path):
    monkeypatch.setattr(limits, "HTTP_HEAD_TIMEOUT", 50 * MILLISECOND)
    pair = Authority(tmp_path).sign("server")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair.cert, pair.key)
    async with Pages(monkeypatch, 9, tls) as pages:
        assert await is_closed(await pages.connect(b"\x16\x03\x01"))
        monkeypatch.setattr(limits, "HTTP_HEAD_TIMEOUT", 60 * SECOND)
        strangers = [await pages.connect(b"\x16\x03\x01") for _ in range(20)]
        assert all([await is_closed(one) for one in strangers[:11]]), "the oldest are closed for new ones"
        for _, writer in strangers[11:]:
            writer.close()


@pytest.mark.parametrize(("descriptors", "allowed"), [(64, 16), (1024, 256), (1 << 20, 256), (1, 1)])
def test_connections_are_a_quarter_of_the_descriptors_at_most(monkeypatch, descriptors, allowed):
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (descriptors, descriptors))
    assert connections_allowed() == allowed
