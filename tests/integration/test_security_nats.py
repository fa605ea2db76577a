"""TLS, certificates of clients, users, tokens and nkeys: of the embedded nats-server, and towards a NATS elsewhere."""

import asyncio
import itertools
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import nkeys
import pytest
import stan_client
from nats.errors import Error as NatsError

from stan.config import NatsConfig
from stan.edge.nats.connection import NatsConnection
from stan.settings.nats_conf import parse as parse_conf
from stan.settings.settings import parse
from tests.integration.test_config_file import FromFile
from tests.kit.certificates import Authority
from tests.kit.eavesdropper import Eavesdropper
from tests.kit.fake_broker import eventually
from tests.kit.ports import free_port
from tests.kit.server import COMMAND, ROOT, START_SECONDS_MAX, NatsServer, StanServer, until

HIDDEN = "swordfish-and-chips"
FIRST = "first"
TAIL = "\nstreaming {{ cluster_id: test-cluster }}\n"


class Told(FromFile):
    """A server that is told all by `-c FILE`, and *flags*."""

    def __init__(self, directory: Path, text: str, *flags: str) -> None:
        super().__init__(directory, "-c", 'listen: "127.0.0.1:{port}"\n' + text + TAIL)
        self._command += flags


async def works(server: StanServer, *, url: str = "", **options: object) -> None:
    """A client publishes and is answered."""
    client = await stan_client.connect(url or server.url, client_id="me", nats_options=options, connect_timeout_s=20)
    await client.publish("orders", b"hello")
    await client.close()


async def works_soon(server: StanServer, **options: object) -> None:
    """As `works`, once the server has a connection again."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            return await works(server, **options)
        except (stan_client.StanClientError, NatsError, OSError):
            assert time.monotonic() < deadline, server.log()


async def refused(server: StanServer, **options: object) -> None:
    with pytest.raises((stan_client.StanClientError, NatsError, OSError)):
        await stan_client.connect(server.url, client_id="me", nats_options=options, connect_timeout_s=1)


def failure(*flags: str) -> str:
    """What a server logs that cannot start."""
    done = subprocess.run([*COMMAND, *flags], capture_output=True, text=True, timeout=60, cwd=ROOT, check=False)
    assert done.returncode == 1, done.stderr
    return done.stderr


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - of our own server
        return answer.read().decode()


def command_lines(server: StanServer) -> str:
    """Of all processes of a server."""
    found = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in server.survivors()]
    return b"\n".join(found).decode()


# --- the embedded nats-server -------------------------------------------------------------------------------------------


async def test_tls_needs_no_word_about_our_own_connection(tmp_path):
    ours, other = Authority(tmp_path), Authority(tmp_path, "other")
    pair = ours.sign("server", host="127.0.0.1")
    flags = ("--tls", "--tlscert", str(pair.cert), "--tlskey", str(pair.key))
    with StanServer(tmp_path, *flags, store="MEMORY") as server:
        await works(server, tls=ssl.create_default_context(cafile=str(ours.ca)))
        await refused(server, tls=ssl.create_default_context(cafile=str(other.ca)))


def test_a_start_and_an_end_with_tls_log_no_error(tmp_path):
    pair = Authority(tmp_path).sign("server", host="127.0.0.1")
    with Told(tmp_path, f'tls {{{{ cert_file: "{pair.cert}", key_file: "{pair.key}" }}}}') as server:
        assert server.terminate() == 128 + signal.SIGTERM
        log = server.log()
    assert "TLS required for client connections" in log
    assert "[ERR]" not in log
    assert "eof_received" not in log


async def test_certificates_of_clients_are_asked_for_and_our_own_is_that_of_the_server(tmp_path):
    ours, other = Authority(tmp_path), Authority(tmp_path, "other")
    pair = ours.sign("server", host="127.0.0.1")
    tls = f'tls {{{{ cert_file: "{pair.cert}", key_file: "{pair.key}", ca_file: "{ours.ca}", verify: true }}}}'
    with Told(tmp_path, tls) as server:
        for authority, taken in ((ours, True), (other, False)):
            client = authority.sign("client", server=False)
            context = ssl.create_default_context(cafile=str(ours.ca))
            context.load_cert_chain(client.cert, client.key)
            await (works if taken else refused)(server, tls=context)
        await refused(server, tls=ssl.create_default_context(cafile=str(ours.ca)))


async def test_certificate_for_servers_only_needs_another_for_our_connection(tmp_path):
    ours = Authority(tmp_path)
    pair, client = ours.sign("server", client=False), ours.sign("client", server=False)
    flags = ("-p", str(free_port()), "-a", "127.0.0.1", "--tlsverify", "--tlscacert", str(ours.ca))
    flags += ("--tlscert", str(pair.cert), "--tlskey", str(pair.key))
    said = failure(*flags)
    assert re.search("cannot connect to NATS.*-tls_client_cert", said), said
    more = (*flags[4:], "-tls_client_cert", str(client.cert), "-tls_client_key", str(client.key))
    with StanServer(tmp_path, *more, store="MEMORY"):
        pass


async def test_where_certificates_name_users_our_own_is_that_of_the_certificate_and_has_a_password(tmp_path):
    ours = Authority(tmp_path)
    pair, client = ours.sign("server", host="127.0.0.1"), ours.sign("client", server=False)
    tls = f'cert_file: "{pair.cert}", key_file: "{pair.key}", ca_file: "{ours.ca}", verify_and_map: true'
    users = f'{{{{ user: "CN=server", password: {HIDDEN} }}}}, {{{{ user: "CN=client" }}}}'
    text = f"tls {{{{ {tls} }}}}\nauthorization {{{{ users: [ {users} ] }}}}"
    login = f'streaming {{{{ username: "CN=server", password: {HIDDEN} }}}}'
    with FromFile(tmp_path, "-c", f'listen: "127.0.0.1:{{port}}"\n{text}\n{login}') as server:
        context = ssl.create_default_context(cafile=str(ours.ca))
        context.load_cert_chain(client.cert, client.key)
        await works(server, tls=context)


def test_expired_certificate_is_told(tmp_path):
    pair = Authority(tmp_path).sign("server", days=-1)
    flags = ("-p", str(free_port()), "-a", "127.0.0.1", "--tls", "--tlscert", str(pair.cert), "--tlskey", str(pair.key))
    assert "certificate has expired" in failure(*flags)


@pytest.mark.parametrize(
    "block",
    [
        f"authorization {{{{ user: u, password: {HIDDEN} }}}}",
        f"authorization {{{{ users: [ {{{{ user: u, password: {HIDDEN} }}}} ], timeout: 3 }}}}",
    ],
)
async def test_users_of_the_file_and_our_own_connection_get_along(tmp_path, block):
    monitor = free_port()
    with Told(tmp_path, block, "-m", str(monitor), "-D", "-V", "-SDV") as server:
        await works(server, user="u", password=HIDDEN)
        await refused(server, user="u", password=HIDDEN[1:])
        await refused(server)
        names = ("varz", "connz?auth=1", "streaming/serverz", "metrics")
        pages = "".join([await asyncio.to_thread(read, f"http://127.0.0.1:{monitor}/{name}") for name in names])
        assert HIDDEN not in pages + command_lines(server)
        own = re.findall(r'password\\?":\\?"([^"\\]+)', server.log())
        assert set(own) <= {"[REDACTED]"}
        assert HIDDEN not in server.log()


async def test_hash_of_a_password_is_no_hindrance(tmp_path):
    hashed = "$2a$04$SH1Pi5Cs1ay3VJvLCnPGzuHLCdhNoA2pTGIGFZSgBhGkOSgTz0Oa2"  # of some word
    with Told(tmp_path, f'authorization {{{{ user: u, password: "{hashed}" }}}}') as server:
        await refused(server, user="u", password=hashed)


async def test_nkeys_of_clients_and_our_own_connection_get_along(tmp_path):
    seed = nkeys.encode_seed(bytes(range(32)), nkeys.PREFIX_BYTE_USER)
    file = tmp_path / "seed"
    file.write_bytes(seed)
    public = nkeys.from_seed(bytearray(seed)).public_key.decode()
    with Told(tmp_path, f"authorization {{{{ users: [ {{{{ nkey: {public} }}}} ] }}}}") as server:
        await works(server, nkeys_seed=str(file))
        await refused(server)


async def test_users_and_token_change_with_a_reload(tmp_path):
    with Told(tmp_path, "authorization {{ token: first }}") as server:
        await works(server, token=FIRST)
        text = (tmp_path / "stan.conf").read_text()
        for block, login in (
            ("token: second", {"token": "second"}),
            (f"user: u, password: {HIDDEN}", {"user": "u", "password": HIDDEN}),
        ):
            (tmp_path / "stan.conf").write_text(text.replace("token: first", block))
            server.signal(signal.SIGHUP)
            await works_soon(server, **login)
            await refused(server, token=FIRST)


async def test_passwords_of_flags_are_in_no_process_title(tmp_path):
    flags = ("--user", "u", "--pass", HIDDEN, "--cluster", f"nats://r:{HIDDEN}@127.0.0.1:{free_port()}")
    flags += ("--routes", f"nats://r:{HIDDEN}@127.0.0.1:{free_port()}")
    with StanServer(tmp_path, *flags, store="MEMORY") as server:
        await works(server, user="u", password=HIDDEN)
        assert HIDDEN not in command_lines(server)
        assert HIDDEN not in server.log()
        assert "nats-server" in command_lines(server)


# --- a NATS elsewhere ----------------------------------------------------------------------------------------------------


def config(tmp_path: Path, text: str) -> str:
    file = tmp_path / "nats.conf"
    file.write_text(text)
    return str(file)


async def test_certificates_are_shown_to_a_nats_elsewhere_and_its_own_is_verified(tmp_path):
    ours, other = Authority(tmp_path), Authority(tmp_path, "other")
    pair, client = ours.sign("server", host="127.0.0.1"), ours.sign("client", server=False)
    file = config(
        tmp_path, f'tls {{ cert_file: "{pair.cert}", key_file: "{pair.key}", ca_file: "{ours.ca}", verify: true }}'
    )
    with NatsServer(tmp_path, "-c", file) as nats:
        shown = ("-tls_client_cert", str(client.cert), "-tls_client_key", str(client.key))
        with StanServer(
            tmp_path, *shown, "-tls_client_cacert", str(ours.ca), store="MEMORY", nats_url=nats.url
        ) as server:
            context = ssl.create_default_context(cafile=str(ours.ca))
            context.load_cert_chain(client.cert, client.key)
            await works(server, tls=context)
        assert "unable to get local issuer" in failure("-ns", nats.url, *shown, "-tls_client_cacert", str(other.ca))
        assert "cannot connect to NATS" in failure("-ns", nats.url, "-tls_client_cacert", str(ours.ca))
        assert "No such file" in failure("-ns", nats.url, "-tls_client_cacert", str(tmp_path / "missing.pem"))


@pytest.mark.parametrize(
    "flags", [(), ("-st", "FILE", "-clustered", "-cluster_peers", "a,b,c"), ("-st", "FILE", "-clustered", "--join")]
)
def test_nats_that_does_not_run_ends_the_start(tmp_path, flags):
    """All that were named are asked, once each."""
    urls = [f"nats://127.0.0.1:{free_port()}" for _ in range(2)]
    told = failure("-ns", ",".join(urls), "-dir", str(tmp_path / "store"), *flags)
    assert f"Failed to start: cannot connect to NATS at {', '.join(urls)}: " in told
    assert "refused" in told


async def test_nothing_is_said_in_clear_to_a_nats_that_speaks_no_tls():
    async with Eavesdropper() as plain:
        where = f"me:{HIDDEN}@127.0.0.1:{plain.port}"
        for flags in (
            ("-ns", f"nats://{where}", "-secure"),
            ("-ns", f"tls://{where}"),
            ("-ns", f"nats://{where},tls://{where}"),
        ):
            said = await asyncio.to_thread(failure, *flags)
            assert f"127.0.0.1:{plain.port}: nats: secure connection not available" in said
        assert plain.connections >= 3
        assert plain.clear == b""


def test_tls_that_a_nats_elsewhere_leaves_open_is_spoken_by_who_is_to(tmp_path):
    authority, monitor = Authority(tmp_path), free_port()
    pair = authority.sign("nats", host="127.0.0.1")
    file = tmp_path / "nats.conf"
    file.write_text(f'tls {{ cert_file: "{pair.cert}", key_file: "{pair.key}" }}\nallow_non_tls: true\n')
    with (
        NatsServer(tmp_path, "-c", str(file), "-m", str(monitor)) as nats,
        StanServer(tmp_path, "-secure", "-tls_client_cacert", str(authority.ca), nats_url=nats.url),
    ):
        connections = json.loads(read(f"http://127.0.0.1:{monitor}/connz"))["connections"]
        assert [bool(connection.get("tls_version")) for connection in connections] == [True]


def connection_of(text: str) -> tuple[NatsConnection, NatsConfig]:
    """The server's connection as a file with *text* describes it; it is not open yet."""
    parsed = parse(["-sc", "stan.conf"], lambda _file: parse_conf(text.encode(), "stan.conf"))
    assert parsed.complaints == ()
    ignored: dict = {name: lambda *_: None for name in ("on_data", "on_up", "on_down", "on_drained")}
    return NatsConnection({}, **ignored), parsed.config.nats


async def test_server_says_nothing_in_clear_at_a_reconnection(tmp_path):
    ours = Authority(tmp_path)
    pair = ours.sign("nats", host="127.0.0.1")
    with NatsServer(tmp_path, "--tls", "--tlscert", str(pair.cert), "--tlskey", str(pair.key)) as nats:
        text = f'ns: "{nats.url}"\nusername: me, password: {HIDDEN}\ntls {{ client_ca: {ours.ca} }}'
        connection, config = connection_of(text)
        await connection.open(config, config.urls, "test", lambda _line: None)
        nats.kill()
        async with Eavesdropper(nats.port) as plain:
            await eventually(lambda: plain.connections >= 2)
            await connection.close()
            assert plain.clear == b""


OPTIONS = {
    "secure": "secure: true",
    "ca": "client_ca: {ca}",
    "certificate": "client_cert: {cert}, client_key: {key}",
    "skip": "skip_verify: true",
    "insecure": "insecure: true",
    "name": "server_name: nats.example",
    "wrong name": "server_name: other.example",
}
ALONE_AND_IN_PAIRS = [(), *itertools.combinations(OPTIONS, 1), *itertools.combinations(OPTIONS, 2)]


async def connects(url: str, text: str) -> str:
    """How a connection ends that a file with *text* describes: "", or why there is none."""
    connection, config = connection_of(f'ns: "{url}"\n{text}')
    try:
        await connection.open(config, config.urls, "test", lambda _line: None)
    except (NatsError, OSError) as error:
        return str(error)
    await connection.close()
    return ""


async def test_each_option_of_tls_makes_a_connection_use_tls_alone_and_with_each_other(tmp_path):
    ours = Authority(tmp_path)
    pair, client = ours.sign("nats", host="127.0.0.1"), ours.sign("client", server=False)
    file = config(tmp_path, f'tls {{ cert_file: "{pair.cert}", key_file: "{pair.key}" }}')
    files = {"ca": ours.ca, "cert": client.cert, "key": client.key}
    with NatsServer(tmp_path, "-c", file) as secure, NatsServer(tmp_path) as plain:
        assert await connects(plain.url.replace("nats:", "tls:"), "") == "nats: secure connection not available"
        for chosen in ALONE_AND_IN_PAIRS:
            inside = ", ".join(OPTIONS[name] for name in chosen if name != "secure").format(**files)
            text = ("secure: true\n" if "secure" in chosen else "") + f"tls {{ {inside} }}"
            trusted = bool({"skip", "insecure"} & {*chosen}) or ("ca" in chosen and "wrong name" not in chosen)
            for url in (secure.url, secure.url.replace("nats:", "tls:")):
                said = await connects(url, text)
                assert ("" if trusted else "CERTIFICATE_VERIFY_FAILED") in said, (url, text, said)
                assert bool(said) is not trusted, (url, text, said)
            said = await connects(plain.url, text)
            assert said == ("nats: secure connection not available" if chosen else ""), (text, said)


async def test_nkey_of_a_seed_file_is_shown_to_a_nats_elsewhere(tmp_path):
    seed = nkeys.encode_seed(bytes(range(32)), nkeys.PREFIX_BYTE_USER)
    (tmp_path / "seed").write_bytes(seed)
    public = nkeys.from_seed(bytearray(seed)).public_key.decode()
    with NatsServer(tmp_path, "-c", config(tmp_path, f"authorization {{ users: [ {{ nkey: {public} }} ] }}")) as nats:
        stan = tmp_path / "stan.conf"
        stan.write_text(f'streaming {{ nkey_seed_file: "{tmp_path / "seed"}" }}')
        with StanServer(tmp_path, "-sc", str(stan), store="MEMORY", nats_url=nats.url) as server:
            await works(server, nkeys_seed=str(tmp_path / "seed"))
        assert "Authorization Violation" in failure("-ns", nats.url)


async def test_passwords_come_from_variables_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("STAN_TEST_PASSWORD", HIDDEN)
    with NatsServer(tmp_path, "--user", "u", "--pass", HIDDEN) as nats:
        stan = tmp_path / "stan.conf"
        stan.write_text("streaming { user: u, password: $STAN_TEST_PASSWORD }")
        with StanServer(tmp_path, "-sc", str(stan), store="MEMORY", nats_url=nats.url) as server:
            await works(server, user="u", password=HIDDEN)
            assert HIDDEN not in command_lines(server) + server.log()
        said = failure("-ns", nats.url.replace("//", f"//u:{HIDDEN[:-1]}@"))
        assert "Authorization Violation" in said
        assert HIDDEN[:-1] not in said


# --- what lasts, and who else connects -----------------------------------------------------------------------------------


async def test_certificate_may_be_renewed_while_the_server_runs(tmp_path):
    tls = f'tls {{{{ cert_file: "{tmp_path}/server.pem", key_file: "{tmp_path}/server-key.pem" }}}}'
    before = Authority(tmp_path, "before")
    before.sign("server", host="127.0.0.1")
    with Told(tmp_path, tls) as server:
        await works(server, tls_ca=str(before.ca))
        after = Authority(tmp_path, "after")
        after.sign("server", host="127.0.0.1")
        server.signal(signal.SIGHUP)
        until(lambda: "Reloaded: tls" in server.log(), why=server.log)
        os.kill(int(re.findall(r"\[(\d+)\].* Starting nats-server", server.log())[-1]), signal.SIGKILL)
        await works_soon(server, tls_ca=str(after.ca))


async def test_other_clients_of_ours_speak_tls_with_certificates_of_their_own(tmp_path):
    ours = Authority(tmp_path)
    pair, client = ours.sign("server", host="127.0.0.1"), ours.sign("client", server=False)
    flags = ("--tlsverify", "--tlscert", str(pair.cert), "--tlskey", str(pair.key), "--tlscacert", str(ours.ca))
    options = {"tls_ca": str(ours.ca), "tls_cert": str(client.cert), "tls_key": str(client.key)}
    with StanServer(tmp_path, *flags, "--user", "u", "--pass", HIDDEN, store="MEMORY") as server:
        login = {"user": "u", "password": HIDDEN}
        await works(server, **options, **login)
        async with stan_client.Direct(server.url, nats_options={**options, **login}) as direct:
            assert list(await direct.channels.info(pattern="orders")) == ["orders"]
        told = [
            "--tls-ca",
            str(ours.ca),
            "--tls-cert",
            str(client.cert),
            "--tls-key",
            str(client.key),
            "-s",
            server.url,
        ]
        command = [sys.executable, "-m", "stan.cli.main", "channel", "list", "--names", *told]
        done = await asyncio.to_thread(
            subprocess.run,
            command,
            capture_output=True,
            text=True,
            timeout=60,
            cwd=ROOT,
            env=os.environ | {"STAN_USER": "u", "STAN_PASSWORD": HIDDEN, "PYTHONPATH": "clients"},
        )
        assert (done.returncode, done.stdout) == (0, "orders\n"), done.stderr


NODE = """
listen: "127.0.0.1:{port}"
cluster {{ name: kit, listen: "127.0.0.1:{route}", routes: [{routes}] }}
authorization {{ user: u, password: {hidden} }}
tls {{ cert_file: "{cert}", key_file: "{key}", ca_file: "{ca}", verify: true }}
streaming {{
  cluster_id: test-cluster, store: FILE, dir: "{directory}"
  cluster {{ node_id: {name}, peers: [a, b, c] }}
}}
"""


async def test_nodes_of_a_cluster_need_no_logins_for_each_other(tmp_path):
    ours = Authority(tmp_path)
    client = ours.sign("client", server=False)
    routes = {name: free_port() for name in "abc"}
    urls = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes.values())
    nodes = []
    for name, route in routes.items():
        pair = ours.sign(name, host="127.0.0.1")
        (tmp_path / f"node-{name}").mkdir()
        values = {"route": route, "routes": urls, "hidden": HIDDEN, "cert": pair.cert, "key": pair.key, "ca": ours.ca}
        nodes.append(FromFile(tmp_path / f"node-{name}", "-c", NODE, name=name, **values))
    try:
        for node in nodes:
            node.launch()
        for node in nodes:
            node.wait_until_ready()
        options = {"tls_ca": str(ours.ca), "tls_cert": str(client.cert), "tls_key": str(client.key)}
        await works_soon(nodes[0], user="u", password=HIDDEN, **options)
        assert not any(HIDDEN in node.log() + command_lines(node) for node in nodes)
        for name, node in zip("abc", nodes, strict=True):
            file = tmp_path / f"node-{name}/stan.conf"
            file.write_text(file.read_text().replace("store: FILE", "store: FILE, limits: { max_msgs: 3 }"))
            node.signal(signal.SIGHUP)
            until(lambda node=node: "Reloaded: max_msgs = 3" in node.log(), why=node.log)
        await works_soon(nodes[0], user="u", password=HIDDEN, **options)
    finally:
        for node in nodes:
            node.sweep()


async def test_server_that_was_open_to_all_gets_users_and_tls_with_a_reload(tmp_path):
    ours = Authority(tmp_path)
    pair = ours.sign("server", host="127.0.0.1")
    (tmp_path / "nats.conf").write_text("max_connections: 100\n")
    with StanServer(tmp_path, "-c", str(tmp_path / "nats.conf"), store="MEMORY") as server:
        await works(server)
        (tmp_path / "nats.conf").write_text(
            f"authorization {{ user: u, password: {HIDDEN} }}\ntls {{ cert_file: {pair.cert}, key_file: {pair.key} }}\n"
        )
        server.signal(signal.SIGHUP)
        until(lambda: "Reloaded server configuration" in server.log(), why=server.log)
        await works_soon(server, user="u", password=HIDDEN, tls_ca=str(ours.ca))
        await refused(server, tls_ca=str(ours.ca))
        (tmp_path / "nats.conf").write_text("max_connections: 100\n")
        server.signal(signal.SIGHUP)
        await works_soon(server)
