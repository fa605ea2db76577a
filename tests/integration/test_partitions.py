"""Real servers of one cluster id that share the channels, over one NATS, and over two that are joined later (STAN-SPEC 11)."""

import asyncio
import subprocess

import pytest
import stan_client

from tests.kit.batches import rows_of
from tests.kit.ports import free_port
from tests.kit.server import CLUSTER_ID, COMMAND, ROOT, NatsServer, StanServer, until


def settings(directory, *channels):
    """A configuration file that names channels."""
    directory.mkdir(exist_ok=True)
    file = directory / "stan.conf"
    named = "\n".join(f'"{channel}": {{}}' for channel in channels)
    file.write_text(f"partitioning: true\nstore_limits {{\nchannels {{\n{named}\n}}\n}}\n")
    return file


def server(directory, nats, *channels):
    return StanServer(directory, "-sc", str(settings(directory, *channels)), nats_url=nats.url)


async def test_two_servers_share_the_channels(tmp_path):
    with (
        NatsServer(tmp_path) as nats,
        server(tmp_path / "a", nats, "foo", "orders.*") as first,
        server(tmp_path / "b", nats, "bar", "bills.>"),
    ):
        client = await stan_client.connect(nats.url, client_id="me", cluster_id=CLUSTER_ID)
        hasty = await stan_client.connect(nats.url, client_id="hasty", cluster_id=CLUSTER_ID, ack_timeout_s=2)
        async with client, hasty:
            for channel in ("foo", "bar", "orders.eu", "bills.a.b"):
                await client.publish(channel, b"hello")
                subscription = await client.subscribe(channel, start=stan_client.everything())
                assert (await anext(subscription)).data == b"hello"
            with pytest.raises(stan_client.PublishAckTimeoutError):
                await hasty.publish("nobodys", b"x")
            with pytest.raises(stan_client.InvalidNameError, match="stan: invalid"):
                await client.subscribe("orders.*")
            await asyncio.to_thread(first.terminate)
            await client.publish("bar", b"the other one goes on")


async def test_a_transaction_may_be_of_the_channels_of_both(tmp_path):
    with (
        NatsServer(tmp_path) as nats,
        server(tmp_path / "a", nats, "foo", "orders.*"),
        server(tmp_path / "b", nats, "bar", "bills.>"),
    ):
        names = ["foo", "bar", "orders.eu", "bills.a.b"]
        async with stan_client.Direct(nats.url, cluster_id=CLUSTER_ID) as direct:
            rows = rows_of([b"one", b"two"])
            parts = [stan_client.StagedRows(name, 0, rows, 2) for name in names]
            await direct.transactions.stage_together("foo", 1, "t", parts)
            done = await direct.transactions.commit("foo", 1, {name: [("t", 1)] for name in names})
            assert {name: (one.first, one.last) for name, one in done.items()} == dict.fromkeys(names, (1, 2))


def run(nats, file):
    command = [*COMMAND, "-cid", CLUSTER_ID, "-ns", nats.url, "-sc", str(file)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False)


def test_server_with_a_channel_of_another_does_not_start(tmp_path):
    with NatsServer(tmp_path) as nats, server(tmp_path / "a", nats, "foo.*") as first:
        ended = run(nats, settings(tmp_path / "b", "x", "foo.bar"))
        assert ended.returncode == 1
        assert 'Failed to start: channel "foo.bar" causes conflict with channels on server "' in ended.stderr
        assert first.running


def test_server_without_channels_does_not_start(tmp_path):
    with NatsServer(tmp_path) as nats:
        ended = run(nats, settings(tmp_path / "b"))
    assert (ended.returncode, ended.stderr) == (1, "nats-streaming-server: stan: no configured channel\n")


def test_payload_too_small_for_a_name_does_not_start(tmp_path):
    file = tmp_path / "nats.conf"
    file.write_text("max_payload: 50\n")
    with NatsServer(tmp_path, "-c", str(file)) as nats:
        ended = run(nats, settings(tmp_path / "b", "a.long.name.of.a.channel"))
    assert ended.returncode == 1
    assert "message payload too small to send channels list" in ended.stderr


def test_conflict_that_turns_up_when_nats_servers_join_ends_the_servers(tmp_path):
    ports = [free_port(), free_port()]
    files = [tmp_path / f"nats-{port}.conf" for port in ports]

    def write(joined):
        for file, mine, other in zip(files, ports, reversed(ports), strict=True):
            routes = f'"nats://127.0.0.1:{other}"' if joined else ""
            file.write_text(f'cluster {{ name: x, listen: "127.0.0.1:{mine}", routes: [{routes}] }}\n')

    write(joined=False)
    with NatsServer(tmp_path, "-c", str(files[0])) as one, NatsServer(tmp_path, "-c", str(files[1])) as two:
        servers = [server(tmp_path / "a", one, "foo"), server(tmp_path / "b", two, "foo")]
        try:
            for each in servers:
                each.start()
            write(joined=True)
            one.signal(1)
            two.signal(1)
            until(lambda: not all(each.running for each in servers), why=lambda: "".join(s.log() for s in servers))
            ended = [each for each in servers if not each.running]
            assert [each.wait_for_end() for each in ended] == [1] * len(ended)
            assert 'Partitioning error: channel "foo" causes conflict' in ended[0].log()
        finally:
            for each in servers:
                each.sweep()
