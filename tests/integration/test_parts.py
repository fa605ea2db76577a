"""Channels with parts on a real cluster: publishers know nothing of the parts, which are read; a leader of a part is killed."""

import asyncio
from collections import defaultdict

import pytest
import stan_client
from stan_client.reading.direct import Direct
from stan_protocol.parted import part_of

from tests.integration.test_cli_pubsub import stan

PARTS, KEYS, MESSAGES = 4, 17, 400


async def published(client, number):
    """Publish one message until it is acknowledged."""
    while True:
        try:
            return await client.publish("orders", b"%d" % number, key=f"k{number % KEYS}")
        except stan_client.PublishAckTimeoutError:
            pass


async def test_the_parts_have_each_message_in_the_order_of_its_key_over_a_killed_leader(cluster) -> None:
    async with (
        Direct(cluster.url, cluster_id=cluster.cluster_id, timeout_s=60) as direct,
        await stan_client.connect(
            cluster.url, client_id="me", cluster_id=cluster.cluster_id, ack_timeout_s=5
        ) as client,
    ):
        assert (await direct.admin.create_parts("orders", PARTS)).changed == PARTS
        where = {one.name: one.group for one in await direct.admin.channels("orders.*")}
        assert len(set(where.values())) == PARTS
        for number in range(MESSAGES):
            if number == MESSAGES // 2:
                killed = await asyncio.to_thread(cluster.leader, where["orders.~1"])
                await asyncio.to_thread(cluster.kill9, killed)
                await asyncio.to_thread(cluster.start, killed)
            await published(client, number)
        seen = defaultdict(list)
        for part, channel in enumerate(stan_client.part_names("orders", PARTS)):
            async for message in direct.read(channel):
                number = int(message.data)
                assert part_of(message.key, PARTS) == part
                if number not in seen[message.key]:  # published again: its ack was lost
                    seen[message.key].append(number)
        assert {int(key[1:]): numbers for key, numbers in seen.items()} == {
            at: list(range(at, MESSAGES, KEYS)) for at in range(KEYS)
        }
        with pytest.raises(stan_client.ServerError, match=r'"orders\.~0" to "orders\.~3"'):
            await client.subscribe("orders")
        async with await client.subscribe("orders.~2", durable="d", start=stan_client.everything()) as subscription:
            assert (await subscription.next(timeout_s=20)).sequence == 1
        assert (await direct.admin.delete_parts("orders")).changed == PARTS
        async with asyncio.timeout(60):
            while await direct.admin.parts("orders"):  # each answer takes its time
                pass
        assert await direct.admin.channels() == []


async def test_parts_are_doubled_under_load_while_leaders_are_killed(cluster) -> None:
    async with (
        Direct(cluster.url, cluster_id=cluster.cluster_id, timeout_s=60) as direct,
        await stan_client.connect(
            cluster.url, client_id="me", cluster_id=cluster.cluster_id, ack_timeout_s=5
        ) as client,
    ):
        await direct.admin.create_parts("orders", 2)
        where = {one.name: one.group for one in await direct.admin.channels("orders.*")}
        published, going = [], True

        async def publish(lane):
            number = lane
            while going:
                try:
                    await client.publish("orders", b"%d" % number, key=f"k{number % KEYS}")
                except (stan_client.PublishAckTimeoutError, stan_client.ServerError):
                    continue  # refused, or unknown: once more
                published.append(number)
                number += LANES

        async with asyncio.timeout(240), asyncio.TaskGroup() as tasks:
            for lane in range(LANES):
                tasks.create_task(publish(lane))
            for parts, part in ((2, "orders.~0"), (4, "orders.~1")):
                have = len(published)
                while len(published) < have + MESSAGES // 4:
                    await direct.admin.parts("orders")
                doubling = asyncio.create_task(direct.admin.double_parts("orders", parts))
                killed = await asyncio.to_thread(cluster.leader, where[part])
                await asyncio.to_thread(cluster.kill9, killed)
                await asyncio.to_thread(cluster.start, killed)
                await doubling
            going = False
        (status,) = await direct.admin.parts("orders")
        assert (status.parts, [split.parts for split in status.splits]) == (8, [2, 4])
        seen = defaultdict(list)
        for part, channel in enumerate(stan_client.part_names("orders", 8)):
            async for message in direct.read(channel):
                ends = [split for split in status.splits if part < split.parts]
                parts = next((split.parts for split in ends if message.sequence <= split.last[part]), 8)
                assert part_of(message.key, parts) == part
                seen[int(message.data)].append(channel)
        assert set(published) <= seen.keys(), "nothing is lost"
        assert sum(len(set(channels)) > 1 for channels in seen.values()) <= LANES * 3, "but what was published again"


async def test_one_subscription_of_all_parts_has_each_key_in_order_over_a_doubling(cluster) -> None:
    async with (
        Direct(cluster.url, cluster_id=cluster.cluster_id, timeout_s=60) as direct,
        await stan_client.connect(cluster.url, client_id="me", cluster_id=cluster.cluster_id) as client,
    ):
        await direct.admin.create_parts("orders", 2)
        for number in range(MESSAGES):
            if number == MESSAGES // 2:
                await direct.admin.double_parts("orders", 2)
            await client.publish("orders", b"%d" % number, key=f"k{number % KEYS}")
        begins = {"durable": "ledger", "start": stan_client.everything()}
        seen = defaultdict(list)
        async with await client.subscribe_parts("orders", **begins) as subscription:
            for _ in range(MESSAGES // 4):  # it goes on where it was
                message = await subscription.next(timeout_s=30)
                seen[message.key].append(int(message.data))
        async with await client.subscribe_parts("orders", **begins) as subscription:
            while sum(map(len, seen.values())) < MESSAGES:
                message = await subscription.next(timeout_s=30)
                number = int(message.data)
                assert number not in seen[message.key], "a durable has each message once"
                seen[message.key].append(number)
            assert sorted(subscription.parts) == [0, 1, 2, 3]
            await subscription.unsubscribe()
        assert {int(key[1:]): numbers for key, numbers in seen.items()} == {
            at: list(range(at, MESSAGES, KEYS)) for at in range(KEYS)
        }
        with pytest.raises(stan_client.ServerError, match="has no parts"):
            await client.subscribe_parts("sales")


LANES = 5
"""Messages that are under way at once."""


async def test_the_command_line_and_consumer_groups_read_all_parts(cluster) -> None:
    async with (
        Direct(cluster.url, cluster_id=cluster.cluster_id, timeout_s=60) as direct,
        await stan_client.connect(cluster.url, client_id="me", cluster_id=cluster.cluster_id) as client,
    ):
        await direct.admin.create_parts("orders", 3)
        for number in range(KEYS):
            await client.publish("orders", b"%d" % number, key=f"k{number}")
        flags = ("-s", cluster.url, "-c", cluster.cluster_id, "orders", "--from", "first", "--count", str(KEYS))
        code, told, complaint = await stan("sub", *flags)
        assert code == 0, complaint
        assert sorted(map(int, told.split())) == list(range(KEYS))
        code, told, complaint = await stan("sub", *flags[:-2], "--until-end", "--idle", "10")
        assert code == 0, complaint
        assert sorted(map(int, told.split())) == list(range(KEYS))
        seen = set()
        async with stan_client.GroupConsumer(direct, "orders.*", group="ledger") as consumer:
            async for batch in consumer:
                seen |= {int(message.data) for message in batch.messages()}
                await batch.commit()
                if len(seen) == KEYS:
                    break
