"""`stan takeover` of a running server. The old one is a server of ours, which speaks the same protocol and has the same pages."""

import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys

import pytest
import stan_client

from tests.integration.test_cli_operator import stan, stan_error
from tests.integration.test_monitoring import Watched
from tests.kit.server import CLUSTER_ID, StanServer, until

PAUSE_S = 0.05
"""Between the batches of a publisher, so that copying is faster."""
CHANNELS = [f"orders.{number}" for number in range(6)]


@pytest.fixture
def old(tmp_path):
    directory = tmp_path / "old"
    directory.mkdir()
    with Watched(directory) as server:
        yield server


@pytest.fixture
def new(tmp_path):
    directory = tmp_path / "new"
    directory.mkdir()
    with StanServer(directory) as server:
        yield server


def command(old, *more):
    pages = f"http://127.0.0.1:{old.http}"
    return ["takeover", old.url, "--pages", pages, "--cluster-id", CLUSTER_ID, *more]


class Publishers:
    """Publishes to all channels until a file is there; what was acknowledged is in `acked`."""

    def __init__(self, url, fence):
        self.url, self.fence = url, fence
        self.acked = {channel: [] for channel in CHANNELS}

    async def run(self):
        async with await stan_client.connect(self.url, client_id="publisher", cluster_id=CLUSTER_ID) as client:
            await asyncio.gather(*(self._publish(client, channel) for channel in CHANNELS))

    async def _publish(self, client, channel):
        number = 0
        while not self.fence.exists():
            payloads = [b"%s %d" % (channel.encode(), number + at) for at in range(20)]
            await client.publish_many(channel, payloads)
            self.acked[channel] += payloads
            number += len(payloads)
            await asyncio.sleep(PAUSE_S)


async def read(server, channel):
    """(sequence, time, payload, reply) of all messages of a channel."""
    async with stan_client.Direct(server.url, cluster_id=CLUSTER_ID) as direct:
        status = await direct.admin.channel(channel)
        answers = direct.batches.read_range(channel, 1, status.last_sequence)
        return [
            (one.sequence, one.timestamp_ns, one.data, one.reply)
            async for answer in answers
            for one in answer.messages()
        ]


async def leave_unacked(server, client_id, channel, unacked, count, **names):
    """A durable or queue group that acknowledged its first *count* messages but *unacked*; its client stays."""
    client = await stan_client.connect(server.url, client_id=client_id, cluster_id=CLUSTER_ID)
    options = {"start": stan_client.everything(), "manual_acks": True, "max_in_flight": 50, "ack_wait_s": 60}
    subscription = await client.subscribe(channel, **options, **names)
    for _ in range(count):
        message = await anext(subscription)
        if message.sequence not in unacked:
            message.ack()
    return client


async def sequences(server, client_id, channel, count, **names):
    """(sequence, redelivered) of the first *count* messages that a durable gets."""
    async with await stan_client.connect(server.url, client_id=client_id, cluster_id=CLUSTER_ID) as client:
        subscription = await client.subscribe(channel, manual_acks=True, max_in_flight=1000, **names)
        messages = [await anext(subscription) for _ in range(count)]
        return sorted((one.sequence, one.redelivered) for one in messages)


async def pending_of(server, channel):
    """By name, the pending sequences and the last sent one of the durables of a channel."""
    async with stan_client.Direct(server.url, cluster_id=CLUSTER_ID) as direct:
        found = {}
        for one in await direct.admin.subscriptions(channel, durable_only=True):
            runs = sorted((*one.owed_runs, *one.pending_runs))
            pending = [sequence for first, last in runs for sequence in range(first, last + 1)]
            owner = "" if one.queue_group else one.client_id
            found[owner, one.durable_name, one.queue_group] = pending, one.last_sent
        return found


async def test_a_server_under_load_is_replaced_with_all_that_it_has_acknowledged(old, new, tmp_path):
    fence = tmp_path / "fence"
    publishers = Publishers(old.url, fence)
    loading = asyncio.create_task(publishers.run())
    clients = [
        await leave_unacked(old, "me", CHANNELS[0], {3, 7, 8}, 100, durable="book"),
        await leave_unacked(old, "you", CHANNELS[0], set(range(1, 11)), 60, durable="all", queue="packers"),
        await leave_unacked(old, "third", CHANNELS[1], {5}, 30, durable="gone"),
    ]
    await clients[2].close()
    arguments = command(old, "--fence-command", f"touch {fence}", "--yes", "--json")
    document = json.loads(await asyncio.to_thread(stan, new.url, tmp_path, *arguments))
    await loading
    assert [one["name"] for one in document["channels"]] == CHANNELS
    for channel in CHANNELS:
        there = await read(new, channel)
        assert there == await read(old, channel)
        assert [data for _, _, data, _ in there] == publishers.acked[channel]
        assert await pending_of(new, channel) == await pending_of(old, channel)
    assert {3, 7, 8} < set((await pending_of(new, CHANNELS[0]))["me", "book", ""][0])
    got = await sequences(new, "me", CHANNELS[0], 60, durable="book")
    assert [sequence for sequence, _ in got[:3]] == [3, 7, 8]
    assert all(redelivered for _, redelivered in got[:50])
    async with await stan_client.connect(new.url, client_id="publisher", cluster_id=CLUSTER_ID) as client:
        published = await client.publish(CHANNELS[0], b"next")
        assert published.sequence == len(publishers.acked[CHANNELS[0]]) + 1


@pytest.mark.parametrize("seed", range(3))
async def test_a_takeover_that_is_killed_goes_on(old, new, tmp_path, seed):
    chance, fence = random.Random(seed), tmp_path / "fence"
    publishers = Publishers(old.url, fence)
    loading = asyncio.create_task(publishers.run())
    client = await leave_unacked(old, "me", CHANNELS[0], {2, 9}, 40, durable="book")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "STAN_SERVER": new.url}
    arguments = command(old, "--fence-command", f"touch {fence}", "--yes")

    async def copied():
        async with stan_client.Direct(new.url, cluster_id=CLUSTER_ID) as direct:
            return sum(one.messages for one in await direct.admin.channels())

    def kill_when(reached):
        with subprocess.Popen([sys.executable, "-m", "stan.cli.main", *arguments], env=environment) as killed:
            until(lambda: killed.poll() is not None or reached())
            killed.send_signal(signal.SIGKILL)

    for _ in range(2):
        wanted = await copied() + chance.randrange(1, 2000)
        await asyncio.to_thread(kill_when, lambda wanted=wanted: asyncio.run(copied()) >= wanted)
    await asyncio.to_thread(kill_when, fence.exists)
    looks = chance.randrange(1, 60)  # amid the rest, the positions, or the ends
    await asyncio.to_thread(kill_when, lambda: [asyncio.run(copied()) for _ in range(looks)])
    await asyncio.to_thread(stan, new.url, tmp_path, *arguments)
    await loading
    for channel in CHANNELS:
        assert await read(new, channel) == await read(old, channel)
        assert await pending_of(new, channel) == await pending_of(old, channel)
        assert len(await read(new, channel)) == len(publishers.acked[channel])
    with contextlib.suppress(stan_client.ServerError):  # the takeover has closed it
        await client.close()


async def test_what_is_taken_over_is_not_removed_by_abort_nor_copied_again(old, new, tmp_path):
    async with await stan_client.connect(old.url, client_id="p", cluster_id=CLUSTER_ID) as client:
        await client.publish_many("orders", [b"x"] * 10)
        stan(new.url, tmp_path, *command(old, "--fence-command", "true", "--yes"))
        stan(new.url, tmp_path, *command(old, "--abort"))
        assert len(await read(new, "orders")) == 10
        await client.publish("orders", b"later")
        stan(new.url, tmp_path, *command(old, "--fence-command", "true", "--yes"), code=1)
    assert len(await read(new, "orders")) == 10


async def test_a_takeover_that_has_ended_may_be_given_again_while_the_new_server_is_in_use(old, new, tmp_path):
    again = command(old, "--fence-command", "true", "--yes")
    async with await stan_client.connect(old.url, client_id="p", cluster_id=CLUSTER_ID) as client:
        await client.publish_many("orders", [b"x"] * 10)
        await asyncio.to_thread(stan, new.url, tmp_path, *again)
        async with await stan_client.connect(new.url, client_id="p", cluster_id=CLUSTER_ID) as other:
            await other.publish("orders", b"of the new server")
        told = await asyncio.to_thread(stan, new.url, tmp_path, *again)
        assert "orders was taken over before, and is in use at the new server" in told
        await client.publish("orders", b"of the old server")
        await asyncio.to_thread(stan, new.url, tmp_path, *again, code=1)
    assert (await read(new, "orders"))[-1][2] == b"of the new server"


@pytest.mark.parametrize("again", [0, 5, 20, 50])
async def test_a_channel_whose_messages_are_others_now_is_copied_again(old, new, tmp_path, again):
    """As after a crash of the old server: it has sent messages that it had not stored."""
    stop = [*command(old, "--yes"), "--fence-command", "exit 3"]
    async with (
        await stan_client.connect(old.url, client_id="p", cluster_id=CLUSTER_ID) as client,
        stan_client.Direct(old.url, cluster_id=CLUSTER_ID) as direct,
    ):
        await client.publish_many("orders", [b"first"] * 20)
        await client.publish_many("other", [b"first"] * 20)
        await asyncio.to_thread(stan, new.url, tmp_path, *stop, code=1)
        await direct.admin.delete_channel("orders")
        await client.publish_many("orders", [b"second"] * again)
    stan(new.url, tmp_path, *command(old, "--fence-command", "true", "--yes"))
    if again:
        assert await read(new, "orders") == await read(old, "orders")
    assert len(await read(new, "other")) == 20


async def test_channels_keep_the_limits_of_the_old_server(new, tmp_path):
    limits = tmp_path / "limits.conf"
    limits.write_text(
        "streaming: {store_limits: {max_msgs: 70, channels: {'a.>': {max_msgs: 30, max_age: '1h'}, 'a.b': {max_msgs: -1}}}}"
    )
    (tmp_path / "old").mkdir()
    with Watched(tmp_path / "old", "-sc", str(limits), "-mb", "0") as old:
        async with await stan_client.connect(old.url, client_id="p", cluster_id=CLUSTER_ID) as client:
            for channel in ("a.b", "a.c", "d"):
                await client.publish_many(channel, [b"x"] * 100)
        stan(new.url, tmp_path, *command(old, "--fence-command", "true", "--yes"))
        for channel in ("a.b", "a.c", "d"):
            assert await read(new, channel) == (await read(old, channel))
    async with stan_client.Direct(new.url, cluster_id=CLUSTER_ID) as direct:
        found = {one.name: one.limits for one in await direct.admin.channels()}
    assert {name: (one.max_msgs, one.max_age) for name, one in found.items()} == {
        "a.b": (0, 3600 * 10**9),
        "a.c": (30, 3600 * 10**9),
        "d": (70, 0),
    }


async def test_more_channels_than_the_new_server_takes_are_refused_at_once(new, tmp_path):
    (tmp_path / "old").mkdir()
    with Watched(tmp_path / "old", "-mc", "0") as old:
        async with await stan_client.connect(old.url, client_id="p", cluster_id=CLUSTER_ID) as client:
            await asyncio.gather(*(client.publish(f"c.{number}", b"x") for number in range(101)))
        assert "larger -mc" in stan_error(new.url, tmp_path, *command(old, "--dry-run"))
        assert "larger -mc" in stan_error(new.url, tmp_path, *command(old, "--fence-command", "true", "--yes"))


async def test_empty_and_trimmed_channels_and_large_messages_are_taken_over(old, new, tmp_path):
    large = os.urandom((1 << 20) - 512)
    async with (
        await stan_client.connect(old.url, client_id="p", cluster_id=CLUSTER_ID) as client,
        stan_client.Direct(old.url, cluster_id=CLUSTER_ID) as direct,
    ):
        await client.publish_many("trimmed", [b"%d" % number for number in range(50)])
        await client.publish_many("emptied", [b"x"] * 9)
        await client.publish_many("large", [large, b"", large])
        await direct.admin.create_channel("never")
        await direct.admin.purge("trimmed", up_to=30)
        await direct.admin.purge("emptied", up_to=9)
        stan(new.url, tmp_path, *command(old, "--fence-command", "true", "--yes"))
    for channel in ("trimmed", "large"):
        assert await read(new, channel) == await read(old, channel)
    async with await stan_client.connect(new.url, client_id="p", cluster_id=CLUSTER_ID) as client:
        assert [(await client.publish(name, b"x")).sequence for name in ("trimmed", "emptied", "never")] == [51, 10, 1]


async def test_a_takeover_can_be_looked_at_and_given_up(old, new, tmp_path):
    async with await stan_client.connect(old.url, client_id="p", cluster_id=CLUSTER_ID) as client:
        await client.publish_many("orders", [b"x"] * 100)
    document = json.loads(stan(new.url, tmp_path, *command(old, "--dry-run", "--json")))
    assert document["channels"] == [
        {"name": "orders", "messages": 100, "first_sequence": 1, "last_sequence": 100, "positions": []}
    ]
    stan(new.url, tmp_path, *command(old, "--fence-command", "exit 3", "--yes"), code=1)
    async with stan_client.Direct(new.url, cluster_id=CLUSTER_ID) as direct:
        assert [one.name for one in await direct.admin.channels()] == ["orders"]
        stan(new.url, tmp_path, *command(old, "--abort"))
        until(lambda: json.loads(stan(new.url, tmp_path, "channel", "list", "--json"))["channels"] == [])
    stan(new.url, tmp_path, *command(old, "--fence-command", "true", "--yes"))
    assert await read(new, "orders") == await read(old, "orders")


def test_pages_of_another_server_are_refused(old, new, tmp_path):
    (tmp_path / "third").mkdir()
    with Watched(tmp_path / "third") as third:
        pages = f"http://127.0.0.1:{third.http}"
        assert "another server" in stan_error(new.url, tmp_path, "takeover", old.url, "--pages", pages, "--dry-run")


def test_wrong_words_are_said(old, new, tmp_path):
    stan(new.url, tmp_path, *command(old, "--yes"), code=2)
    stan(new.url, tmp_path, *command(old, "--dry-run", "--old-cluster-id", "other"), code=1)
    stan(new.url, tmp_path, "takeover", old.url, "--pages", "http://127.0.0.1:1", "--dry-run", code=1)
