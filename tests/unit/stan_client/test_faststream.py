"""The broker for FastStream: handlers in memory, and over the real broker in a simulation, with faults and without."""

import asyncio
import logging

import pytest
from stan_client import ReplyTimeoutError, everything
from stan_client.testing import simulated, simulated_test

pytest.importorskip("faststream")

from faststream import AckPolicy, FastStream, TestApp
from faststream.exceptions import NackMessage, RejectMessage
from faststream.specification import AsyncAPI
from stan_client.faststream import StanBroker, StanRouter, TestStanBroker
from stan_client.faststream.annotations import StanMessage

ORDERS = list(range(8))


def quiet_broker(**options):
    return StanBroker(client_id="billing", logger=logging.getLogger("test"), **options)


@pytest.fixture
def broker():
    return quiet_broker()


def handlers_of(broker, seen):
    @broker.subscriber("orders", durable="billing")
    @broker.publisher("bills", headers={"kind": "bill"})
    async def bill(number: int, message: StanMessage):
        seen.append((number, message.headers.get("shop"), message.correlation_id))
        return {"bill": number}

    @broker.subscriber("questions")
    async def double(number: int) -> int:
        return 2 * number

    return bill, double


async def test_handlers_run_in_memory(broker):
    seen = []
    bill, _ = handlers_of(broker, seen)
    async with TestStanBroker(broker) as running:
        published = await running.publish(7, "orders", headers={"shop": "north"}, correlation_id="c1")
        assert published.sequence == 1
        bill.mock.assert_called_once_with(7)
        assert seen == [(7, "north", "c1")]
        assert await (await running.request(4, "questions")).decode() == 8
        with pytest.raises(ValueError, match="number"):
            await running.publish("no number", "orders")


async def test_in_memory_one_member_of_a_queue_gets_a_message(broker):
    seen = []

    async def work(job: int):
        seen.append(job)

    for _ in range(2):
        broker.subscriber("jobs", queue="workers")(work)

    async with TestStanBroker(broker) as running:
        await running.publish(1, "jobs")
    assert seen == [1]


async def test_an_app_with_its_test_broker(broker):
    seen = []
    handlers_of(broker, seen)
    async with TestStanBroker(broker, connect_only=True), TestApp(FastStream(broker)):
        await broker.publish(1, "orders")
    assert [number for number, *_ in seen] == [1]


async def test_handlers_run_over_the_broker(broker):
    seen = []
    handlers_of(broker, seen)
    async with simulated(faults=None) as client, broker:
        await broker.start()
        assert await broker.ping()
        published = await broker.publish(7, "orders", headers={"shop": "south"}, key="k", correlation_id="c2")
        assert (published.sequence, published.acked_as) == (1, "synced")
        await asyncio.sleep(1)
        assert seen == [(7, "south", "c2")]
        [bill] = [message async for message in client.read("bills", start=everything())]
        assert bill.json() == {"bill": 7}
        assert bill.headers == {"kind": b"bill", "content-type": b"application/json", "correlation_id": b"c2"}
        assert await (await broker.request(4, "questions")).decode() == 8
        with pytest.raises(ReplyTimeoutError):
            await broker.request(4, "orders.of.nobody", timeout=1)
    assert not await broker.ping()


@pytest.mark.parametrize(
    ("policy", "error", "handled"),
    [
        (AckPolicy.NACK_ON_ERROR, ValueError, 2),
        (AckPolicy.REJECT_ON_ERROR, ValueError, 1),
        (AckPolicy.ACK, ValueError, 1),
        (AckPolicy.ACK, NackMessage, 2),
        (AckPolicy.NACK_ON_ERROR, RejectMessage, 1),
    ],
)
async def test_what_becomes_of_a_message_whose_handler_fails(policy, error, handled, broker):
    attempts = []

    @broker.subscriber("orders", durable="d", ack_policy=policy)
    async def bill(number: int, message: StanMessage):
        attempts.append(message.raw_message.redelivered)
        if len(attempts) == 1:
            raise error

    async with simulated(faults=None) as client, broker:
        await broker.start()
        await broker.publish(1, "orders")
        await client.simulation.settled()
    assert attempts == [False, True][:handled]


async def test_several_workers_handle_at_a_time(broker):
    running = [0, 0]

    @broker.subscriber("slow", max_workers=3)
    async def work(_number: int):
        running[0] += 1
        running[1] = max(running)
        await asyncio.sleep(1)
        running[0] -= 1

    async with simulated(faults=None) as client, broker:
        await broker.start()
        await client.publish_many("slow", [b"%d" % number for number in ORDERS])
        await client.simulation.settled()
    assert running == [0, 3]


async def test_messages_can_be_taken_one_by_one(broker):
    subscriber = broker.subscriber("orders")
    async with simulated(faults=None) as client, broker:
        await broker.start()
        assert await subscriber.get_one(timeout=1) is None
        await client.publish("orders", b"7")
        message = await subscriber.get_one()
        assert (await message.decode(), message.message_id) == (7, "orders:1")
        await message.ack()
        await message.nack()  # a second verdict does nothing
        await client.publish("orders", b"8")
        async for following in subscriber:
            assert await following.decode() == 8
            break
        await subscriber.stop()


async def test_a_router_has_a_prefix():
    router, seen = StanRouter(prefix="eu."), []

    @router.subscriber("orders")
    async def bill(number: int):
        seen.append(number)

    publisher = router.publisher("bills")
    broker = quiet_broker(routers=[router])
    async with simulated(faults=None) as client, broker:
        await broker.start()
        await client.publish("eu.orders", b"1")
        await publisher.publish(5)
        await client.simulation.settled()
        assert [message.data async for message in client.read("eu.bills", start=everything())] == [b"5"]
    assert seen == [1]


def test_channels_are_documented(broker):
    handlers_of(broker, [])
    document = AsyncAPI(broker).to_specification().to_jsonable()
    assert {channel["address"] for channel in document["channels"].values()} == {"orders", "questions", "bills"}


@simulated_test(25)
async def test_an_app_stands_faults(client):
    bills = set()

    async def app(_client):
        broker = quiet_broker()

        @broker.subscriber("orders", durable="billing")
        async def bill(number: int):
            await asyncio.sleep(0.002)
            bills.add(number)

        async with broker:
            await broker.start()
            await asyncio.Event().wait()

    await client.publish_many("orders", [b"%d" % number for number in ORDERS])
    client.simulation.start(app, client_id="supervisor")
    await client.simulation.settled()
    assert sorted(bills) == ORDERS
