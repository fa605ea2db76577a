"""A real cluster of three whose pool of groups grows under load, and whose channels move to the new groups, while leaders are
killed: nothing lost, order kept.

`STAN_PUBLISH_WAIT_MAX=3` in the environment has the longest wait of a publish judged, in seconds; it is told in any case.
"""

import asyncio
import contextlib
import json
import os
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
from tests.kit.fake_broker import eventually
from tests.kit.server import NatsServer

MORE = 16
LOOKS = 30
LATER = 24
PATIENCE_S = 90.0
MOVES_PATIENCE_S = 240.0  # those that were cancelled are begun anew after 10, 20, 40 and 60 s
PUBLISH_WAIT_MAX = float(os.environ.get("STAN_PUBLISH_WAIT_MAX", "inf"))


def goes(name):
    """Whether a channel moves when 8 groups become 16."""
    return channel_group(name.encode(), GROUPS) != channel_group(name.encode(), MORE)


UNDER_LOAD = (*[name for name in map("load{}".format, range(99)) if goes(name)][:2], "stays-where-it-is")
OLD = [f"old{at}" for at in range(24)]


@pytest.fixture
def cluster(tmp_path):
    with NatsServer(tmp_path) as nats, StanCluster(tmp_path, nats=nats) as cluster:
        yield cluster
    assert not list(disagreements(cluster))


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
    await eventually(lambda: opened(direct, groups, 3), PATIENCE_S)


async def make(cluster, names, pool):
    """Publish to channels that are not there; each is made in the group of its hash."""
    async with await stan_client.connect(cluster.url, client_id="maker", cluster_id=cluster.cluster_id) as client:
        for name in names:
            await client.publish(name, name.encode())
    async with Direct(cluster.url, cluster_id=cluster.cluster_id, timeout_s=60) as direct:
        where = await places(direct)
    assert {name: where[name] for name in names} == homes(names, pool)


async def places(direct):
    """The group of each channel."""
    return {channel.name: channel.group for channel in await direct.admin.channels()}


def homes(names, pool):
    """The group of each channel by the hash of its name."""
    return {name: channel_group(name.encode(), pool) for name in names}


@contextlib.asynccontextmanager
async def moves_watched(direct, load):
    """Channels under load that move; each is told to the load as a change of leaders is."""
    moved = {}

    async def watch():
        before = {}
        while True:
            with contextlib.suppress(stan_client.StanClientError):
                now = await places(direct)
                for name in [name for name in now if before.get(name, now[name]) != now[name]]:
                    moved[name] = moved.get(name, 0) + 1
                    load.note(f"{name} moves from group {before[name]} to group {now[name]}")
                    if name in UNDER_LOAD:
                        load.moved()
                before = now
            await asyncio.sleep(0.1)

    watching = asyncio.create_task(watch())
    try:
        yield moved
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def all_there(direct, pool):
    """Whether each channel is in the group of its hash, and nobody waits for more."""
    where = await places(direct)
    told = (await direct.admin.nodes()).answers
    return where == homes(where, pool) and not any(one.channels_to_move for one in told)


async def all_arrive(cluster, direct, pool):
    """Wait until each channel is in the group of its hash. If that fails, what the nodes say of the others."""
    try:
        await eventually(lambda: all_there(direct, pool), MOVES_PATIENCE_S)
    except TimeoutError:
        where = await places(direct)
        missing = {name: (where[name], group) for name, group in homes(where, pool).items() if where[name] != group}
        raise AssertionError(f"(group, where it belongs): {missing}\n{cluster.log()}") from None


def counted(cluster):
    """What each node's directory counts, and the number of the founding."""
    documents = [json.loads((cluster.store(name) / "stan.json").read_text()) for name in cluster.names]
    return [(document["nodes"].get("pool", 0), document["raft_groups"]) for document in documents]


@pytest.mark.timeout(10 * PATIENCE_S)
async def test_a_pool_grows_under_load_while_leaders_die(cluster) -> None:
    assert not goes(UNDER_LOAD[-1])
    await make(cluster, OLD, GROUPS)
    async with (
        Direct(cluster.url, cluster_id=cluster.cluster_id, timeout_s=60) as direct,
        Load(cluster, UNDER_LOAD, PATIENT) as load,
    ):
        async with elections_watched(cluster, load), moves_watched(direct, load) as moved:
            faults = Faults(cluster, load, chaos_dice())
            await load.acknowledged(100)
            assert (await direct.admin.grow_pool(MORE)).changed == MORE - GROUPS
            await eventually(lambda: asyncio.sleep(0, len(moved) >= 2), PATIENCE_S)
            cluster.groups = MORE  # by which the leader of a channel is found
            await faults.happen("kill_leader")
            await faults.happen("kill_leader_of_clients")
            await grown(direct, MORE)
            await all_arrive(cluster, direct, MORE)
            assert counted(cluster) == [(MORE, GROUPS)] * 3
            await load.acknowledged(100)
            waits = {lane.channel: f"{lane.longest_wait:.2f} s" for lane in load.lanes}
            print(f"{len(moved)} channels moved, longest waits of a publish meanwhile: {waits}")
            assert max(lane.longest_wait for lane in load.lanes) <= PUBLISH_WAIT_MAX
            assert moved.keys() <= set(filter(goes, [*OLD, *UNDER_LOAD])), "nobody else has moved"
            await make(cluster, [f"new{at}" for at in range(40)], MORE)
            await faults.happen("kill_all")  # the new groups come back, and what is in them
            await grown(direct, MORE)
            assert (await direct.admin.grow_pool(LATER)).changed == LATER - MORE
            await faults.happen("restart_leader")
            await grown(direct, LATER)
            await all_arrive(cluster, direct, LATER)
            await load.acknowledged(100)
            await load.finish()
        found = load.violations()
        if found:
            load.write_down(cluster.directory / "seen.txt")
        assert not found, cluster.directory
        names = [*OLD, *(f"new{at}" for at in range(40))]
        assert {name: info.last for name, info in (await direct.channels.info(names)).items()} == dict.fromkeys(
            names, 1
        )


@pytest.mark.timeout(4 * PATIENCE_S)
async def test_a_node_that_was_away_or_has_an_empty_disk_finds_the_new_groups(cluster) -> None:
    async with Direct(cluster.url, cluster_id=cluster.cluster_id, timeout_s=60) as direct:
        await direct.admin.grow_pool(MORE)
        await asyncio.to_thread(cluster.kill9, "n3")
        await make_when_grown(cluster, direct)
        await asyncio.to_thread(cluster.wipe, "n3")
        await asyncio.to_thread(cluster.start, "n3")  # with the number of the founding, as it was started before
        await grown(direct, MORE)
        assert counted(cluster) == [(MORE, GROUPS)] * 3
        await eventually(lambda: held(direct, "n3", MORE), PATIENCE_S)
        looks = count()
        await eventually(lambda: asyncio.to_thread(whole_again, cluster, "n3", looks), PATIENCE_S)
        await asyncio.to_thread(cluster.kill9, "n1")  # n3 is needed for each majority
        async with await stan_client.connect(cluster.url, client_id="again", cluster_id=cluster.cluster_id) as client:
            for at in range(20):
                await client.publish(f"new{at}", b"again")
        await asyncio.to_thread(cluster.start, "n1")
        assert {info.last for info in (await direct.channels.info([f"new{at}" for at in range(20)])).values()} == {2}


async def make_when_grown(cluster, direct):
    """Once the two nodes that are left have opened the pool, make channels."""
    await eventually(lambda: opened(direct, MORE), PATIENCE_S)
    await make(cluster, [f"new{at}" for at in range(20)], MORE)
