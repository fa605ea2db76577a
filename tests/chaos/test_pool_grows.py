"""A real cluster of three whose pool of groups grows under load, while leaders are killed: nothing lost, order kept."""

import asyncio
import json
import re
from itertools import count

import pytest
import stan_client
from stan_client.reading.direct import Direct

from stan.protocol.placement import channel_group
from tests.chaos.faults import Faults, elections_watched
from tests.chaos.load import Load
from tests.chaos.replicas import disagreements
from tests.chaos.seeds import chaos_dice
from tests.chaos.test_cluster_faults import PATIENT
from tests.kit.cluster import GROUPS, StanCluster
from tests.kit.server import NatsServer

MORE = 16
LOOKS = 30
LATER = 24
PATIENCE_S = 90.0


@pytest.fixture
def cluster(tmp_path):
    with NatsServer(tmp_path) as nats, StanCluster(tmp_path, nats=nats) as cluster:
        yield cluster
    assert not list(disagreements(cluster))


async def until_true(condition):
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if await condition():
                return
            await asyncio.sleep(0.2)


async def opened(direct, groups, nodes=1):
    """Whether names are hashed over so many groups on the nodes that are there, and all of these groups have leaders."""
    told = (await direct.admin.nodes(patience_s=2)).answers
    led = {group.group for one in told for group in one.groups if group.role == "leader"}
    return len(told) >= nodes and all(one.pool_open == groups for one in told) and led == set(range(groups + 1))


async def held(direct, name, groups):
    """Whether a node has a vote in so many groups."""
    told = {one.node: one for one in (await direct.admin.nodes()).answers}
    roles = {group.group: group.role for group in told[name].groups} if name in told else {}
    return roles.keys() == set(range(groups + 1)) and "observer" not in roles.values()


def whole_again(cluster, name, looks):
    """Whether a node whose disk was emptied has got the new groups, too. It looks for groups that are not whole a moment after it
    has begun them, and says nothing of those that are by then: so several looks are needed if it says nothing at all."""
    said = re.findall(r"group (\d+): is whole again", cluster.nodes[name].log_since_start())
    looked = any(int(group) > GROUPS for group in said) or next(looks) > LOOKS
    return cluster.whole(name) and looked


async def grown(direct, groups):
    await until_true(lambda: opened(direct, groups, 3))


async def make(cluster, names, pool):
    """Publish to channels that are not there; each is made in the group of its hash."""
    async with await stan_client.connect(cluster.cluster_id, "maker", servers=cluster.url) as client:
        for name in names:
            await client.publish(name, name.encode())
    async with Direct(cluster.url, cluster.cluster_id, timeout_s=60) as direct:
        where = {channel.name.decode(): channel.group for channel in await direct.admin.channels()}
    assert {name: where[name] for name in names} == {name: channel_group(name.encode(), pool) for name in names}
    return where


def counted(cluster):
    """What each node's directory counts, and the number of the founding."""
    documents = [json.loads((cluster.store(name) / "stan.json").read_text()) for name in cluster.names]
    return [(document["nodes"].get("pool", 0), document["raft_groups"]) for document in documents]


@pytest.mark.timeout(6 * PATIENCE_S)
async def test_a_pool_grows_under_load_while_leaders_die(cluster) -> None:
    before = [f"old{at}" for at in range(6)]
    homes = await make(cluster, before, GROUPS)
    async with (
        Direct(cluster.url, cluster.cluster_id, timeout_s=60) as direct,
        Load(cluster, ("a", "b"), PATIENT) as load,
    ):
        async with elections_watched(cluster, load):
            faults = Faults(cluster, load, chaos_dice())
            await load.acknowledged(100)
            assert (await direct.admin.grow_pool(MORE)).changed == MORE - GROUPS
            await faults.happen("kill_leader")
            await faults.happen("kill_leader_of_clients")
            await grown(direct, MORE)
            assert counted(cluster) == [(MORE, GROUPS)] * 3
            await load.acknowledged(100)
            print({lane.channel: f"longest wait while it grew {lane.longest_gap:.2f} s" for lane in load.lanes})
            made = await make(cluster, [f"new{at}" for at in range(40)], MORE)
            assert {made[name] for name in before} <= set(range(1, GROUPS + 1))
            assert {name: made[name] for name in before} == {name: homes[name] for name in before}
            assert any(group > GROUPS for group in made.values())
            await faults.happen("kill_all")  # the new groups come back, and what is in them
            await grown(direct, MORE)
            assert (await direct.admin.grow_pool(LATER)).changed == LATER - MORE
            await faults.happen("restart_leader")
            await grown(direct, LATER)
            await load.acknowledged(100)
            await load.finish()
        new = [f"new{at}" for at in range(40)]
        assert {name: info.last for name, info in (await direct.info(new)).items()} == dict.fromkeys(new, 1)


@pytest.mark.timeout(4 * PATIENCE_S)
async def test_a_node_that_was_away_or_has_an_empty_disk_finds_the_new_groups(cluster) -> None:
    async with Direct(cluster.url, cluster.cluster_id, timeout_s=60) as direct:
        await direct.admin.grow_pool(MORE)
        await asyncio.to_thread(cluster.kill9, "n3")
        await make_when_grown(cluster, direct)
        await asyncio.to_thread(cluster.wipe, "n3")
        await asyncio.to_thread(cluster.start, "n3")  # with the number of the founding, as it was started before
        await grown(direct, MORE)
        assert counted(cluster) == [(MORE, GROUPS)] * 3
        await until_true(lambda: held(direct, "n3", MORE))
        looks = count()
        await until_true(lambda: asyncio.to_thread(whole_again, cluster, "n3", looks))
        await asyncio.to_thread(cluster.kill9, "n1")  # n3 is needed for each majority
        async with await stan_client.connect(cluster.cluster_id, "again", servers=cluster.url) as client:
            for at in range(20):
                await client.publish(f"new{at}", b"again")
        await asyncio.to_thread(cluster.start, "n1")
        assert {info.last for info in (await direct.info([f"new{at}" for at in range(20)])).values()} == {2}


async def make_when_grown(cluster, direct):
    """Once the two nodes that are left have opened the pool, make channels."""
    await until_true(lambda: opened(direct, MORE))
    await make(cluster, [f"new{at}" for at in range(20)], MORE)
