"""A real cluster of three with a channel of parts, read by a key-ordered queue group over all of them: members die every second,
one message in twenty fails, the parts are doubled and the node that leads one of them is killed. No key comes out of order or to
two members, and all that is stored is handled.
"""

import asyncio
import contextlib
import os
import random

import pytest
import stan_client
from stan_client.reading.direct import Direct
from stan_protocol.admin_types import DeliveryPolicy
from stan_protocol.channels import whole_and_part

from tests.chaos.parts import PATIENCE_S, double, part_then
from tests.chaos.replicas import disagreements
from tests.chaos.seeds import chaos_dice
from tests.kit.cluster import StanCluster
from tests.kit.fake_broker import eventually
from tests.kit.key_order import KeyedWork
from tests.kit.killable_client import KillableClient
from tests.kit.server import NatsServer

CHANNEL = "orders"
PARTS = 2
KEYS = 10_000
MEMBERS = 8
SECONDS = int(os.environ.get("STAN_PART_CHURN_SECONDS", "20"))
BURST = 50
PAUSE_S = 0.05
DOUBLED_AT, LEADER_KILLED_AT = 0.3, 0.6
"""Shares of the time."""
QUICKLY_GONE = ("-hb_interval", "100ms", "-hb_timeout", "200ms", "-hb_fail_count", "4")


@pytest.fixture
def cluster(tmp_path):
    with NatsServer(tmp_path) as nats, StanCluster(tmp_path, *QUICKLY_GONE, nats=nats) as cluster:
        yield cluster
    assert not list(disagreements(cluster))


class Members:
    """Those that live, each in all parts."""

    def __init__(self, cluster, dice):
        self.cluster = cluster
        self.work = KeyedWork(
            dice, asyncio.get_running_loop().call_later, lambda message: (message.channel, message.sequence)
        )
        self.kills = 0
        self._dice = dice
        self._living = []

    async def add(self):
        member = KillableClient(f"member{self.kills + len(self._living)}")
        client = await member.connect(self.cluster.url, self.cluster.cluster_id)
        self._living.append(member)
        handle = self.work.joins(member.name)
        await client.subscribe_parts(
            CHANNEL,
            handle,
            queue="q",
            durable="d",
            start=stan_client.everything(),
            manual_acks=True,
            ack_wait_s=2,
            max_in_flight=100,
        )

    def kill(self):
        member = self._living.pop(self._dice.randrange(len(self._living)))
        self.work.dies(member.name)
        member.kill()
        self.kills += 1

    async def end(self):
        for member in self._living:
            await member.end()


async def publish(cluster, dice, going):
    """Messages of many keys, until *going* is done. What has no answer is left."""
    async with await stan_client.connect(
        cluster.url, client_id="publisher", cluster_id=cluster.cluster_id, connect_timeout_s=20, ack_timeout_s=5
    ) as publisher:
        while not going.done():
            burst = [stan_client.NewMessage(b"x", key=b"key %d" % dice.randrange(KEYS)) for _ in range(BURST)]
            with contextlib.suppress(stan_client.PublishManyError):
                await publisher.publish_many(CHANNEL, burst)
            await asyncio.sleep(PAUSE_S)


async def stored(direct, parts):
    """(channel, sequence) of all messages."""
    return {
        (channel, message.sequence)
        for channel in stan_client.part_names(CHANNEL, parts)
        async for message in direct.read(channel)
    }


@pytest.mark.timeout(4 * PATIENCE_S)
async def test_order_by_key_outlives_members_a_doubling_and_a_leader(cluster) -> None:
    dice = random.Random(chaos_dice().random())
    async with Direct(cluster.url, cluster_id=cluster.cluster_id, timeout_s=10) as direct:
        await direct.admin.create_parts(CHANNEL, PARTS)
        await direct.admin.set_policy(CHANNEL, DeliveryPolicy(ordered_by_key=True))
        where = [one.group for one in await direct.admin.channels(f"{CHANNEL}.*")]
        members = Members(cluster, dice)
        for _ in range(MEMBERS):
            await members.add()
        async with asyncio.TaskGroup() as tasks:
            publishing = tasks.create_task(asyncio.sleep(SECONDS))
            tasks.create_task(publish(cluster, dice, publishing))
            for second in range(1, SECONDS):
                await asyncio.sleep(1)
                members.kill()
                await members.add()
                if second == int(SECONDS * DOUBLED_AT):
                    doubling = tasks.create_task(double(direct, CHANNEL, PARTS))
                if second == int(SECONDS * LEADER_KILLED_AT):
                    name = await asyncio.to_thread(cluster.leader, dice.choice(where))
                    await asyncio.to_thread(cluster.kill9, name)
                    await asyncio.to_thread(cluster.start, name)
        found = await doubling
        everything = await stored(direct, found.parts)
        await eventually(lambda: members.work.acked >= everything, PATIENCE_S)
        await members.end()

    def divided(place):
        """Of how many parts a message was divided, and its sequence."""
        channel, sequence = place
        _, number = whole_and_part(channel.encode())
        return part_then(found, number, sequence), sequence

    wrong = list(members.work.complaints(divided))
    assert not wrong, f"{len(wrong)}: {wrong[:5]}"
    print(f"{len(everything)} messages in {found.parts} parts, {members.kills} members killed")
    assert {parts for parts, _ in map(divided, everything)} == {PARTS, 2 * PARTS}
