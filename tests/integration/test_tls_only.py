"""Who is told to speak TLS says nothing in clear to a NATS that offers none: first, at each reconnection, in every client."""

import asyncio
import contextlib
import os
import ssl
import subprocess
import sys

import pytest
import stan_client
from nats.errors import Error as NatsError
from pyspark_stan.errors import UnreachableError
from pyspark_stan.options import ConnectionOptions as SparkConnection
from pyspark_stan.transport import client_of
from stan_client.reading.direct import Direct
from stan_client.transport.connection import ClientConnection

from tests.kit.certificates import Authority
from tests.kit.eavesdropper import Eavesdropper
from tests.kit.fake_broker import eventually
from tests.kit.server import ROOT, NatsServer

STAN = (sys.executable, "-m", "stan.cli.main")
HIDDEN = "swordfish-and-chips"
NOT_THERE = "secure connection not available"
LOGIN = {"user": "bob", "password": HIDDEN}


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@pytest.fixture(params=["url", "mixed urls", "authority", "context", "hostname"])
def asked_for(request, authority):
    """Ways to be told to speak TLS: the URLs of a port, and options."""
    context = ssl.create_default_context(cafile=str(authority.ca))
    schemes, options = (
        {
            "url": ("tls",),
            "mixed urls": ("nats", "tls"),
            "authority": ("nats",),
            "context": ("nats",),
            "hostname": ("nats",),
        }[request.param],
        {
            "authority": {"tls_ca": str(authority.ca)},
            "context": {"tls": context},
            "hostname": {"tls_hostname": "nats.example"},
        }.get(request.param, {}),
    )
    return lambda port: [f"{scheme}://127.0.0.1:{port}" for scheme in schemes], options


async def test_client_says_nothing_to_a_server_without_tls(asked_for):
    urls, options = asked_for
    async with Eavesdropper() as nats:
        with pytest.raises(stan_client.CannotConnectError, match=NOT_THERE):
            await stan_client.connect(urls(nats.port), client_id="me", nats_options={**LOGIN, **options})
        with pytest.raises(stan_client.CannotConnectError, match=NOT_THERE):
            await Direct(urls(nats.port), nats_options={**LOGIN, **options}).open()
        assert nats.connections >= 2
        assert nats.clear == b""


async def test_server_that_need_not_speak_tls_but_can_is_spoken_to_in_tls(tmp_path, authority):
    pair = authority.sign("nats", host="127.0.0.1")
    file = tmp_path / "nats.conf"
    file.write_text(f'tls {{ cert_file: "{pair.cert}", key_file: "{pair.key}" }}\nallow_non_tls: true\n')
    with NatsServer(tmp_path, "-c", str(file)) as nats:
        connection = ClientConnection()
        await connection.open(nats.url, stan_client.transport.connection.for_nats({"tls_ca": str(authority.ca)}), 5)
        assert connection._transport._io_writer.get_extra_info("ssl_object") is not None
        await connection.shut()


async def test_server_without_tls_in_place_of_one_with_it_is_told_nothing_at_a_reconnection(tmp_path, authority):
    pair = authority.sign("nats", host="127.0.0.1")
    with NatsServer(tmp_path, "--tls", "--tlscert", str(pair.cert), "--tlskey", str(pair.key)) as nats:
        connection = ClientConnection()
        given = {**LOGIN, "tls_ca": str(authority.ca), "max_reconnect_attempts": 3}
        await connection.open(f"tls://127.0.0.1:{nats.port}", stan_client.transport.connection.for_nats(given), 5)
        await connection.listen("orders", print)
        nats.kill()
        async with Eavesdropper(nats.port) as other:
            connection.send(b"PUB orders 0\r\n\r\n")
            await eventually(lambda: other.connections >= 2)
            assert other.clear == b""
        await connection.shut()
        assert other.clear == b""


async def test_server_heard_of_from_another_is_told_nothing_in_clear(authority):
    pair = authority.sign("nats", host="127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    async with Eavesdropper() as heard_of:
        told = {"tls_required": True, "connect_urls": [f"127.0.0.1:{heard_of.port}"]}
        async with Eavesdropper(tls=context, **told) as first:
            for url in (f"nats://127.0.0.1:{first.port}", f"tls://127.0.0.1:{first.port}"):
                connection, before = ClientConnection(), heard_of.connections
                given = {**LOGIN, "tls_ca": str(authority.ca)}
                with contextlib.suppress(NatsError, OSError):
                    await connection.open(url, stan_client.transport.connection.for_nats(given), 5)
                await eventually(lambda before=before: heard_of.connections > before)
                await connection.shut()
        assert heard_of.clear == b""


async def test_websocket_in_clear_is_not_opened(authority):
    async with Eavesdropper() as nats:
        with pytest.raises(stan_client.CannotConnectError, match=NOT_THERE):
            await ClientConnection().open(
                f"ws://127.0.0.1:{nats.port}",
                stan_client.transport.connection.for_nats({"tls_ca": str(authority.ca)}),
                5,
            )
        assert nats.connections == 0


async def test_spark_says_nothing_to_a_server_without_tls(authority):
    async with Eavesdropper() as nats:
        for url, files in (
            (f"tls://127.0.0.1:{nats.port}", ()),
            (f"nats://127.0.0.1:{nats.port}", (("tls_ca", str(authority.ca)),)),
        ):
            told = SparkConnection((url,), "test-cluster", 5.0, tuple(LOGIN.items()), files)
            with pytest.raises(UnreachableError, match=NOT_THERE):
                await asyncio.to_thread(client_of, told)
        assert nats.connections >= 2
        assert nats.clear == b""


COMMANDS = (
    *("pub orders hello", "sub orders", "durable list", "node list", "doctor", "check", "events"),
    *("backup kept", "bench orders --messages 10"),
)


@pytest.mark.parametrize(
    ("words", "how"),
    [("channel list", "authority"), ("channel list", "context"), *((words, "url") for words in COMMANDS)],
)
async def test_commands_say_nothing_to_a_server_without_tls(tmp_path, authority, words, how):
    async with Eavesdropper() as nats:
        told = {
            "url": ("-s", f"tls://127.0.0.1:{nats.port}"),
            "authority": ("-s", f"nats://127.0.0.1:{nats.port}", "--tls-ca", str(authority.ca)),
            "context": ("--context", "secure"),
        }[how]
        env = os.environ | {
            "PYTHONPATH": f"{ROOT}:{ROOT / 'clients'}",
            "XDG_CONFIG_HOME": str(tmp_path),
            "COLUMNS": "200",
        }

        async def run(*command):
            return await asyncio.to_thread(
                subprocess.run,
                [*STAN, *command],
                capture_output=True,
                text=True,
                timeout=100,
                check=False,
                env=env,
                cwd=tmp_path,
            )

        if how == "context":
            made = await run(
                "context", "add", "secure", "--server", f"nats://127.0.0.1:{nats.port}", "--tls-ca", str(authority.ca)
            )
            assert made.returncode == 0, made.stderr
        login = () if how == "context" else ("--user", "bob", "--password", HIDDEN)
        done = await run(*words.split(), *told, *login)
        assert done.returncode != 0
        assert NOT_THERE in done.stdout + done.stderr
        assert nats.connections >= 1
        assert nats.clear == b""
