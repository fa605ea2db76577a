"""Fetch and read of stan_client against a real server: ranges, times, ends, gaps, large messages, many at once."""

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime

import nats
import pytest
import stan_client
from stan_protocol import refusals
from stan_protocol.proto import wire_pb2 as wire

from stan.core.base.payload_limit import MESSAGE_ROOM
from tests.kit.server import StanServer

MESSAGES = [b"%d" % number for number in range(1, 1001)]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with StanServer(tmp_path_factory.mktemp("fetch")) as server:
        yield server


@pytest.fixture
async def client(server):
    async with await stan_client.connect(
        server.url, client_id="me", cluster_id=server.cluster_id, connect_timeout_s=5, ack_timeout_s=10
    ) as client:
        yield client


def sequences(messages):
    return [message.sequence for message in messages]


async def read_all(client, channel, **options):
    async with aclosing(client.read(channel, **options)) as messages:
        return [message async for message in messages]


async def test_ranges_and_newest_give_exactly_what_was_asked_for(client) -> None:
    await client.publish_many("ranges", MESSAGES)

    found = await client.fetch("ranges", start=stan_client.from_sequence(10), last=20)
    assert sequences(found) == list(range(10, 21))
    assert [message.data for message in found] == MESSAGES[9:20]
    assert {message.channel for message in found} == {"ranges"}

    assert sequences(await client.fetch("ranges")) == list(range(1, 1001))
    assert sequences(await client.fetch("ranges", start=stan_client.newest(3))) == [998, 999, 1000]
    assert sequences(await client.fetch("ranges", start=stan_client.newest(5000), count=2)) == [1, 2]
    assert sequences(await client.fetch("ranges", start=stan_client.last_received())) == [1000]
    assert await client.fetch("ranges", start=stan_client.new_only()) == []
    assert await client.fetch("ranges", start=stan_client.from_sequence(1001)) == []
    batch = await client.batches.fetch("ranges", start=stan_client.from_sequence(995), count=4)
    assert (batch.first_sequence, batch.last_sequence, batch.next_sequence, batch.count) == (1, 1000, 999, 4)
    with pytest.raises(stan_client.NilMessageError):
        found[0].ack()


async def test_fetch_with_few_bytes_goes_on_where_it_ended(client) -> None:
    await client.publish_many("bytes", MESSAGES)

    got, at = [], 1
    while at <= len(MESSAGES):
        batch = await client.batches.fetch("bytes", start=stan_client.from_sequence(at), max_bytes=3000)
        assert 0 < len(batch.records) <= 3000
        got += batch.messages()
        at = batch.next_sequence
    assert [message.data for message in got] == MESSAGES


async def test_fetch_from_a_time_begins_with_the_first_message_at_or_after_it(client) -> None:
    for data in MESSAGES[:20]:
        await client.publish("times", data)
    found = await client.fetch("times")
    assert [message.timestamp_ns for message in found] == sorted(message.timestamp_ns for message in found)

    when = datetime.fromtimestamp(found[7].timestamp_ns / 1e9, UTC)
    asked_ns = int(when.timestamp() * 1_000_000) * 1_000
    later = [message.sequence for message in found if message.timestamp_ns >= asked_ns]
    assert 0 < len(later) < 20
    assert sequences(await client.fetch("times", start=stan_client.from_time(when))) == later
    assert sequences(await client.fetch("times", start=stan_client.ago(3600))) == list(range(1, 21))
    assert await client.fetch("times", start=stan_client.ago(-3600)) == []


async def test_empty_and_unknown_channels_and_bad_ranges_are_answered(client) -> None:
    subscription = await client.subscribe("empty")
    batch = await client.batches.fetch("empty")
    assert (batch.count, batch.first_sequence, batch.last_sequence, batch.next_sequence) == (0, 0, 0, 1)
    assert await read_all(client, "empty") == []
    await subscription.close()

    for channel in ("nobody.knows", "", "a.*", "x" * 4096):
        with pytest.raises(stan_client.ServerError, match=refusals.UNKNOWN_CHANNEL):
            await client.fetch(channel)
    with pytest.raises(stan_client.ServerError, match=f"{refusals.INVALID_FETCH}: channel is longer than 4096 bytes"):
        await client.fetch("x" * 4097)
    with pytest.raises(stan_client.ServerError, match=refusals.UNKNOWN_CHANNEL):
        await client.fetch("nobody.knows", from_replica=True)
    for wrong in ({"start": stan_client.from_sequence(0)}, {"start": stan_client.newest(0)}):
        with pytest.raises(stan_client.ServerError, match=refusals.INVALID_FETCH):
            await client.fetch("empty", **wrong)
    with pytest.raises(stan_client.ServerError, match=refusals.INVALID_FETCH):
        await client.fetch("empty", start=stan_client.from_sequence(5), last=4)


async def test_without_replicas_the_leader_is_asked(client) -> None:
    await client.publish("alone", b"one")
    assert [message.data for message in await client.fetch("alone", from_replica=True)] == [b"one"]


@pytest.mark.parametrize(
    "options", [{}, {"requests_in_flight": 1}, {"max_bytes": 2000}, {"start": stan_client.newest(700)}]
)
async def test_reading_gives_every_message_once_and_in_order(client, options) -> None:
    channel = (
        f"read.{len(options)}.{options.get('max_bytes', 0)}.{options.get('requests_in_flight', 0)}.{'start' in options}"
    )
    await client.publish_many(channel, MESSAGES)

    read = await read_all(client, channel, **options)
    assert [message.data for message in read] == MESSAGES[-len(read) :]
    assert len(read) == (700 if "start" in options else 1000)


async def test_reading_while_others_publish_sees_one_order_and_follows_to_the_end(client, server) -> None:
    total = 6000
    async with await stan_client.connect(server.url, client_id="other", cluster_id=server.cluster_id) as other:

        async def publish(publisher, name):
            for number in range(0, total // 2, 250):
                await publisher.publish_many("busy", [b"%b %d" % (name, number + at) for at in range(250)])

        await client.publish("busy", b"first")
        publishing = asyncio.gather(publish(client, b"one"), publish(other, b"two"))
        read = []
        async with asyncio.timeout(60), aclosing(client.read("busy", follow=True, max_bytes=20_000)) as messages:
            async for message in messages:
                read.append(message)
                if len(read) == total + 1:
                    break
        await publishing
    assert sequences(read) == list(range(1, total + 2))
    for name in (b"one", b"two"):
        own = [int(message.data.split()[1]) for message in read if message.data.startswith(name)]
        assert own == list(range(total // 2))


async def test_largest_messages_come_too(client, server) -> None:
    """Also the largest that the server takes."""
    largest = 1024 * 1024 - MESSAGE_ROOM - len("large") - 4  # tag and length of the data
    sizes = [largest, 10, largest - 200, largest - 90, largest - 50, largest, largest - 20, 10]
    nats_client = await nats.connect(server.url)

    async def publish(data):
        """With a header as short as can be, which leaves the most room for the data."""
        message = wire.PubMsg(client_id=b"me", guid=b"g", subject=b"large", data=data)
        answer = await nats_client.request("_STAN.pub.test-cluster.large", message.SerializeToString(), timeout=10)
        return wire.PubAck.FromString(answer.data).error.decode()

    for at, size in enumerate(sizes):
        assert await publish(bytes([at]) * size) == ""
    assert await publish(bytes(largest + 1)) == refusals.MESSAGE_TOO_LARGE
    await nats_client.close()

    read = await read_all(client, "large")
    assert [(message.data[:1], len(message.data)) for message in read] == [
        (bytes([at]), s) for at, s in enumerate(sizes)
    ]
    bare = await client.batches.fetch("large", count=1)
    assert (bare.count, bare.next_sequence, bare.last_sequence) == (1, 2, len(sizes))
    assert sequences(await client.fetch("large", start=stan_client.from_sequence(2), max_bytes=1)) == [2]


async def test_sequences_that_retention_has_removed_are_missing(tmp_path) -> None:
    with StanServer(tmp_path, "-mm", "100") as server:
        async with await stan_client.connect(server.url, client_id="me", cluster_id=server.cluster_id) as client:
            for begin in range(0, 1000, 50):
                await client.publish_many("few", MESSAGES[begin : begin + 50])

            batch = await client.batches.fetch("few", start=stan_client.from_sequence(5))
            assert (batch.first_sequence, batch.last_sequence, batch.next_sequence) == (901, 1000, 1001)
            assert sequences(batch.messages()) == list(range(901, 1001))
            assert batch.runs[0].first_sequence == 901
            gone = await client.batches.fetch("few", start=stan_client.from_sequence(5), last=20)
            assert (gone.count, gone.next_sequence) == (0, 21)
            assert sequences(await client.fetch("few", last=910)) == list(range(901, 911))
            assert sequences(await read_all(client, "few")) == list(range(901, 1001))


async def test_messages_come_from_the_disk_after_a_restart(tmp_path) -> None:
    with StanServer(tmp_path) as server:
        async with await stan_client.connect(server.url, client_id="me", cluster_id=server.cluster_id) as client:
            await client.publish_many("kept", MESSAGES)
            uid = (await client.batches.fetch("kept")).uid
        server.restart()
        async with await stan_client.connect(server.url, client_id="me", cluster_id=server.cluster_id) as client:
            read = await read_all(client, "kept", max_bytes=5000)
            assert [message.data for message in read] == MESSAGES
            assert (await client.batches.fetch("kept")).uid == uid


async def test_reader_survives_a_restart_of_the_server(tmp_path) -> None:
    with StanServer(tmp_path) as server:
        async with await stan_client.connect(
            server.url, client_id="me", cluster_id=server.cluster_id, connect_timeout_s=5
        ) as client:
            await client.publish_many("kept", MESSAGES)
            read = []
            async with aclosing(client.read("kept", max_bytes=2000, requests_in_flight=2)) as messages:
                async for message in messages:
                    read.append(message)
                    if len(read) == 500:
                        await asyncio.to_thread(server.restart)
            assert [message.data for message in read] == MESSAGES


async def test_no_server_that_knows_fetch_is_told_in_time(nats_url, broker) -> None:
    async with await stan_client.connect(nats_url, client_id="me", connect_timeout_s=2, ack_timeout_s=2) as client:
        with pytest.raises(stan_client.FetchTimeoutError, match="stan: fetch request timeout"):
            await client.fetch("ch")
