"""Permissions and those who have rights: an old client, the commands, a cluster; and what is refused at start."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import stan_client

from tests.conformance.clients import Client, javascript
from tests.kit.cluster import StanCluster
from tests.kit.ports import free_port
from tests.kit.running import run_whole
from tests.kit.server import CLUSTER_ID, ROOT, NatsServer, StanServer, until

PATHS = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "clients")])}
CONF = """
streaming {
  permissions {
    users: [
      { user: alice, password: pa, clients: "alice-*" }
      { user: bob, password: pb, clients: "bob-*" }
    ]
    allow: [
      { user: alice, publish: "a.>", subscribe: "a.>", durable: "a.>" }
      { user: bob, subscribe: "a.>" }
    ]
  }
}
"""


@pytest.fixture
def conf(tmp_path):
    file = tmp_path / "stan.conf"
    file.write_text(CONF)
    return str(file)


def as_user(url, user):
    return url.replace("nats://", f"nats://{user}:p{user[0]}@")


def test_published_javascript_client_works_as_a_user(tmp_path, conf):
    program = javascript()
    with StanServer(tmp_path, "-c", conf) as server:
        client = Client(program, as_user(server.url, "alice"), CLUSTER_ID, "alice-js", (5, 3))
        try:
            client.wait("connected")
            client.subscribe("d", "a.js", durable="dur", start="first", manual=1)
            client.publish_and_wait("a.js", b"one", b"two")
            client.messages("d", 2)
            client.ack("d", 1, 2)
            client.close("d")
            client.subscribe("again", "a.js", durable="dur")
            client.publish_and_wait("a.js", b"three")
            assert [bytes.fromhex(one["data"]) for one in client.messages("again", 1)] == [b"three"]
            client.unsubscribe("again")
            client.disconnect()
        finally:
            client.release()
        assert "no permission" not in server.log()


def test_commands_work_as_a_user(tmp_path, conf):
    with StanServer(tmp_path, "-c", conf) as server:

        def stan(user, *words):
            command = [sys.executable, "-m", "stan.cli.main", *words, "-s", as_user(server.url, user)]
            return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=PATHS, check=False, timeout=60)

        assert stan("alice", "pub", "a.cli", "hello", "--client-id", "alice-cli").returncode == 0
        refused = stan("bob", "pub", "a.cli", "hello", "--client-id", "bob-cli")
        assert refused.returncode != 0
        assert 'no permission to publish to "a.cli"' in refused.stderr + refused.stdout
        got = stan("bob", "sub", "a.cli", "--from", "first", "--count", "1", "--client-id", "bob-cli")
        assert "hello" in got.stdout, got.stderr


def test_dashboard_of_a_node_and_lists_of_operators_are_answered(tmp_path, conf):
    pages = free_port()
    with StanServer(tmp_path, "-c", conf, "-m", str(pages)) as server:
        run_whole(publish(server, "a.shown"))
        for page in ("overview", "cluster", "channels"):
            with urllib.request.urlopen(f"http://127.0.0.1:{pages}/api/v1/{page}", timeout=20) as answer:
                assert answer.status == 200
        assert "no permission" not in server.log()
        command = [sys.executable, "-m", "stan.cli.main", "channel", "list", "-s", as_user(server.url, "bob")]
        refused = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=PATHS, check=False, timeout=60)
        assert refused.returncode != 0
        assert 'no permission to look into ">"' in refused.stderr


async def publish(server, channel):
    client = await stan_client.connect(as_user(server.url, "alice"), client_id="alice-1", cluster_id=CLUSTER_ID)
    try:
        await client.publish(channel, b"x")
    finally:
        await client.close()


def test_changed_permissions_wait_for_a_restart(tmp_path, conf):
    with StanServer(tmp_path, "-c", conf) as server:
        Path(conf).write_text(CONF.replace('publish: "a.>"', 'publish: "z.>"'))
        server.signal(signal.SIGHUP)
        until(lambda: "Needs a restart: permissions" in server.log(), why=server.log)
        until(lambda: "Reloaded server configuration" in server.log(), why=server.log)
        run_whole(publish(server, "a.still"))
        server.restart()
        with pytest.raises(stan_client.ServerError, match="no permission to publish"):
            run_whole(publish(server, "a.still"))


def test_users_are_served_after_a_reload_and_a_restart_of_nats(tmp_path, conf):
    with StanServer(tmp_path, "-c", conf) as server:
        server.signal(signal.SIGHUP)
        until(lambda: "Reloaded server configuration" in server.log(), why=server.log)
        os.kill(int(re.findall(r"\[(\d+)\].* Starting nats-server", server.log())[-1]), signal.SIGKILL)
        until(lambda: server.log().count("[INF] Server is ready") == 2, why=server.log)
        run_whole(publish(server, "a.still"))


def test_sessions_survive_a_restart_of_the_server(tmp_path, conf):
    async def scene(server):
        client = await stan_client.connect(
            as_user(server.url, "alice"), client_id="alice-1", cluster_id=CLUSTER_ID, ping_interval_s=1
        )
        sub = await client.subscribe("a.b", durable="d", start=stan_client.everything(), manual_acks=True)
        messages = aiter(sub)
        await client.publish("a.b", b"before")
        (await anext(messages)).ack()
        await asyncio.to_thread(server.kill9)
        await asyncio.to_thread(server.start)
        await client.publish("a.b", b"after")
        message = await anext(messages)
        while message.data != b"after":  # the ack of the first one may not have been written
            assert message.redelivered
            message.ack()
            message = await anext(messages)
        message.ack()
        await client.close()

    with StanServer(tmp_path, "-c", conf) as server:
        run_whole(scene(server))


def test_every_node_of_a_cluster_enforces_them(tmp_path, conf):
    async def scene(cluster):
        nodes = list(cluster.nodes.values())
        alice = await stan_client.connect(
            as_user(nodes[0].url, "alice"), client_id="alice-1", cluster_id=CLUSTER_ID, connect_timeout_s=20
        )
        bob = await stan_client.connect(
            as_user(nodes[1].url, "bob"), client_id="bob-1", cluster_id=CLUSTER_ID, connect_timeout_s=20
        )
        for number in range(6):  # of several groups, with several leaders
            channel = f"a.{number}"
            await alice.publish(channel, b"hello")
            sub = await bob.subscribe(channel, start=stan_client.everything(), manual_acks=True)
            message = await anext(aiter(sub))
            message.ack()
            assert message.data == b"hello"
            await sub.close()
            with pytest.raises(stan_client.ServerError, match="no permission to publish"):
                await bob.publish(channel, b"x")
            with pytest.raises(stan_client.ServerError, match="no permission to keep durables"):
                await bob.subscribe(channel, durable="d")
        async with stan_client.Direct(as_user(nodes[2].url, "bob")) as direct:
            assert [message.data for message in await direct.fetch("a.1")] == [b"hello"]
        await bob.close()
        await alice.close()

    with StanCluster(tmp_path, "-c", conf) as cluster:
        run_whole(scene(cluster), 120)


def test_nats_of_somebody_else_needs_the_accounts_that_are_printed(tmp_path, conf):
    Path(conf).write_text(CONF.replace("streaming {", "streaming {\n  username: broker, password: pbroker", 1))
    command = [sys.executable, "-m", "stan.cli.main", "config", "accounts", conf]
    told = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=PATHS, check=False, timeout=60)
    assert told.returncode == 0, told.stderr
    (tmp_path / "nats.conf").write_text(told.stdout)

    async def scene(server):
        alice = await stan_client.connect(as_user(server.url, "alice"), client_id="alice-1", cluster_id=CLUSTER_ID)
        await alice.publish("a.b", b"x")
        with pytest.raises(stan_client.ServerError, match="no permission to publish"):
            await alice.publish("b.a", b"x")
        await alice.close()

    with (
        NatsServer(tmp_path, "-c", str(tmp_path / "nats.conf")) as theirs,
        StanServer(tmp_path, "-sc", conf, nats_url=theirs.url) as server,
    ):
        run_whole(scene(server))
        second = StanServer(tmp_path, "-sc", conf, store="MEMORY", nats_url=theirs.url)
        try:
            second.launch()
            assert second.wait_for_end() == 1
        finally:
            second.sweep()
        assert "discovered another streaming server" in second.log_since_start()


@pytest.mark.parametrize(
    ("text", "flags", "complaint"),
    [
        (
            "",
            ("-user", "x", "-pass", "y"),
            "the users in permissions are all whom NATS lets in: leave out -user, -pass",
        ),
        ("authorization { user: x, password: y }\n", (), "leave out authorization ({file}:1)"),
        ("", ("-sc", "{bad}"), '{bad}:2: nobody is the user "eve": add it to users'),
    ],
)
def test_what_cannot_be_is_refused_at_start(tmp_path, text, flags, complaint):
    file, bad = tmp_path / "stan.conf", tmp_path / "bad.conf"
    file.write_text(text + CONF)
    bad.write_text("permissions { allow: [\n { user: eve, publish: x } ] }\n")
    words = [flag.format(bad=bad) for flag in flags]
    command = [
        sys.executable,
        "-m",
        "stan.server.main",
        "-p",
        "-1",
        *(words if "-sc" in words else ["-c", str(file), *words]),
    ]
    told = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=PATHS, check=False, timeout=60)
    assert told.returncode == 1
    assert complaint.format(file=file, bad=bad) in told.stderr


async def test_requests_are_answered_by_workers_of_the_same_user(tmp_path, conf):
    """What others say stays in their account of NATS: it reaches nobody, and nobody is told."""
    with StanServer(tmp_path, "-c", conf) as server:
        alice, bob = as_user(server.url, "alice"), as_user(server.url, "bob")
        async with (
            await stan_client.connect(alice, client_id="alice-asks", cluster_id=CLUSTER_ID) as asking,
            await stan_client.connect(alice, client_id="alice-works", cluster_id=CLUSTER_ID) as same,
            await stan_client.connect(bob, client_id="bob-works", cluster_id=CLUSTER_ID) as other,
        ):
            await same.subscribe("a.jobs", lambda message: message.respond(b"of the same user"))
            await other.subscribe("a.jobs", lambda message: message.respond(b"of another user"))
            assert await asking.request("a.jobs", b"x", timeout_s=30) == b"of the same user"
            await other.subscribe("a.other", lambda message: message.respond(b"of another user"))
            with pytest.raises(stan_client.ReplyTimeoutError):
                await asking.request("a.other", b"x", timeout_s=1)
