"""The port of an embedded nats-server answers when the broker does: no client that connects at once gets no answer.

STAN_STARTS: how many times each server is started, by default a few times. Without the gate of stan.edge.nats.gate every first
client goes without an answer, and more of them the longer the recovery takes.
"""

import os
import re
import signal

import pytest

from tests.kit.early_client import register_early
from tests.kit.ports import accepts
from tests.kit.server import StanServer, until

STARTS = int(os.environ.get("STAN_STARTS", "4"))
CLIENTS = 3


def start_and_register(server):
    lost = 0
    for start in range(STARTS):
        server.launch()
        lost += register_early(server.port, lambda: server.running, f"c{start}", CLIENTS)
        server.wait_until_ready()
        server.terminate()
    assert lost <= STARTS // 2


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
    lost = 0
    with make() as server:
        for start in range(STARTS):
            pid = int(re.findall(r"\[(\d+)\].* Starting nats-server", server.log())[-1])
            os.kill(pid, signal.SIGKILL)
            until(lambda: not accepts(server.port))
            lost += register_early(server.port, lambda: server.running, f"c{start}", CLIENTS)
    assert lost <= STARTS // 2
