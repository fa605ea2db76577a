"""Fixtures of the integration tests: a nats-server per module and the fake broker on it; a cluster, and a client that is not
registered."""

import pytest
from stan_client import Direct

from tests.kit.cluster import StanCluster
from tests.kit.fake_broker import fake_broker, nats_server
from tests.kit.server import NatsServer


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
