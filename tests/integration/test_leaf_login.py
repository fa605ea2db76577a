"""The leafnode connection with a listener of an outside NATS: TLS and logins, as our own connection has them."""

import asyncio
import base64
import contextlib
import json
from contextlib import asynccontextmanager
from pathlib import Path

import nats
import nkeys
import pytest

from stan.config import NatsConfig, TlsConfig
from stan.edge.nats.leaf import LeafConnection
from stan.edge.nats.leaf_address import leaf_address
from tests.kit.certificates import Authority
from tests.kit.fake_broker import eventually
from tests.kit.ports import accepts, free_port
from tests.kit.server import NatsServer, StanServer, until

LOOPBACK = "127.0.0.1"
WORD = "secret"


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


def tls_block(authority, pair, *, verify=False) -> str:
    more = f'ca_file: "{authority.ca}", verify: true' if verify else ""
    return f'tls {{ cert_file: "{pair.cert}", key_file: "{pair.key}", {more} }}'


@contextlib.contextmanager
def listener(tmp_path: Path, inside: str, outside: str = ""):
    """A nats-server that takes leafnodes on a port of its own; *inside*: the rest of the block."""
    port = free_port()
    file = tmp_path / "nats.conf"
    file.write_text(f'leafnodes {{ listen: "{LOOPBACK}:{port}", {inside} }}\n{outside}')
    with NatsServer(tmp_path, "-c", str(file)) as server:
        until(lambda: accepts(port))
        yield server, port


class Leaf:
    """The connection, to an address that can change, and what it tells."""

    def __init__(self, place: str, config: NatsConfig) -> None:
        self.place, self.config = place, config
        self.notes: list[tuple[str, str]] = []
        self.attempts = 0
        self.connection = LeafConnection(self.address, "stan", lambda: None, lambda *note: self.notes.append(note))

    def address(self):
        self.attempts += 1
        return leaf_address(self.place, self.config)


@asynccontextmanager
async def leaf(place: str, **config):
    made = Leaf(place, NatsConfig(**config))
    made.connection.start()
    try:
        yield made
    finally:
        await made.connection.close()


async def test_tls_with_a_certificate_of_the_known_authority(tmp_path, authority):
    pair = authority.sign("nats", host=LOOPBACK)
    with listener(tmp_path, tls_block(authority, pair)) as (_, port):
        for place in (f"{LOOPBACK}:{port}", f"tls://{LOOPBACK}:{port}", f"nats://{LOOPBACK}:{port}"):
            async with leaf(place, tls=TlsConfig(client_ca=authority.ca)) as made:
                await made.connection.wait_until_up()
                assert made.notes == []


async def test_another_authority_is_told_once_and_tried_again(tmp_path, authority):
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other", "somebody")
    pair = authority.sign("nats", host=LOOPBACK)
    with listener(tmp_path, tls_block(authority, pair)) as (_, port):
        async with leaf(f"{LOOPBACK}:{port}", tls=TlsConfig(client_ca=other.ca)) as made:
            await eventually(lambda: made.attempts > 2)
            assert not made.connection.up
            ((level, text),) = made.notes
            assert level == "WRN"
            assert "certificate verify failed" in text
            made.config = NatsConfig(tls=TlsConfig(client_ca=authority.ca))
            await made.connection.wait_until_up()
            assert made.notes[-1] == ("INF", "leafnode connection to NATS is back")


async def test_the_host_name_is_verified_and_can_be_another(tmp_path, authority):
    pair = authority.sign("nats")  # for nats.example alone
    with listener(tmp_path, tls_block(authority, pair)) as (_, port):
        async with leaf(f"{LOOPBACK}:{port}", tls=TlsConfig(client_ca=authority.ca)) as made:
            await eventually(lambda: bool(made.notes))
            assert "certificate verify failed" in made.notes[0][1]
        named = TlsConfig(client_ca=authority.ca, server_name="nats.example")
        async with leaf(f"{LOOPBACK}:{port}", tls=named) as made:
            await made.connection.wait_until_up()


async def test_a_listener_that_verifies_gets_our_certificate(tmp_path, authority):
    pair, own = authority.sign("nats", host=LOOPBACK), authority.sign("stan")
    with listener(tmp_path, tls_block(authority, pair, verify=True)) as (_, port):
        shown = TlsConfig(client_ca=authority.ca, client_cert=own.cert, client_key=own.key)
        async with leaf(f"{LOOPBACK}:{port}", tls=shown) as made:
            await made.connection.wait_until_up()


@pytest.mark.parametrize("scheme", ["", "tls://"])
async def test_a_password_is_not_sent_in_clear_where_tls_is_wanted(tmp_path, scheme):
    tls = TlsConfig() if not scheme else None
    with listener(tmp_path, "authorization { user: me, password: secret }") as (_, port):
        async with leaf(f"{scheme}{LOOPBACK}:{port}", user="me", password=WORD, tls=tls) as made:
            await eventually(lambda: bool(made.notes))
            assert "it has no TLS" in made.notes[0][1]
        async with leaf(f"nats://{LOOPBACK}:{port}", user="me", password=WORD, tls=tls) as made:
            await made.connection.wait_until_up()


async def test_an_nkey_signs_what_the_listener_asks(tmp_path):
    seed = nkeys.encode_seed(bytes(range(32)), nkeys.PREFIX_BYTE_USER)
    (tmp_path / "seed").write_bytes(seed)
    public = nkeys.from_seed(bytearray(seed)).public_key.decode()
    outside = f"authorization {{ users: [ {{ nkey: {public} }} ] }}"
    with listener(tmp_path, "", outside) as (_, port):
        async with leaf(f"{LOOPBACK}:{port}", nkey_seed_file=tmp_path / "seed") as made:
            await made.connection.wait_until_up()
            assert made.notes == []
        async with leaf(f"{LOOPBACK}:{port}", nkey_seed_file=tmp_path / "nats.conf") as made:
            await eventually(lambda: bool(made.notes))
            assert "nats.conf" in made.notes[0][1]


def key_pair(prefix):
    seed = nkeys.encode_seed(bytes(range(prefix >> 3, (prefix >> 3) + 32)), prefix)
    return nkeys.from_seed(bytearray(seed)), bytes(seed).decode()


def token(claims, subject, signer) -> str:
    """A JWT of NATS."""

    def encoded(document) -> str:
        text = document if isinstance(document, bytes) else json.dumps(document).encode()
        return base64.urlsafe_b64encode(text).rstrip(b"=").decode()

    content = {"jti": subject, "iat": 1, "iss": signer.public_key.decode(), "name": "x", "sub": subject, "nats": claims}
    signed = f"{encoded({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{encoded(content)}"
    return f"{signed}.{encoded(bytes(signer.sign(signed.encode())))}"


async def test_a_file_of_credentials_signs_what_the_listener_asks(tmp_path):
    operator, _ = key_pair(nkeys.PREFIX_BYTE_OPERATOR)
    account, _ = key_pair(nkeys.PREFIX_BYTE_ACCOUNT)
    user, seed = key_pair(nkeys.PREFIX_BYTE_USER)
    names = [one.public_key.decode() for one in (operator, account, user)]
    none = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1) | {"wildcards": True}
    by_operator = token({"type": "operator", "version": 2}, names[0], operator)
    of_account = token({"type": "account", "version": 2, "limits": none}, names[1], operator)
    of_user = token({"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1}, names[2], account)
    (tmp_path / "creds").write_text(
        f"-----BEGIN NATS USER JWT-----\n{of_user}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )
    outside = f"operator: {by_operator}\nresolver: MEMORY\nresolver_preload: {{ {names[1]}: {of_account} }}"
    with listener(tmp_path, "", outside) as (_, port):
        async with leaf(f"{LOOPBACK}:{port}", credentials=tmp_path / "creds") as made:
            await made.connection.wait_until_up()
            assert made.notes == []


async def test_consumers_of_a_server_get_messages_through_tls(tmp_path, authority):
    pair = authority.sign("nats", host=LOOPBACK)
    block = tls_block(authority, pair)
    with listener(tmp_path, block, block) as (outside, port):
        trusts = ("-tls_client_cacert", str(authority.ca), "-jetstream_leaf", f"{LOOPBACK}:{port}")
        with StanServer(tmp_path, "-jetstream_api", "-ns", outside.url.replace("nats:", "tls:"), *trusts):
            context = TlsConfig(client_ca=authority.ca)
            client = await nats.connect(outside.url, tls=leaf_address("a:1", NatsConfig(tls=context)).tls.context())
            js = client.jetstream(timeout=10)
            await js.add_stream(name="S", subjects=["a.*"])
            await js.publish("a.b", b"1")
            sub = await js.pull_subscribe("a.*", durable="worker")
            async with asyncio.timeout(20):
                (message,) = await sub.fetch(1, timeout=15)
            assert message.data == b"1"
            await client.close()
