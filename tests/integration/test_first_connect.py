"""The port of an embedded nats-server answers when the broker does: no client that connects at once gets no answer.

STAN_STARTS: how many times each server is started, by default a few times.
"""

import os

import pytest

from tests.kit.early_client import register_early
from tests.kit.server import StanServer

STARTS = int(os.environ.get("STAN_STARTS", "3"))
CLIENTS = 3


def start_and_register(server, login=None):
    for start in range(STARTS):
        server.launch()
        register_early(server.port, lambda: server.running, f"c{start}", CLIENTS, login)
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
