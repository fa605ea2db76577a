"""stan_client against a protocol-level fake broker: publishing and subscribing (STAN-SPEC 4, 5, 6, 14)."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
import stan_client
from stan_protocol import refusals

from tests.kit.fake_broker import eventually


@pytest.fixture
async def client(nats_url, broker):
    async with await stan_client.connect(
        nats_url, client_id="me", connect_timeout_s=30, ack_timeout_s=3, max_pub_acks_in_flight=4
    ) as client:
        yield client


# --- publish -------------------------------------------------------------------------------------------------------


async def test_publish_carries_client_and_connection_id_and_returns_its_guid(client, broker) -> None:
    published = await client.publish("orders.new", b"\x00data", reply="answer.here")

    (publish,) = broker.publishes
    assert (publish.client_id, publish.guid, publish.subject) == (b"me", published.guid.encode(), b"orders.new")
    assert (publish.reply, publish.data) == (b"answer.here", b"\x00data")
    assert publish.conn_id == broker.clients[b"me"].conn_id


async def test_publish_refused_raises_the_servers_text(client, broker) -> None:
    broker.refuse["pub"] = refusals.TOO_MANY_CHANNELS

    with pytest.raises(stan_client.ServerError, match=refusals.TOO_MANY_CHANNELS):
        await client.publish("ch", b"one")


async def test_publish_without_ack_times_out(client, broker) -> None:
    broker.mute.add("pub")

    with pytest.raises(stan_client.PublishAckTimeoutError, match="stan: publish ack timeout"):
        await client.publish("ch", b"one")


async def test_publish_larger_than_nats_takes_is_refused_before_it_is_sent(client, broker) -> None:
    with pytest.raises(stan_client.MessageTooLargeError):
        await client.publish("ch", bytes(1024 * 1024))

    await client.publish("ch", b"still connected")
    assert [publish.data for publish in broker.publishes] == [b"still connected"]


@pytest.mark.parametrize("channel", ["", "a..b", "a b", "a\r\nb", "a.*"])
async def test_publish_to_no_channel_name_is_refused_before_it_is_sent(client, broker, channel) -> None:
    with pytest.raises(stan_client.InvalidNameError):
        await client.publish(channel, b"one")

    await client.publish("ch", b"still connected")
    assert len(broker.publishes) == 1


async def test_publish_in_the_window_calls_back_once_with_guid_and_error(client, broker) -> None:
    acked: list[tuple[str, object]] = []

    guid = client.window.publish("ch", b"one", on_ack=lambda told, error: acked.append((told.guid, error)))
    await eventually(lambda: acked)

    assert acked == [(guid, None)]


async def test_publish_async_returns_a_future_of_the_ack(client, broker) -> None:
    futures = [await client.publish_async("ch", b"%d" % number) for number in range(20)]
    told = await asyncio.gather(*futures)
    assert [one.guid.encode() for one in told] == [publish.guid for publish in broker.publishes]
    with pytest.raises(stan_client.InvalidNameError):
        await client.publish_async("a..b", b"x")


async def test_publish_async_waits_for_room_in_the_window(client, broker) -> None:
    broker.mute.add("pub")
    lost = [await client.publish_async("ch", b"lost") for _ in range(4)]
    with pytest.raises(stan_client.NotSentError):
        await client.publish_async("ch", b"not sent", timeout_s=0.05)
    await client.close()
    ended = await asyncio.gather(*lost, return_exceptions=True)
    assert [type(error) for error in ended] == [stan_client.ConnectionClosedError] * 4
    with pytest.raises(stan_client.ConnectionClosedError):
        await client.publish_async("ch", b"closed")


async def test_publish_beyond_the_window_is_refused_until_there_is_room(client, broker) -> None:
    broker.mute.add("pub")
    for _ in range(4):
        client.window.publish("ch", b"one", on_ack=lambda _guid, _error: None)
    with pytest.raises(stan_client.TooManyInFlightError):
        client.window.publish("ch", b"one")
    broker.mute.clear()

    assert await client.window.room() == 4


async def test_publish_many_is_bounded_and_acks_all_in_order(client, broker) -> None:
    assert await client.publish_many("ch", (b"%d" % number for number in range(100))) == 100

    assert [message.data for message in broker.channels["ch"]] == [b"%d" % number for number in range(100)]


async def test_publish_many_raises_with_the_places_of_the_failures(client, broker) -> None:
    broker.refuse["pub"] = refusals.TOO_MANY_CHANNELS

    with pytest.raises(stan_client.PublishManyError) as caught:
        await client.publish_many("ch", [b"one", b"two"])

    assert caught.value.acked == 0
    assert [(place, str(error)) for place, error in caught.value.failures] == [
        (0, refusals.TOO_MANY_CHANNELS),
        (1, refusals.TOO_MANY_CHANNELS),
    ]


# --- subscribe -----------------------------------------------------------------------------------------------------


async def test_callback_gets_all_fields_and_is_acked_after_it_returned(client, broker) -> None:
    got: list[stan_client.Message] = []
    await client.subscribe("ch", got.append)

    await client.publish("ch", b"one", reply="answer")
    await eventually(lambda: broker.acks)

    (message,) = got
    assert (message.sequence, message.channel, message.data, message.reply) == (1, "ch", b"one", "answer")
    assert message.timestamp_ns == broker.channels["ch"][0].timestamp
    assert (message.redelivered, message.redelivery_count) == (False, 0)
    assert broker.acks == [("ch", 1)]


async def test_window_larger_than_the_backlog_and_smaller_delivers_everything_in_order(client, broker) -> None:
    await client.publish_many("ch", [b"%d" % number for number in range(50)])
    for window in (3, 1000):
        got: list[int] = []
        subscription = await client.subscribe(
            "ch",
            lambda message, got=got: got.append(message.sequence),
            start=stan_client.everything(),
            max_in_flight=window,
        )
        await eventually(lambda got=got: len(got) == 50)
        assert got == list(range(1, 51))
        await subscription.close()


async def test_batch_callback_takes_lists(client, broker) -> None:
    await client.publish_many("ch", [b"x"] * 20)
    got: list[list[stan_client.Message]] = []

    await client.subscribe("ch", got.append, start=stan_client.everything(), batch=True)
    await eventually(lambda: len(broker.acks) == 20)

    assert [message.sequence for batch in got for message in batch] == list(range(1, 21))


async def test_async_callback_is_awaited_one_message_after_the_other(client, broker) -> None:
    await client.publish_many("ch", [b"x"] * 20)
    running = peak = 0
    got: list[int] = []

    async def callback(message: stan_client.Message) -> None:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(0)
        got.append(message.sequence)
        running -= 1

    await client.subscribe("ch", callback, start=stan_client.everything(), max_in_flight=4)
    await eventually(lambda: len(broker.acks) == 20)

    assert got == list(range(1, 21))
    assert peak == 1


async def test_failed_callback_does_not_ack_and_the_message_comes_again(client, broker) -> None:
    got: list[bool] = []

    def callback(message: stan_client.Message) -> None:
        got.append(message.redelivered)
        if len(got) == 1:
            raise RuntimeError

    await client.subscribe("ch", callback)
    await client.publish("ch", b"one")
    await eventually(lambda: got == [False])
    assert broker.acks == []
    await broker.redeliver()

    await eventually(lambda: broker.acks == [("ch", 1)])
    assert got == [False, True]


async def test_iteration_acks_a_message_when_the_next_is_asked_for(client, broker) -> None:
    await client.publish_many("ch", [b"one", b"two"])
    subscription = await client.subscribe("ch", start=stan_client.everything())

    assert (await anext(subscription)).data == b"one"
    assert broker.acks == []
    assert (await anext(subscription)).data == b"two"

    await eventually(lambda: broker.acks == [("ch", 1)])
    await subscription.close()
    assert [message async for message in subscription] == []


async def test_manual_ack_frees_the_window(client, broker) -> None:
    await client.publish_many("ch", [b"one", b"two"])
    subscription = await client.subscribe("ch", start=stan_client.everything(), max_in_flight=1, manual_acks=True)

    first = await anext(subscription)
    assert broker.subscriptions[0].pending == {1}
    first.ack()

    assert (await anext(subscription)).sequence == 2


async def test_ack_in_auto_mode_of_no_message_or_of_a_closed_subscription_is_refused(client, broker) -> None:
    await client.publish("ch", b"one")
    auto = await client.subscribe("ch", start=stan_client.everything())
    manual = await client.subscribe("ch", start=stan_client.everything(), manual_acks=True)

    with pytest.raises(stan_client.ManualAckError, match="cannot manually ack in auto-ack mode"):
        (await anext(auto)).ack()
    with pytest.raises(stan_client.NilMessageError):
        stan_client.Message(1, "ch").ack()
    message = await anext(manual)
    await manual.close()
    with pytest.raises(stan_client.BadSubscriptionError):
        message.ack()


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (stan_client.everything(), [1, 2, 3, 4]),
        (stan_client.last_received(), [3, 4]),
        (stan_client.new_only(), [4]),
        (stan_client.from_sequence(2), [2, 3, 4]),
        (stan_client.ago(3600), [1, 2, 3, 4]),
        (stan_client.ago(0), [4]),
        (stan_client.from_time(datetime.now(UTC) - timedelta(hours=1)), [1, 2, 3, 4]),
        (stan_client.from_time(datetime.now(UTC) + timedelta(hours=1)), [4]),
    ],
)
async def test_start_positions_begin_where_they_say(client, broker, start, expected) -> None:
    await client.publish_many("ch", [b"one", b"two", b"three"])
    got: list[int] = []

    await client.subscribe("ch", lambda message: got.append(message.sequence), start=start)
    await client.publish("ch", b"four")

    await eventually(lambda: got[-1:] == [4])
    assert got == expected


async def test_durable_resumes_after_close_and_starts_anew_after_unsubscribe(client, broker) -> None:
    await client.publish_many("ch", [b"one", b"two"])

    async def first_sequence() -> tuple[int, stan_client.Subscription]:
        durable = await client.subscribe("ch", durable="d", start=stan_client.everything(), manual_acks=True)
        message = await anext(durable)
        message.ack()
        return message.sequence, durable

    sequence, durable = await first_sequence()
    assert sequence == 1
    await durable.close()
    sequence, durable = await first_sequence()
    assert sequence == 2
    await durable.unsubscribe()
    sequence, durable = await first_sequence()
    assert sequence == 1


async def test_subscription_refused_raises_the_servers_text(client, broker) -> None:
    await client.subscribe("ch", durable="d")

    with pytest.raises(stan_client.ServerError, match=refusals.DUPLICATE_DURABLE):
        await client.subscribe("ch", durable="d")
    with pytest.raises(stan_client.ServerError, match=refusals.INVALID_ACK_WAIT):
        await client.subscribe("ch", ack_wait_s=0)


async def test_subscribe_unanswered_times_out_and_closes_by_message_inbox(client, broker) -> None:
    broker.mute.add("sub")

    with pytest.raises(stan_client.SubscribeRequestTimeoutError):
        await client.subscribe("ch", timeout_s=1)
    await eventually(lambda: any(kind == "subclose" for kind, _ in broker.requests))

    asked = next(request for kind, request in broker.requests if kind == "sub")
    closed = next(request for kind, request in broker.requests if kind == "subclose")
    assert closed.inbox == asked.inbox


async def test_subscription_close_unanswered_may_be_tried_again(client, broker) -> None:
    subscription = await client.subscribe("ch")
    broker.mute.add("subclose")
    with pytest.raises(stan_client.UnsubscribeRequestTimeoutError):
        await subscription.close(timeout_s=1)
    broker.mute.clear()

    await subscription.close()

    with pytest.raises(stan_client.BadSubscriptionError):
        await subscription.close()


async def test_subscription_close_at_an_old_server_is_not_supported(nats_url, broker) -> None:
    broker.protocol = 0
    async with await stan_client.connect(nats_url, client_id="old") as client:
        subscription = await client.subscribe("ch")
        await client.publish("ch", b"one")

        with pytest.raises(stan_client.NotSupportedError):
            await subscription.close()
        await subscription.unsubscribe()

    assert [publish.conn_id for publish in broker.publishes] == [b""]


async def test_redelivered_messages_beyond_the_queue_are_left_to_come_again(client, broker) -> None:
    await client.publish_many("ch", [b"x"] * 3)
    subscription = await client.subscribe("ch", start=stan_client.everything(), max_in_flight=3)
    await eventually(lambda: subscription.queued == 3)

    for _ in range(5):
        await broker.redeliver()
    await client.publish("other", b"")

    assert subscription.queued <= 6
    got = [(await anext(subscription)).sequence for _ in range(3)]
    assert got == [1, 2, 3]
