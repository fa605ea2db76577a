"""Delayed messages in a real cluster whose leader is killed every few seconds: none early, none lost, none twice."""

import asyncio
import contextlib
import os
import random
import time

import pytest
import stan_client
from stan_client import Direct
from stan_protocol.admin_types import DeliveryPolicy
from stan_protocol.scalars import SECOND

from tests.kit.cluster import StanCluster
from tests.kit.server import NatsServer

MESSAGES = int(os.environ.get("STAN_DELAYED_MESSAGES", "100000"))
DEFERRED = 0.2
"""Share of the messages whose publisher tells when they are due; the others go by the policy."""
DELAY_S = 4.0
KILL_EVERY_S = 5.0
PATIENCE_S = 240.0


@pytest.fixture
def cluster(tmp_path):
    with NatsServer(tmp_path) as nats, StanCluster(tmp_path, nats=nats) as cluster:
        yield cluster


async def kill_leaders(cluster):
    while True:
        await asyncio.sleep(KILL_EVERY_S)
        name = await asyncio.to_thread(cluster.leader_of, "orders")
        await asyncio.to_thread(cluster.kill9, name)
        await asyncio.to_thread(cluster.start, name)


async def publish(client, acked):
    """Publish everything; *acked* gets what was acknowledged."""
    draw, answered, done = random.Random(1), 0, asyncio.Event()

    def told(data):
        def on_ack(_guid, error):
            nonlocal answered
            answered += 1
            if answered == MESSAGES:
                done.set()
            if error is None:
                acked.add(data)

        return on_ack

    left = MESSAGES
    while left:
        for _ in range(min(await client.window.room(), left, 500)):
            left -= 1
            if draw.random() < DEFERRED:
                after = draw.uniform(0.5, 8)
                data = b"%d %d" % (left, time.time_ns() + round(after * SECOND))
                channel, delay_s = "orders", after + 0.001
            else:
                data = b"%d %d" % (left, time.time_ns() + round(DELAY_S * SECOND))
                channel, delay_s = "orders.later", None
            client.window.publish(channel, data, delay_s=delay_s, on_ack=told(data))
    await done.wait()


async def subscribe(client):
    """A leader may die while it is asked."""
    while True:
        with contextlib.suppress(stan_client.SubscribeRequestTimeoutError):
            return await client.subscribe("orders", start=stan_client.everything(), max_in_flight=5000)


@pytest.mark.timeout(PATIENCE_S + 60)
async def test_no_delayed_message_is_early_lost_or_there_twice_while_leaders_die(cluster) -> None:
    acked: set[bytes] = set()
    got: dict[bytes, int] = {}
    async with Direct(cluster.url, cluster_id=cluster.cluster_id, timeout_s=60) as direct:
        policy = DeliveryPolicy(delay=round(DELAY_S * SECOND), target="orders")
        await direct.admin.set_policy("orders.later", policy)
    killing = asyncio.create_task(kill_leaders(cluster))
    async with asyncio.timeout(PATIENCE_S):
        async with await stan_client.connect(cluster.url, client_id="me", cluster_id=cluster.cluster_id) as client:
            await publish(client, acked)
            subscription = await subscribe(client)
            while not acked <= got.keys():
                for message in await subscription.fetch(5000, 5):
                    before = got.setdefault(message.data, message.sequence)
                    assert before == message.sequence, f"{message.data!r} is there twice"
                    due = int(message.data.split()[1])
                    assert message.timestamp_ns >= due, f"{message.data!r} is early"
    killing.cancel()
    assert len(acked) > MESSAGES // 2, "most were acknowledged"
