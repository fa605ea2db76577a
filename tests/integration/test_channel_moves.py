"""A channel moves between groups of a real cluster while clients publish and read, and leaders are killed meanwhile."""

import asyncio
from collections import defaultdict
from functools import partial

import stan_client
from stan_client import StanClientError
from stan_client.positions import everything

from tests.kit.fake_broker import eventually

WRITERS, TOGETHER = 3, 10
PATIENCE_S = 60


class Load:
    """Writers that publish numbers, several at a time, and a durable that reads them."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.acked = defaultdict(list)  # writer -> numbers, in the order in which they were published
        self.received = defaultdict(list)  # writer -> numbers, as they came first
        self.seen = set()
        self.stopped = False

    async def write(self, name):
        client = await stan_client.connect(self.cluster.url, client_id=name, cluster_id=self.cluster.cluster_id)
        number = 0
        while not self.stopped:
            numbers = range(number, number + TOGETHER)
            outcomes = await asyncio.gather(
                *(client.publish("orders", f"{name} {one}".encode(), timeout_s=PATIENCE_S) for one in numbers),
                return_exceptions=True,
            )
            for one, outcome in zip(numbers, outcomes, strict=True):
                if not isinstance(outcome, BaseException):
                    self.acked[name].append(one)
                elif not isinstance(outcome, StanClientError):
                    raise outcome
            number += TOGETHER
        await client.close()

    def take(self, message):
        if message.sequence not in self.seen:
            self.seen.add(message.sequence)
            name, number = message.data.decode().split()
            self.received[name].append(int(number))

    def has_more_than(self, count):
        return len(self.seen) > count

    def is_complete(self):
        return all(set(numbers) <= set(self.received[name]) for name, numbers in self.acked.items())


async def where(direct):
    """Its group; 0 in the moment in which it is nobody's."""
    channels = await direct.admin.channels()
    if not channels:
        return 0
    (channel,) = channels
    return channel.group


async def moved(direct, group):
    async def there():
        return await where(direct) == group

    await eventually(there)


async def test_a_loaded_channel_moves_while_leaders_are_killed(cluster, direct) -> None:
    load = Load(cluster)
    reader = await stan_client.connect(cluster.url, client_id="reader", cluster_id=cluster.cluster_id)
    await reader.subscribe("orders", load.take, durable="all", start=everything(), ack_wait_s=2)
    writers = [asyncio.create_task(load.write(f"writer{number}")) for number in range(WRITERS)]
    home = cluster.group_of("orders")
    groups = [group for group in range(1, cluster.groups + 1) if group != home]
    await eventually(lambda: len(load.seen) >= 100)
    await direct.admin.pin_channel("orders", groups[0])
    await moved(direct, groups[0])
    for group, leads in zip(groups[1:], (await where(direct), groups[1], 0), strict=False):
        before = len(load.seen)
        killed = await asyncio.to_thread(cluster.leader, leads)
        await direct.admin.pin_channel("orders", group)
        await asyncio.to_thread(cluster.kill9, killed)
        await asyncio.to_thread(cluster.start, killed)
        await moved(direct, group)
        await eventually(partial(load.has_more_than, before))
    load.stopped = True
    await asyncio.gather(*writers)
    await eventually(load.is_complete)
    for name, numbers in load.acked.items():
        got = [number for number in load.received[name] if number in set(numbers)]
        assert got == numbers, f"{name}: in order, none twice"
        assert len(set(load.received[name])) == len(load.received[name])
    await reader.close()
