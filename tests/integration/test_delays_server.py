"""Delayed messages with the real broker: by a policy, by publishers, cancelled, and over a kill."""

import time

import pytest
import stan_client
from stan_bench.bench.bench_broker import own_broker
from stan_client import Direct
from stan_protocol.admin_types import DeliveryPolicy
from stan_protocol.scalars import MILLISECOND

EVERYTHING = stan_client.everything()
ANSWER_S = 10


@pytest.fixture
async def url():
    async with own_broker("test-cluster") as target:
        yield target.server


async def test_messages_come_when_they_are_due_in_the_order_of_their_times(url) -> None:
    async with await stan_client.connect(url, client_id="me") as client:
        subscription = await client.subscribe("ch", start=EVERYTHING)
        began = time.time()
        later = await client.publish("ch", b"later", delay_s=1.0, headers={"a": "b"}, key="k")
        sooner = await client.publish("ch", b"sooner", delay_s=0.5)
        now = await client.publish("ch", b"now")
        assert (later.sequence, later.delayed_id, sooner.delayed_id, now.sequence, now.delayed_id) == (None, 1, 2, 1, 0)
        got = [await subscription.next(ANSWER_S) for _ in range(3)]
        assert [message.data for message in got] == [b"now", b"sooner", b"later"]
        assert [message.sequence for message in got] == [1, 2, 3]
        assert dict(got[2].headers) == {"a": b"b"}
        assert got[2].key == b"k"
        assert time.time() - began >= 1.0


async def test_operators_see_and_cancel_what_waits(url) -> None:
    async with (
        await stan_client.connect(url, client_id="me") as client,
        Direct(url) as direct,
    ):
        told = [await client.publish("ch", b"x", delay_s=3600) for _ in range(3)]
        assert [one.id for one in await direct.admin.delayed("ch")] == [one.delayed_id for one in told]
        (status,) = await direct.admin.channels("ch")
        assert status.delayed == 3
        assert (await direct.admin.cancel_delayed("ch", [told[1].delayed_id])).changed == 1
        assert [one.id for one in await direct.admin.delayed("ch")] == [told[0].delayed_id, told[2].delayed_id]


async def test_a_policy_delays_what_clients_publish_that_know_nothing_of_it(url) -> None:
    async with (
        await stan_client.connect(url, client_id="me") as client,
        Direct(url) as direct,
    ):
        policy = DeliveryPolicy(delay=700 * MILLISECOND, target="orders")
        await direct.admin.set_policy("orders.later", policy)
        subscription = await client.subscribe("orders", start=EVERYTHING)
        began = time.monotonic()
        await client.publish_many("orders.later", [b"%d" % number for number in range(2000)])
        got = [await subscription.next(ANSWER_S) for _ in range(2000)]
        assert time.monotonic() - began >= 0.7
        assert [message.data for message in got] == [b"%d" % number for number in range(2000)]
        (status,) = await direct.admin.channels("orders.later")
        assert (status.messages, status.last_sequence) == (0, 2000)


@pytest.mark.parametrize("delay", [{"delay_s": -1}, {"delay_s": 1e9}, {"delay_s": float("nan")}])
async def test_delays_that_no_server_takes_are_refused(url, delay) -> None:
    async with await stan_client.connect(url, client_id="me") as client:
        with pytest.raises(stan_client.InvalidDelayError):
            await client.publish("ch", b"x", **delay)
