"""The data directory of a real server: what is refused, what is mended, what is moved aside; nothing is deleted."""

import asyncio
import json
import os
import subprocess
import sys

import pytest
import stan_client
from stan_protocol.scalars import GroupId

from stan.config import ClusterConfig, Config, LogConfig, StoreConfig
from stan.core.broker.broker import Broker
from stan.edge.log import ServerLog
from stan.edge.storage.manifest import Manifest, boot_id, open_manifest, recorded_node_id, write_manifest
from stan.edge.storage.state_loader import StateLoader
from stan.edge.storage.storage import Storage
from stan.errors import Damage, StartError
from tests.kit.damage import written
from tests.kit.server import StanServer, until

MESSAGES = 300


async def publish(url, count, *, prefix=b"m"):
    client = await stan_client.connect(url, client_id="writer")
    await client.publish_many("foo", [prefix + b"%d" % n for n in range(count)])
    await client.close()


async def take(url, count, *, ack_first=0):
    """Read *count* messages as the durable "ledger", acknowledge the first *ack_first*."""
    client = await stan_client.connect(url, client_id="reader")
    got = []
    sub = await client.subscribe(
        "foo", durable="ledger", start=stan_client.everything(), manual_acks=True, max_in_flight=1000
    )
    async for message in sub:
        got.append(message.sequence)
        if len(got) <= ack_first:
            message.ack()
        if len(got) == count:
            break
    await sub.close()
    await client.close()
    return got


def test_lost_state_database_is_rebuilt_from_the_log_and_the_broken_one_kept(tmp_path):
    with StanServer(tmp_path, store="FILE") as server:
        asyncio.run(publish(server.url, MESSAGES))
        asyncio.run(take(server.url, MESSAGES, ack_first=100))
        server.kill9()
        directory = data_directory(tmp_path)
        for path in directory.glob("state.db*"):
            path.unlink()
        (directory / "state.db").write_bytes(b"this is no database" * 1000)
        server.start()

        assert asyncio.run(take(server.url, MESSAGES - 100)) == list(range(101, MESSAGES + 1))
        assert list((directory / "lost+found").glob("*state.db"))
        assert "the state is rebuilt from the logs" in server.log()


def test_flipped_bit_in_the_newest_entry_stops_the_start_until_its_loss_is_accepted(tmp_path):
    with StanServer(tmp_path, store="FILE") as server:
        asyncio.run(publish(server.url, 5))
        server.kill9()
    path = data_directory(tmp_path) / "groups" / "1" / f"{1:020}.log"
    data = bytearray(written(path.read_bytes()))
    data[-1] ^= 1
    path.write_bytes(data)

    refused = run_server(data_directory(tmp_path), "-cid", "test-cluster")
    assert refused.returncode == 1
    assert f"{path}: damaged at position" in refused.stderr
    assert "are lost; nothing was changed" in refused.stderr
    assert "--file_truncate_bad_eof" in refused.stderr
    assert path.read_bytes() == data

    with StanServer(tmp_path, "-file_truncate_bad_eof", store="FILE") as server:
        assert [file.read_bytes() for file in (data_directory(tmp_path) / "lost+found").iterdir()] == [data]
        asyncio.run(publish(server.url, 1, prefix=b"after"))
        server.kill9()
    with StanServer(tmp_path, store="FILE") as server:
        assert asyncio.run(take(server.url, 1)) == [1]


def test_directory_in_use_is_refused(tmp_path):
    with StanServer(tmp_path, store="FILE") as server:
        second = run_server(data_directory(tmp_path), "-cid", "test-cluster")

        assert second.returncode == 1
        assert "is in use by another server" in second.stderr
        assert server.running


def test_directory_of_another_cluster_is_refused_with_the_original_text(tmp_path):
    with StanServer(tmp_path, store="FILE") as server:
        server.terminate()
        other = run_server(data_directory(tmp_path), "-cid", "other")

    assert other.returncode == 1
    assert 'cluster ID "other" does not match recovered value of "test-cluster"' in other.stderr


def test_directory_of_the_original_server_is_refused_and_left_alone(tmp_path):
    (tmp_path / "server.dat").write_bytes(b"\x01\0\0\0")
    refused = run_server(tmp_path)

    assert refused.returncode == 1
    assert "holds the file store of a NATS Streaming Server" in refused.stderr
    assert [path.name for path in tmp_path.iterdir() if path.name != "lock"] == ["server.dat"]


def test_old_segments_go_when_the_limits_removed_their_messages_and_a_restart_agrees(tmp_path):
    with StanServer(tmp_path, "-mm", "100", store="FILE") as server:
        groups = data_directory(tmp_path) / "groups" / "1"
        asyncio.run(fill(server.url, 80))
        until(lambda: len(list(groups.glob("*.log"))) == 1, why=lambda: str(list(groups.iterdir())))
        assert list(groups.glob("state-*.snap"))
        server.kill9()
        server.start()

        assert asyncio.run(take_all(server.url)) == list(range(80 * 16 - 99, 80 * 16 + 1))


async def fill(url, rounds):
    client = await stan_client.connect(url, client_id="writer")
    for _ in range(rounds):
        await client.publish_many("foo", [b"x" * 60_000] * 16)
    await client.close()


async def take_all(url):
    client = await stan_client.connect(url, client_id="all")
    got = []
    sub = await client.subscribe("foo", start=stan_client.everything())
    async for message in sub:
        got.append(message.sequence)
        if len(got) == 100:
            break
    await client.close()
    return got


def test_manifest_tells_power_loss_from_a_killed_process(tmp_path):
    directory = str(tmp_path)
    first = open_manifest(directory, "c", 1)
    assert first.fresh
    assert not first.power_lost
    second = open_manifest(directory, "c", 1)
    assert not second.fresh
    assert second.power_lost is (boot_id() == "")

    write_manifest(directory, Manifest("c", 1, first.manifest.store_id, "another boot", clean=False))
    assert open_manifest(directory, "c", 1).power_lost
    write_manifest(directory, Manifest("c", 1, first.manifest.store_id, "another boot", clean=True))
    assert not open_manifest(directory, "c", 1).power_lost


def test_manifest_that_cannot_be_right_is_refused_by_name(tmp_path):
    directory = str(tmp_path)
    open_manifest(directory, "c", 1)
    with pytest.raises(StartError, match=r"made with 1 channel group\(s\), not 2"):
        open_manifest(directory, "c", 2)
    for damaged in ({"format": 1}, 4, None, [1], "x"):
        (tmp_path / "stan.json").write_text(json.dumps(damaged))
        with pytest.raises(Damage, match=r"stan\.json"):
            open_manifest(directory, "c", 1)
    (tmp_path / "stan.json").unlink()
    (tmp_path / "groups").mkdir()
    with pytest.raises(Damage, match="put it back"):
        open_manifest(directory, "c", 1)


def test_manifest_of_another_node_is_refused(tmp_path):
    alone, member = str(tmp_path / "alone"), str(tmp_path / "member")
    open_manifest(alone, "c", 1)
    open_manifest(member, "c", 1, node_id="a")
    assert open_manifest(member, "c", 1, node_id="a").manifest.node_id == recorded_node_id(member) == "a"
    assert recorded_node_id(alone) == recorded_node_id(str(tmp_path)) == ""

    with pytest.raises(
        StartError,
        match=r"^stan: cannot restart server in clustered mode if it was not previously clustered$",
    ):
        open_manifest(alone, "c", 1, node_id="a")
    with pytest.raises(StartError, match=r'is of node "a" of a cluster; start it with --clustered'):
        open_manifest(member, "c", 1)
    with pytest.raises(StartError, match=r'is of node "a", not "b"'):
        open_manifest(member, "c", 1, node_id="b")


def test_node_without_a_name_gets_one_and_keeps_it(tmp_path):
    def life(**cluster):
        config = Config(store=StoreConfig(kind="file", directory=tmp_path), cluster=ClusterConfig(**cluster))

        async def run():
            storage = await Storage.open(config, ServerLog(LogConfig()), groups=[GroupId(0), GroupId(3)])
            broker = Broker(config, lambda group, uid: storage.logs[group].channel(uid), b"_INBOX.x.")
            await StateLoader(storage, broker, replicated=True).load()
            await storage.flush(broker)
            await storage.close(clean=True)
            return storage

        return asyncio.run(run())

    first = life()
    assert first.node_id
    assert first.fresh
    assert sorted(first.logs) == [0, 3]
    assert life().node_id == first.node_id
    with pytest.raises(StartError, match="is of node"):
        life(node_id="other")
    assert sorted(path.name for path in (tmp_path / "raft").iterdir()) == ["0", "3"]


def data_directory(tmp_path):
    return next(tmp_path.rglob("stan.json")).parent


def run_server(directory, *flags):
    command = [sys.executable, "-m", "stan.server.main", "-p", "-1", "-st", "FILE", "-dir", str(directory), *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, env=os.environ)
