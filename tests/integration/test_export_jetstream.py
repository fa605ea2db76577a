"""`stan export --to jetstream` against a real server and a real JetStream: what is there is counted by another client."""

import asyncio
import base64
import json
import os
import signal
import subprocess
import sys

import nats
import pytest
import stan_client
from nats.js.api import ConsumerConfig
from stan_client.blocking import BlockingClient

from tests.integration.test_cli_operator import stan
from tests.kit.batches import full_messages, rows_of, rows_of_messages
from tests.kit.server import CLUSTER_ID, NatsServer, StanServer, until

COUNT = 3000


@pytest.fixture
def jetstream(tmp_path):
    directory = tmp_path / "jetstream"
    directory.mkdir()
    with NatsServer(directory, "-js", "-sd", str(directory / "store")) as server:
        yield server


@pytest.fixture
def server(tmp_path):
    with StanServer(tmp_path, "-mc", "0") as server:
        yield server


def publish(server, channel, count=COUNT):
    with BlockingClient(server.url, cluster_id=CLUSTER_ID) as client:
        for at in range(0, count, 1000):
            part = [b"%d of %d" % (number, count) for number in range(at, min(at + 1000, count))]
            client.publish_batch(channel, rows_of(part), len(part))


async def read(server, channel):
    """(sequence, time, payload) of all messages of a channel."""
    async with stan_client.Direct(server.url, cluster_id=CLUSTER_ID) as direct:
        status = await direct.admin.channel(channel)
        answers = direct.batches.read_range(channel, 1, status.last_sequence)
        return [(one.sequence, one.timestamp_ns, one.data) async for answer in answers for one in answer.messages()]


async def stored(url, stream):
    """All messages of a stream."""
    connection = await nats.connect(url)
    try:
        js = connection.jetstream()
        count, there = (await js.stream_info(stream)).state.messages, []
        subscription = await js.pull_subscribe("", stream=stream, config=ConsumerConfig(ack_policy="none"))
        while len(there) < count:
            there += await subscription.fetch(min(1000, count - len(there)), timeout=30)
        return there
    finally:
        await connection.close()


def rows(messages):
    """(sequence, time, payload) of messages of a stream."""
    return [(int(one.headers["Stan-Sequence"]), int(one.headers["Stan-Time-Ns"]), one.data) for one in messages]


async def consumed(url, stream, consumer, most=10_000):
    """The channel's sequences that a consumer gets, acknowledging all, until nothing comes for a second."""
    connection = await nats.connect(url)
    sequences = []
    try:
        subscription = await connection.jetstream().pull_subscribe_bind(consumer=consumer, stream=stream)
        while len(sequences) < most:
            try:
                messages = await subscription.fetch(10, timeout=1)  # fewer than any window
            except TimeoutError:  # of nats-py, or of asyncio
                break
            for message in messages:
                sequences.append(int(message.headers["Stan-Sequence"]))
                await message.ack()
        await connection.flush()
        return sequences
    finally:
        await connection.close()


async def leave_unacked(server, channel, unacked, sent, **names):
    """A durable or queue group that acknowledged the first *sent* messages but *unacked*, and closed its client then."""
    client_id = names.pop("client_id")
    async with await stan_client.connect(server.url, client_id=client_id, cluster_id=CLUSTER_ID) as client:
        start = stan_client.everything()
        subscription = await client.subscribe(channel, start=start, manual_acks=True, max_in_flight=sent, **names)
        seen = 0
        async for message in subscription:
            seen += 1
            if message.sequence not in unacked:
                await message.ack()
            if seen == sent:
                break


def test_streams_are_equal_and_consumers_go_on_where_their_positions_were(server, jetstream, tmp_path):
    publish(server, "orders.eu")
    publish(server, "small", 10)
    pending = {3, 4, 90, 100}
    asyncio.run(leave_unacked(server, "orders.eu", pending, 100, client_id="me", durable="book"))
    asyncio.run(leave_unacked(server, "orders.eu", set(), 50, client_id="me", durable="all", queue="q"))
    for gone in ("5", "2000"):
        stan(server.url, tmp_path, "channel", "delete-message", "orders.eu", gone, "--yes")
    document = json.loads(
        stan(server.url, tmp_path, "export", "--to", "jetstream", "--jetstream", jetstream.url, "--json")
    )
    assert {one["channel"]: one["messages"] for one in document["channels"]} == {"orders.eu": COUNT - 2, "small": 10}
    original = asyncio.run(read(server, "orders.eu"))
    assert len(original) == COUNT - 2
    assert rows(asyncio.run(stored(jetstream.url, "orders_eu"))) == original
    assert rows(asyncio.run(stored(jetstream.url, "small"))) == asyncio.run(read(server, "small"))
    rest = [sequence for sequence, *_ in original if sequence > 100]
    assert sorted(asyncio.run(consumed(jetstream.url, "orders_eu", "me_book"))) == sorted([*pending, *rest])
    assert asyncio.run(consumed(jetstream.url, "orders_eu", "all_q")) == [
        sequence for sequence, *_ in original if sequence > 50
    ]


def test_an_export_that_is_killed_goes_on_and_stores_nothing_twice(server, jetstream, tmp_path):
    publish(server, "orders", 20_000)
    command = [
        sys.executable,
        "-m",
        "stan.cli.main",
        "export",
        "orders",
        "--to",
        "jetstream",
        "--jetstream",
        jetstream.url,
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "STAN_SERVER": server.url}

    async def count():
        connection = await nats.connect(jetstream.url)
        try:
            return (await connection.jetstream().stream_info("orders")).state.messages
        except nats.js.errors.NotFoundError:
            return 0
        finally:
            await connection.close()

    killed = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    until(lambda: killed.poll() is not None or asyncio.run(count()) > 1000)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    stan(server.url, tmp_path, "export", "orders", "--to", "jetstream", "--jetstream", jetstream.url)
    assert rows(asyncio.run(stored(jetstream.url, "orders"))) == asyncio.run(read(server, "orders"))
    publish(server, "orders", 7)
    again = json.loads(
        stan(server.url, tmp_path, "export", "orders", "--to", "jetstream", "--jetstream", jetstream.url, "--json")
    )
    assert again["channels"][0]["published"] == 7
    assert again["channels"][0]["messages"] == 20_007


def test_a_consumer_in_use_is_left_and_one_that_is_not_is_moved(server, jetstream, tmp_path):
    publish(server, "orders", 200)
    export = ("export", "orders", "--to", "jetstream", "--jetstream", jetstream.url, "--json")
    asyncio.run(leave_unacked(server, "orders", {2}, 10, client_id="me", durable="d"))
    stan(server.url, tmp_path, *export)
    asyncio.run(leave_unacked(server, "orders", {2, 20}, 20, client_id="me", durable="d"))
    stan(server.url, tmp_path, *export)
    assert sorted(asyncio.run(consumed(jetstream.url, "orders", "me_d"))) == [2, 20, *range(30, 201)]
    publish(server, "orders", 1)
    (channel,) = json.loads(stan(server.url, tmp_path, *export))["channels"]
    assert channel["notes"] == ["consumer me_d is in use, and was left as it is"]
    assert asyncio.run(consumed(jetstream.url, "orders", "me_d")) == [201]


def test_replies_keys_and_headers_come_along(server, jetstream, tmp_path):
    messages = full_messages(12)
    with BlockingClient(server.url, cluster_id=CLUSTER_ID) as client:
        client.publish_batch("full", rows_of_messages(messages), len(messages))
    stan(server.url, tmp_path, "export", "full", "--to", "jetstream", "--jetstream", jetstream.url)
    for at, (message, there) in enumerate(zip(messages, asyncio.run(stored(jetstream.url, "full")), strict=True)):
        headers = there.headers
        assert there.data == message.data
        assert headers.get("Stan-Reply", "").encode() == message.reply
        assert headers.get("trace") == ("tü" if at % 4 else None)
        if at % 4 > 1:
            odd = message.headers[-1]
            name, _, value = headers["Stan-Header-Base64"].partition(" ")
            assert (base64.b64decode(name), base64.b64decode(value)) == (odd.key, odd.value)
        elif at % 3 == 1:
            assert headers["Stan-Key"].encode() == message.key
        elif at % 3 == 2:
            assert headers["Stan-Header-Base64"] == f"{base64.b64encode(b'Stan-Key').decode()} AP4="


def test_what_is_wrong_is_said(server, jetstream, tmp_path):
    publish(server, "orders", 1)
    stan(server.url, tmp_path, "export", "--to", "kafka", "orders", "file", code=2)
    stan(server.url, tmp_path, "export", "orders", "--jetstream", jetstream.url, code=2)
    stan(server.url, tmp_path, "export", "nobody", "--to", "jetstream", "--jetstream", jetstream.url, code=1)
    stan(server.url, tmp_path, "export", "--to", "jetstream", code=1)  # the NATS of the server has no JetStream
    stan(server.url, tmp_path, "export", "--to", "jetstream", "--jetstream", "nats://127.0.0.1:1", code=3)
