"""stan_client against a fake broker: headers, keys, sequences, timeouts of single calls, and middleware."""

import asyncio

import pytest
import stan_client
from stan_client import Message, NewMessage
from stan_protocol import refusals
from stan_protocol.features import Feature

from tests.kit.fake_broker import FakeBroker, eventually

HEADERS = {"trace": "a1", "raw": b"\xff"}
STORED = {"trace": b"a1", "raw": b"\xff"}


async def connect(url: str, client_id: str = "me", **options) -> stan_client.Client:
    return await stan_client.connect(url, client_id=client_id, **options)


@pytest.fixture
async def client(nats_url, broker):
    async with await connect(nats_url, connect_timeout_s=5, ack_timeout_s=5, max_pub_acks_in_flight=4) as client:
        yield client


def stored(broker: FakeBroker, channel: str) -> list[tuple[bytes, dict[str, bytes], bytes, bytes]]:
    return [
        (one.data, {header.key.decode(): header.value for header in one.headers}, one.key, one.reply)
        for one in broker.channels[channel]
    ]


# --- headers, keys, sequences ----------------------------------------------------------------------------------------


async def test_headers_and_key_arrive_and_the_ack_tells_the_sequence(client, broker) -> None:
    subscription = await client.subscribe("ch")
    first = await client.publish("ch", b"one", headers=HEADERS, key="customer 7", reply="r")
    second = await client.publish("ch", b"two")
    assert (first.guid, second.guid) == (broker.publishes[0].guid.decode(), broker.publishes[1].guid.decode())
    assert (first.sequence, second.sequence) == (1, 2)
    message, plain = await anext(subscription), await anext(subscription)
    assert (message.headers, message.key, message.reply) == (STORED, b"customer 7", "r")
    assert (plain.headers, plain.key) == ({}, b"")
    again = await client.publish("ch", message.data, headers=message.headers, key=message.key)
    assert again.sequence == 3
    assert stored(broker, "ch")[2] == (b"one", STORED, b"customer 7", b"")


async def test_publish_async_takes_them_and_tells_the_sequence_if_asked_to(client, broker) -> None:
    told: list[tuple[str, int | None]] = []
    guids = [
        client.window.publish(
            "ch",
            b"one",
            headers=HEADERS,
            key=b"k",
            on_ack=lambda one, _error: told.append((one.guid, one.sequence)),
            numbered=numbered,
        )
        for numbered in (True, False)
    ]
    await eventually(lambda: len(told) == 2)
    assert told == [(guids[0], 1), (guids[1], None)]
    assert stored(broker, "ch") == [(b"one", STORED, b"k", b"")] * 2


async def test_publish_many_takes_data_alone_and_messages(client, broker) -> None:
    messages = [b"one", NewMessage(b"two", {"own": "1"}, key="k2", reply="r2"), b"three", NewMessage(b"four")]
    assert await client.publish_many("ch", messages, headers=HEADERS, key="k", reply="r") == 4
    assert stored(broker, "ch") == [
        (b"one", STORED, b"k", b"r"),
        (b"two", {"own": b"1"}, b"k2", b"r2"),
        (b"three", STORED, b"k", b"r"),
        (b"four", {}, b"", b""),
    ]


async def test_what_no_server_takes_is_refused_before_it_is_sent(client, broker) -> None:
    with pytest.raises(stan_client.InvalidKeyError, match="at most 1024"):
        await client.publish("ch", b"x", key="k" * 1025)
    with pytest.raises(stan_client.InvalidHeadersError, match="at most 65536"):
        client.window.publish("ch", b"x", headers={"a": b"v" * 65536})
    with pytest.raises(stan_client.InvalidHeadersError, match="name"):
        await client.publish_many("ch", [NewMessage(b"x", {b"bytes": "v"})])
    with pytest.raises(stan_client.MessageTooLargeError):
        await client.publish("ch", bytes(1024 * 1024 - 100), headers={"a": b"v" * 200})
    await client.publish("ch", b"still connected")
    assert [publish.data for publish in broker.publishes] == [b"still connected"]


async def test_an_old_server_gets_no_headers_and_no_key(nats_url, broker) -> None:
    broker.features = Feature(0)
    async with await connect(nats_url) as client:
        for asked in ({"headers": HEADERS}, {"key": "k"}):
            with pytest.raises(stan_client.NotSupportedError, match="headers and keys are not supported"):
                await client.publish("ch", b"x", **asked)
            with pytest.raises(stan_client.NotSupportedError):
                client.window.publish("ch", b"x", **asked)
            with pytest.raises(stan_client.NotSupportedError):
                await client.publish_many("ch", [b"x"], **asked)
        plain = await client.publish("ch", b"plain")
        assert plain.sequence is None
    assert [(publish.data, publish.numbered) for publish in broker.publishes] == [(b"plain", False)]


async def test_recovery_onto_an_older_server_fails_publishes_that_it_would_strip(nats_url, broker) -> None:
    client = await connect(nats_url, ping_interval_s=1, republish=True)
    broker.mute.add("pub")
    carrying = asyncio.create_task(client.publish("ch", b"carrying", key="k"))
    plain = asyncio.create_task(client.publish("ch", b"plain"))
    await eventually(lambda: len(broker.publishes) == 2)
    broker.channels.clear()
    broker.features = Feature(0)
    broker.mute.clear()
    broker.forget_clients()

    with pytest.raises(stan_client.NotSupportedError):
        await carrying
    assert (await plain).guid == broker.publishes[1].guid.decode()
    assert stored(broker, "ch") == [(b"plain", {}, b"", b"")]
    await client.close()


async def test_recovery_keeps_headers_and_key(nats_url, broker) -> None:
    client = await connect(nats_url, ping_interval_s=1, republish=True)
    broker.mute.add("pub")
    publish = asyncio.create_task(client.publish("ch", b"x", headers=HEADERS, key="k"))
    await eventually(lambda: broker.publishes)
    broker.channels.clear()
    broker.mute.clear()
    broker.forget_clients()

    assert (await publish).sequence == 1
    assert stored(broker, "ch") == [(b"x", STORED, b"k", b"")]
    await client.close()


# --- timeouts of single calls ----------------------------------------------------------------------------------------


async def test_a_short_publish_does_not_end_the_others(client, broker) -> None:
    broker.mute.add("pub")
    usual = asyncio.create_task(client.publish("ch", b"usual"))
    await eventually(lambda: broker.publishes)
    with pytest.raises(stan_client.PublishAckTimeoutError) as caught:
        await client.publish("ch", b"short", timeout_s=0.05)
    assert not isinstance(caught.value, stan_client.NotSentError)
    assert not usual.done()
    usual.cancel()


async def test_a_publish_without_room_in_time_was_not_sent(client, broker) -> None:
    broker.mute.add("pub")
    for _ in range(4):
        client.window.publish("ch", b"full", on_ack=lambda _guid, _error: None)
    with pytest.raises(stan_client.NotSentError, match="not sent"):
        await client.publish("ch", b"x", timeout_s=0.05)
    with pytest.raises(stan_client.PublishManyError) as caught:
        await client.publish_many("ch", [b"x", b"y"], timeout_s=0.05)
    assert [(place, type(error)) for place, error in caught.value.failures] == [(0, stan_client.NotSentError)]
    with pytest.raises(stan_client.NotSentError):
        await client.publish("ch", b"x", timeout_s=0)
    await eventually(lambda: len(broker.publishes) == 4)


async def test_subscribe_unsubscribe_close_and_fetch_wait_as_long_as_they_are_told(client, broker) -> None:
    subscription = await client.subscribe("ch")
    broker.mute.update({"sub", "unsub", "subclose", "close"})
    with pytest.raises(stan_client.SubscribeRequestTimeoutError):
        await client.subscribe("other", timeout_s=0.05)
    with pytest.raises(stan_client.UnsubscribeRequestTimeoutError):
        await subscription.close(timeout_s=0.05)
    with pytest.raises(stan_client.UnsubscribeRequestTimeoutError):
        await subscription.unsubscribe(timeout_s=0.05)
    with pytest.raises(stan_client.FetchTimeoutError):
        await client.fetch("ch", timeout_s=0.05)
    with pytest.raises(stan_client.FetchTimeoutError):
        [found async for found in client.read("ch", timeout_s=0.05)]
    with pytest.raises(stan_client.RequestTimeoutError, match=r"after 0\.05 s"):
        await client.channels.info(["ch"], timeout_s=0.05)
    with pytest.raises(stan_client.RequestTimeoutError, match=r"after 0\.05 s"):
        await client.bookmarks.set("me", {"ch": 1}, timeout_s=0.05)
    with pytest.raises(stan_client.RequestTimeoutError, match=r"after 0\.05 s"):
        await client.admin.within(0.05).channels()
    with pytest.raises(stan_client.CloseRequestTimeoutError):
        await client.close(timeout_s=0.05)


async def test_calls_with_a_timeout_do_not_wait_longer_for_a_session_that_is_lost(client, broker) -> None:
    subscription = await client.subscribe("ch")
    client._sessions.current.lose(stan_client.PingFailureError())
    broker.mute.add("connect")
    with pytest.raises(stan_client.NotSentError):
        await client.publish("ch", b"x", timeout_s=0.05)
    with pytest.raises(stan_client.SubscribeRequestTimeoutError):
        await client.subscribe("other", timeout_s=0.05)
    with pytest.raises(stan_client.UnsubscribeRequestTimeoutError):
        await subscription.close(timeout_s=0.05)
    assert len(client._sessions._waiters) == len(client._publisher._room_waiters) == 0, (
        "who gives up leaves nothing behind"
    )


# --- middleware ------------------------------------------------------------------------------------------------------


async def test_middleware_runs_around_publishes_and_callbacks_outermost_first(nats_url, broker) -> None:
    seen: list[tuple[str, str, str, int]] = []

    def named(name):
        async def middleware(context, message, call_next):
            assert context.client is client
            seen.append((name, context.kind, context.channel, context.attempt))
            context.own.setdefault("names", []).append(name)
            told = await call_next(message)
            assert context.own["names"] == ["a", "b"]
            return told

        return middleware

    got: list[bytes] = []
    async with await connect(nats_url, middleware=[named("a"), named("b")]) as client:
        await client.subscribe("ch", lambda message: got.append(message.data))
        told = await client.publish("ch", b"one")
        assert told.sequence == 1
        await eventually(lambda: broker.acks == [("ch", 1)])
    assert got == [b"one"]
    assert seen == [(name, kind, "ch", 1) for kind in ("publish", "handle") for name in ("a", "b")]


async def test_publish_many_in_middleware_keeps_the_order_and_the_window(nats_url, broker) -> None:
    async def mark(context, message, call_next):
        return await call_next(message.with_headers({"n": message.data}))

    async with await connect(nats_url, middleware=[mark], max_pub_acks_in_flight=4) as client:
        assert await client.publish_many("ch", (b"%d" % number for number in range(100)), key="k") == 100
    assert stored(broker, "ch") == [(b"%d" % n, {"n": b"%d" % n}, b"k", b"") for n in range(100)]


async def test_publish_many_in_middleware_ends_with_the_first_failure(nats_url, broker) -> None:
    async def broken(context, message, call_next):
        if message.data == b"broken":
            raise RuntimeError("broken")
        return await call_next(message)

    async with await connect(nats_url, middleware=[broken], max_pub_acks_in_flight=1) as client:
        with pytest.raises(stan_client.PublishManyError) as caught:
            await client.publish_many("ch", [b"one", NewMessage(b"two", key="k" * 2000), b"three"])
        assert caught.value.acked == 1
        assert [(place, type(error)) for place, error in caught.value.failures] == [(1, stan_client.InvalidKeyError)]
        with pytest.raises(RuntimeError, match="broken"):
            await client.publish_many("ch", [b"broken", b"four"])
    assert [message.data for message in broker.channels["ch"]] == [b"one"]


async def test_a_message_whose_middleware_fails_comes_again_and_one_that_is_kept_back_is_acked(
    nats_url, broker
) -> None:
    attempts: list[int] = []
    got: list[bytes] = []

    async def picky(context, message, call_next):
        if context.kind == "publish":
            return await call_next(message)
        attempts.append(context.attempt)
        if message.data == b"kept back":
            return None
        if context.attempt == 1:
            raise RuntimeError("not yet")
        return await call_next(message)

    async with await connect(nats_url, middleware=[picky]) as client:
        await client.subscribe("ch", lambda message: got.append(message.data))
        await client.publish("ch", b"one")
        await eventually(lambda: attempts == [1])
        await broker.redeliver()
        await eventually(lambda: broker.acks == [("ch", 1)])
        await client.publish("ch", b"kept back")
        await eventually(lambda: broker.acks == [("ch", 1), ("ch", 2)])
    assert (attempts, got) == ([1, 2, 1], [b"one"])


async def test_a_program_that_iterates_runs_the_middleware_itself(nats_url, broker) -> None:
    async def handle(message: Message) -> None:
        await client.publish("done", message.data)

    async with await connect(nats_url, middleware=[stan_client.Correlation()]) as client:
        subscription = await client.subscribe("ch")
        await client.publish("ch", b"one")
        message = await anext(subscription)
        assert stan_client.correlation_id.get() == ""
        await subscription.handle(message, handle)
    ((_, headers, _, _),) = stored(broker, "done")
    assert headers == message.headers


async def test_no_middleware_runs_around_lists_and_publish_async(nats_url, broker) -> None:
    seen: list[str] = []

    async def note(context, message, call_next):
        seen.append(context.kind)
        return await call_next(message)

    got: list[list[Message]] = []
    async with await connect(nats_url, middleware=[note]) as client:
        await client.subscribe("ch", got.append, batch=True)
        client.window.publish("ch", b"one")
        await eventually(lambda: broker.acks)
    assert ([len(batch) for batch in got], seen) == ([1], [])


async def test_retry_publishes_again_what_passes_with_a_new_guid(nats_url, broker) -> None:
    broker.refuse["pub"] = refusals.BUSY
    retry = stan_client.Retry(1.0, pause_s=0.01, pause_max_s=0.02, attempts_max=1000, least=1000)
    async with await connect(nats_url, middleware=[retry]) as client:
        publish = asyncio.create_task(client.publish("ch", b"one"))
        await eventually(lambda: len(broker.publishes) >= 3)
        broker.refuse.clear()
        assert (await publish).sequence == 1
    broker.refuse["pub"] = refusals.BUSY
    retry = stan_client.Retry(1.0, pause_s=60, pause_max_s=60)
    async with await connect(nats_url, middleware=[retry]) as client:
        with pytest.raises(stan_client.ServerError, match=refusals.BUSY):  # at once, as its pause would be longer
            await client.publish("ch", b"two", timeout_s=20)
    guids = [publish.guid for publish in broker.publishes]
    assert len(set(guids)) == len(guids)


async def test_a_correlation_id_survives_publish_handle_publish_and_redelivery(nats_url, broker) -> None:
    ids: dict[str, list[str]] = {"in": [], "out": []}

    async def forward(message: Message) -> None:
        ids["in"].append(stan_client.correlation_id.get())
        await client.publish("out", message.data)
        if not message.redelivered:
            raise RuntimeError("once more")

    async def note(message: Message) -> None:
        await asyncio.sleep(0)
        ids["out"].append(stan_client.correlation_id.get())

    async with await connect(nats_url, middleware=[stan_client.Correlation()]) as client:
        await client.subscribe("in", forward)
        await client.subscribe("out", note)
        await client.publish("in", b"one", headers={"stan-correlation-id": "id-1"})
        await eventually(lambda: ("out", 1) in broker.acks)  # or it would be sent again with the other
        await broker.redeliver()
        await eventually(lambda: ("in", 1) in broker.acks and len(ids["out"]) == 2)
    assert ids == {"in": ["id-1", "id-1"], "out": ["id-1", "id-1"]}
