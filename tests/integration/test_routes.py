"""Flags for routes reach the embedded nats-server: brokers with a NATS each are reached through any of them."""

import asyncio

import pytest
import stan_client

from tests.kit.ports import free_port
from tests.kit.server import START_SECONDS_MAX, StanServer


async def connect(cluster_id: str, url: str) -> stan_client.Client:
    """A client, once the routes are there."""
    async with asyncio.timeout(START_SECONDS_MAX):
        while True:
            try:
                return await stan_client.connect(url, client_id="me", cluster_id=cluster_id)
            except stan_client.ConnectRequestTimeoutError:  # nobody answers yet
                await asyncio.sleep(0.01)


@pytest.fixture
def servers(tmp_path):
    """Two brokers with cluster ids of their own, their embedded NATS joined by a route."""
    routes = [f"nats://127.0.0.1:{free_port()}" for _ in range(2)]
    for name in "ab":
        (tmp_path / name).mkdir()
    first = StanServer(tmp_path / "a", "-cid", "a", "--cluster", routes[0])
    second = StanServer(tmp_path / "b", "-cid", "b", "--cluster", routes[1], "--routes", routes[0])
    with first, second:
        yield first, second


async def test_servers_joined_by_routes_are_one_nats(servers):
    first, second = servers
    for cluster_id, elsewhere in (("a", second.url), ("b", first.url)):
        client = await connect(cluster_id, elsewhere)
        await client.publish("orders", b"hello")
        await client.close()
