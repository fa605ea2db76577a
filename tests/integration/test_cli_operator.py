"""The operator's commands as processes, against a real server and a real cluster of three nodes."""

import asyncio
import json
import os
import subprocess
import sys
import time

import nkeys
import pytest
import stan_client

from tests.kit.certificates import Authority
from tests.kit.cluster import StanCluster
from tests.kit.server import CLUSTER_ID, StanServer, until

pytestmark = pytest.mark.timeout(300)


def stan(url, home, *arguments, code=0, stdin=subprocess.DEVNULL):
    """What a command prints; it has to end with that code."""
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("STAN_")},
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "XDG_CONFIG_HOME": str(home),
        "STAN_SERVER": url,
    }
    done = subprocess.run(
        [sys.executable, "-m", "stan.cli.main", *arguments],
        env=environment,
        stdin=stdin,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def soon(holds, seconds=90):
    """What *holds* gives, once it does: on a busy machine a node may not answer in time, or a leader may have moved."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return holds()
        except AssertionError:
            if time.monotonic() > deadline:
                raise


def any_code(url, home, *arguments):
    """What a command prints, which ends with 0 or 1."""
    try:
        return stan(url, home, *arguments)
    except AssertionError:
        return stan(url, home, *arguments, code=1)


async def filled(url):
    """Channel orders with 20 messages; durable billing of acct has got 5 of them and acked none, and is offline."""
    async with asyncio.timeout(60):
        client = await stan_client.connect(url, client_id="acct", cluster_id=CLUSTER_ID)
        for number in range(20):
            await client.publish("orders", b'{"number": %d}' % number)
        subscription = await client.subscribe(
            "orders", durable="billing", start=stan_client.everything(), max_in_flight=5, manual_acks=True
        )
        for _ in range(5):
            await anext(subscription)
        await subscription.close()
        await client.close()


async def received(url, count):
    """The sequences of the next messages that the durable gets."""
    async with asyncio.timeout(60):
        client = await stan_client.connect(url, client_id="acct", cluster_id=CLUSTER_ID)
        subscription = await client.subscribe("orders", durable="billing", max_in_flight=50)
        got = {}
        while len(got) < count:  # one may come again after a leader has moved
            got[(await anext(subscription)).sequence] = True
        await subscription.close()
        await client.close()
        return list(got)


def test_a_server_is_looked_at_and_mended(tmp_path):
    with StanServer(tmp_path) as server:
        url, home = server.url, tmp_path / "config"
        asyncio.run(filled(url))

        def run(*arguments, code=0):
            return stan(url, home, *arguments, code=code)

        assert run("channel", "list", "--names") == "orders\n"
        assert json.loads(run("channel", "show", "orders", "--json"))["channel"]["messages"] == 20
        told = json.loads(run("durable", "why", "orders", "billing", "--json"))
        assert told["state"] == "offline"
        assert told["cursor"]["lag"] == 20
        assert "Did you mean billing?" in stan_error(url, home, "durable", "why", "orders", "biling")
        assert run("channel", "get", "orders", "--seq", "3") == '{"number": 2}\n'
        assert run("channel", "get", "orders", "--newest", "2", "--as", "json").count("number") == 2
        assert json.loads(run("channel", "verify", "--all", "--json"))["ok"]

        run("durable", "move", "orders", "billing", "--seq", "4", "--yes")
        run("durable", "skip", "orders", "billing", "5-6", "--yes")
        assert asyncio.run(received(url, 3)) == [4, 7, 8]

        run("durable", "pause", "orders", "billing")
        assert json.loads(run("durable", "why", "orders", "billing", "--json"))["state"] == "paused"
        run("durable", "resume", "orders", "billing")
        run("durable", "move", "orders", "billing", "--back", "1h", "--yes")
        assert asyncio.run(received(url, 20)) == list(range(1, 21))

        run("channel", "delete-message", "orders", "19", "--yes")
        run("channel", "purge", "orders", "--keep", "5", "--yes")
        assert run("channel", "get", "orders", "--seq", "1-100", "--count", "1") == '{"number": 14}\n'
        run("channel", "get", "orders", "--seq", "3", code=1)
        run("channel", "limits", "orders", "--max-msgs", "2", "--yes")
        assert "max msgs        2 (edited)" in run("channel", "limits", "orders")
        run("channel", "create", "orders.new")
        run("channel", "delete", "orders", "--yes")
        assert run("channel", "list", "--names") == "orders.new\n"

        assert soon(lambda: run("check", "--disk", "0")).startswith("STAN OK")
        assert "findings" in json.loads(any_code(url, home, "doctor", "--json"))
        run("node", "list")
        run("top", "--interval", "0.2")
        run("context", "add", "here", "-s", url)
        assert "works" in run("context", "check", "here")


def stan_error(url, home, *arguments, code=1):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "STAN_SERVER": url}
    environment["XDG_CONFIG_HOME"] = str(home)
    command = [sys.executable, "-m", "stan.cli.main", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == code, done.stderr
    return done.stderr


def test_a_cluster_is_looked_at_its_leader_changed_and_its_copies_compared(tmp_path):
    with StanCluster(tmp_path) as cluster:
        url, home = cluster.url, tmp_path / "config"
        asyncio.run(filled(url))

        def all_there():
            assert stan(url, home, "node", "list", "--names").split() == cluster.names

        def the_same():
            verified = json.loads(stan(url, home, "channel", "verify", "orders", "--json"))["channels"][0]
            assert [copy["messages"] for copy in verified["copies"]] == [20, 20, 20]
            assert len({copy["crc"] for copy in verified["copies"]}) == 1

        soon(all_there)
        soon(the_same)

        group = cluster.group_of("orders")
        other = cluster.follower_of("orders")
        stan(url, home, "group", "step-down", str(group), "--to", other, "--yes")
        until(lambda: f"group {group}: leads in term" in cluster.nodes[other].log(), 60, cluster.log)

        stan(url, home, "durable", "move", "orders", "billing", "--all", "--yes")
        assert asyncio.run(received(url, 20)) == list(range(1, 21))

        cluster.kill9(other)

        def one_is_missing():
            assert json.loads(stan(url, home, "node", "list", "--json"))["missing"] == [other]
            assert f"Node {other} does not answer" in stan(url, home, "check", code=2)

        soon(one_is_missing)


def test_damage_on_a_disk_is_found_with_its_file(tmp_path):
    with StanServer(tmp_path) as server:
        home = tmp_path / "config"
        asyncio.run(filled(server.url))
        (segment,) = (path for path in (tmp_path / "store").rglob("*.log") if b'"number": 7' in path.read_bytes())
        data = segment.read_bytes()
        with segment.open("r+b") as file:
            file.seek(data.index(b'"number": 7'))
            file.write(b'"number": 8')

        told = stan(server.url, home, "channel", "verify", "orders", "--json", code=1)
        (copy,) = json.loads(told)["channels"][0]["copies"]
        (damage,) = copy["damaged"]
        assert copy["messages"] == 20 - (damage["last"] - damage["first"] + 1)
        assert str(segment) in damage["text"]
        assert str(segment) in stan(server.url, home, "channel", "verify", "--all", code=1)


def test_a_context_with_certificates_and_a_password_reaches_the_servers(tmp_path):
    ours, home = Authority(tmp_path), tmp_path / "config"
    pair, client = ours.sign("server", host="127.0.0.1"), ours.sign("client", server=False)
    flags = ("--tlsverify", "--tlscert", str(pair.cert), "--tlskey", str(pair.key), "--tlscacert", str(ours.ca))
    with StanServer(tmp_path, *flags, "--user", "u", "--pass", "hush", store="MEMORY") as server:
        certificates = ("--tls-ca", str(ours.ca), "--tls-cert", str(client.cert), "--tls-key", str(client.key))
        login = ("--user", "u", "--password", "hush")
        stan("", home, "context", "add", "here", "-s", server.url, *certificates, *login)
        stan("", home, "pub", "orders", "hello")
        assert stan("", home, "channel", "list", "--names") == "orders\n"
        told = stan_error("", home, "channel", "list", "--user", "u", "--password", "hushhush", code=3)
        assert "Check --creds" in told
        assert "hushhush" not in told
        stan_error(server.url, tmp_path / "none", "channel", "list", code=3)


def test_a_context_with_an_nkey_reaches_the_servers(tmp_path):
    seed = nkeys.encode_seed(bytes(range(32)), nkeys.PREFIX_BYTE_USER)
    (tmp_path / "seed").write_bytes(seed)
    public = nkeys.from_seed(bytearray(seed)).public_key.decode()
    (tmp_path / "nats.conf").write_text(f"authorization {{ users: [ {{ nkey: {public} }} ] }}")
    with StanServer(tmp_path, "-c", str(tmp_path / "nats.conf"), store="MEMORY") as server:
        home = tmp_path / "config"
        stan("", home, "context", "add", "here", "-s", server.url, "--nkey", str(tmp_path / "seed"))
        stan("", home, "pub", "orders", "hello")
        assert stan("", home, "channel", "list", "--names") == "orders\n"
        stan_error(server.url, tmp_path / "none", "channel", "list", code=3)
