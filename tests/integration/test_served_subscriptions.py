"""Plain subscriptions in a real cluster that other nodes than the leader serve: nothing is missed when any of them is killed."""

import asyncio

import stan_client
from stan_client.reading.direct import Direct
from stan_protocol.admin_types import DeliveryPolicy

from tests.kit.fake_broker import eventually
from tests.kit.server import StanServer

CHANNEL = "orders"
READERS = 6
PATIENCE_S = 60
MESSAGES = 300


class Reader:
    """A plain subscription and what has come."""

    def __init__(self, client):
        self.client = client
        self.came = []

    def take(self, message):
        if not message.redelivered:
            assert not self.came or message.sequence > max(self.came)
        self.came.append(message.sequence)


async def reader(cluster, name, wish="any"):
    options = {"connect_timeout_s": 1, "ping_max_out": 30}
    made = Reader(await stan_client.connect(cluster.url, client_id=name, cluster_id=cluster.cluster_id, **options))
    await made.client.subscribe(CHANNEL, made.take, replica=wish, ack_wait_s=2)
    return made


async def servers(direct):
    """The node that serves each client's subscription."""
    found = await direct.admin.subscriptions(CHANNEL)
    return {one.members[0].client_id: one.served_by for one in found if one.members}


async def until(direct, met):
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if met(found := await servers(direct)):
                return found
            await asyncio.sleep(0.1)


async def complete(readers, last):
    await eventually(lambda: all(len(set(one.came)) >= last for one in readers), PATIENCE_S)
    for one in readers:
        assert set(one.came) == set(range(1, last + 1))


async def test_nothing_is_missed_when_the_serving_node_and_the_leader_are_killed(cluster) -> None:
    options = {"connect_timeout_s": 1, "ack_timeout_s": 30, "ping_max_out": 30}
    writer = await stan_client.connect(cluster.url, client_id="writer", cluster_id=cluster.cluster_id, **options)
    async with Direct(cluster.url, cluster_id=cluster.cluster_id, timeout_s=60) as direct:
        readers = [await reader(cluster, f"r{number}") for number in range(READERS)]
        leader = await asyncio.to_thread(cluster.leader_of, CHANNEL)
        found = await until(direct, lambda found: len(found) == READERS and leader not in found.values())
        assert set(found.values()) == set(cluster.names) - {leader}

        async def publish(count):
            for _ in range(count):
                await writer.publish(CHANNEL, b"x")

        await publish(MESSAGES)
        await complete(readers, MESSAGES)

        killed = found["r0"]
        publishing = asyncio.create_task(publish(MESSAGES))
        await asyncio.to_thread(cluster.kill9, killed)
        await publishing
        await complete(readers, 2 * MESSAGES)
        await until(direct, lambda found: killed not in found.values())
        await asyncio.to_thread(cluster.start, killed)

        leader = await asyncio.to_thread(cluster.leader_of, CHANNEL)
        publishing = asyncio.create_task(publish(MESSAGES))
        await asyncio.to_thread(cluster.kill9, leader)
        await publishing
        await complete(readers, 3 * MESSAGES)
        await asyncio.to_thread(cluster.start, leader)
        for one in readers:
            await one.client.close()
        await until(direct, lambda found: not found)
    await writer.close()


async def test_a_read_replica_goes_first_and_policies_make_old_clients_use_it(cluster, tmp_path) -> None:
    home = tmp_path / "far"
    home.mkdir()
    flags = ("-clustered", "-cluster_node_id", "far", "-replica", "-join", "-cluster_labels", "zone=west")
    with StanServer(home, *flags, nats_url=cluster.url):
        async with Direct(cluster.url, cluster_id=cluster.cluster_id, timeout_s=60) as direct:
            readers = [await reader(cluster, "by-zone", "zone=west"), await reader(cluster, "by-name", "far")]
            await until(direct, lambda found: set(found.values()) == {"far"})  # once its copy is there
            for name, wish in (("any", "any"), ("nobody", "zone=east"), ("leader", "")):
                readers.append(await reader(cluster, name, wish))
            far = {"by-zone", "by-name", "any"}
            leader = await asyncio.to_thread(cluster.leader_of, CHANNEL)
            found = await until(direct, lambda found: far == {name for name, node in found.items() if node == "far"})
            assert {found["nobody"], found["leader"]} == {leader}

            await direct.admin.set_policy(CHANNEL, DeliveryPolicy(from_replica=True))
            readers.append(await reader(cluster, "old", ""))
            await until(direct, lambda found: found.get("old") == "far")
            await readers[0].client.publish(CHANNEL, b"x")
            await complete(readers, 1)
            for one in readers:
                await one.client.close()
            await until(direct, lambda found: not found)
