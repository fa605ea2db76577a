"""Messages with a time to live and the real broker: by their publishers, by a policy, over fetches, and for clients that know
nothing of it."""

import asyncio
import time

import pytest
import stan_client
from stan_bench.bench.bench_broker import own_broker

EVERYTHING = stan_client.everything()
ANSWER_S = 10
PATIENCE_S = 60


@pytest.fixture
async def url():
    async with own_broker("test-cluster") as target:
        yield target.server


async def test_messages_are_gone_when_their_time_is_over(url) -> None:
    async with await stan_client.connect(url, client_id="me") as client:
        began = time.time()
        for data, ttl_s in ((b"1", 1), (b"2", None), (b"3", 3600)):
            await client.publish("ch", data, ttl_s=ttl_s)
        got = [message async for message in client.read("ch")]
        assert [message.data for message in got] == [b"1", b"2", b"3"]
        assert got[1].expires_at is None
        assert 1 <= got[0].expires_at.timestamp() - began <= 3
        assert 3599 <= got[2].expires_at.timestamp() - began <= 3603
        async with asyncio.timeout(PATIENCE_S):
            while [message.data async for message in client.read("ch")] != [b"2", b"3"]:
                assert time.time() - began < PATIENCE_S
        assert time.time() - began >= 1
        subscription = await client.subscribe("ch", start=EVERYTHING)
        got = [await subscription.next(ANSWER_S) for _ in range(2)]
        assert [(message.sequence, message.data) for message in got] == [(2, b"2"), (3, b"3")]
        assert got[1].expires_at.timestamp() >= began + 3600


@pytest.mark.parametrize("ttl_s", [0, -1, 1e12, float("nan")])
async def test_a_time_to_live_that_is_none_is_refused(url, ttl_s) -> None:
    async with await stan_client.connect(url, client_id="me") as client:
        with pytest.raises(stan_client.InvalidTtlError):
            await client.publish("ch", b"x", ttl_s=ttl_s)
