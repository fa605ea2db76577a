"""Negative acks, working, rejections and cumulative acks with the real broker."""

import time

import pytest
import stan_client
from stan_bench.bench.bench_broker import own_broker
from stan_client import Message

from tests.kit.fake_broker import eventually

EVERYTHING = stan_client.everything()
ANSWER_S = 10
"""Longer than any answer takes, and shorter than the ack wait of 30 seconds."""


@pytest.fixture
async def url():
    async with own_broker("test-cluster") as target:
        yield target.server


async def test_each_verdict_does_what_it_says_with_the_real_broker(url) -> None:
    async with await stan_client.connect(url, client_id="me") as client:
        await client.publish_many("ch", [b"%d" % number for number in range(1, 5)])
        durable = await client.subscribe("ch", durable="d", start=EVERYTHING, manual_acks=True, max_in_flight=4)
        first, second, third, fourth = [await durable.next(ANSWER_S) for _ in range(4)]

        said_at = time.monotonic()
        assert await first.nak(1.5, "not yet")
        again = await durable.next(ANSWER_S)
        assert time.monotonic() - said_at > 1.4
        assert (again.sequence, again.redelivered, again.redelivery_count) == (1, True, 1)

        second.nak(0)
        assert (await durable.next(ANSWER_S)).sequence == 2
        third.reject("never")
        fourth.ack()
        again.ack()
        await durable.close()
        durable = await client.subscribe("ch", durable="d", manual_acks=True)
        left = await durable.next(ANSWER_S)
        assert (left.sequence, left.redelivered) == (2, True)  # 3 was rejected, and the others are done
        left.ack()
        assert await durable.fetch(1, 0.2) == []


async def test_working_puts_the_ack_wait_off_with_the_real_broker(url) -> None:
    async with await stan_client.connect(url, client_id="me") as client:
        await client.publish_many("ch", [b"one", b"two"])
        subscription = await client.subscribe("ch", start=EVERYTHING, manual_acks=True, ack_wait_s=1)
        held, dropped = await subscription.next(ANSWER_S), await subscription.next(ANSWER_S)
        came: list[int] = []
        while len(came) < 3:  # for three ack waits
            held.working()
            came += [message.sequence for message in await subscription.fetch(1, 0.2)]
        assert came == [dropped.sequence] * 3
        dropped.ack()
        assert (await subscription.next(ANSWER_S)).sequence == held.sequence


async def test_cumulative_ack_with_the_real_broker(url) -> None:
    async with await stan_client.connect(url, client_id="me") as client:
        await client.publish_many("ch", [b"x"] * 20)
        durable = await client.subscribe("ch", durable="d", start=EVERYTHING, manual_acks=True, max_in_flight=10)
        messages = [await durable.next(ANSWER_S) for _ in range(10)]
        messages[7].ack_up_to()
        assert (await durable.next(ANSWER_S)).sequence == 11  # there is room again
        await durable.close()
        durable = await client.subscribe("ch", durable="d", manual_acks=True)
        assert [(await durable.next(ANSWER_S)).sequence for _ in range(2)] == [9, 10]


@pytest.mark.parametrize("on_error", ["nak", "reject"])
async def test_failing_callback_with_the_real_broker(url, on_error) -> None:
    got: list[tuple[int, bool]] = []

    async def fail_once(message: Message) -> None:
        got.append((message.sequence, message.redelivered))
        if message.sequence == 1 and not message.redelivered:
            raise LookupError("once more")

    async with await stan_client.connect(url, client_id="me") as client:
        await client.publish_many("ch", [b"x"] * 2)
        subscription = await client.subscribe("ch", fail_once, durable="d", start=EVERYTHING, on_error=on_error)
        expected = [(1, False), (2, False), (1, True)] if on_error == "nak" else [(1, False), (2, False)]
        await eventually(lambda: len(got) == len(expected), ANSWER_S)
        assert got == expected
        assert await subscription.drain()
        async with await client.subscribe("ch", durable="d") as resumed:
            assert await resumed.fetch(2, 0.2) == []  # nothing is owed


async def test_members_of_a_queue_group_take_over_what_a_drained_one_left(url) -> None:
    async with await stan_client.connect(url, client_id="me") as client:
        one = await client.subscribe("ch", queue="q", manual_acks=True)
        await client.publish_many("ch", [b"x"] * 5)
        assert (await one.next(ANSWER_S)).sequence == 1
        other = await client.subscribe("ch", queue="q", manual_acks=True)
        await one.drain()
        came = [await other.next(ANSWER_S) for _ in range(5)]
        assert sorted(message.sequence for message in came) == [1, 2, 3, 4, 5]
