"""The port of an embedded nats-server answers when the broker does: no client that connects at once gets no answer.

STAN_STARTS: how many times each server is started, by default a few times. STAN_STORED_MB: size of the large store. Without
the gate of stan.edge.nats.gate every first client goes without an answer, and more of them the longer the recovery takes.
"""

import asyncio
import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import stan_client

from tests.kit.cluster import StanCluster
from tests.kit.early_client import register_early
from tests.kit.ft_pair import STANDBY
from tests.kit.ports import accepts
from tests.kit.server import StanServer, until

STARTS = int(os.environ.get("STAN_STARTS", "4"))
CLIENTS = 3
STORED_MB = int(os.environ.get("STAN_STORED_MB", "20"))
pytestmark = pytest.mark.timeout(60 + 30 * STARTS)


def is_running(server):
    return server.running


def says_standby(server):
    return STANDBY in server.log_since_start()


def start_and_register(server):
    lost = 0
    for start in range(STARTS):
        server.launch()
        lost += register_early(server.port, partial(is_running, server), f"c{start}", CLIENTS)
        server.wait_until_ready()
        server.terminate()
    assert lost <= STARTS // 2


def closed(server):
    return not accepts(server.port)


def kill(cluster, *names):
    """Kill nodes, and wait for the ends of their nats-servers, which follow them."""
    cluster.kill9(*names)
    for name in names:
        until(partial(closed, cluster.nodes[name]))


async def fill(server):
    """Publish messages of 100 KB until the store has its size."""
    async with await stan_client.connect(server.url, cluster_id=server.cluster_id, client_id="filler") as client:
        await client.publish_many("large", (b"x" * 100_000 for _ in range(STORED_MB * 10)))


@pytest.fixture
def make(tmp_path):
    """Makes servers that are not started."""
    made = []

    def make(*flags, directory=tmp_path, **options):
        made.append(StanServer(directory, *flags, **options))
        return made[-1]

    yield make
    for server in made:
        server.sweep()


@pytest.mark.parametrize("store", ["MEMORY", "FILE"])
def test_clients_that_connect_as_soon_as_the_port_answers_are_registered(make, store):
    start_and_register(make(store=store))


def test_clients_that_connect_as_soon_as_a_killed_nats_server_is_back_are_registered(make):
    lost = 0
    with make() as server:
        for start in range(STARTS):
            pid = int(re.findall(r"\[(\d+)\].* Starting nats-server", server.log())[-1])
            os.kill(pid, signal.SIGKILL)
            until(lambda: not accepts(server.port))
            lost += register_early(server.port, partial(is_running, server), f"c{start}", CLIENTS)
    assert lost <= STARTS // 2


def test_clients_of_a_server_with_a_large_store_are_registered(make):
    server = make()
    with server:
        asyncio.run(fill(server))
    start_and_register(server)


def test_clients_that_connect_as_soon_as_a_standby_takes_over_are_registered(make, tmp_path):
    members = []
    for name in "ab":
        (tmp_path / name).mkdir()
        members.append(make("-ft_group", "pair", "-dir", str(tmp_path / "shared"), directory=tmp_path / name))
    lost = 0
    members[0].start()
    for start in range(STARTS):
        active, standby = members
        standby.launch()
        until(partial(says_standby, standby), why=standby.log)
        assert not accepts(standby.port)
        active.signal(signal.SIGKILL)
        lost += register_early(standby.port, partial(is_running, standby), f"c{start}", CLIENTS)
        active.wait_for_end()
        members.reverse()
    assert lost <= STARTS // 2


def test_clients_that_connect_as_soon_as_a_node_is_back_in_its_cluster_are_registered(tmp_path):
    lost = 0
    with StanCluster(tmp_path) as cluster:
        for start in range(STARTS):
            name = next(name for name in cluster.names if name != cluster.leader(0))
            node = cluster.nodes[name]
            kill(cluster, name)
            node.launch()
            lost += register_early(node.port, partial(is_running, node), f"c{start}", CLIENTS)
            node.wait_until_ready()
    assert lost <= STARTS // 2


def test_clients_that_connect_as_soon_as_a_whole_cluster_is_started_are_registered(tmp_path):
    lost = 0
    with StanCluster(tmp_path) as cluster:
        for start in range(STARTS):
            kill(cluster, *cluster.names)
            for node in cluster.nodes.values():
                node.launch()
            with ThreadPoolExecutor() as pool:
                nodes = [(node.port, partial(is_running, node)) for node in cluster.nodes.values()]
                waits = [pool.submit(register_early, *node, f"c{start}{at}", CLIENTS) for at, node in enumerate(nodes)]
                lost += sum(wait.result() for wait in waits)
            for node in cluster.nodes.values():
                node.wait_until_ready()
    assert lost <= STARTS // 2
