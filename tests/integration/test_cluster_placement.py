"""Where things are in a real cluster: copies by the labels of nodes, channels by their pins; leaders are killed meanwhile."""

import asyncio

import pytest
import stan_client
from stan_client import ServerError

from stan.labels import places_of
from tests.kit.cluster import StanCluster
from tests.kit.server import NatsServer

ZONES = {"n1": "east", "n2": "east", "n3": "west"}
PATIENCE_S = 60


@pytest.fixture
def cluster(tmp_path):
    labels = {name: ("-cluster_labels", f"zone={zone},host={name}") for name, zone in ZONES.items()}
    with (
        NatsServer(tmp_path) as nats,
        StanCluster(tmp_path, "--replicas", "2", nats=nats, own_flags=labels) as cluster,
    ):
        yield cluster


async def voters(direct):
    """Voters of each group, as its leader tells."""
    nodes = await direct.admin.nodes()
    return {
        group.group: set(group.voters) for one in nodes.answers for group in one.groups if group.role == "leader"
    }, nodes


async def test_each_group_has_a_copy_in_each_zone_also_after_a_kill_and_a_restart(cluster, direct) -> None:
    client = await stan_client.connect(cluster.url, client_id="me", cluster_id=cluster.cluster_id)
    for number in range(20):
        await client.publish(f"c{number % 7}", b"%d" % number)

    async def spread():
        async with asyncio.timeout(PATIENCE_S):
            while True:
                found, nodes = await voters(direct)
                apart = [
                    {ZONES[name] for name in kept} == {"east", "west"} and len(kept) == 2 for kept in found.values()
                ]
                if len(found) == cluster.groups + 1 and all(apart):
                    return nodes
                await asyncio.sleep(0.2)

    nodes = await spread()
    assert {one.node: one.labels for one in nodes.answers} == {
        name: f"zone={zone},host={name}" for name, zone in ZONES.items()
    }
    assert {name: labels.zone for name, labels in places_of(nodes.answers[0].places).items()} == ZONES
    await asyncio.to_thread(cluster.kill9, "n1")
    await asyncio.to_thread(cluster.start, "n1")
    await spread()
    assert sum(info.last for info in (await direct.channels.info()).values()) == 20
    await client.close()


async def test_a_pinned_channel_is_made_in_its_group_and_stays_there(cluster, direct) -> None:
    there = cluster.group_of("orders") % cluster.groups + 1
    assert (await direct.admin.pin_channel("orders", there)).changed == 1
    killed = await asyncio.to_thread(cluster.leader, 0)
    await asyncio.to_thread(cluster.kill9, killed)
    await asyncio.to_thread(cluster.start, killed)
    client = await stan_client.connect(cluster.url, client_id="me", cluster_id=cluster.cluster_id)
    await client.publish("orders", b"x")
    (channel,) = await direct.admin.channels()
    assert (channel.name, channel.group, channel.pinned) == ("orders", there, True)
    (pin,) = await direct.admin.pins()
    assert (pin.channel, pin.group, pin.exists) == ("orders", there, True)
    assert (await direct.admin.unpin_channel("orders")).changed == 1
    with pytest.raises(ServerError, match="there is no group 99"):
        await direct.admin.pin_channel("orders", 99)
    await client.publish("orders", b"y")
    assert (await direct.channels.info())["orders"].last == 2
    await client.close()
