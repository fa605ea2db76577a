"""The SQL store of real servers: killed under load, looked at with SQL, and shared by a fault tolerance group."""

import asyncio
import contextlib
import signal
import sqlite3
import subprocess
import threading

import pytest
import stan_client
from stan_client.blocking import BlockingClient

from tests.chaos.load import LASTING_KINDS, Load, Pace
from tests.kit.batches import rows_of
from tests.kit.ft_pair import STANDBY, Pair
from tests.kit.server import CLUSTER_ID, COMMAND, ROOT, NatsServer, StanServer, until

PACE = Pace(writers=2, kinds=LASTING_KINDS)


def query(path, text):
    """What a person sees."""
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        return database.execute(text).fetchall()


def sql_server(directory, nats, *flags, source="stan.db"):
    directory.mkdir(exist_ok=True)
    return StanServer(directory, "-sql_source", str(directory.parent / source), *flags, store="SQL", nats_url=nats.url)


@pytest.fixture
def nats(tmp_path):
    with NatsServer(tmp_path) as running:
        yield running


async def test_server_killed_under_load_keeps_its_promises(tmp_path, nats):
    with sql_server(tmp_path / "a", nats) as server:
        async with Load(server, pace=PACE) as load:
            for _ in range(2):
                await load.acknowledged(200)
                server.signal(signal.SIGKILL)
                load.crashed()
                await asyncio.to_thread(server.kill9)
                await asyncio.to_thread(server.start)
                load.crashed()
            await load.acknowledged(200)
            await load.finish()
        assert not load.violations()
        assert "Message store is SQL" in server.log()


async def test_messages_can_be_queried_and_retention_removes_them(tmp_path, nats):
    path = tmp_path / "stan.db"
    with sql_server(tmp_path / "a", nats, "-mm", "50", "-sql_driver", "sqlite") as server:
        async with await stan_client.connect(nats.url, client_id="me", cluster_id=CLUSTER_ID) as client:
            for number in range(60):
                await client.publish("orders", b"order %d" % number)
            durable = await client.subscribe("orders", durable="ledger", start=stan_client.everything())
            assert (await anext(durable)).sequence == 11
            await asyncio.to_thread(
                until, lambda: query(path, "SELECT first_sequence FROM channel_overview") == [(11,)], why=server.log
            )
            await asyncio.to_thread(until, lambda: query(path, "SELECT COUNT(*) FROM message_rows") == [(50,)])
            found = query(path, "SELECT sequence, data, size FROM messages WHERE channel = 'orders' ORDER BY sequence")
            assert found == [(number + 1, b"order %d" % number, len(f"order {number}")) for number in range(10, 60)]
            overview = "SELECT channel, client_id FROM subscription_overview"
            await asyncio.to_thread(until, lambda: query(path, overview) == [("orders", "me")], why=server.log)
            assert query(path, "SELECT channel, last_sequence, messages FROM channel_overview") == [("orders", 60, 50)]
        server.restart()
        async with await stan_client.connect(nats.url, client_id="me", cluster_id=CLUSTER_ID) as client:
            assert await client.publish("orders", b"more")
    assert query(path, "SELECT MAX(sequence) FROM messages") == [(61,)]


@pytest.mark.parametrize("written", [0, 200_000, 2_000_000])
def test_kill_in_the_middle_of_a_commit(tmp_path, nats, written):
    """Its rows are messages of their channel, for readers and for people: all of them, once, or none."""
    path, wal = tmp_path / "stan.db", tmp_path / "stan.db-wal"
    parts = [[b"%d-%d " % (part, row) * 20 for row in range(2000)] for part in range(12)]
    rows = [row for part in parts for row in part]
    with sql_server(tmp_path / "a", nats) as server, BlockingClient(nats.url, cluster_id=CLUSTER_ID) as client:
        for number, part in enumerate(parts):
            client.stage("app", 0, "t", number, "foo", rows_of(part), len(part))
        begun = wal.stat().st_size
        committing = threading.Thread(target=commit, args=(client, {"foo": [("t", len(parts))]}))
        committing.start()
        while wal.stat().st_size < begun + written and committing.is_alive():
            pass
        server.kill9()
        server.start()
        committing.join()
        client.commit("app", 0, {"foo": [("t", len(parts))]})
        found = client.read_range("foo", 1, len(rows))
        assert [message.data for batch in found for message in batch.messages()] == rows
        seen = query(path, "SELECT data FROM messages WHERE channel = 'foo' ORDER BY sequence")
        assert [data for (data,) in seen] == rows


def commit(client, txns):
    with contextlib.suppress(stan_client.StanClientError):
        client.commit("app", 0, txns)


def run(nats, *flags):
    command = [*COMMAND, "-ns", nats.url, "-st", "SQL", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False)


def test_file_of_another_cluster_or_server_is_refused(tmp_path, nats):
    source = str(tmp_path / "stan.db")
    with sql_server(tmp_path / "a", nats):
        assert f"{source} is in use by another server" in run(nats, "-sql_source", source).stderr
    ended = run(nats, "-cid", "another", "-sql_source", source)
    assert ended.returncode == 1
    assert 'cluster ID "another" does not match recovered value of "test-cluster"' in ended.stderr


async def test_frozen_active_server_over_a_shared_file_is_replaced(tmp_path):
    pair = Pair(tmp_path, "SQL")
    first, second = pair.members
    try:
        pair.start()
        async with Load(pair, pace=PACE) as load:
            await load.acknowledged(200)
            await pair.replace(load, first, second, signal.SIGSTOP)
            await load.acknowledged(200)
            first.signal(signal.SIGCONT)
            assert await asyncio.to_thread(first.wait_for_end) == 1
            first.launch()
            await asyncio.to_thread(until, lambda: STANDBY in first.log_since_start())
            await pair.replace(load, second, first, signal.SIGKILL)
            await load.acknowledged(200)
            await load.finish()
        assert not load.violations()
        assert "claims to be active, aborting" in first.log()
        assert pair.store.is_symlink()
        assert query(pair.store, "SELECT COUNT(*) FROM messages")[0][0] > 600
        assert "start it with -ft_group" in run(pair.nats, "-sql_source", str(pair.store)).stderr
    finally:
        pair.end()
