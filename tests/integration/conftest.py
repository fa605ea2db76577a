"""Fixtures of the integration tests: a nats-server per module, and the fake broker on it."""

import pytest

from tests.kit.fake_broker import fake_broker, nats_server


@pytest.fixture(scope="module")
def nats_url():
    with nats_server() as url:
        yield url


@pytest.fixture
async def broker(nats_url):
    async with fake_broker(nats_url) as broker:
        yield broker
