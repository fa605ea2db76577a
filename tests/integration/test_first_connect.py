"""The port of an embedded nats-server answers when the broker does: no client that connects at once gets no answer.

STAN_STARTS: how many times each server is started, by default a few times.
"""

import asyncio
import os
import re
import signal

import pytest

from tests.kit.cluster import StanCluster
from tests.kit.early_client import register, register_early, wait_for_port
from tests.kit.ports import accepts
from tests.kit.server import StanServer, until

STARTS = int(os.environ.get("STAN_STARTS", "3"))
CLIENTS = 3
PATIENCE_SECONDS = 30.0


def start_and_register(server):
    for start in range(STARTS):
        server.launch()
        register_early(server.port, lambda: server.running, f"c{start}", CLIENTS)
        server.wait_until_ready()
        server.terminate()


@pytest.fixture
def make(tmp_path):
    """Makes servers that are not started."""
    made = []

    def make(*flags, **options):
        made.append(StanServer(tmp_path, *flags, **options))
        return made[-1]

    yield make
    for server in made:
        server.sweep()


@pytest.mark.parametrize("store", ["MEMORY", "FILE"])
def test_clients_that_connect_as_soon_as_the_port_answers_are_registered(make, store):
    start_and_register(make(store=store))


def test_clients_that_connect_as_soon_as_a_killed_nats_server_is_back_are_registered(make):
    with make() as server:
        for start in range(STARTS):
            pid = int(re.findall(r"\[(\d+)\].* Starting nats-server", server.log())[-1])
            os.kill(pid, signal.SIGKILL)
            until(lambda: not accepts(server.port))
            register_early(server.port, lambda: server.running, f"c{start}", CLIENTS)


@pytest.fixture
def cluster(tmp_path):
    """Three nodes that are not started, each with a nats-server of its own."""
    nodes = StanCluster(tmp_path)
    yield nodes
    for node in nodes.nodes.values():
        node.sweep()


def test_clients_that_connect_as_soon_as_the_port_of_a_node_answers_are_registered(cluster):
    with cluster:
        for start in range(STARTS):
            for name, node in cluster.nodes.items():
                node.terminate()
                node.launch()
                register_early(node.port, lambda node=node: node.running, f"{name}-{start}", CLIENTS)
                node.wait_until_ready()


async def test_connects_that_come_before_there_is_a_leader_are_answered_when_there_is_one(cluster):
    first, *others = cluster.nodes.values()
    first.launch()
    await asyncio.to_thread(wait_for_port, first.port, lambda: first.running)
    for node in others:
        node.launch()

    answer = await register(first.port, "me", PATIENCE_SECONDS)

    assert not answer.error
    for node in cluster.nodes.values():
        await asyncio.to_thread(node.wait_until_ready)
        node.terminate()
