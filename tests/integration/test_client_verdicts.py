"""stan_client against a fake broker: negative acks and their kin, next and fetch, and how a subscription is drained."""

import asyncio
import logging

import pytest
import stan_client
from stan_client import Message
from stan_protocol.features import Feature
from stan_protocol.proto import wire_pb2 as wire

from tests.kit.fake_broker import eventually

EVERYTHING = stan_client.everything()


@pytest.fixture
async def client(nats_url, broker):
    async with await stan_client.connect(nats_url, client_id="me", connect_timeout_s=30, ack_timeout_s=30) as client:
        yield client


async def manual(client, messages: int = 1, **options) -> stan_client.Subscription:
    await client.publish_many("ch", [b"x"] * messages)
    return await client.subscribe("ch", start=EVERYTHING, manual_acks=True, **options)


def told(broker) -> list[tuple[int, int, int, bytes]]:
    """What the broker heard besides acks: sequence, kind, delay in ns, reason."""
    return [(one.sequence, one.kind, one.delay, one.reason) for one in broker.verdicts]


# --- what is said about a message ------------------------------------------------------------------------------------


async def test_each_verdict_is_sent_and_may_be_awaited(client, broker) -> None:
    subscription = await manual(client, 6)
    messages = [await subscription.next(5) for _ in range(6)]
    assert await messages[0].ack()
    assert await messages[1].nak(1.5, "no such customer")
    messages[2].nak()
    messages[3].nak(0)
    assert await messages[4].working()
    assert await messages[5].reject("no JSON")
    await eventually(lambda: len(broker.verdicts) == 5)
    assert told(broker) == [
        (2, wire.NAK, 1_500_000_000, b"no such customer"),
        (3, wire.NAK, 0, b""),  # as the policy says
        (4, wire.NAK, 1, b""),  # at once
        (5, wire.WORKING, 0, b""),
        (6, wire.REJECT, 0, b"no JSON"),
    ]
    assert broker.acks == [("ch", 1)]
    assert broker.subscriptions[0].pending == {2, 3, 4, 5}


async def test_cumulative_ack_settles_all_before_and_follows_the_acks_of_its_turn(client, broker) -> None:
    subscription = await manual(client, 4)
    messages = await subscription.fetch(4, 5)
    while len(messages) < 4:
        messages += await subscription.fetch(4, 5)
    messages[3].ack()
    assert await messages[2].ack_up_to()
    await eventually(lambda: broker.verdicts)
    assert broker.verdicts[0].cumulative
    assert broker.acks == [("ch", 4)]
    assert broker.subscriptions[0].pending == set()


@pytest.mark.parametrize("delay_s", [-1, float("nan")])
async def test_delay_that_is_no_time_is_refused(client, broker, delay_s) -> None:
    message = await (await manual(client)).next(5)
    with pytest.raises(ValueError, match="delay"):
        message.nak(delay_s)
    message.nak(float("inf"))
    await eventually(lambda: broker.verdicts)
    assert broker.verdicts[0].delay > 1e18


VERDICTS = {
    "ack_up_to": lambda message: message.ack_up_to(),
    "nak": lambda message: message.nak(1),
    "working": lambda message: message.working(),
    "reject": lambda message: message.reject(),
}
"""What a server of the original would take for an ack."""


@pytest.mark.parametrize("verdict", VERDICTS)
async def test_server_that_would_take_it_for_an_ack_is_told_nothing(client, broker, verdict, nats_url) -> None:
    broker.features = Feature.CONTEXT
    await client.publish("ch", b"x")
    async with await stan_client.connect(nats_url, client_id="old") as old:
        subscription = await old.subscribe("ch", start=EVERYTHING, manual_acks=True)
        with pytest.raises(stan_client.NotSupportedError):
            VERDICTS[verdict](await subscription.next(5))
        await old.publish("ch", b"after it")
        await subscription.next(5)
    assert (broker.acks, broker.verdicts) == ([], [])


@pytest.mark.parametrize("verdict", VERDICTS)
async def test_verdict_needs_manual_acks_an_open_subscription_and_a_delivery(client, broker, verdict) -> None:
    say = VERDICTS[verdict]
    await client.publish("ch", b"x")
    auto = await client.subscribe("ch", start=EVERYTHING)
    with pytest.raises(stan_client.ManualAckError):
        say(await auto.next(5))
    with pytest.raises(stan_client.NilMessageError):
        say(Message(1, "ch"))
    subscription = await client.subscribe("ch", start=EVERYTHING, manual_acks=True)
    message = await subscription.next(5)
    await subscription.close()
    with pytest.raises(stan_client.BadSubscriptionError):
        say(message)
    assert broker.verdicts == []


async def test_member_of_a_queue_group_cannot_ack_up_to_a_message(client, broker) -> None:
    message = await (await manual(client, queue="q")).next(5)
    with pytest.raises(stan_client.NotSupportedError, match="queue group"):
        message.ack_up_to()


async def test_verdict_after_the_session_was_lost_is_dropped_and_the_message_judged_when_it_comes_again(
    broker, nats_url
) -> None:
    async with await stan_client.connect(nats_url, client_id="me", ping_interval_s=1) as client:
        subscription = await manual(client, durable="d")
        old = await subscription.next(5)
        broker.forget_clients()
        again = await subscription.next(20)
        assert again.redelivered
        assert not await old.nak(1)
        assert not await old.ack_up_to()
        assert await again.nak(2)
        await eventually(lambda: broker.verdicts)
    assert told(broker) == [(1, wire.NAK, 2_000_000_000, b"")]


# --- a callback that fails -------------------------------------------------------------------------------------------


def fail(_what: object) -> None:
    raise LookupError("no such customer")


async def fail_later(what: object) -> None:
    fail(what)


@pytest.mark.parametrize("callback", [fail, fail_later])
@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize(("on_error", "kind"), [("nak", wire.NAK), ("reject", wire.REJECT)])
async def test_failing_callback_is_told_with_its_reason(client, broker, callback, batch, on_error, kind) -> None:
    await client.publish_many("ch", [b"x"] * 2)
    await client.subscribe("ch", callback, start=EVERYTHING, batch=batch, on_error=on_error)
    await eventually(lambda: len(broker.verdicts) == 2)
    reason = b"LookupError: no such customer"
    assert told(broker) == [(1, kind, 0, reason), (2, kind, 0, reason)]
    assert broker.acks == []


@pytest.mark.parametrize("features", [Feature(0), Feature.CONTEXT | Feature.VERDICTS])
async def test_failing_callback_waits_by_default_and_at_a_server_that_cannot_do_more(
    nats_url, broker, caplog, features
) -> None:
    broker.features = features
    on_error = "wait" if features else "nak"
    async with await stan_client.connect(nats_url, client_id="me") as client:
        await client.publish("ch", b"x")
        with caplog.at_level(logging.ERROR, "stan_client"):
            subscription = await client.subscribe("ch", fail, start=EVERYTHING, on_error=on_error)
            await eventually(lambda: caplog.records)
        await subscription.close()
    assert "callback of ch failed; what it was given is not acked and will come again" in caplog.text
    assert (broker.acks, broker.verdicts) == ([], [])


async def test_callback_that_always_fails_has_one_traceback_for_many_lines(client, broker, caplog) -> None:
    await client.publish_many("ch", [b"x"] * 5)
    with caplog.at_level(logging.ERROR, "stan_client"):
        await client.subscribe("ch", fail, start=EVERYTHING, on_error="reject")
        await eventually(lambda: len(caplog.records) == 5)
    assert [bool(record.exc_info) for record in caplog.records] == [True, False, False, False, False]
    assert "failed again with LookupError('no such customer')" in caplog.text


async def test_on_error_is_refused_where_nothing_could_fail(client) -> None:
    with pytest.raises(ValueError, match="without a callback"):
        await client.subscribe("ch", on_error="nak")
    with pytest.raises(ValueError, match="again"):
        await client.subscribe("ch", fail, on_error="again")


# --- next and fetch --------------------------------------------------------------------------------------------------


async def test_next_waits_and_acks_what_it_gave_before(client, broker) -> None:
    subscription = await client.subscribe("ch", max_in_flight=1)
    with pytest.raises(stan_client.NoMessageError, match="no message came in time") as caught:
        await subscription.next(0.01)
    assert isinstance(caught.value, TimeoutError)
    waiting = asyncio.create_task(subscription.next())
    await client.publish_many("ch", [b"one", b"two"])
    assert (await waiting).data == b"one"
    assert broker.acks == []
    assert (await subscription.next(5)).data == b"two"
    assert broker.acks == [("ch", 1)]


async def test_fetch_returns_what_has_come_at_most_so_many(client, broker) -> None:
    subscription = await client.subscribe("ch", start=EVERYTHING, max_in_flight=5)
    assert await subscription.fetch(3, 0.01) == []
    await client.publish_many("ch", [b"x"] * 5)
    await eventually(lambda: subscription.queued == 5)
    assert [message.sequence for message in await subscription.fetch(3)] == [1, 2, 3]
    assert broker.acks == []
    assert [message.sequence for message in await subscription.fetch(3)] == [4, 5]
    assert await subscription.fetch(3, 0.01) == []
    await eventually(lambda: len(broker.acks) == 5)
    with pytest.raises(ValueError, match="0"):
        await subscription.fetch(0)


async def test_several_tasks_share_the_messages_and_one_that_gives_up_takes_none(client) -> None:
    subscription = await client.subscribe("ch", manual_acks=True)
    tasks = [asyncio.create_task(subscription.next(5)) for _ in range(4)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await client.publish_many("ch", [b"x"] * 3)
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert sorted(one.sequence for one in done if isinstance(one, Message)) == [1, 2, 3]
    assert isinstance(done[1], asyncio.CancelledError)


async def test_next_and_fetch_of_an_ended_subscription_or_one_with_a_callback(client) -> None:
    subscription = await client.subscribe("ch")
    waiting = asyncio.create_task(subscription.next())
    await asyncio.sleep(0)
    await subscription.close()
    for ended in (waiting, subscription.next(), subscription.fetch(2, 1)):
        with pytest.raises(stan_client.BadSubscriptionError):
            await ended
    with_callback = await client.subscribe("ch", lambda _message: None)
    with pytest.raises(TypeError):
        await with_callback.next()


# --- draining --------------------------------------------------------------------------------------------------------


async def test_drain_lets_an_async_callback_handle_what_has_come_and_acks_it(client, broker) -> None:
    go, got = asyncio.Event(), []

    async def slow(message: Message) -> None:
        await go.wait()
        got.append(message.sequence)

    subscription = await client.subscribe("ch", slow, durable="d", max_in_flight=3)
    await client.publish_many("ch", [b"x"] * 5)
    await eventually(lambda: subscription.last_sequence == 3)
    draining = asyncio.create_task(subscription.drain())
    await asyncio.sleep(0)
    go.set()
    assert await draining
    assert got == [1, 2, 3]
    assert subscription.closed
    await eventually(lambda: [sequence for _, sequence in broker.acks] == [1, 2, 3])
    assert [kind for kind, _ in broker.requests if kind in {"subclose", "unsub"}] == ["subclose"]  # the durable stays
    with pytest.raises(stan_client.BadSubscriptionError):
        await subscription.drain()


async def test_drain_gives_up_after_its_timeout_and_acks_nothing_unhandled(client, broker) -> None:
    async def never(_message: Message) -> None:
        await asyncio.Event().wait()

    subscription = await client.subscribe("ch", never)
    await client.publish("ch", b"x")
    await eventually(lambda: subscription.last_sequence == 1)
    assert not await subscription.drain(timeout_s=0.01)
    assert subscription.closed
    assert broker.acks == []


async def test_drain_in_its_own_callback_is_refused(client) -> None:
    refused = asyncio.get_running_loop().create_future()

    async def drain(_message: Message) -> None:
        try:
            await subscription.drain()
        except RuntimeError as error:
            refused.set_result(error)

    subscription = await client.subscribe("ch", drain)
    await client.publish("ch", b"x")
    assert "own callback" in str(await asyncio.wait_for(refused, 5))


async def test_drain_waits_for_the_task_that_iterates(client, broker) -> None:
    subscription = await client.subscribe("ch", start=EVERYTHING)
    await client.publish_many("ch", [b"x"] * 3)
    await eventually(lambda: subscription.last_sequence == 3)
    got, begun, go = [], asyncio.Event(), asyncio.Event()

    async def iterate() -> None:
        async for message in subscription:
            begun.set()
            await go.wait()
            got.append(message.sequence)

    task = asyncio.create_task(iterate())
    await begun.wait()
    draining = asyncio.create_task(subscription.drain())
    await asyncio.sleep(0)
    go.set()
    assert await draining
    await task
    assert got == [1, 2, 3]
    await eventually(lambda: len(broker.acks) == 3)


async def test_drain_by_the_task_that_takes_acks_what_it_has_in_hand_only(client, broker) -> None:
    subscription = await client.subscribe("ch", start=EVERYTHING)
    await client.publish_many("ch", [b"x"] * 3)
    await eventually(lambda: subscription.last_sequence == 3)
    assert len(await subscription.fetch(2)) == 2
    assert not await subscription.drain()
    await eventually(lambda: [sequence for _, sequence in broker.acks] == [1, 2])


async def test_drain_while_the_session_is_lost_ends_without_making_the_subscription_again(nats_url, broker) -> None:
    go = asyncio.Event()

    async def slow(_message: Message) -> None:
        await go.wait()

    async with await stan_client.connect(nats_url, client_id="me", ping_interval_s=1) as client:
        subscription = await client.subscribe("ch", slow, durable="d")
        await client.publish("ch", b"x")
        await eventually(lambda: subscription.last_sequence == 1)
        draining = asyncio.create_task(subscription.drain())
        await asyncio.sleep(0)
        broker.forget_clients()
        await eventually(lambda: [kind for kind, _ in broker.requests].count("connect") == 2, 20)
        await eventually(lambda: client.connected)
        go.set()
        assert await draining
        assert subscription.closed
    assert [kind for kind, _ in broker.requests].count("sub") == 1


async def test_block_of_a_subscription_acks_what_was_handled_and_closes(client, broker) -> None:
    await client.publish_many("ch", [b"x"] * 2)
    async with await client.subscribe("ch", durable="d", start=EVERYTHING, max_in_flight=1) as subscription:
        assert (await subscription.next(5)).sequence == 1
    assert subscription.closed
    await eventually(lambda: broker.acks == [("ch", 1)])
    with pytest.raises(LookupError):
        async with await client.subscribe("ch", durable="d", max_in_flight=1) as failed:
            fail(await failed.next(5))
    assert failed.closed
    async with await client.subscribe("ch", durable="d", max_in_flight=1) as resumed:
        assert (await resumed.next(5)).sequence == 2
        await resumed.close()  # by itself
    assert broker.acks == [("ch", 1)]


async def test_client_drains_its_subscriptions_and_its_publishes(nats_url, broker) -> None:
    client = await stan_client.connect(nats_url, client_id="two")
    got = []

    async def take(message: Message) -> None:
        await asyncio.sleep(0)
        got.append(message.sequence)

    await client.subscribe("ch", take, start=EVERYTHING)
    subscription = await client.subscribe("ch", start=EVERYTHING)
    await client.publish_many("ch", [b"x"] * 5)
    await eventually(lambda: subscription.last_sequence == 5)
    acked = []
    client.window.publish("other", b"x", on_ack=lambda _guid, error: acked.append(error))
    assert len(await subscription.fetch(5)) == 5
    assert await client.drain(timeout_s=10)
    assert client.closed
    assert (sorted(got), acked) == ([1, 2, 3, 4, 5], [None])
    with pytest.raises(stan_client.ConnectionClosedError):
        await client.drain()


async def test_client_that_drains_closes_after_its_timeout(nats_url, broker) -> None:
    client = await stan_client.connect(nats_url, client_id="two")
    broker.mute.add("pub")
    client.window.publish("ch", b"x", on_ack=lambda _guid, _error: None)
    assert not await client.drain(timeout_s=0.01)
    assert client.closed
