"""Fixtures of the integration tests: servers, a nats-server per module and the fake broker on it, a cluster, and clients of
each."""

import pytest
from stan_client import Direct
from stan_client.blocking import BlockingClient

from tests.kit.cluster import StanCluster
from tests.kit.fake_broker import fake_broker, nats_server
from tests.kit.server import NatsServer, StanServer


@pytest.fixture(scope="module")
def nats_url():
    with nats_server() as url:
        yield url


@pytest.fixture
async def broker(nats_url):
    async with fake_broker(nats_url) as broker:
        yield broker


@pytest.fixture
def cluster(tmp_path):
    with NatsServer(tmp_path) as nats, StanCluster(tmp_path, nats=nats) as cluster:
        yield cluster


@pytest.fixture
async def direct(cluster):
    async with Direct(cluster.url, cluster_id=cluster.cluster_id, timeout_s=60) as direct:
        yield direct


@pytest.fixture(scope="module")
def nats(tmp_path_factory):
    with NatsServer(tmp_path_factory.mktemp("nats")) as nats:
        yield nats


@pytest.fixture
def server(tmp_path):
    with StanServer(tmp_path) as server:
        yield server


@pytest.fixture
def client(server):
    with BlockingClient(server.url, cluster_id=server.cluster_id) as client:
        yield client
