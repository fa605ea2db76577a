"""Conformance checklist C and D: subscription requests and start positions (STAN-SPEC 5, 16 C and D), byte by byte."""

import asyncio

import pytest
from stan_protocol.proto import wire_pb2 as pb

from tests.conformance.wire import (
    FIRST,
    LAST_RECEIVED,
    NEW_ONLY,
    SEQUENCE,
    SUB,
    SUB_CLOSE,
    TIME_DELTA,
    UNSUB,
    Sub,
    unique,
)
from tests.kit.server import StanServer

SECOND = 10**9


@pytest.fixture(scope="module", params=["FILE", "MEMORY"])
def server(request, tmp_path_factory):
    with StanServer(tmp_path_factory.mktemp("server"), "-mc", "0", "-mm", "10", store=request.param) as server:
        yield server


@pytest.mark.parametrize(
    ("subject", "error"),
    [
        (SUB, "stan: invalid subscription request"),
        (UNSUB, "stan: invalid unsubscribe request"),
        (SUB_CLOSE, "stan: invalid unsubscribe request"),
    ],
)
async def test_47_garbage_is_refused_by_the_name_of_the_request(talk, subject, error):
    assert await talk.ask(subject, b"dummy", pb.SubscriptionResponse) == pb.SubscriptionResponse(error=error.encode())


async def test_48_empty_request_misses_the_client_id(talk):
    assert (await talk.ask(SUB, b"", pb.SubscriptionResponse)).error == b"stan: clientID missing"


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        *(({"wait": wait}, "stan: invalid ack wait time, should be >= 1s") for wait in (0, -1)),
        *(({"in_flight": size}, "stan: invalid MaxInflight, should be >= 1") for size in (0, -1)),
        *(({"start": start}, "stan: invalid start position") for start in (-1, 5)),
    ],
)
async def test_49_50_51_numbers_out_of_range_are_refused(me, settings, error):
    assert (await me.subscribe("foo", **settings)).error == error


@pytest.mark.parametrize(
    "channel", ["foo*.bar", "foo.bar*", "foo.>.*", "foo.*", ">", "", ".a", "a.", "a..b", "a/b", "a b"]
)
async def test_52_invalid_channel_is_refused(me, channel):
    assert (await me.subscribe(channel)).error == "stan: invalid subject"


async def test_53_durable_name_with_a_colon_is_refused_for_groups_and_the_channel_exists(me):
    channel = unique("ch")
    sub = await me.subscribe(channel, queue="q", durable="dur:name")

    assert sub.error == "stan: durable name of a durable queue subscriber can't contain the character ':'"
    assert await sub.leave(inbox=b"x") == "stan: invalid subscription"  # not: unknown channel


@pytest.mark.parametrize("durable", ["", "d"])
async def test_54_unknown_client_is_refused_and_not_made(talk, durable):
    client_id = unique("nobody")
    assert (await talk.subscribe(client_id, unique("ch"), durable=durable)).error == "stan: unknown clientID"
    assert await (await talk.connect(client_id)).close() == ""


@pytest.mark.parametrize("inbox", [b"", b"a b", b"x" * 4000, b"in\r\nPUB x 0\r\n"])
async def test_differs_inbox_that_nats_cannot_carry_is_refused_and_the_server_goes_on(server, talk, me, inbox):
    """The original takes it and logs an error for each message; the line that it would send is a broken one."""
    lost = server.log().count("Connection to NATS lost")
    request = pb.SubscriptionRequest(
        client_id=me.client_id.encode(),
        subject=b"foo",
        inbox=inbox,
        max_in_flight=1,
        ack_wait_s=1,
        start_position=FIRST,
    )
    response = await talk.ask(SUB, request, pb.SubscriptionResponse)

    assert response.error == b"stan: invalid subscription request"
    assert await me.publish("foo", b"x") == [""]
    assert server.log().count("Connection to NATS lost") == lost


@pytest.mark.parametrize("unsubscribe", [True, False])
async def test_57_leave_is_checked_in_order_and_a_good_one_succeeds(talk, me, unsubscribe):
    other = await talk.connect(unique("c"))
    sub = await me.subscribe(unique("ch"))
    elsewhere = Sub(talk, me.client_id, unique("never"), "in")
    empty = await talk.ask(UNSUB if unsubscribe else SUB_CLOSE, b"", pb.SubscriptionResponse)

    assert empty.error == b"stan: unknown channel"
    assert await elsewhere.leave(unsubscribe=unsubscribe, inbox=b"x", by="") == "stan: unknown channel"
    assert await sub.leave(unsubscribe=unsubscribe, inbox=b"x", by="") == "stan: invalid subscription"
    assert await sub.leave(unsubscribe=unsubscribe, by="") == "stan: unknown clientID"
    assert await sub.leave(unsubscribe=unsubscribe, by=other.client_id) == "stan: unknown clientID"
    assert await sub.leave(unsubscribe=unsubscribe) == ""
    assert await sub.leave(unsubscribe=unsubscribe) == "stan: invalid subscription"


@pytest.mark.parametrize("kind", [{}, {"durable": "d"}, {"queue": "q"}, {"queue": "q", "durable": "d"}])
async def test_58_response_is_before_the_first_message_on_the_same_inbox_new_and_resumed(talk, me, kind):
    channel, running = unique("ch"), True

    async def publish():
        while running:
            await me.publish(channel, b"x")

    publisher = asyncio.ensure_future(publish())
    for _ in range(5):
        came = []

        async def note(message, came=came):
            came.append(message.data)
            talk.news.set()

        inbox = talk.nats.new_inbox()
        listening = await talk.nats.subscribe(inbox, cb=note)
        request = pb.SubscriptionRequest(
            client_id=me.client_id.encode(),
            subject=channel.encode(),
            inbox=inbox.encode(),
            queue_group=kind.get("queue", "").encode(),
            durable_name=kind.get("durable", "").encode(),
            max_in_flight=100,
            ack_wait_s=30,
            start_position=FIRST,
        )
        await talk.nats.publish(SUB, request.SerializeToString(), inbox)
        await talk.until(lambda came=came: len(came) > 3, "messages")
        response = pb.SubscriptionResponse.FromString(came[0])
        assert response.ack_inbox.startswith(b"_INBOX.")
        assert all(pb.MsgProto.FromString(data).sequence for data in came[1:])
        sub = Sub(talk, me.client_id, channel, inbox, response)
        assert await sub.leave() == ""
        await listening.unsubscribe()
    running = False
    await publisher


async def test_59_close_by_message_inbox_removes_the_subscription(me):
    sub = await me.subscribe(unique("ch"))
    await me.publish(sub.channel, b"x")
    await sub.next()

    assert await sub.leave(inbox=sub.inbox.encode()) == ""
    assert await sub.leave() == "stan: invalid subscription"


@pytest.mark.parametrize("unsubscribe", [True, False])
async def test_60_nothing_comes_after_the_end_not_even_a_redelivery(me, unsubscribe):
    channel = unique("ch")
    sub = await me.subscribe(channel, wait=1)
    witness = await me.subscribe(channel, wait=1)
    await me.publish(channel, b"1")
    await sub.next()
    await sub.leave(unsubscribe=unsubscribe)
    await me.publish(channel, b"2")

    assert await witness.sequences(4) == [1, 2, 1, 2]  # its ack wait is over
    assert sub.rest() == []


async def test_61_requests_are_answered_while_many_backlogs_are_delivered(me):
    channel = unique("ch")
    await me.publish(channel, *[b"x" * 1000] * 10)
    async with asyncio.timeout(20):
        subs = await asyncio.gather(*(me.subscribe(channel) for _ in range(200)))

    assert {sub.error for sub in subs} == {""}
    for sub in subs:
        assert await sub.sequences(10) == list(range(1, 11))


# --- D: where it starts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [NEW_ONLY, LAST_RECEIVED, TIME_DELTA, SEQUENCE, FIRST])
async def test_62_64_65_empty_channel_gives_the_next_message_for_every_position(me, start):
    sub = await me.subscribe(unique("ch"), start=start, sequence=1, delta=10 * SECOND)
    await me.publish(sub.channel, b"1", b"2")

    assert await sub.sequences(2) == [1, 2]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"start": NEW_ONLY}, [21]),
        ({"start": LAST_RECEIVED}, [20, 21]),
        ({"start": FIRST}, list(range(11, 22))),
        ({"start": SEQUENCE, "sequence": 0}, list(range(11, 22))),
        ({"start": SEQUENCE, "sequence": 1}, list(range(11, 22))),
        ({"start": SEQUENCE, "sequence": 14}, list(range(14, 22))),
        ({"start": SEQUENCE, "sequence": 21}, [21]),
        ({"start": SEQUENCE, "sequence": 500}, [21]),
        ({"start": TIME_DELTA, "delta": 3600 * SECOND}, list(range(11, 22))),
        ({"start": TIME_DELTA, "delta": -3600 * SECOND}, [21]),
        ({"start": TIME_DELTA, "delta": 0}, [21]),
    ],
)
async def test_63_to_70_used_channel_gives_exactly_what_follows(me, settings, expected):
    channel = unique("ch")
    await me.publish(channel, *[b"x"] * 20)
    sub = await me.subscribe(channel, **settings)
    await me.publish(channel, b"new")

    assert await sub.sequences(len(expected)) == expected
    assert sub.rest() == []


async def test_69_time_between_two_messages_gives_the_second(me):
    channel = unique("ch")
    await me.publish(channel, b"1")
    probe = await me.subscribe(channel)
    first = (await probe.next()).timestamp
    await asyncio.sleep(1)  # what is measured is the distance of two messages
    await me.publish(channel, b"2")
    second = (await probe.next()).timestamp
    half = (second - first) // 2
    assert half > 0
    subs = {"none": await me.subscribe(channel, start=TIME_DELTA, delta=1)}
    for name, ago in (("second", half), ("both", 3 * half)):  # the requests are not half a second on their way
        subs[name] = await me.subscribe(channel, start=TIME_DELTA, delta=await _now(me) - second + ago)

    await me.publish(channel, b"3")
    assert await subs["both"].sequences(3) == [1, 2, 3]
    assert (await subs["second"].sequences(2))[0] == 2
    assert await subs["none"].sequences(1) == [3]


async def _now(session):
    """The server's clock, from the timestamp of a message; a moment old when it comes."""
    sub = await session.subscribe(unique("clock"), start=NEW_ONLY)
    await session.publish(sub.channel, b"tick")
    return (await sub.next()).timestamp


@pytest.mark.parametrize("queue", ["", "q"])
async def test_71_72_start_is_ignored_when_a_durable_is_resumed(me, queue):
    channel = unique("ch")
    sub = await me.subscribe(channel, queue=queue, durable="d")
    await me.publish(channel, *[b"x"] * 5)
    await sub.sequences(5)
    await sub.ack(1, 2, 3, 4, 5)
    await sub.leave()
    await me.publish(channel, b"6")
    for settings in (
        {"start": SEQUENCE, "sequence": 2},
        {"start": SEQUENCE, "sequence": 99},
        {"start": TIME_DELTA, "delta": -3600 * SECOND},
        {"start": NEW_ONLY},
    ):
        again = await me.subscribe(channel, queue=queue, durable="d", **settings)
        assert (await again.next()).sequence == 6
        assert again.rest() == []
        await again.leave()


async def test_73_start_is_ignored_when_a_member_joins(me):
    channel = unique("ch")
    await me.publish(channel, b"1", b"2")
    first = await me.subscribe(channel, queue="q", start=NEW_ONLY)
    second = await me.subscribe(channel, queue="q", start=FIRST)
    await me.publish(channel, b"3", b"4")
    await first.wire.until(lambda: len(first.came) + len(second.came) == 2, "both messages")

    assert sorted(m.sequence for m in first.came + second.came) == [3, 4]
