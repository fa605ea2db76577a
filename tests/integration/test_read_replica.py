"""Fetch in a real cluster: the leader answers, read replicas get everything and serve it also alone, and have no vote."""

import asyncio
from contextlib import aclosing

import nats as nats_py
import pytest
import stan_client
from nats.errors import NoRespondersError
from stan_protocol.proto.extension_pb2 import FetchRequest, FetchResponse

from tests.kit.cluster import StanCluster
from tests.kit.running import settled
from tests.kit.server import StanServer

COUNT = 2000
MESSAGES = [b"%d" % number for number in range(COUNT)]
FETCH, REPLICA_FETCH = "_STAN.x.test-cluster.fetch", "_STAN.x.test-cluster.replica.fetch"
PEERS = ("-cluster_peers", "n1,n2,n3")


def replica_of(directory, nats, *flags, name="r1"):
    home = directory / name
    home.mkdir()
    return StanServer(home, "-clustered", "-cluster_node_id", name, "-replica", *flags, nats_url=nats.url)


async def connected(nats, name="me", **options):
    options = {"connect_timeout_s": 1, "ack_timeout_s": 30, "ping_max_out": 20} | options
    return await stan_client.connect(nats.url, client_id=name, **options)


async def read_all(client, channel, **options):
    async with aclosing(client.read(channel, **options)) as messages:
        return [message.data async for message in messages]


async def replica_has(nats, channel, last):
    """Returns once a replica says so itself; the client would turn to the leader."""
    request = FetchRequest(channel=channel.encode()).SerializeToString()
    connection = await nats_py.connect(nats.url)
    try:
        async with asyncio.timeout(60):
            while True:
                try:
                    answer = await connection.request(REPLICA_FETCH, request, timeout=1)
                    if FetchResponse.FromString(answer.data).last_sequence >= last:
                        return
                except (NoRespondersError, TimeoutError):
                    pass
                await asyncio.sleep(0.02)
    finally:
        await connection.close()


async def test_replica_that_joins_later_gets_everything_and_serves_it_alone(tmp_path, nats) -> None:
    channels = ("one", "two", "three")
    with StanCluster(tmp_path, nats=nats) as cluster:
        async with await connected(nats) as client:
            for channel in channels:
                await client.publish_many(channel, MESSAGES)
            with replica_of(tmp_path, nats, "-join"):
                for channel in channels:
                    await replica_has(nats, channel, COUNT)
                    assert await read_all(client, channel, from_replica=True) == MESSAGES

                await asyncio.to_thread(cluster.kill9, *cluster.names)  # nobody else could answer from here on
                for channel in channels:
                    assert await read_all(client, channel, from_replica=True, max_bytes=4000) == MESSAGES
                await asyncio.to_thread(cluster.start)
                await client.publish("one", b"more")
                await replica_has(nats, "one", COUNT + 1)


async def test_replica_serves_while_the_voters_go_on_and_again_after_a_restart(tmp_path, nats) -> None:
    with StanCluster(tmp_path, nats=nats) as cluster, replica_of(tmp_path, nats, *PEERS) as replica:
        async with await connected(nats) as client, await connected(nats, "reader") as reader:
            await client.publish("busy", b"first")
            await replica_has(nats, "busy", 1)
            publishing = asyncio.create_task(client.publish_many("busy", MESSAGES))
            got = []
            async with asyncio.timeout(60), aclosing(reader.read("busy", follow=True, from_replica=True)) as messages:
                async for message in messages:
                    got.append(message.data)
                    if len(got) == COUNT + 1:
                        break
            assert got == [b"first", *MESSAGES]
            assert await publishing == COUNT

            replica.kill9()
            await client.publish("busy", b"while it was away")
            replica.start()
            await replica_has(nats, "busy", COUNT + 2)
            assert len(cluster.running) == 3


async def test_replicas_never_count_for_the_quorum(tmp_path, nats) -> None:
    with (
        StanCluster(tmp_path, nats=nats) as cluster,
        replica_of(tmp_path, nats, *PEERS, name="r1") as one,
        replica_of(tmp_path, nats, *PEERS, name="r2") as two,
    ):
        async with await connected(nats, ack_timeout_s=3) as hasty, await connected(nats, "patient") as client:
            await client.publish("ch", b"with three")
            await replica_has(nats, "ch", 1)
            leader = await asyncio.to_thread(cluster.leader_of, "ch")
            others = [name for name in cluster.names if name != leader]
            await asyncio.to_thread(cluster.kill9, *others)

            with pytest.raises(stan_client.PublishAckTimeoutError):  # three of five nodes, one of three voters
                await hasty.publish("ch", b"with one")
            assert await read_all(client, "ch", from_replica=True) == [b"with three"]
            with pytest.raises(stan_client.FetchTimeoutError):  # it cannot know whether it still leads
                await hasty.fetch("ch")

            await asyncio.to_thread(cluster.start, *others)
            await client.publish("ch", b"with three again")
            assert "leads in term" not in one.log() + two.log()


async def test_one_node_answers_each_request_and_reading_goes_on_when_it_is_killed(tmp_path, nats) -> None:
    with StanCluster(tmp_path, nats=nats) as cluster, replica_of(tmp_path, nats, *PEERS):
        async with await connected(nats) as client:
            await client.publish_many("ch", MESSAGES)
            leader = await asyncio.to_thread(cluster.leader_of, "ch")
            got = []
            async with aclosing(client.read("ch", max_bytes=2000, requests_in_flight=2)) as messages:
                async for message in messages:
                    got.append(message.data)
                    if len(got) == COUNT // 2:
                        await asyncio.to_thread(cluster.kill9, leader)
            assert got == MESSAGES

            answers: dict[str, int] = {}
            connection = await nats_py.connect(nats.url)

            async def count(message):
                answers[message.subject] = answers.get(message.subject, 0) + 1

            await connection.subscribe("answer.*", cb=count)
            for number, subject in enumerate((FETCH, REPLICA_FETCH) * 5):
                request = FetchRequest(channel=b"ch", from_sequence=1).SerializeToString()
                await connection.publish(subject, request, reply=f"answer.{number}")
            await settled(connection)
            await client.fetch("ch")  # comes after them
            await client.fetch("ch", from_replica=True)
    await connection.drain()  # every node has ended
    assert answers == {f"answer.{number}": 1 for number in range(10)}
