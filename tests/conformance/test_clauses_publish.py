"""Conformance checklist B: publishing (STAN-SPEC 4, 16 B), byte by byte."""

import asyncio

import pytest
from stan_protocol.proto import wire_pb2 as pb

from stan.limits import MESSAGE_PAYLOAD_BYTES_MAX
from tests.conformance.wire import PUB, speaking, unique
from tests.kit.server import StanServer

INVALID = b"stan: invalid publish request"


@pytest.fixture(scope="module", params=["FILE", "MEMORY"])
def server(request, tmp_path_factory):
    with StanServer(tmp_path_factory.mktemp("server"), "-mc", "0", store=request.param) as server:
        yield server


@pytest.mark.parametrize("size", [1, 22, 300, 100_000])
async def test_29_35_ack_has_the_guid_of_any_length_and_no_error(talk, me, size):
    guid = b"g" * (size - 1) + b"\xff"

    ack = await talk.publish(unique("ch"), guid=guid, client_id=me.client_id.encode(), conn_id=me.conn_id, data=b"x")

    assert ack == pb.PubAck(guid=guid)


@pytest.mark.parametrize("payload", [b"dummy", b"", b"\xff" * 50, b"\x12\xff\xff\xff\xff\x0f"])
async def test_31_garbage_is_an_invalid_publish_request(talk, payload):
    assert await talk.ask(f"{PUB}foo", payload, pb.PubAck) == pb.PubAck(error=INVALID)


async def test_32_without_a_guid_it_is_invalid(talk, me):
    ack = await talk.publish("foo", client_id=me.client_id.encode(), conn_id=me.conn_id)

    assert ack == pb.PubAck(error=INVALID)


@pytest.mark.parametrize("channel", ["foo*", "foo.*", "foo/bar", "foo.>", "*", ">"])
async def test_32_invalid_channel_is_refused_with_the_guid(talk, me, channel):
    ack = await talk.publish(channel, guid=b"g", client_id=me.client_id.encode(), conn_id=me.conn_id)

    assert ack == pb.PubAck(guid=b"g", error=INVALID)


@pytest.mark.parametrize("channel", ["foo..bar", ".foo", "foo.", ""])
async def test_32_invalid_channel_that_cannot_be_a_nats_subject_is_refused_too(talk, me, channel):
    ack = await talk.publish(channel, subject="foo", guid=b"g", client_id=me.client_id.encode(), conn_id=me.conn_id)

    assert ack == pb.PubAck(guid=b"g", error=INVALID)


async def test_33_34_connection_id_decides_and_the_client_id_only_without_one(talk, me):
    channel = unique("ch")
    for client_id, conn_id, error in (
        (b"whoever", me.conn_id, b""),
        (b"", me.conn_id, b""),
        (me.client_id.encode(), b"", b""),
        (me.client_id.encode(), b"strange", INVALID),
        (b"whoever", b"", INVALID),
        (b"", b"", INVALID),
    ):
        ack = await talk.publish(channel, guid=b"g", client_id=client_id, conn_id=conn_id)
        assert (client_id, conn_id, ack.error) == (client_id, conn_id, error)


async def test_33_refused_and_taken_messages_in_one_write_each_get_their_ack(talk, me):
    channel = unique("ch")
    sub = await me.subscribe(channel)

    async def one(number):
        good = number % 3 != 0
        conn_id = me.conn_id if good else b"strange"
        ack = await talk.publish(channel, guid=b"%d" % number, conn_id=conn_id, data=b"%d" % number)
        assert ack == pb.PubAck(guid=b"%d" % number, error=b"" if good else INVALID)

    await asyncio.gather(*(one(number) for number in range(60)))
    assert [int(m.data) for m in await sub.many(40)] == [n for n in range(60) if n % 3]


async def test_38_sequences_are_dense_and_timestamps_never_go_back(me):
    channel = unique("ch")
    await me.publish(channel, *[b"x"] * 20)
    sub = await me.subscribe(channel)
    messages = await sub.many(20)

    assert [m.sequence for m in messages] == list(range(1, 21))
    times = [m.timestamp for m in messages]
    assert times == sorted(times)
    assert times[0] > 1_600_000_000 * 10**9


async def test_39_more_than_a_batch_at_once_is_acked_in_order(talk, me):
    channel, count, acks = unique("ch"), 3000, []
    inbox = talk.nats.new_inbox()

    async def acked(message):
        acks.append(pb.PubAck.FromString(message.data))
        talk.news.set()

    await talk.nats.subscribe(inbox, cb=acked)
    for number in range(count):
        message = pb.PubMsg(guid=b"%d" % number, subject=channel.encode(), conn_id=me.conn_id, data=b"x" * 50)
        await talk.nats.publish(PUB + channel, message.SerializeToString(), inbox)
    await talk.until(lambda: len(acks) == count, "all acks")

    assert acks == [pb.PubAck(guid=b"%d" % number) for number in range(count)]


async def test_40_published_and_closed_in_one_write_is_taken(server, talk, me):
    channel = unique("ch")
    async with speaking(server.url) as other:
        short = await other.connect(unique("c"))
        _, (error,) = await asyncio.gather(
            asyncio.gather(*(short.publish(channel, b"x") for _ in range(20))), asyncio.gather(short.close())
        )
    sub = await me.subscribe(channel)

    assert error == ""
    assert await sub.sequences(20) == list(range(1, 21))


@pytest.mark.parametrize("payload", [b"", b"\0", bytes(range(256)), b"x" * 1_000_000])
async def test_45_46_reply_and_payload_arrive_as_they_were(talk, me, payload):
    channel = unique("ch")
    sub = await me.subscribe(channel)
    for reply in (b"", b"answer.\xff\xfe"):
        ack = await talk.publish(channel, guid=b"g", conn_id=me.conn_id, reply=reply, data=payload, sha256=b"ignored")
        assert not ack.error
        message = await sub.next()
        assert (message.data, message.reply, message.subject) == (payload, reply, channel.encode())
        assert (message.redelivered, message.redelivery_count, message.crc32) == (False, 0, 0)


async def test_message_without_a_reply_subject_is_stored(talk, me):
    channel = unique("ch")
    message = pb.PubMsg(guid=b"g", subject=channel.encode(), conn_id=me.conn_id, data=b"quiet")
    await talk.nats.publish(PUB + channel, message.SerializeToString())
    sub = await me.subscribe(channel)

    assert (await sub.next()).data == b"quiet"


async def test_same_guid_twice_is_stored_twice(talk, me):
    channel = unique("ch")
    for _ in range(2):
        assert not (await talk.publish(channel, guid=b"same", conn_id=me.conn_id)).error
    sub = await me.subscribe(channel)

    assert await sub.sequences(2) == [1, 2]


async def test_channel_whose_name_is_no_text_works(talk, me):
    """The original never looks at the encoding; NATS subjects are bytes."""
    channel = b"caf\xc3\xa9." + unique("ch").encode()
    message = pb.PubMsg(guid=b"g", subject=channel, conn_id=me.conn_id, data=b"x")

    ack = await talk.ask(PUB + channel.decode(), message, pb.PubAck)

    assert not ack.error
    assert (await (await me.subscribe(channel.decode())).next()).subject == channel


async def test_differs_publish_whose_subject_is_not_that_of_nats_is_refused(talk, me):
    ack = await talk.publish("foo", subject="bar", guid=b"g", conn_id=me.conn_id)

    assert ack == pb.PubAck(guid=b"g", error=INVALID)


async def test_largest_publish_of_a_library_is_delivered_and_redelivered(talk, me):
    """A guid and a connection id of 22 bytes, as every library has them: nothing that NATS takes is refused."""
    channel = unique("ch")
    fields = {"guid": b"g" * 22, "client_id": b"c", "conn_id": me.conn_id.ljust(22, b"0")}
    session = await talk.connect(unique("c"), conn_id=fields["conn_id"])
    head = len(pb.PubMsg(subject=channel.encode(), data=b"x" * 1_000_000, **fields).SerializeToString()) - 1_000_000
    sub = await session.subscribe(channel, wait=1)
    largest = b"x" * (MESSAGE_PAYLOAD_BYTES_MAX - head)

    assert not (await talk.publish(channel, data=largest, **fields)).error
    first, second = await sub.many(2)
    assert (len(first.data), second.redelivery_count) == (len(largest), 1)
    await sub.ack(1)


async def test_message_that_nats_would_not_take_back_is_refused_and_the_server_goes_on(server, talk):
    """A publish without connection id and with a short guid may hold more than fits into a MsgProto."""
    lost = server.log().count("Connection to NATS lost")
    channel = unique("ch")
    session = await talk.connect(unique("c"), protocol=0)
    sub = await session.subscribe(channel, wait=1)
    fields = {"guid": b"g", "client_id": session.client_id.encode()}
    head = len(pb.PubMsg(subject=channel.encode(), data=b"x" * 1_000_000, **fields).SerializeToString()) - 1_000_000

    ack = await talk.publish(channel, data=b"x" * (MESSAGE_PAYLOAD_BYTES_MAX - head), **fields)

    assert ack == pb.PubAck(guid=b"g", error=b"nats: maximum payload exceeded")
    assert await session.publish(channel, b"small") == [""]
    assert (await sub.next()).data == b"small"
    assert server.log().count("Connection to NATS lost") == lost
