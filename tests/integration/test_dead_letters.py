"""Dead letters with real processes: many at once, the commands, the breaker, an old client, a cluster whose leader dies."""

import asyncio
import json
import time
from contextlib import asynccontextmanager

import pytest
import stan_client
from stan_bench.bench.bench_broker import own_broker
from stan_client.dead_letters import dead_letter
from stan_protocol.admin_types import DeliveryPolicy

from tests.integration.test_cli_operator import stan
from tests.kit.cluster import StanCluster
from tests.kit.server import CLUSTER_ID

pytestmark = pytest.mark.timeout(300)
EVERYTHING = stan_client.everything()
PATIENCE_S = 90


@pytest.fixture
async def url():
    async with own_broker(CLUSTER_ID) as target:
        yield target.server


async def set_policy(url, pattern="orders", **policy):
    async with stan_client.Direct(url, cluster_id=CLUSTER_ID) as direct:
        await direct.admin.set_policy(pattern, DeliveryPolicy(**policy))


@asynccontextmanager
async def operator(url):
    async with stan_client.Direct(url, cluster_id=CLUSTER_ID) as direct:
        yield direct


async def letters_of(direct, channel="orders.dlq"):
    if await direct.admin.channel(channel) is None:
        return []
    return [dead_letter(message) async for message in direct.read(channel)]


async def billing_when(holds, direct):
    """The durable's status, once it *holds*."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            (cursor,) = await direct.admin.subscriptions("orders", name="billing")
            if holds(cursor):
                return cursor
            await asyncio.sleep(0.05)


async def reached(count, direct, channel="orders.dlq"):
    """The dead letters, once there are so many."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            status = await direct.admin.channel(channel)
            if status is not None and status.messages >= count:
                return await letters_of(direct, channel)
            await asyncio.sleep(0.05)


async def test_ten_thousand_poison_messages(url):
    count = 10_000
    await set_policy(url, max_deliver=2, dead_letter=".dlq", dead_letter_rate=0)
    async with (
        await stan_client.connect(url, client_id="worker", cluster_id=CLUSTER_ID) as client,
        operator(url) as direct,
    ):
        await client.publish_many("orders", [b"%d" % number for number in range(count)])

        async def fail(message):
            message.nak(reason="poison")

        began = time.monotonic()
        await client.subscribe("orders", fail, durable="billing", start=EVERYTHING, manual_acks=True, max_in_flight=500)
        found = await reached(count, direct)

        assert time.monotonic() - began < PATIENCE_S
        assert sorted(letter.sequence for letter in found) == list(range(1, count + 1))
        assert {(letter.durable, letter.reason, letter.deliveries, letter.error) for letter in found} == {
            ("billing", "exhausted", 2, "poison")
        }
        assert all(letter.message.data == b"%d" % (letter.sequence - 1) for letter in found)
        (cursor,) = await direct.admin.subscriptions("orders", name="billing")
        assert (cursor.pending, cursor.exhausted, cursor.dead_letters) == (0, 0, count)
        assert cursor.dead_letter_channel == "orders.dlq"


async def test_commands_list_show_put_back_and_drop(url, tmp_path):
    await set_policy(url, max_deliver=1, dead_letter=".dlq")
    async with (
        await stan_client.connect(url, client_id="worker", cluster_id=CLUSTER_ID) as client,
        operator(url) as direct,
    ):
        for number in range(4):
            await client.publish("orders", b"order %d" % number, headers={"trace": b"%d" % number}, key=b"k")

        async def reject(message):
            message.reject("no such customer")

        subscription = await client.subscribe("orders", reject, durable="billing", start=EVERYTHING, manual_acks=True)
        await reached(4, direct)
        await subscription.close()
        listed = json.loads(await asyncio.to_thread(stan, url, tmp_path, "dlq", "list", "--json"))
        assert listed == {"channels": [{"channel": "orders.dlq", "messages": 4, "sources": {"orders": 4}}]}
        shown = json.loads(await asyncio.to_thread(stan, url, tmp_path, "dlq", "show", "orders.dlq", "--json"))
        assert [one["source_sequence"] for one in shown["letters"]] == [1, 2, 3, 4]
        assert {one["error"] for one in shown["letters"]} == {"no such customer"}
        await asyncio.to_thread(stan, url, tmp_path, "dlq", "redrive", "orders.dlq", "--dry-run")
        assert len(await letters_of(direct)) == 4

        redrive = ("dlq", "redrive", "orders.dlq", "--sequence", "2-3", "--rate", "10", "--yes")
        await asyncio.to_thread(stan, url, tmp_path, *redrive)

        assert [letter.sequence for letter in await letters_of(direct)] == [1, 4]
        back = [message async for message in direct.read("orders", start=stan_client.from_sequence(5))]
        assert [(message.data, message.key) for message in back] == [(b"order 1", b"k"), (b"order 2", b"k")]
        assert back[0].headers == {"trace": b"1", "stan-redriven": b"1"}
        await asyncio.to_thread(stan, url, tmp_path, "dlq", "drop", "orders.dlq", "--sequence", "1", "--yes")
        assert [letter.sequence for letter in await letters_of(direct)] == [4]
        await asyncio.to_thread(stan, url, tmp_path, "dlq", "drop", "orders.dlq", "--all", "--yes")
        assert await letters_of(direct) == []


async def test_poison_does_not_go_round_for_ever(url, tmp_path):
    await set_policy(url, max_deliver=1, dead_letter=".dlq")
    async with (
        await stan_client.connect(url, client_id="worker", cluster_id=CLUSTER_ID) as client,
        operator(url) as direct,
    ):
        await client.publish("orders", b"poison")

        async def reject(message):
            message.reject()

        await client.subscribe("orders", reject, durable="billing", start=EVERYTHING, manual_acks=True)
        for _ in range(3):
            await reached(1, direct)
            await asyncio.to_thread(stan, url, tmp_path, "dlq", "redrive", "orders.dlq", "--yes")
        (letter,) = await reached(1, direct)
        assert letter.redriven == 3

        await asyncio.to_thread(stan, url, tmp_path, "dlq", "redrive", "orders.dlq", "--yes")
        answer = await direct.admin.redrive("orders.dlq", [(letter.message.sequence, letter.message.sequence)])

        assert (answer.changed, answer.redriven.stopped) == (0, 1)


async def test_an_outage_pauses_the_position(url, tmp_path):
    await set_policy(url, max_deliver=1, dead_letter=".dlq", dead_letter_rate=5)
    async with (
        await stan_client.connect(url, client_id="worker", cluster_id=CLUSTER_ID) as client,
        operator(url) as direct,
    ):
        await client.publish_many("orders", [b"x"] * 50)
        down = True

        async def handle(message):
            if down:
                message.nak(reason="no database")
            else:
                message.ack()

        await client.subscribe("orders", handle, durable="billing", start=EVERYTHING, manual_acks=True, max_in_flight=3)
        await reached(5, direct)
        await billing_when(lambda cursor: cursor.paused, direct)
        assert len(await letters_of(direct)) == 5
        why = await asyncio.to_thread(stan, url, tmp_path, "durable", "why", "orders", "billing")
        assert "5 messages became dead letters within a minute" in why
        assert "go on: stan durable resume orders worker/billing" in why

        down = False
        await asyncio.to_thread(stan, url, tmp_path, "durable", "resume", "orders", "billing")

        await billing_when(lambda cursor: cursor.acked_up_to == 50, direct)
        assert len(await letters_of(direct)) == 5, "what had failed and was no dead letter yet was sent once more"


async def test_a_client_that_only_acks_has_dead_letters_too(url):
    await set_policy(url, max_deliver=2, dead_letter="failed")
    async with (
        await stan_client.connect(url, client_id="old", cluster_id=CLUSTER_ID) as client,
        operator(url) as direct,
    ):
        await client.publish_many("orders", [b"good", b"poison"])
        seen = []

        async def handle(message):
            seen.append((message.sequence, message.redelivery_count))
            if message.data == b"good":
                message.ack()

        await client.subscribe("orders", handle, durable="d", start=EVERYTHING, manual_acks=True, ack_wait_s=1)
        (letter,) = await reached(1, direct, "failed")

        assert (letter.channel, letter.sequence, letter.deliveries, letter.error) == ("orders", 2, 2, "")
        assert seen == [(1, 0), (2, 0), (2, 1)]


async def test_a_cluster_keeps_a_dead_letter_channel_with_its_source(tmp_path):
    """The leader is killed while messages are moved; a client on whichever node publishes to the channel itself."""
    count = 300
    with StanCluster(tmp_path) as cluster:
        into = next(f"failed{n}" for n in range(99) if cluster.group_of(f"failed{n}") != cluster.group_of("orders"))
        servers = cluster.url
        await set_policy(servers, max_deliver=1, dead_letter=into.encode(), dead_letter_rate=0)
        options = {"servers": servers, "ping_max_out": 30, "ack_timeout_s": 60}
        async with (
            await stan_client.connect(client_id="worker", cluster_id=CLUSTER_ID, **options) as client,
            operator(servers) as direct,
        ):
            await client.publish_many("orders", [b"%d" % number for number in range(count)])

            async def reject(message):
                message.reject("no")

            await client.subscribe(
                "orders", reject, durable="d", start=EVERYTHING, manual_acks=True, max_in_flight=7, ack_wait_s=2
            )
            await reached(20, direct, into)
            leader = cluster.leader_of("orders")
            await asyncio.to_thread(cluster.kill9, leader)
            await asyncio.to_thread(cluster.start, leader)
            found = await reached(count, direct, into)

            assert sorted(letter.sequence for letter in found) == list(range(1, count + 1)), "each is there once"
            by_name = {status.name: status.group for status in await direct.admin.channels()}
            assert by_name[into] == by_name["orders"]
            await client.publish(into, b"by a client")
            status = await direct.admin.channel(into)
            assert status is not None
            assert status.messages == count + 1
