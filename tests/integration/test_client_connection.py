"""The fast NATS connection: both event loops, TCP and TLS, large frames, nats-py's own traffic, and a stream that breaks."""

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import urlparse

import pytest
import uvloop
from nats.aio.client import Client as NatsClient
from nats.aio.client import Srv
from stan_client.errors import CannotConnectError
from stan_client.transport.connection import BorrowedLink, ClientConnection, for_nats
from stan_protocol.frames import Frame

from tests.kit.fake_broker import eventually, nats_server
from tests.kit.running import settled

Runner = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    directory = tmp_path_factory.mktemp("tls")
    certificate, key = str(directory / "cert.pem"), str(directory / "key.pem")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate),
        ],
        check=True,
        capture_output=True,
    )
    with nats_server("--tlsverify", "--tlscacert", certificate, "--tlscert", certificate, "--tlskey", key) as url:
        yield url, {"tls_ca": certificate, "tls_cert": certificate, "tls_key": key}


async def round_trip(url: str, options: dict[str, Any]) -> None:
    """Send frames of all sizes to ourselves, in one turn; they come back whole and in order."""
    nats = ClientConnection()
    await nats.open(url, options, 5)
    got: list[bytes] = []
    await nats.listen("loop", lambda frames: got.extend(frame.payload for frame in frames))
    payloads = [bytes([number % 251]) * size for number, size in enumerate((0, 1, 900_000, 17, 300_000, 5))]
    for payload in payloads:
        nats.send(b"PUB loop %d\r\n%b\r\n" % (len(payload), payload))
    await eventually(lambda: len(got) == len(payloads))
    assert got == payloads
    await nats.shut()


@pytest.mark.parametrize("runner", [asyncio.run, uvloop.run])
def test_frames_of_all_sizes_come_back_in_order(nats_url, runner: Runner) -> None:
    runner(round_trip(nats_url, {}))


@pytest.mark.parametrize("runner", [asyncio.run, uvloop.run])
def test_frames_of_all_sizes_come_back_in_order_over_tls(tls, runner: Runner) -> None:
    url, files = tls
    runner(round_trip(url, for_nats(files)))


async def test_ciphers_and_versions_of_tls_are_those_that_were_asked_for(tls) -> None:
    url, files = tls
    newest = for_nats({**files, "tls_min_version": "1.3"})["tls"]
    ciphers = for_nats({"tls_ciphers": "ECDHE+AESGCM"})["tls"].get_ciphers()

    assert newest.minimum_version == ssl.TLSVersion.TLSv1_3
    assert {each["name"] for each in ciphers if each["protocol"] == "TLSv1.2"} < {
        each["name"] for each in newest.get_ciphers()
    }
    await round_trip(url, for_nats({**files, "tls_ciphers": "ECDHE+AESGCM", "tls_min_version": "1.3"}))
    with pytest.raises(CannotConnectError, match="No cipher can be selected"):
        await ClientConnection().open(url, {**files, "tls_ciphers": "NONE-SUCH"}, 5)
    with pytest.raises(ValueError, match=r"tls_min_version: '1\.1' is not one of 1\.2, 1\.3"):
        await ClientConnection().open(url, {**files, "tls_min_version": "1.1"}, 5)


async def test_requests_and_flushes_of_nats_py_go_on_beside_it(nats_url) -> None:
    nats = ClientConnection()
    await nats.open(nats_url, {}, 5)

    async def answer(message: Any) -> None:
        await message.respond(b"answer to " + message.data)

    await nats.subscribe("question", cb=answer)

    assert (await nats.request("question", b"one")).data == b"answer to one"
    assert await nats.rtt() > 0
    await nats.shut()


async def test_unlisten_ends_delivery(nats_url) -> None:
    nats = ClientConnection()
    await nats.open(nats_url, {}, 5)
    got: list[Frame] = []
    sid = await nats.listen("one", got.extend)
    await nats.unlisten(sid)
    done: list[Frame] = []
    await nats.listen("two", done.extend)

    nats.send(b"PUB one 0\r\n\r\nPUB two 0\r\n\r\n")

    await eventually(lambda: done)
    assert got == []
    await nats.shut()


async def test_failing_handler_is_logged_and_the_connection_goes_on(nats_url, caplog) -> None:
    nats = ClientConnection()
    await nats.open(nats_url, {}, 5)
    got: list[Frame] = []

    def handler(frames: list[Frame]) -> None:
        got.extend(frames)
        raise ValueError("not again")

    await nats.listen("loop", handler)
    for _ in range(2):
        seen = len(got)
        nats.send(b"PUB loop 0\r\n\r\n")
        await eventually(lambda seen=seen: len(got) > seen)

    assert nats.is_connected
    assert "not again" in caplog.text
    await nats.shut()


async def test_server_that_speaks_no_nats_is_left_and_tried_again(caplog) -> None:
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.write(b'INFO {"max_payload": 100, "headers": true}\r\n')
        await reader.readuntil(b"PING\r\n")
        writer.write(b"PONG\r\n")
        writer.write(b"rubbish\r\n" if connections == 1 else b"")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    nats = ClientConnection()
    await nats.open(f"nats://127.0.0.1:{port}", {"reconnect_time_wait": 0.01, "flush_timeout": 1}, 5)

    await eventually(lambda: connections == 2)

    assert "protocol error" in caplog.text
    await nats.shut()
    server.close()
    await server.wait_closed()


async def bytes_for_a_closed_socket(url: str) -> None:
    """What is sent while the socket is closed and nats-py does not know it yet."""
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    nats = ClientConnection()
    await nats.open(url, {"reconnect_time_wait": 0.01}, 5)
    got: list[Frame] = []
    await nats.listen("loop", got.extend)
    await settled(nats)

    nats._transport._io_writer.transport.abort()
    nats.send(b"PUB loop 3\r\none\r\n")

    await eventually(lambda: got)
    assert [frame.payload for frame in got] == [b"one"]
    await nats.shut()
    assert not failures


@pytest.mark.parametrize("runner", [asyncio.run, uvloop.run])
def test_bytes_for_a_closed_socket_leave_on_the_next_one(nats_url, runner: Runner) -> None:
    runner(bytes_for_a_closed_socket(nats_url))


async def test_cancellation_that_meets_a_refused_connect_is_kept(monkeypatch) -> None:
    async def refused(_self: NatsClient, _server: object) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ConnectionRefusedError from None  # as wait_for of Python 3.11 does it

    monkeypatch.setattr(NatsClient, "_connect_to_server", refused)
    connecting = asyncio.create_task(ClientConnection()._connect_to_server(Srv(urlparse("nats://127.0.0.1:1"))))
    await asyncio.sleep(0)
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting


async def test_borrowed_link_sends_and_receives_the_same(nats_url) -> None:
    nats = ClientConnection()
    await nats.open(nats_url, {}, 5)
    link = BorrowedLink(nats)
    got: list[Frame] = []
    await link.listen("loop.*", got.extend)
    await link.listen("other", got.extend)

    link.send(b"PUB loop.a answer 3\r\none\r\n")
    link.send(b"HPUB other 12 15\r\nNATS/1.0\r\n\r\ntwo\r\n")

    await eventually(lambda: len(got) == 2)
    assert [(frame.subject, frame.reply, frame.payload) for frame in got] == [
        (b"loop.a", b"answer", b"one"),
        (b"other", b"", b"two"),
    ]
    await link.shut()
    assert nats.is_connected
    await nats.shut()
