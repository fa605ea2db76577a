"""A real cluster of three under load: one fault after the other, each with its own test, judged by what the clients saw."""

import asyncio
import contextlib
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.chaos.faults import Faults, elections_watched
from tests.chaos.load import LASTING_KINDS, Load, Pace
from tests.chaos.replicas import disagreements
from tests.chaos.seeds import chaos_dice
from tests.kit.cluster import StanCluster, names_of
from tests.kit.network import Network, why_not
from tests.kit.server import NatsServer

PATIENT = Pace(writers=2, burst=8, pause_s=0.01, ack_wait_s=2, ack_timeout_s=30, kinds=LASTING_KINDS)
IMPATIENT = Pace(writers=2, burst=8, pause_s=0.01, ack_wait_s=2, ack_timeout_s=2, kinds=LASTING_KINDS)
"""For faults in which publishes get lost: a client that waits half a minute for each would only make the test long."""

DISK_BYTES = 48 << 20
FREE_BYTES = 256 << 10


@contextlib.contextmanager
def small_disk(directory: Path) -> Iterator[None]:
    """A file system of its own in *directory*, which has little room."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("a small disk needs root and mount, to make a file system in memory")
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(directory)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"a small disk needs a file system in memory: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """The nats-server of the module's cluster."""
    with NatsServer(tmp_path_factory.mktemp("nats")) as nats:
        yield nats


@pytest.fixture(scope="module")
def one_cluster(tmp_path_factory: pytest.TempPathFactory, nats: NatsServer) -> Iterator[StanCluster]:
    """One cluster for many tests: starting it takes longer than most of them."""
    with StanCluster(tmp_path_factory.mktemp("cluster"), "-mc", "0", nats=nats) as cluster:
        yield cluster
    assert not list(disagreements(cluster))


@pytest.fixture
def cluster(one_cluster: StanCluster) -> StanCluster:
    """It, with all nodes running, whatever the test before has left."""
    one_cluster.cont(*one_cluster.frozen)
    if one_cluster.down:
        one_cluster.start(*one_cluster.down)
    return one_cluster


@contextlib.asynccontextmanager
async def loaded(
    cluster: StanCluster, channel: str, pace: Pace = PATIENT, **means
) -> AsyncIterator[tuple[Load, Faults]]:
    """Load on a channel and the faults; at the end all promises were kept."""
    async with Load(cluster, (channel,), pace) as load:
        async with elections_watched(cluster, load) as elections:
            await load.acknowledged(100)
            yield load, Faults(cluster, load, chaos_dice(), **means)
            await load.acknowledged(100)
            await load.finish()
        print(elections)
    found = load.violations() + load.unexplained_repeats()
    if found:
        load.write_down(cluster.directory / "seen.txt")
    assert not found, cluster.directory


# --- processes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["kill_leader", "kill_leader_of_clients", "kill_follower"])
async def test_killed_node_costs_no_publish(cluster, fault):
    """The leader of the channel, the leader that clients connect to, a follower: the rest goes on, every publish is acked."""
    async with loaded(cluster, fault) as (load, faults):
        await faults.happen(fault)
    (lane,) = load.lanes
    assert not lane.errors
    assert lane.history.acked == lane.history.published


async def test_all_nodes_killed_at_once_lose_nothing_that_was_acked(cluster):
    async with loaded(cluster, "kill_all", IMPATIENT) as (_, faults):
        await faults.happen("kill_all")


async def test_leader_that_was_frozen_for_three_seconds_does_no_harm(cluster):
    """The others elect another one; when it wakes up it believes that it leads, and must find out before it acts."""
    async with loaded(cluster, "freeze_leader") as (load, _):
        old = cluster.leader_of("freeze_leader")
        async with load.fault():
            cluster.stop(old)
            assert await asyncio.to_thread(cluster.leader_of, "freeze_leader") != old
            await load.acknowledged(100)
            await asyncio.sleep(3)
            cluster.cont(old)
    assert not load.lanes[0].errors


async def test_nodes_restarted_in_turn_cost_nothing(cluster):
    """SIGTERM hands over what a node leads: publishing goes on, without an error."""
    async with loaded(cluster, "restart_in_turn") as (load, faults):
        await faults.happen("restart_in_turn")
    assert not load.lanes[0].errors


# --- disks ----------------------------------------------------------------------------------------------------------------


async def test_node_with_a_new_disk_gets_everything_again(cluster):
    """Proven by the node that must then be in every majority: another one is taken away."""
    async with loaded(cluster, "wipe") as (load, _):
        name = cluster.follower_of("wipe")
        async with load.fault():
            await asyncio.to_thread(cluster.kill9, name)
            cluster.wipe(name)
            await asyncio.to_thread(cluster.start, name)
            await load.until(lambda: cluster.whole(name), f"{name} has everything again")
        async with load.fault():
            await asyncio.to_thread(cluster.kill9, cluster.leader_of("wipe"))
    assert not load.lanes[0].errors


async def test_damaged_segment_is_not_served_and_replaced(cluster):
    """The flipped bytes lie in the middle of what was acknowledged; then another node is taken away."""
    async with loaded(cluster, "damage") as (load, _):
        name = cluster.follower_of("damage")
        async with load.fault():
            await asyncio.to_thread(cluster.kill9, name)
            place = cluster.damage(name, cluster.group_of("damage"))
            await asyncio.to_thread(cluster.start, name)
            await load.until(lambda: cluster.whole(name), f"{name} has everything again")
        async with load.fault():
            await asyncio.to_thread(cluster.kill9, cluster.leader_of("damage"))
    assert place.rpartition(":")[0] in cluster.nodes[name].log_since_start()
    assert not load.lanes[0].errors


async def test_leader_with_a_full_disk_lets_another_one_lead(tmp_path):
    """No publish is refused or lost meanwhile; when there is room again, the node catches up."""
    with contextlib.ExitStack() as stack:
        for name in names_of(3):
            stack.enter_context(small_disk(tmp_path / name))
        nats = stack.enter_context(NatsServer(tmp_path))
        cluster = stack.enter_context(StanCluster(tmp_path, nats=nats))
        async with loaded(cluster, "full") as (load, _):
            full = cluster.leader_of("full")
            async with load.fault():
                await asyncio.to_thread(fill, tmp_path / full / "filler")
                await load.until(lambda: cluster.leader_of("full") != full, "another one leads")
                await load.acknowledged(100)
                (tmp_path / full / "filler").unlink()
    assert not load.lanes[0].errors


def fill(path: Path) -> None:
    """Leave no room on the file system of *path*."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(FREE_BYTES))


# --- network --------------------------------------------------------------------------------------------------------------


async def test_nats_server_killed_and_started_again(cluster, nats):
    async with loaded(cluster, "kill_nats", IMPATIENT, nats=nats) as (_, faults):
        await faults.happen("kill_nats")


@pytest.mark.parametrize("fault", ["cut_leader_off", "cut_leader_half_off"])
async def test_leader_behind_a_cut_acknowledges_nothing_that_is_lost(tmp_path, fault):
    """Each node has a nats-server and clients of its own; those of the minority wait, those of the majority go on."""
    if why := why_not():
        pytest.skip(why)
    with Network(names_of(3)) as network, StanCluster(tmp_path, network=network) as cluster:
        async with loaded(cluster, fault, IMPATIENT, network=network) as (_, faults):
            await faults.happen(fault)
