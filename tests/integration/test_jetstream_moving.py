"""Programs move from STAN to JetStream one by one: a durable becomes a consumer, producers of both kinds stand side by side."""

import os
import subprocess
import sys

import nats
import pytest
import stan_client
from stan_client.admin_types import CursorRef

from tests.kit.server import CLUSTER_ID, StanServer

ACKED = (1, 2, 4, 9)


@pytest.fixture
def server(tmp_path):
    with StanServer(tmp_path, "--jetstream_api", store="FILE") as server:
        yield server


def stan(server, *arguments, code=0):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "STAN_SERVER": server.url}
    command = [sys.executable, "-m", "stan.cli.main", *arguments, "-c", CLUSTER_ID]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == code, done
    return done.stdout + done.stderr


async def half_read(server, name="billing", group=None):
    """Ten messages in a channel, and a position that has all of them, and has acked some."""
    names = {"durable": name} if group is None else {"durable": name, "queue": group}
    async with await stan_client.connect(server.url, client_id="old", cluster_id=CLUSTER_ID) as client:
        await client.publish_many("orders", [b"%d" % number for number in range(1, 11)])
        subscription = await client.subscribe("orders", start=stan_client.everything(), manual_acks=True, **names)
        for _ in range(10):
            message = await subscription.next(timeout_s=30)
            if message.sequence in ACKED:
                await message.ack()
        await client.publish("orders", b"11")  # its ack tells that those before have arrived
        await subscription.next(timeout_s=30)


async def pulled(server, stream, consumer, count):
    client = await nats.connect(server.url)
    try:
        worker = await client.jetstream().pull_subscribe_bind(consumer, stream)
        return await worker.fetch(count, timeout=20)
    finally:
        await client.close()


@pytest.mark.parametrize("group", [None, "crew"])
async def test_consumer_goes_on_where_the_position_was(server, group):
    await half_read(server, group=group)
    kind, name = ("durable", "old/billing") if group is None else ("queue", "billing:crew")
    told = stan(server, kind, "to-consumer", "orders", name, "--consumer", "billing", "--yes")
    assert "is now consumer billing of stream orders" in told
    found = await pulled(server, "orders", "billing", 7)
    assert [one.metadata.sequence.stream for one in found] == [3, 5, 6, 7, 8, 10, 11]
    assert all(one.metadata.num_delivered > 1 for one in found), "they were delivered before"
    assert name not in stan(server, kind, "list", "orders")


async def test_move_that_was_interrupted_goes_on(server):
    await half_read(server)
    async with stan_client.Direct(server.url, cluster_id=CLUSTER_ID) as direct:
        old = CursorRef("orders", client_id="old", durable_name="billing")
        await direct.admin.create_cursor(CursorRef("orders", client_id="$JS", durable_name="billing"), like=old)
    stan(server, "durable", "to-consumer", "orders", "old/billing", "--yes")
    assert [one.data for one in await pulled(server, "orders", "billing", 2)] == [b"3", b"5"]


async def test_position_that_is_in_use_stays(server):
    async with await stan_client.connect(server.url, client_id="old", cluster_id=CLUSTER_ID) as client:
        await client.subscribe("orders", durable="billing")
        told = stan(server, "durable", "to-consumer", "orders", "billing", "--yes", code=1)
        assert "has subscribers: stop its clients first" in told
        async with stan_client.Direct(server.url, cluster_id=CLUSTER_ID) as direct:
            there = CursorRef("orders", client_id="old", durable_name="billing")
            with pytest.raises(stan_client.ServerError, match="the position has subscribers"):
                await direct.admin.create_cursor(CursorRef("orders", client_id="a", durable_name="b"), like=there)


async def test_server_without_the_api_says_how_to_turn_it_on(tmp_path):
    with StanServer(tmp_path, store="FILE") as server:
        await half_read(server)
        told = stan(server, "durable", "to-consumer", "orders", "billing", "--yes", code=4)
        assert "start them with --jetstream_api" in told


async def test_producers_of_both_kinds_and_both_kinds_of_readers_see_one_order(server):
    jet = await nats.connect(server.url)
    jetstream = jet.jetstream()
    await jetstream.add_stream(name="ORDERS", subjects=["orders"])
    async with await stan_client.connect(server.url, client_id="old", cluster_id=CLUSTER_ID) as client:
        subscription = await client.subscribe("orders", durable="old-one", start=stan_client.everything())
        for number in range(6):
            if number % 2:
                await client.publish("orders", b"%d" % number, headers={"from": "stan"})
            else:
                await jetstream.publish("orders", b"%d" % number, headers={"from": "jetstream"})
        by_stan = [await subscription.next(timeout_s=30) for _ in range(6)]
        consumer = await jetstream.pull_subscribe("orders", durable="puller")
        by_jetstream = await consumer.fetch(6, timeout=20)
    await jet.close()
    assert [one.sequence for one in by_stan] == [one.metadata.sequence.stream for one in by_jetstream] == [*range(1, 7)]
    told = [one.headers["from"].decode() for one in by_stan]
    assert told == [one.headers["from"] for one in by_jetstream] == ["jetstream", "stan"] * 3
