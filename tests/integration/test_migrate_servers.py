"""`stan migrate … --server`: stores of the original are moved into running servers, killed amid it, and go on."""

import asyncio
import contextlib
import json
import signal
import subprocess

import pytest
import stan_client

from tests.integration.test_migrate import ENV, PENDING, STAN, migrate
from tests.integration.test_takeover import pending_of, read
from tests.kit.cluster import StanCluster
from tests.kit.old_cluster import unpack
from tests.kit.old_store import ENCRYPTED, EPOCH, KEY, PLAIN, acked, durable, sent, write_many, write_subscriptions
from tests.kit.server import CLUSTER_ID, ROOT, StanServer


@pytest.fixture
def server(tmp_path):
    with StanServer(tmp_path) as running:
        yield running


async def channels(url):
    async with stan_client.Direct(url, cluster_id=CLUSTER_ID) as direct:
        return {one.name: one for one in await direct.admin.channels()}


async def check(server):
    """Check that the fixture is there."""
    orders = await read(server, "orders")
    assert [sequence for sequence, *_ in orders] == list(range(1, 2601))
    assert [json.loads(data) for _, _, data, _ in orders] == [{"id": n, "total": n * 1.25} for n in range(1, 2601)]
    assert [data.decode() for _, _, data, _ in await read(server, "notes")] == [
        f"nota número {n} ✓" for n in range(1, 8)
    ]
    assert (await pending_of(server, "orders"))["billing", "ledger", ""] == (PENDING, 30)
    (crew,) = (await pending_of(server, "sensors.room-1.temp")).values()
    assert (len(crew[0]), crew[1]) == (7, 40)
    assert (await pending_of(server, "notes"))["reader", "bookmark", ""] == ([5], 5)


@pytest.mark.parametrize("old", [PLAIN, ENCRYPTED], ids=["plain", "encrypted"])
async def test_store_is_moved_into_a_running_server(server, old):
    key = KEY.decode() if old is ENCRYPTED else ""
    moved = await asyncio.to_thread(migrate, old, "--server", server.url, key=key)
    assert moved.returncode == 0, moved.stdout + moved.stderr
    assert f"They can be used now: cluster test-cluster at {server.url}" in moved.stdout
    await check(server)
    if old is PLAIN:
        assert (await read(server, "notes"))[0][1] == 1795191688417695169
    client = await stan_client.connect(server.url, client_id="billing")
    sub = await client.subscribe("orders", durable="ledger", manual_acks=True, max_in_flight=20)
    again = [await anext(sub) for _ in range(20)]
    assert [message.sequence for message in again] == PENDING
    assert all(message.redelivered for message in again)
    assert (await client.publish("notes", b"next")).sequence == 8
    await client.close()
    once_more = await asyncio.to_thread(migrate, old, "--server", server.url, key=key)
    assert once_more.returncode == 0, "the same command once more changes nothing"
    assert len(await read(server, "notes")) == 8


async def everything(server):
    """All messages and positions, by channel."""
    return {
        name: (one.first_sequence, one.last_sequence, await read(server, name), await pending_of(server, name))
        for name, one in (await channels(server.url)).items()
    }


@pytest.mark.parametrize(("name", "nodes"), [("snapshots", "abc"), ("aes", "a")])
async def test_cluster_of_the_original_is_moved_into_servers_as_into_a_directory(tmp_path, name, nodes):
    if name == "aes":
        pytest.importorskip("cryptography")
    shown = unpack(name, tmp_path)
    stores = [tmp_path / node / "store" for node in nodes]
    raft = [word for node in nodes for word in ("--raft", tmp_path / node / "raft")]
    key = KEY.decode() if name == "aes" else ""
    with StanCluster(tmp_path) as cluster:
        moved = await asyncio.to_thread(migrate, *stores, *raft, "--server", cluster.url, key=key)
        assert moved.returncode == 0, moved.stdout + moved.stderr
        in_servers = await everything(cluster)
    moved = await asyncio.to_thread(migrate, *stores, *raft, "--to", tmp_path / "store", key=key)
    assert moved.returncode == 0, moved.stdout + moved.stderr
    with StanServer(tmp_path) as server:
        assert in_servers == await everything(server)
    assert {channel: last for channel, (_, last, *_) in in_servers.items()} == {
        channel: last for channel, (_, last) in shown["ends"].items()
    }


async def test_times_holes_and_the_end_are_as_they_were(server, tmp_path):
    old = tmp_path / "old"
    write_many(old, b"foo", 3000, b"x" * 700, 1000, 3_700_001)
    (old / "foo" / "msgs.2.dat").unlink()
    write_subscriptions(old / "empty", durable(1, b"me", b"d", 40))
    moved = await asyncio.to_thread(migrate, old, "--server", server.url, "--json")
    assert moved.returncode == 5
    assert [one["text"] for one in json.loads(moved.stdout)["problems"]] == [
        "messages 1 to 40 are missing at the end",
        "messages 1001 to 2000 are missing here",
    ]
    there = await read(server, "foo")
    assert [(sequence, time) for sequence, time, *_ in there] == [
        (n, EPOCH + n * 3_700_001) for n in (*range(1, 1001), *range(2001, 3001))
    ]
    empty = (await channels(server.url))["empty"]
    assert (empty.first_sequence, empty.last_sequence) == (41, 40)


async def test_channel_that_is_in_use_is_left_alone(server):
    async with await stan_client.connect(server.url, client_id="p") as client:
        await client.publish("orders", b"mine")
    refused = await asyncio.to_thread(migrate, PLAIN, "--server", server.url)
    assert refused.returncode == 1
    assert "Channel orders cannot be moved" in refused.stderr
    assert "in use" in refused.stderr
    assert [data for _, _, data, _ in await read(server, "orders")] == [b"mine"]


def test_wrong_words_are_said(server, tmp_path):
    for words in (["--server", server.url, "--to", tmp_path / "x"], ["--server", server.url, "--dry-run"]):
        assert migrate(PLAIN, *words).returncode == 2
    assert migrate(PLAIN, "--server", "nats://127.0.0.1:1").returncode == 3


def moving(old, url):
    command = [*STAN, "migrate", "stan-filestore", str(old), "--server", url, "--stopped"]
    return subprocess.Popen(command, env=ENV, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def step_until(process, reached):
    """Let a process run for moments until *reached*, and leave it stopped there, so that it is not done before somebody looks."""
    while process.poll() is None:
        process.send_signal(signal.SIGSTOP)
        if reached():
            return
        process.send_signal(signal.SIGCONT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.05)


async def test_move_into_a_cluster_that_is_killed_goes_on_and_is_closed_until_the_end(tmp_path):
    old, count = tmp_path / "old", 60_000
    write_many(old, b"foo", count, b"x" * 300, 20_000, 1000)
    told = [sent(1, n) for n in range(1, 101)] + [acked(1, n) for n in range(1, 91)]
    write_subscriptions(old / "foo", durable(1, b"me", b"d"), *told)
    write_many(old / "more", b"bar", 10, b"x", 10, 1000)
    (old / "more" / "bar").rename(old / "bar")
    with StanCluster(tmp_path) as cluster:

        def moved_so_far():
            return {name: one.messages for name, one in asyncio.run(channels(cluster.url)).items()}

        for wanted, how, code in ((2000, signal.SIGINT, 130), (count // 2, signal.SIGKILL, -signal.SIGKILL)):
            process = moving(old, cluster.url)
            try:
                await asyncio.to_thread(step_until, process, lambda w=wanted: moved_so_far().get("foo", 0) >= w)
                process.send_signal(how)
                process.send_signal(signal.SIGCONT)
                _, complaint = await asyncio.to_thread(process.communicate, timeout=60)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                process.wait()
            assert process.returncode == code, "it was done before it could be interrupted"
            assert "Traceback" not in complaint
            assert how == signal.SIGKILL or "The same command goes on" in complaint
            async with await stan_client.connect(cluster.url, client_id="p") as client:
                for channel in ("foo", "bar"):
                    with pytest.raises(stan_client.StanClientError, match="restored"):
                        await client.publish(channel, b"too early")
        before = await asyncio.to_thread(moved_so_far)
        assert 2000 <= before["foo"] < count
        done = await asyncio.to_thread(migrate, old, "--server", cluster.url, "--stopped")
        assert done.returncode == 0, done.stdout + done.stderr
        there = await read(cluster, "foo")
        assert [(sequence, time) for sequence, time, *_ in there] == [
            (n, EPOCH + n * 1000) for n in range(1, count + 1)
        ]
        assert {data for _, _, data, _ in there} == {b"x" * 300}
        assert (await pending_of(cluster, "foo"))["me", "d", ""] == (list(range(91, 101)), 100)
        assert len(await read(cluster, "bar")) == 10
        async with await stan_client.connect(cluster.url, client_id="p") as client:
            assert (await client.publish("foo", b"next")).sequence == count + 1
