"""Clients of both protocols on one channel of a cluster whose leaders die: one order for all, and nothing acked is missing.

A producer of STAN in JavaScript, one of JetStream in Python; a STAN durable in JavaScript, a JetStream consumer in Python, and a
streaming query of Spark.
"""

import asyncio
import contextlib

import nats
import pytest
import stan_client
from nats.js.api import ConsumerConfig

from tests.conformance.clients import Client, javascript
from tests.kit.cluster import StanCluster
from tests.kit.jetstream import asked
from tests.kit.server import CLUSTER_ID, until

CHANNEL = "orders"
EACH = 300
KILLS = 2
PINGS = (5, 3)
HOME = "n1"
PATIENCE_S = 240

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def cluster(tmp_path):
    with StanCluster(tmp_path, "-jetstream_api") as cluster:
        yield cluster


@pytest.fixture
def javascript_client(cluster):
    program, clients = javascript(), []

    def make(client_id):
        clients.append(Client(program, cluster.url.split(",")[0], CLUSTER_ID, client_id, PINGS))
        return clients[-1]

    yield make
    for client in clients:
        client.release()


class Reading:
    """A streaming query that reads the channel from its beginning and waits for what comes."""

    def __init__(self, spark, servers, checkpoint):
        """Start it; *servers*: NATS URLs, separated by commas."""
        self.rows = []
        """Sequences and bodies, as they came."""
        options = {"servers": servers, "startingOffsets": "earliest", "waitForChannels": "true"}
        stream = spark.readStream.format("stan").options(**options).load(CHANNEL).select("sequence", "value")
        writer = stream.writeStream.option("checkpointLocation", str(checkpoint))
        self.query = writer.foreachBatch(self._take).start()

    def _take(self, frame, _number):
        self.rows.extend((row.sequence, bytes(row.value)) for row in frame.collect())

    def wait_for(self, count):
        """Wait until so many rows are there, unless the query ends."""
        until(lambda: len(self.rows) >= count or not self.query.isActive, PATIENCE_S, lambda: str(self.query.status))
        assert self.query.isActive, self.query.exception()


@pytest.fixture
def reading(spark, cluster, tmp_path):
    found = Reading(spark, cluster.url, tmp_path / "checkpoint")
    yield found
    found.query.stop()


async def produce(js, count):
    """Publish messages one after the other, each until it is acked, under an id of its own; returns sequences by payload."""
    acked = {}
    for number in range(count):
        value, named = b"jetstream-%d" % number, {"Nats-Msg-Id": f"id-{number}"}
        ack = await asked(lambda value=value, named=named: js.publish(CHANNEL, value, headers=named, timeout=2))
        acked[value] = ack.seq
    return acked


async def consume(sub, taken, total):
    """Take and ack messages until *total* are acked; repeats say that they are some."""
    acked = set()
    async with asyncio.timeout(PATIENCE_S):
        while len(acked) < total:
            found = []
            with contextlib.suppress(nats.errors.Error, nats.js.errors.Error, TimeoutError):
                found = await sub.fetch(50, timeout=1)
            for one in found:
                sequence, delivered = one.metadata.sequence.stream, one.metadata.num_delivered
                assert sequence not in taken or delivered > 1, "a repeat is not flagged"
                taken.setdefault(sequence, one.data)
                with contextlib.suppress(nats.errors.Error):
                    await one.ack_sync(timeout=2)
                    acked.add(sequence)


async def led_elsewhere(cluster):
    """The leader of the channel's group: any node but the one whose NATS the JavaScript clients use."""
    leader = await asyncio.to_thread(cluster.leader_of, CHANNEL)
    while leader == HOME:
        async with stan_client.Direct(cluster.url, cluster_id=CLUSTER_ID) as direct:
            with contextlib.suppress(stan_client.ServerError):
                await direct.admin.step_down(cluster.group_of(CHANNEL))
        leader = await asyncio.to_thread(cluster.leader_of, CHANNEL)
    return leader


async def test_both_kinds_of_clients_see_one_order_while_leaders_die(cluster, javascript_client, reading):
    stan_producer, stan_consumer = javascript_client("producer"), javascript_client("consumer")
    await asyncio.to_thread(stan_consumer.subscribe, "durable", CHANNEL, durable="dur", start="first", ack_wait=5000)
    client = await nats.connect(cluster.url.split(","))
    js = client.jetstream(timeout=10)
    await asked(lambda: js.add_stream(name="ORDERS", subjects=[CHANNEL], num_replicas=3))
    sub = await asked(lambda: js.pull_subscribe(CHANNEL, durable="worker", config=ConsumerConfig(ack_wait=3)))
    taken = {}
    producing = asyncio.create_task(produce(js, EACH))
    consuming = asyncio.create_task(consume(sub, taken, 2 * EACH))
    for kill in range(KILLS):
        share = [b"stan-%d" % number for number in range(EACH * kill // KILLS, EACH * (kill + 1) // KILLS)]
        stan_producer.publish(CHANNEL, *share)
        await asyncio.to_thread(stan_producer.wait, "acked", EACH * kill // KILLS + len(share) // 4)
        await asyncio.to_thread(reading.wait_for, EACH * kill // KILLS + len(share) // 4)
        leader = await led_elsewhere(cluster)
        cluster.kill9(leader)
        await asyncio.to_thread(stan_producer.wait, "acked", EACH * (kill + 1) // KILLS)
        await asyncio.to_thread(cluster.start, leader)
    acked = await asyncio.to_thread(stan_producer.wait, "acked", EACH)
    assert {event["error"] for event in acked} == {""}
    of_jetstream = await producing
    await consuming

    async with stan_client.Direct(cluster.url, cluster_id=CLUSTER_ID) as direct:
        stored = [one async for one in direct.read(CHANNEL, follow=False)]
    order = {one.sequence: one.data for one in stored}
    assert [*order] == [*range(1, 2 * EACH + 1)]
    assert {order[sequence]: sequence for sequence in of_jetstream.values()} == of_jetstream
    assert [data for data in order.values() if data.startswith(b"stan-")] == [b"stan-%d" % one for one in range(EACH)]
    assert taken == order
    await asyncio.to_thread(reading.wait_for, 2 * EACH)
    assert reading.rows == [*order.items()]
    messages = await asyncio.to_thread(stan_consumer.messages, "durable", 2 * EACH)
    assert {one["sequence"]: bytes.fromhex(one["data"]) for one in messages} == order
    first = [one["sequence"] for one in messages if not one["redelivered"]]
    assert first == sorted(set(first)), "a repeat is not flagged, or the order is not the channel's"
    await client.close()
