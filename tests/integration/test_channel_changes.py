"""Channels changed by an operator on real servers: also when these are killed meanwhile, or come with an empty disk."""

import asyncio

import pytest
import stan_client
from stan_client import PullConsumer
from stan_client.blocking import BlockingClient
from stan_client.reading.direct import Direct
from stan_protocol import refusals
from stan_protocol.admin_types import CursorKind, CursorStatus, Limits, RestoredRun
from stan_protocol.scalars import SECOND

from tests.kit.batches import rows_of
from tests.kit.server import StanServer

PATIENCE_S = 60.0
TIME = 1_600_000_000 * SECOND


@pytest.fixture
async def direct(server):
    async with Direct(server.url, cluster_id=server.cluster_id, timeout_s=PATIENCE_S) as direct:
        yield direct


async def fill(direct, channel, count):
    """*count* messages, each with its sequence, once also if it is asked again."""
    rows = rows_of([b"%d" % number for number in range(1, count + 1)])
    ids = b"".join(number.to_bytes(16, "big") for number in range(1, count + 1))
    await direct.batches.publish(channel, rows, count, producer="test", version=1, ids=ids)


async def sequences(direct, channel, **options):
    """Of the messages that there are, by fetch; their data is their sequence."""
    found = []
    async for message in direct.read(channel, **options):
        assert message.data == b"%d" % message.sequence
        found.append(message.sequence)
    return found


async def received(client, channel, count, **options):
    """Sequences of the first *count* messages that a subscription gets."""
    got, enough = [], asyncio.Event()

    def take(message):
        got.append(message.sequence)
        if len(got) == count:
            enough.set()

    subscription = await client.subscribe(channel, take, **options)
    await asyncio.wait_for(enough.wait(), PATIENCE_S)
    await subscription.close()
    return got


async def test_removed_messages_stay_away_from_everybody(server, direct) -> None:
    admin = direct.admin
    await fill(direct, "foo", 20)
    for sequence in (5, 6, 11, 20):
        assert (await admin.delete_message("foo", sequence)).changed == 1
        assert (await admin.delete_message("foo", sequence)).changed == 0
    assert (await admin.purge("foo", up_to=2)).changed == 2
    left = [*range(3, 5), *range(7, 11), *range(12, 20)]
    assert await sequences(direct, "foo") == left
    server.kill9()
    server.restart()
    assert await sequences(direct, "foo") == left
    (shown,) = await admin.channels("foo")
    assert (shown.messages, shown.first_sequence, shown.last_sequence, shown.deleted) == (14, 3, 20, 4)
    assert [message.sequence for message in await direct.fetch("foo", start=stan_client.newest(3))] == [17, 18, 19]
    client = await stan_client.connect(server.url, client_id="me", cluster_id=server.cluster_id)
    assert await received(client, "foo", len(left), start=stan_client.everything()) == left
    await client.close()


async def test_ranges_and_consumers_pass_over_what_was_removed(server, direct) -> None:
    await fill(direct, "foo", 300)
    gone = {*range(10, 20), 25, 150, 299, 300}
    for sequence in gone:
        await direct.admin.delete_message("foo", sequence)
    left = [at for at in range(1, 301) if at not in gone]

    def read_range():
        with BlockingClient(server.url, cluster_id=server.cluster_id) as client:
            found = client.read_range("foo", 1, 300, max_bytes=1000)
            return [message.sequence for batch in found for message in batch.messages()]

    assert await asyncio.to_thread(read_range) == left
    consumer = PullConsumer(direct, "foo", follow=False)
    assert [message.sequence async for batch in consumer for message in batch.messages()] == left
    assert (consumer.position.sequence, consumer.lost) == (301, 0)


async def test_limits_are_edited_and_channels_come_and_go(server, direct) -> None:
    admin = direct.admin
    assert (await admin.create_channel("foo")).changed == 1
    await fill(direct, "foo", 20)
    await admin.edit_limits("foo", Limits(max_msgs=5))
    async with asyncio.timeout(PATIENCE_S):  # what is too much goes right after the answer
        while await sequences(direct, "foo") != [16, 17, 18, 19, 20]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    server.kill9()
    server.restart()
    assert (await admin.channel("foo")).limits.max_msgs == 5
    client = await stan_client.connect(server.url, client_id="me", cluster_id=server.cluster_id)
    got = asyncio.Queue()
    await client.subscribe("foo", lambda message: got.put_nowait(message.data), durable="dur")
    assert (await admin.delete_channel("foo")).changed == 5
    assert await admin.subscriptions() == []
    await client.publish("foo", b"not for it")
    assert await received(client, "foo", 1, start=stan_client.everything()) == [1]
    assert got.empty()
    assert (await admin.channel("foo")).edited == Limits()
    await client.close()


def runs_of(*runs):
    """What is restored: runs of (first, last)."""
    told = [RestoredRun(first_sequence=first, count=last - first + 1, timestamp=TIME) for first, last in runs]
    return told, rows_of([b"%d" % at for first, last in runs for at in range(first, last + 1)])


async def restore(admin, channel):
    """A channel with gaps, step by step."""
    await admin.restore_channel(channel, "once", 4)
    for first in range(4, 100, 12):
        await admin.restore_rows(channel, "once", *runs_of((first, first + 4), (first + 6, first + 9)))
    cursor = CursorStatus(
        kind=CursorKind.DURABLE,
        durable_name="d",
        client_id="me",
        last_sent=10,
        owed_runs=[(5, 6)],
        ack_wait_s=30,
        max_in_flight=9,
    )
    await admin.restore_cursor(channel, "once", cursor)
    await admin.restore_end(channel, "once", 120)


RESTORED = [at for first in range(4, 100, 12) for at in (*range(first, first + 5), *range(first + 6, first + 10))]
FOR_THE_DURABLE = [5, 6, *(at for at in RESTORED if at > 10)]


async def test_restored_channel_is_as_it_was(server, direct) -> None:
    admin = direct.admin
    await restore(admin, "foo")
    await restore(admin, "foo")
    server.kill9()
    server.restart()
    assert await sequences(direct, "foo") == RESTORED
    (message, *_) = await direct.fetch("foo", start=stan_client.from_sequence(5), count=1)
    assert message.timestamp_ns == TIME
    client = await stan_client.connect(server.url, client_id="me", cluster_id=server.cluster_id)
    assert await received(client, "foo", len(FOR_THE_DURABLE), durable="d") == FOR_THE_DURABLE
    with pytest.raises(stan_client.ServerError, match=refusals.CHANNEL_IN_USE):
        await admin.restore_channel("foo", "another", 4)
    await admin.restore_channel("bar", "once", 1)
    with pytest.raises(stan_client.StanClientError, match=refusals.CHANNEL_RESTORING):
        await client.publish("bar", b"x")
    await client.publish("foo", b"121")
    assert (await sequences(direct, "foo"))[-1] == 121
    await client.close()


# --- a cluster ----------------------------------------------------------------------------------------------------------


async def test_read_replica_knows_of_removals(tmp_path, cluster) -> None:
    async with Direct(cluster.url, cluster_id=cluster.cluster_id, timeout_s=60) as direct:
        await fill(direct, "foo", 30)
        await direct.admin.delete_message("foo", 7)
        home = tmp_path / "r1"
        home.mkdir()
        flags = ("-clustered", "-cluster_node_id", "r1", "-replica", "-join")
        with StanServer(home, *flags, nats_url=cluster.url):
            await direct.admin.delete_message("foo", 9)
            await direct.admin.purge("foo", up_to=3)
            left = [4, 5, 6, 8, *range(10, 31)]
            async with asyncio.timeout(60):  # one that is not there yet leaves the answer to the leader
                while not (await direct.admin.nodes()).answers[-1].replica:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
                while await sequences(direct, "foo", from_replica=True) != left:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)


async def test_changes_are_made_once_whoever_leads(cluster) -> None:
    async with Direct(cluster.url, cluster_id=cluster.cluster_id, timeout_s=60) as direct:
        admin = direct.admin
        await fill(direct, "foo", 60)
        empty = cluster.follower_of("foo")
        await asyncio.to_thread(cluster.kill9, empty)
        await asyncio.to_thread(cluster.wipe, empty)
        gone = range(2, 50, 4)
        for sequence in gone:
            await admin.delete_message("foo", sequence)
        await admin.purge("foo", up_to=9)
        await admin.edit_limits("foo", Limits(max_subs=7))
        await asyncio.to_thread(cluster.start, empty)
        left = [at for at in range(11, 61) if at not in gone]
        assert await sequences(direct, "foo") == left

        async def meanwhile():
            for sequence in (51, 53, 55):
                await admin.delete_message("foo", sequence)
            await restore(admin, "bar")

        async with asyncio.timeout(PATIENCE_S):
            while not cluster.whole(empty):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        working = asyncio.create_task(meanwhile())
        killed = cluster.leader_of("foo")
        await asyncio.to_thread(cluster.kill9, killed)
        await asyncio.wait_for(working, 60)
        left = [at for at in left if at not in (51, 53, 55)]
        assert await sequences(direct, "foo") == left
        assert await sequences(direct, "bar") == RESTORED
        assert (await admin.channel("foo")).limits.max_subs == 7
        await asyncio.to_thread(cluster.start, killed)
        await admin.delete_channel("foo")
        assert await admin.channel("foo") is None
