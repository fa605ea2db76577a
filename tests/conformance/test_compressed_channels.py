"""Batches that came compressed, channels that a policy compresses, and channels whose messages are checked by a schema, used by
published clients, which know nothing of that: what they get is plain and what was published, in order, also after a kill."""

import asyncio
import json
from functools import partial

import pytest
import stan_client
from stan_client.blocking import BlockingClient
from stan_protocol.admin_types import SchemaKind
from stan_protocol.kernel.rows import ID_BYTES

from tests.bench_compression import event
from tests.conformance.clients import payloads, sequences
from tests.kit.batches import rows_of
from tests.kit.server import StanServer, until

COUNT, TOGETHER = 1000, 200
EVENTS = [event(number) for number in range(COUNT)]
CONF = """streaming { policies {
  "told.>" { compress: zstd }
  "typed.>" { compress: zstd, compact: last, min_age: "0s", schema: valid }
} }"""
SCHEMA = json.dumps({"type": "object", "properties": {"age": {"type": "integer", "minimum": 0}}, "required": ["age"]})


@pytest.fixture(scope="module")
def compressing_server(tmp_path_factory):
    directory = tmp_path_factory.mktemp("compressing")
    (directory / "stan.conf").write_text(CONF)
    with StanServer(directory, "-mc", "0", "-sc", str(directory / "stan.conf")) as server:
        yield server


def publish_batches(server, channel):
    """Publish the events in batches that the client compresses, with ids: a new cluster may just be moving its leaders."""
    ids_of = partial(int.to_bytes, length=ID_BYTES, byteorder="big")
    with BlockingClient(server.url, cluster_id=server.cluster_id) as client:
        for at in range(0, COUNT, TOGETHER):
            rows, ids = rows_of(EVENTS[at : at + TOGETHER]), b"".join(map(ids_of, range(at, at + TOGETHER)))
            client.publish_batch(channel, rows, TOGETHER, producer="events", ids=ids, compress=True)


def status(server, channel):
    async def asked():
        async with stan_client.Direct(server.url, cluster_id=server.cluster_id) as direct:
            return await direct.admin.channel(channel)

    return asyncio.run(asked())


def check(messages, first=1):
    """All events from *first* on came once, plain and in order."""
    assert payloads(messages) == EVENTS[first - 1 :]
    assert sequences(messages) == list(range(first, COUNT + 1))
    assert not any(message["redelivered"] for message in messages)
    stamps = [message["timestamp"] for message in messages]
    assert stamps == sorted(stamps)
    assert stamps[0] > 0


@pytest.mark.parametrize("prefix", ["by", "told"])
def test_batches_of_new_clients_come_plain_and_unchanged(connect, compressing_server, name, prefix):
    channel = f"{prefix}.{name}"
    live, late = connect(server=compressing_server), connect(server=compressing_server)
    live.subscribe("s", channel, max_in_flight=50)
    publish_batches(compressing_server, channel)
    late.subscribe("s", channel, start="first")
    late.subscribe("amid", channel, start="sequence:777")
    check(live.messages("s", COUNT))
    check(late.messages("s", COUNT))
    check(late.messages("amid", COUNT - 776), 777)
    told = status(compressing_server, channel)
    assert 3 * told.kept_bytes < told.clear_bytes


def test_what_an_old_publisher_sends_is_compressed_and_comes_unchanged(connect, compressing_server, name):
    channel = f"told.{name}"
    publisher, subscriber = connect(server=compressing_server), connect(server=compressing_server)
    subscriber.subscribe("s", channel)
    publisher.publish_and_wait(channel, *EVENTS)
    check(subscriber.messages("s", COUNT))
    late = connect(server=compressing_server)
    late.subscribe("s", channel, start="first")
    check(late.messages("s", COUNT))
    told = status(compressing_server, channel)
    assert 0 < told.kept_bytes < told.clear_bytes


def test_message_of_a_compressed_batch_comes_again_as_it_was(connect, compressing_server, name):
    channel = f"told.{name}"
    publish_batches(compressing_server, channel)
    client = connect(server=compressing_server)
    client.subscribe("s", channel, start="sequence:500", manual=1, ack_wait=1000, max_in_flight=1)
    messages = client.messages("s", 3)[:3]
    assert sequences(messages) == [500] * 3
    assert payloads(messages) == [EVENTS[499]] * 3
    assert [message["redelivered"] for message in messages] == [False, True, True]
    assert len({message["timestamp"] for message in messages}) == 1


def test_batches_come_plain_from_the_disk_after_a_kill(connect, stan_server, name):
    publish_batches(stan_server, name)
    client = connect(server=stan_server)
    client.subscribe("s", name, durable="d", start="first", manual=1, max_in_flight=10, ack_wait=30_000)
    before = client.messages("s", 10)
    client.ack("s", *sequences(before))
    client.messages("s", 20)
    stan_server.kill9()
    stan_server.start()
    late = connect(server=stan_server)
    late.subscribe("s", name, start="first")
    check(late.messages("s", COUNT))


def test_batches_come_plain_from_the_next_leader(connect, cluster, name):
    publish_batches(cluster, name)
    client = connect(server=cluster)
    client.subscribe("s", name, start="first", manual=1, max_in_flight=100, ack_wait=2000)
    client.messages("s", 100)
    cluster.kill9(cluster.leader_of(name))
    acked = set()

    def ack_all():
        new = set(sequences(client.seen("message", sub="s"))) - acked
        client.ack("s", *new)
        acked.update(new)
        return len(acked) == COUNT

    until(ack_all)
    assert {(one["sequence"], bytes.fromhex(one["data"])) for one in client.seen("message", sub="s")} == {
        *enumerate(EVENTS, 1)
    }
    late = connect(server=cluster)
    late.subscribe("s", name, start="first")
    check(late.messages("s", COUNT))


def test_what_fits_the_schema_comes_unchanged_and_the_rest_is_refused_with_the_path(connect, compressing_server, name):
    channel = f"typed.{name}"

    async def register():
        async with stan_client.Direct(compressing_server.url, cluster_id=compressing_server.cluster_id) as direct:
            await direct.admin.add_schema(channel, SCHEMA.encode(), SchemaKind.JSON)

    asyncio.run(register())
    client = connect(server=compressing_server)
    client.subscribe("s", channel)
    fitting = [b'{"age": %d,  "note": "\xc3\xa9"}' % number for number in range(50)]
    client.publish(channel, *fitting[:25], b'{"age": -1}', b"\xff", *fitting[25:])
    acked = client.wait("acked", 52)
    why = f'stan: the message does not fit version 1 of the schema of "{channel}": '
    assert sorted(one["error"] for one in acked if one["error"]) == [
        f"{why}/: is no JSON in UTF-8",
        f"{why}/age: -1 is less than the minimum of 0",
    ]
    messages = client.messages("s", 50)
    assert payloads(messages) == fitting
    assert sequences(messages) == list(range(1, 51))
