"""A subscription of all parts of a channel, beside a session in memory: how it drains, and how it ends."""

import asyncio
from types import SimpleNamespace

import pytest
from stan_client.errors import BadSubscriptionError, ConnectionClosedError
from stan_client.messages.messages import SubscriptionOptions
from stan_client.subscribing.delivery import SubscriptionDelivery
from stan_client.subscribing.parted import PartedSubscription
from stan_client.subscribing.parts import PartedDelivery
from stan_client.subscribing.subscription import Subscription
from stan_protocol.proto import admin_pb2 as pb

from tests.unit.stan_client.test_client_subscription import Owner, Session, delivery, handled


class Admin:
    """Knows one channel with two parts."""

    async def parts(self, channel):
        return [pb.PartedStatus(channel=channel.encode(), parts=2)]


async def opened(callback=None, **options):
    """The subscription of both parts, the session that they share, and what brings messages to a part."""
    session, owner = Session(b"ack"), None
    owner = Owner(session)
    owner.closed, owner.client_id, owner.admin = False, "me", Admin()

    async def make(part, take, start):
        made = SubscriptionDelivery(owner, part, take, SubscriptionOptions(start=start))
        await made.make(session)
        return Subscription(made, handled)

    owner.parts = PartedDelivery(owner, "sales", callback, SubscriptionOptions(**options), make)
    await owner.parts.open()
    parted = PartedSubscription(owner.parts, handled)

    def bring(part, *sequences):
        session.link.handlers[part + 1](delivery(*sequences))

    return parted, owner, bring


async def test_drain_behind_a_loop_that_was_left_ends_and_leaves_what_was_not_taken() -> None:
    parted, _, bring = await opened()
    bring(0, 1, 2)
    bring(1, 1)
    async for message in parted:
        assert message.sequence == 1
        break
    async with asyncio.timeout(10):
        assert not await parted.drain(), "two messages were not taken"
    assert parted.closed
    assert all(part.closed for part in parted.parts.values())
    with pytest.raises(BadSubscriptionError):
        await parted.drain()


@pytest.mark.parametrize("manual_acks", [False, True])
async def test_drain_waits_for_the_task_that_iterates_to_take_what_has_come(manual_acks) -> None:
    parted, _, bring = await opened(manual_acks=manual_acks)
    seen = []

    async def read():
        async for message in parted:
            seen.append((message.channel, message.sequence))
            await asyncio.sleep(0)

    reader = asyncio.create_task(read())
    bring(0, 1, 2, 3)
    bring(1, 1, 2)
    while not seen:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0)
    async with asyncio.timeout(10):
        assert await parted.drain()
        await reader
    assert sorted(seen) == [("sales.~0", 1), ("sales.~0", 2), ("sales.~0", 3), ("sales.~1", 1), ("sales.~1", 2)]


async def test_drain_does_not_wait_for_a_task_that_has_ended() -> None:
    parted, _, bring = await opened()
    bring(0, 1, 2)
    await asyncio.create_task(parted.next())
    async with asyncio.timeout(10):
        assert not await parted.drain()


async def test_drain_has_the_callback_called_for_what_has_come() -> None:
    seen = []

    async def handle(message):
        await asyncio.sleep(0)
        seen.append(message.sequence)

    parted, _, bring = await opened(handle)
    bring(0, 1, 2)
    assert await parted.drain()
    assert seen == [1, 2]


@pytest.mark.parametrize("error", [None, ConnectionClosedError()])
async def test_iteration_ends_with_the_client(error) -> None:
    parted, owner, _ = await opened()
    waiting = asyncio.create_task(anext(parted))
    await asyncio.sleep(0)
    owner.parts.end(error)
    with pytest.raises(type(error) if error else StopAsyncIteration):
        await waiting


async def test_a_verdict_about_failures_is_refused_without_a_callback() -> None:
    with pytest.raises(ValueError, match="on_error='nak' of a subscription without a callback"):
        PartedDelivery(SimpleNamespace(), "sales", None, SubscriptionOptions(on_error="nak"), None)


async def test_fetch_takes_what_has_come_of_all_parts_and_acks_it_with_the_next_call() -> None:
    parted, owner, bring = await opened()
    bring(0, 1, 2)
    bring(1, 1)
    assert parted.queued == 3
    assert sorted((one.channel, one.sequence) for one in await parted.fetch(5, 5)) == [("sales.~0", 1), ("sales.~1", 1)]
    assert [one.sequence for one in await parted.fetch(5, 5)] == [2]
    assert await parted.fetch(5, 0.01) == []
    await asyncio.sleep(0)
    assert owner.session.link.sent.count(b"PUB ack ") == 3


async def test_a_block_that_ends_drains_the_parts() -> None:
    parted, _, bring = await opened()
    bring(0, 1)
    async with parted:
        assert (await parted.next(5)).sequence == 1
    assert parted.closed
    assert all(part.closed for part in parted.parts.values())
