"""Channels whose acks mean that a majority has the message in memory, in a real cluster: how they are made, what survives."""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest
import stan_client
from stan_client import ServerError
from stan_protocol.ack_levels import AckLevel
from stan_protocol.admin_types import Commit, DeliveryPolicy

from stan.edge.storage.manifest import read_manifest, write_manifest
from tests.integration.test_cli_pubsub import stan
from tests.kit.fake_broker import eventually

PATIENCE_S = 120
SYNCED, REPLICATED = Commit.SYNCED, Commit.REPLICATED


async def grow(direct, groups):
    await direct.admin.grow_pool(groups, REPLICATED)

    async def opened():
        nodes = await direct.admin.nodes()
        return len(nodes.answers) == 3 and all(one.pool_open == groups for one in nodes.answers)

    await eventually(opened, PATIENCE_S)


async def publish(cluster, channels, count):
    async with await stan_client.connect(cluster.url, client_id="writer", cluster_id=cluster.cluster_id) as client:
        told = {}
        for number in range(count):
            for channel in channels:
                told[channel] = (await client.publish(channel, b"%d" % number)).acked_as
    return told


async def read(direct, channel, last, count=None):
    """The *count* newest messages of a channel, as many as *last* if none is told, once it has one with that sequence."""

    async def there():
        try:
            return (await direct.channels.info([channel]))[channel].last == last
        except (ServerError, TimeoutError):
            return False

    await eventually(there, PATIENCE_S)
    return [message.data for message in await direct.fetch(channel, start=stan_client.newest(count or last))]


def lose_power(cluster, names):
    """Killed, and then the directory says that it was last used in another boot of the machine."""
    cluster.kill9(*names)
    for name in names:
        directory = str(cluster.store(name))
        write_manifest(directory, replace(read_manifest(directory), boot_id="another"))


async def test_a_replicated_channel_is_made_by_policy_and_survives_kills_of_all_and_losses_of_power(cluster, direct):
    policy = DeliveryPolicy(commit=REPLICATED)
    await direct.admin.set_policy("fast.>", policy)
    await publish(cluster, ["fast.early"], 1)
    groups = cluster.groups
    await grow(direct, groups + 2)
    assert (await direct.admin.create_parts("fast.parted", 2)).changed == 2
    told = await publish(cluster, ["fast.a", "fast.b", "safe", "fast.early", "fast.parted"], 20)
    fast, safe = ("fast.a", "fast.b", "fast.parted"), ("safe", "fast.early")
    assert told == dict.fromkeys(fast, "replicated") | dict.fromkeys(safe, "synced")
    counted = Counter()
    for node in (await direct.admin.nodes()).answers:
        counted.update({acked.level: acked.messages for acked in node.acked})
    assert +counted == {AckLevel.SYNCED: 41, AckLevel.REPLICATED: 60}
    channels = {one.name: one for one in await direct.admin.channels()}
    assert {name: one.commit for name, one in channels.items()} == {
        "fast.a": REPLICATED,
        "fast.b": REPLICATED,
        "fast.parted.~0": REPLICATED,
        "fast.parted.~1": REPLICATED,
        "safe": SYNCED,
        "fast.early": SYNCED,  # there were no groups for it: it got more than was asked for, and stays what it is
    }
    assert all((one.group > groups) == (one.commit == REPLICATED) for one in channels.values())
    assert not any(one.channels_to_move for one in (await direct.admin.nodes()).answers)
    with pytest.raises(ServerError, match="is for channels with commit replicated"):
        await direct.admin.pin_channel("safe", groups + 1)
    with pytest.raises(ServerError, match="is for channels with commit synced"):
        await direct.admin.pin_channel("fast.a", 1)

    await asyncio.to_thread(cluster.kill9, *cluster.names)
    await asyncio.to_thread(cluster.start)
    for channel, count in (("fast.a", 20), ("fast.b", 20), ("safe", 20), ("fast.early", 21)):
        assert len(await read(direct, channel, count)) == count

    await asyncio.to_thread(lose_power, cluster, ["n2"])
    await asyncio.to_thread(cluster.start, "n2")
    assert "power was lost" in cluster.nodes["n2"].log()
    await publish(cluster, ["fast.a"], 20)

    await asyncio.to_thread(lose_power, cluster, cluster.names)
    await asyncio.to_thread(cluster.start)
    assert [int(data) for data in await read(direct, "fast.a", 40)] == [*range(20), *range(20)]
    await publish(cluster, ["fast.a", "fast.b", "safe", "fast.parted"], 1)
    parts = [message.data async for message in both(direct, ["fast.parted.~0", "fast.parted.~1"])]
    assert sorted(map(int, parts)) == sorted([*range(20), 0])


async def both(direct, channels):
    for channel in channels:
        async for message in direct.read(channel):
            yield message


async def test_a_channel_changes_what_its_acks_mean_only_while_it_is_empty(cluster, direct):
    await publish(cluster, ["safe"], 20)
    client = await stan_client.connect(cluster.url, client_id="reader", cluster_id=cluster.cluster_id)
    async with client, await client.subscribe("safe", durable="d") as subscription:
        await grow(direct, cluster.groups + 2)
        with pytest.raises(ServerError, match='"safe" has messages, acked as synced: purge it first'):
            await direct.admin.change_commit("safe", REPLICATED)
        with pytest.raises(ServerError, match='commit: channel "safe" is there and synced'):
            await direct.admin.set_policy("safe", DeliveryPolicy(commit=REPLICATED))
        await direct.admin.purge("safe", keep=0)
        code, told, complaints = await stan("channel", "commit", "safe", "replicated", "--yes", "-s", cluster.url)
        assert (code, b"is replicated" in told) == (0, True), complaints
        await publish(cluster, ["safe"], 1)
        assert (await subscription.next(timeout_s=60)).sequence == 21
        await asyncio.to_thread(cluster.kill9, *cluster.names)
        await asyncio.to_thread(cluster.start)
        assert len(await read(direct, "safe", 21, 1)) == 1
