"""stan_client against the real broker: what the fake one cannot vouch for."""

import pytest
import stan_client
from stan_bench.bench.bench_broker import own_broker
from stan_client import NewMessage
from stan_protocol import refusals

from stan.limits import HEADERS_BYTES_MAX, KEY_BYTES_MAX
from tests.kit.fake_broker import eventually


@pytest.fixture
async def url():
    async with own_broker("test-cluster") as target:
        yield target.server


async def test_whole_life_of_a_client_with_the_real_broker(url) -> None:
    """Publish, window, durable, queue group, duplicate id and refusals, one broker start for all."""
    async with await stan_client.connect(url, client_id="me") as client:
        assert await client.publish_many("ch", [b"%d" % number for number in range(500)]) == 500

        plain: list[bytes] = []
        await client.subscribe(
            "ch", lambda message: plain.append(message.data), start=stan_client.everything(), max_in_flight=7
        )
        await eventually(lambda: len(plain) == 500)
        assert plain == [b"%d" % number for number in range(500)]

        durable = await client.subscribe("ch", durable="d", start=stan_client.from_sequence(499), manual_acks=True)
        first, second = await anext(durable), await anext(durable)
        first.ack()
        await durable.close()
        durable = await client.subscribe("ch", durable="d", manual_acks=True)
        again = await anext(durable)
        assert (again.sequence, again.redelivered, again.redelivery_count) == (second.sequence, True, 1)
        with pytest.raises(stan_client.ServerError, match=refusals.DUPLICATE_DURABLE):
            await client.subscribe("ch", durable="d")

        shared: list[list[int]] = [[], []]
        for member in shared:
            await client.subscribe("ch", lambda message, member=member: member.append(message.sequence), queue="q")
        await client.publish_many("ch", [b"x"] * 100)
        await eventually(lambda: len(shared[0]) + len(shared[1]) == 100)
        assert sorted(shared[0] + shared[1]) == list(range(501, 601))

        with pytest.raises(stan_client.ServerError, match=refusals.CLIENT_REGISTERED):
            await stan_client.connect(url, client_id="me")
        with pytest.raises(stan_client.InvalidNameError, match=refusals.INVALID_SUBJECT):
            await client.subscribe("a..b")


async def test_messages_without_acks_are_stored_in_order_between_those_with_acks(url) -> None:
    """Through publish, publish_many and middleware; more than the window has room for; the window stays empty."""

    async def mark(context, message, proceed):
        return await proceed(message.with_headers({"marked": "1"}))

    async with await stan_client.connect(url, client_id="me", max_pub_acks_in_flight=2) as client:
        told = await client.publish("ch", b"first", ack="none", key="k", headers={"a": "1"})
        assert (len(told.guid) > 0, told.sequence, told.acked_as) == (True, None, "")
        assert await client.publish_many("ch", [b"many"] * 3000, ack="none") == 3000
        acked = await client.publish("ch", b"acked")
        assert (acked.sequence, acked.acked_as) == (3002, "synced")
        with pytest.raises(ValueError, match="ack is one of commit, none"):
            await client.publish("ch", b"x", ack="append")  # type: ignore[arg-type]
        async with await stan_client.connect(url, client_id="other", middleware=[mark]) as other:
            await other.publish("ch", b"marked", ack="none")
            assert await other.publish_many("ch", [b"marked"] * 2, ack="none") == 2
            assert (await other.publish("ch", b"last")).sequence == 3006
        sub = await client.subscribe("ch", start=stan_client.everything(), max_in_flight=4000)
        got = [await anext(sub) for _ in range(3006)]
        assert [one.data for one in got] == [b"first", *[b"many"] * 3000, b"acked", *[b"marked"] * 3, b"last"]
        assert (got[0].key, got[0].headers) == (b"k", {"a": b"1"})
        assert [len(one.headers) for one in got[3002:]] == [1, 1, 1, 1]


async def test_a_refused_message_without_ack_is_told_nobody_and_the_next_one_is_stored(url) -> None:
    async with await stan_client.connect(url, client_id="me") as client:
        with pytest.raises(stan_client.InvalidNameError):
            await client.publish("a..b", b"x", ack="none")
        await client.publish("_STAN.x", b"refused by the server", ack="none")
        assert (await client.publish("ch", b"x")).sequence == 1


async def test_headers_key_and_sequence_round_trip_with_the_real_broker(url) -> None:
    """Delivery, redelivery, fetch, read, and what the server would refuse is refused before."""
    headers, stored = {"trace": "a1", "raw": b"\xff"}, {"trace": b"a1", "raw": b"\xff"}
    async with await stan_client.connect(url, client_id="me") as client:
        told = [await client.publish("ch", b"%d" % number, headers=headers, key="customer 7") for number in range(3)]
        assert [one.sequence for one in told] == [1, 2, 3]
        assert await client.publish_many("ch", [b"plain", NewMessage(b"own", {"a": "1"}, key=b"\xff")]) == 2

        durable = await client.subscribe("ch", durable="d", start=stan_client.everything(), manual_acks=True)
        first = await anext(durable)
        await durable.close()
        durable = await client.subscribe("ch", durable="d", manual_acks=True)
        again = await anext(durable)
        assert (again.sequence, again.redelivered) == (1, True)
        for message in (first, again):
            assert (message.headers, message.key) == (stored, b"customer 7")

        expected = [(stored, b"customer 7")] * 3 + [({}, b""), ({"a": b"1"}, b"\xff")]
        assert [(message.headers, message.key) for message in await client.fetch("ch")] == expected
        assert [(message.headers, message.key) async for message in client.read("ch")] == expected

        most = {"a": b"v" * (HEADERS_BYTES_MAX - 16)}
        with pytest.raises(stan_client.InvalidHeadersError):
            await client.publish("ch", b"x", headers={"a": b"v" * HEADERS_BYTES_MAX})
        largest = await client.publish("ch", b"x", headers=most, key="k" * KEY_BYTES_MAX)
        assert largest.sequence == 6
        (message,) = await client.fetch("ch", start=stan_client.from_sequence(6))
        assert (message.headers, len(message.key)) == (most, KEY_BYTES_MAX)


async def test_a_correlation_id_goes_with_the_messages_of_the_real_broker(url) -> None:
    """Publish, handle, publish, redelivery; and the line of the log and the time of each."""
    ids: list[str] = []
    times: list[tuple[str, str, bool]] = []

    async def forward(message: stan_client.Message) -> None:
        ids.append(stan_client.correlation_id.get())
        await client.publish("out", message.data)
        if not message.redelivered:
            raise RuntimeError("once more")

    middleware = [
        stan_client.Correlation(),
        stan_client.Retry(),
        stan_client.Log(),
        stan_client.Timing(lambda kind, channel, seconds, error: times.append((kind, channel, error is None))),
    ]
    async with await stan_client.connect(url, client_id="me", middleware=middleware) as client:
        await client.subscribe("in", forward, ack_wait_s=1)
        await client.publish("in", b"one")
        await eventually(lambda: len(times) == 5)
        sent = [message.headers["stan-correlation-id"].decode() for message in await client.fetch("out")]
        (begun,) = [message.headers["stan-correlation-id"].decode() for message in await client.fetch("in")]
    assert sent == ids == [begun, begun]
    assert sorted(times) == [
        ("handle", "in", False),
        ("handle", "in", True),
        ("publish", "in", True),
        ("publish", "out", True),
        ("publish", "out", True),
    ]


async def test_slips_in_arguments_have_errors_that_say_what_is_right(nats_url, broker) -> None:
    client = await stan_client.connect(nats_url, client_id="me")
    with pytest.raises(TypeError, match=r"a start is made by everything\(\), .* it is not 'first'"):
        await client.subscribe("a", start="first")
    for call in (client.publish("a.*", b"x"), client.subscribe("a.*")):
        with pytest.raises(stan_client.InvalidNameError, match=r"invalid subject: 'a\.\*' .* has no wildcards"):
            await call
    for name in ("", "a b", "a..b", "a/b"):
        with pytest.raises(stan_client.InvalidNameError, match="can be no channel: tokens separated by single dots"):
            await client.subscribe(name)
    with pytest.raises(ValueError, match="on_error is one of wait, nak, reject, not 'nope'"):
        await client.subscribe("a", lambda _message: None, on_error="nope")
    broker.refuse["pub"] = refusals.MESSAGE_TOO_LARGE
    with pytest.raises(stan_client.MessageTooLargeError):
        await client.publish("a", b"x")
    await client.close()
