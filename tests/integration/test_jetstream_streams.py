"""Streams and buckets with nats-py and the real broker: alone, killed, in a cluster, beside STAN clients, and where it may not
start.
"""

import asyncio
from functools import partial

import nats
import pytest
import stan_client
from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError, NotFoundError

from tests.kit.cluster import StanCluster
from tests.kit.jetstream import asked
from tests.kit.server import NatsServer, StanServer, until

PATIENCE_S = 60
ON = "--jetstream_api"


@pytest.fixture
def server(tmp_path):
    with StanServer(tmp_path, ON) as running:
        yield running


async def publish(jetstream, subject, payload, **fields):
    """Publish until it is acknowledged, under one id."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await jetstream.publish(
                    subject, payload, timeout=2, headers={"Nats-Msg-Id": payload.decode()} | fields
                )
            except (nats.errors.Error, nats.js.errors.Error):
                await asyncio.sleep(0.1)


async def test_streams_and_their_messages_are_there_after_a_kill(server):
    client = await nats.connect(server.url)
    jetstream = client.jetstream()
    await jetstream.add_stream(name="ORDERS", subjects=["orders.*"])
    acks = [await jetstream.publish(f"orders.{number % 3}", b"%d" % number) for number in range(10)]
    assert [ack.seq for ack in acks] == list(range(1, 11))
    server.kill9()
    server.start()
    ack = await publish(jetstream, "orders.0", b"after")
    assert (ack.stream, ack.seq) == ("ORDERS", 11)
    assert (await jetstream.get_last_msg("ORDERS", "orders.2")).data == b"8"
    again = await publish(jetstream, "orders.0", b"after")
    assert (again.seq, again.duplicate) == (11, True)
    await client.close()


async def test_a_stream_has_its_other_subjects_after_a_kill(server):
    client = await nats.connect(server.url)
    jetstream = client.jetstream()
    await jetstream.add_stream(name="ORDERS", subjects=["orders"])
    await jetstream.publish("orders", b"1")
    worker = await jetstream.pull_subscribe("orders", durable="worker")
    await jetstream.update_stream(name="ORDERS", subjects=["bills", "orders"])
    await jetstream.publish("bills", b"2")
    await jetstream.publish("orders", b"3")
    server.kill9()
    server.start()
    ack = await publish(jetstream, "bills", b"4")
    assert (ack.stream, ack.seq) == ("ORDERS", 4)
    found = [await asked(partial(jetstream.get_msg, "ORDERS", number)) for number in range(1, 5)]
    assert [(one.subject, one.data) for one in found] == [
        ("orders", b"1"),
        ("bills", b"2"),
        ("orders", b"3"),
        ("bills", b"4"),
    ]
    pulled = await asked(partial(worker.fetch, 2, timeout=2))
    assert [(one.subject, one.data) for one in pulled] == [("orders", b"1"), ("orders", b"3")]
    await client.close()


async def test_clients_of_both_protocols_share_a_channel(server):
    client = await nats.connect(server.url)
    jetstream = client.jetstream()
    stan = await stan_client.connect(server.url, client_id="me", cluster_id=server.cluster_id)
    await stan.publish("shared", b"from stan")
    await jetstream.add_stream(name="SHARED", subjects=["shared"])
    ack = await jetstream.publish("shared", b"from jetstream", headers={"who": "it"})
    assert ack.seq == 2
    read = [message async for message in stan.read("shared")]
    assert [message.data for message in read] == [b"from stan", b"from jetstream"]
    assert (await jetstream.get_msg("SHARED", 1)).data == b"from stan"
    assert (await jetstream.get_msg("SHARED", 2)).headers == {"who": "it"}
    await jetstream.delete_stream("SHARED")
    assert len([message async for message in stan.read("shared")]) == 2
    await stan.close()
    await client.close()


async def test_a_bucket_keeps_keys(server):
    client = await nats.connect(server.url)
    bucket = await client.jetstream().create_key_value(bucket="B", direct=True)
    assert await bucket.put("k", b"1") == 1
    assert await bucket.update("k", b"2", last=1) == 2
    with pytest.raises(KeyWrongLastSequenceError):
        await bucket.update("k", b"3", last=1)
    assert await bucket.create("n", b"3") == 3
    with pytest.raises(KeyWrongLastSequenceError):
        await bucket.create("n", b"4")
    server.kill9()
    server.start()
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                entry = await bucket.get("k")
                break
            except (nats.errors.Error, nats.js.errors.Error):
                await asyncio.sleep(0.1)
    assert (entry.value, entry.revision) == (b"2", 2)
    await bucket.delete("k")
    await bucket.purge("n")
    for key in "kn":
        with pytest.raises(KeyNotFoundError):
            await bucket.get(key)
    assert await bucket.create("k", b"again") == 6
    assert (await bucket.status()).values == 2
    await client.close()


async def revisions(bucket, key):
    return [(one.revision, one.value) for one in await bucket.history(key)]


async def test_a_bucket_has_a_history_of_each_key(server):
    client = await nats.connect(server.url)
    bucket = await client.jetstream().create_key_value(bucket="H", history=3, direct=True)
    for number in range(10):
        await bucket.put("k", b"%d" % number)
        await bucket.put("l", b"%d" % number)
    await bucket.purge("l")
    assert await revisions(bucket, "k") == [(15, b"7"), (17, b"8"), (19, b"9")]
    server.kill9()
    server.start()
    assert await asked(lambda: revisions(bucket, "k")) == [(15, b"7"), (17, b"8"), (19, b"9")]
    assert await revisions(bucket, "l") == [(21, b"")]
    assert (await bucket.status()).values == 4
    assert await bucket.update("k", b"last", last=19) == 22
    assert await revisions(bucket, "k") == [(17, b"8"), (19, b"9"), (22, b"last")]
    await client.close()


async def emptied(jetstream, name):
    """Raises what `asked` waits for while the stream has messages."""
    if (await jetstream.stream_info(name)).state.messages:
        raise nats.errors.Error


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
async def test_acked_messages_are_gone_after_a_kill_and_others_are_not(server, retention):
    client = await nats.connect(server.url)
    jetstream = client.jetstream()
    await jetstream.add_stream(name="JOBS", subjects=["jobs.*"], retention=retention)
    await jetstream.add_consumer("JOBS", durable_name="worker", ack_policy="explicit", ack_wait=5)
    acks = [await jetstream.publish("jobs.x", b"%d" % number) for number in range(50)]
    worker = await jetstream.pull_subscribe_bind("worker", "JOBS")
    for message in await worker.fetch(50, timeout=PATIENCE_S):
        if message.metadata.sequence.stream <= 40:
            await message.ack_sync()
    server.kill9()
    server.start()
    got = set()
    async with asyncio.timeout(PATIENCE_S):
        while len(got) < 10:
            for message in await asked(lambda: worker.fetch(10, timeout=1)):
                got.add(message.metadata.sequence.stream)
                await message.ack()
        assert got == {ack.seq for ack in acks[40:]}
    await asked(partial(emptied, jetstream, "JOBS"))
    await client.close()


async def test_an_object_store_keeps_objects(server):
    client = await nats.connect(server.url)
    store = await client.jetstream().create_object_store(bucket="O")
    assert (await store.put("a", bytes(300_000))).chunks == 3
    assert (await store.put("a", bytes(200_000))).chunks == 2
    state = (await store.status()).stream_info.state
    assert (state.messages, (await store.get_info("a")).size) == (3, 200_000)
    await store.delete("a")
    assert (await store.get_info("a", show_deleted=True)).deleted
    assert (await store.status()).stream_info.state.messages == 1
    await client.close()


async def test_a_sealed_object_store_outlives_a_kill(server):
    client = await nats.connect(server.url)
    store = await client.jetstream().create_object_store(bucket="O")
    await store.put("a", b"data")
    await store.seal()
    server.kill9()
    server.restart()
    assert await asked(partial(one_of, store, "a")) == b"data"
    with pytest.raises(nats.js.errors.APIError, match="sealed"):
        await store.put("b", b"late")
    assert (await store.status()).sealed
    await client.close()


async def one_of(store, name):
    """The data of an object."""
    return (await store.get(name)).data


async def test_many_publishes_are_answered_each_with_its_sequence(server):
    client = await nats.connect(server.url)
    jetstream = client.jetstream(publish_async_max_pending=2000)
    await jetstream.add_stream(name="S", subjects=["s.>"])
    futures = [await jetstream.publish_async(f"s.{number}", b"%d" % number) for number in range(2000)]
    assert [(await future).seq for future in futures] == list(range(1, 2001))
    await client.close()


async def test_an_unknown_stream_is_not_found(server):
    client = await nats.connect(server.url)
    with pytest.raises(NotFoundError, match="err_code=10059"):
        await client.jetstream().stream_info("NONE")
    await client.close()


@pytest.mark.parametrize("where", ["embedded", "outside"])
def test_it_does_not_start_beside_another_jetstream(tmp_path, where):
    text = "answers clients of JetStream itself"
    if where == "embedded":
        conf = tmp_path / "nats.conf"
        conf.write_text(f'jetstream {{ store_dir: "{tmp_path}/js" }}')
        server = StanServer(tmp_path, ON, "-c", str(conf))
        server.launch()
        server.wait_for_end()
        assert text in server.log()
        return
    with NatsServer(tmp_path, "-js", "-sd", str(tmp_path / "js")) as outside:
        server = StanServer(tmp_path, ON, nats_url=outside.url)
        server.launch()
        server.wait_for_end()
        assert text in server.log()


async def test_in_a_cluster_streams_outlive_their_leader(tmp_path):
    with StanCluster(tmp_path, ON) as cluster:
        client = await nats.connect([node.url for node in cluster.nodes.values()])
        jetstream = client.jetstream(timeout=PATIENCE_S)
        names = [f"S{number}" for number in range(6)]
        for name in names:
            made = await jetstream.add_stream(name=name, subjects=[f"{name}.*"], num_replicas=3)
            assert made.config.num_replicas == 3
        for name in names:
            assert (await publish(jetstream, f"{name}.a", b"1")).seq == 1
        cluster.nodes["n1"].kill9()
        for name in names:
            assert (await publish(jetstream, f"{name}.b", b"2")).seq == 2
            assert (await publish(jetstream, f"{name}.b", b"2")).duplicate
            assert (await jetstream.stream_info(name)).state.messages == 2
        cluster.nodes["n1"].start()
        assert sorted([one.config.name for one in await jetstream.streams_info()]) == names
        await client.close()
        until(lambda: all(node.running for node in cluster.nodes.values()))
