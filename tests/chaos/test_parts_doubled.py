"""A real cluster of three in which the parts of a channel are doubled twice under load, while leaders are killed: nothing that
was acknowledged is lost, and who has one key, or none and publishes as clients of 2016 do, finds his messages in order, where
they are stored and where they are delivered.
"""

import asyncio
import time
from collections import defaultdict

import pytest
import stan_client
from stan_client.reading.direct import Direct
from stan_protocol.parted import part_of

from tests.chaos.parts import PATIENCE_S, double, part_then, status
from tests.chaos.replicas import disagreements
from tests.chaos.seeds import chaos_dice
from tests.kit.cluster import StanCluster
from tests.kit.fake_broker import eventually
from tests.kit.server import NatsServer

CHANNEL = "orders"
PARTS = 2
KEYED, OLD = 12, 6
"""Publishers: with a key each, and without."""
ACKS = 60
"""Of all publishers together, before the load is said to flow."""
DOWN_S = (0.0, 1.5)
INTO_THE_DOUBLING_S = (0.0, 1.6)
ACK_TIMEOUT_S = 6


@pytest.fixture
def cluster(tmp_path):
    with NatsServer(tmp_path) as nats, StanCluster(tmp_path, nats=nats) as cluster:
        yield cluster
    assert not list(disagreements(cluster))


class Publishers:
    """They publish one message after the other, each until it is acknowledged."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.acked = defaultdict(set)  # publisher -> numbers
        self.waits = []  # seconds of those that were acknowledged at the first attempt
        self.again = 0
        self.going = True

    async def publish(self, name, **key):
        async with await stan_client.connect(
            self.cluster.url,
            client_id=name,
            cluster_id=self.cluster.cluster_id,
            connect_timeout_s=20,
            ack_timeout_s=ACK_TIMEOUT_S,
        ) as client:
            number = attempt = 0
            while self.going:
                begun = time.monotonic()
                try:
                    await client.publish(CHANNEL, f"{name} {number}".encode(), **key)
                except (stan_client.PublishAckTimeoutError, stan_client.ServerError):
                    self.again += 1
                    attempt += 1
                    continue
                if not attempt:
                    self.waits.append(time.monotonic() - begun)
                self.acked[name].add(number)
                number, attempt = number + 1, 0

    @property
    def count(self):
        return sum(map(len, self.acked.values()))

    async def flow(self, more=ACKS):
        wanted = self.count + more
        await eventually(lambda: self.count >= wanted, PATIENCE_S)


async def kill(cluster, dice, group):
    """SIGKILL of the node that leads a group, and a new process a little later."""
    await asyncio.sleep(dice.uniform(*INTO_THE_DOUBLING_S))
    name = await asyncio.to_thread(cluster.leader, group)
    await asyncio.to_thread(cluster.kill9, name)
    await asyncio.sleep(dice.uniform(*DOWN_S))
    await asyncio.to_thread(cluster.start, name)


async def stored(direct, found):
    """Numbers of each publisher's messages, in the order of the log: first those of the old parts, then those of the new ones."""
    of_publisher = defaultdict(list)  # publisher -> (how many parts there were, sequence, number, part)
    for part, channel in enumerate(stan_client.part_names(CHANNEL, found.parts)):
        async for message in direct.read(channel):
            name, number = message.data.decode().split()
            parts = part_then(found, part, message.sequence)
            assert part_of(message.key or name.encode(), parts) == part, f"{message.data} at {channel}"
            of_publisher[name].append((parts, message.sequence, int(number), part))
    return {name: sorted(found) for name, found in of_publisher.items()}


def first_times(numbers):
    """Without repeats: the publisher has not heard of the first one."""
    return list(dict.fromkeys(numbers))


@pytest.mark.timeout(5 * PATIENCE_S)
async def test_parts_are_doubled_twice_under_load_while_leaders_are_killed(cluster) -> None:
    dice, delivered = chaos_dice(), defaultdict(list)

    async def take(message):
        name, number = message.data.decode().split()
        delivered[name].append(int(number))

    async with (
        Direct(cluster.url, cluster_id=cluster.cluster_id, timeout_s=10) as direct,
        await stan_client.connect(
            cluster.url, client_id="reader", cluster_id=cluster.cluster_id, connect_timeout_s=20
        ) as reader,
    ):
        await direct.admin.create_parts(CHANNEL, PARTS)
        where = {one.name: one.group for one in await direct.admin.channels(f"{CHANNEL}.*")}
        await reader.subscribe_parts(CHANNEL, take, durable="ledger", start=stan_client.everything())
        publishers = Publishers(cluster)
        async with asyncio.TaskGroup() as tasks:
            for number in range(KEYED):
                tasks.create_task(publishers.publish(f"keyed{number}", key=f"key {number}"))
            for number in range(OLD):
                tasks.create_task(publishers.publish(f"old{number}"))
            for parts in (PARTS, 2 * PARTS):
                await publishers.flow()
                doubling = tasks.create_task(double(direct, CHANNEL, parts))
                for group in (dice.choice(sorted(where.values())), 0):
                    await kill(cluster, dice, group)
                    await publishers.flow()
                await doubling
            await publishers.flow()
            publishers.going = False
        found = await status(direct, CHANNEL)
        assert [(split.parts, len(split.last)) for split in found.splits] == [(2, 2), (4, 4)], "each is closed once"
        by_name = await stored(direct, found)
        print(
            f"{publishers.count} acknowledged, {publishers.again} published again; longest wait of one that was not: "
            f"{max(publishers.waits):.2f} s; parts in the end: {found.parts}"
        )
        for name, numbers in publishers.acked.items():
            log = first_times(number for _, _, number, _ in by_name[name])
            assert numbers <= set(log), f"{name}: nothing that was acknowledged is lost"
            assert log == sorted(log), f"{name}: in order where it is stored"
        await eventually(
            lambda: all(set(delivered[name]) >= numbers for name, numbers in publishers.acked.items()), PATIENCE_S
        )
        for name, numbers in delivered.items():
            assert first_times(numbers) == sorted(set(numbers)), f"{name}: in order where it is delivered"
