"""Batches of rows against real servers: stored and read back, each id once, also when servers are killed meanwhile."""

import threading

import pytest
import stan_client
from stan_client.blocking import BlockingClient
from stan_protocol import refusals
from stan_protocol.kernel.rows import ID_BYTES

from tests.kit.batches import rows_of
from tests.kit.cluster import StanCluster
from tests.kit.server import NatsServer

BATCHES = 60
ROWS = 500


def ids_of(first, count):
    return b"".join(number.to_bytes(ID_BYTES, "big") for number in range(first, first + count))


def payloads(first, count):
    return [b"row-%07d" % number for number in range(first, first + count)]


def test_messages_that_a_program_encodes_come_back_whole(client):
    full = stan_client.NewMessage(b"two", {"source": "shop", "raw": b"\xff"}, "A17", "answers.here")
    ack = client.publish_batch("encoded", stan_client.encode_rows([b"one", full, b""]), 3)
    assert (ack.first, ack.last) == (1, 3)
    one, two, three = [message for batch in client.read_range("encoded", 1, 3) for message in batch.messages()]
    assert (one.data, one.key, dict(one.headers), three.data) == (b"one", b"", {}, b"")
    assert (two.data, two.key, two.reply) == (b"two", b"A17", "answers.here")
    assert dict(two.headers) == {"source": b"shop", "raw": b"\xff"}
    with pytest.raises(stan_client.InvalidKeyError):
        stan_client.encode_rows([stan_client.NewMessage(b"", key=7)])


def send(client, first, count=ROWS, *, producer="p", version=0):
    """The future answer."""
    rows, ids = rows_of(payloads(first, count)), ids_of(first, count)
    return client.publish_batch_nowait("foo", rows, count, producer=producer, version=version, ids=ids)


def stored(client):
    last = client.fetch_batch("foo", count=1).last_sequence
    return [message.data for batch in client.read_range("foo", 1, last) for message in batch.messages()]


def test_rows_come_back_as_they_went_and_as_columns(server, client):
    rows = payloads(0, 3000)
    ack = client.publish_batch("foo", rows_of(rows), len(rows))
    assert (ack.first, ack.last, ack.duplicates) == (1, 3000, 0)
    assert stored(client) == rows
    with pytest.raises(stan_client.ServerError, match=refusals.INVALID_ROWS.format(1)):
        client.publish_batch("foo", rows_of([b"good"]) + b"\1\0\0\0x", 2)
    server.restart()
    assert stored(client) == rows


def test_ids_outlive_restarts_and_kills(server, client):
    assert send(client, 0, 10).result() == stan_client.BatchAck(1, 10, 0)
    server.restart()
    assert send(client, 5, 10).result() == stan_client.BatchAck(11, 15, 5)
    server.kill9()
    server.start()
    assert send(client, 0, 16, version=1).result() == stan_client.BatchAck(16, 16, 15)
    assert stored(client) == payloads(0, 16)


def test_a_server_killed_again_and_again_stores_each_id_once(server, client):
    """Many requests are on their way whenever it is killed; the client asks them again."""
    sent = [send(client, ROWS * number) for number in range(BATCHES)]
    for kills in range(4):
        sent[BATCHES * kills // 4].result()
        server.kill9()
        server.start()
    acks = [one.result() for one in sent]
    for number, ack in enumerate(acks):
        assert ack.duplicates in (0, ROWS), number
    assert sorted(stored(client)) == payloads(0, BATCHES * ROWS)


class Producer(threading.Thread):
    """Sends on and on, four requests at a time, until it is `enough`."""

    def __init__(self, client):
        super().__init__()
        self.client = client
        self.enough = threading.Event()
        self.rows = 0
        self.problem = None

    def run(self):
        number = 0
        try:
            while not self.enough.is_set():
                asked = [send(self.client, ROWS * (number + at), version=number // 30) for at in range(4)]
                for one in asked:
                    one.result()
                number += 4
        except stan_client.StanClientError as problem:
            self.problem = problem
        self.rows = number * ROWS

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.enough.set()
        self.join()


def test_a_cluster_that_loses_its_leaders_stores_each_id_once(tmp_path):
    """Leaders are killed, frozen and stopped while requests are on their way to them."""
    with (
        NatsServer(tmp_path) as nats,
        StanCluster(tmp_path, nats=nats) as cluster,
        BlockingClient(cluster.url, cluster_id=cluster.cluster_id, timeout_s=60) as client,
    ):
        with Producer(client) as producer:
            send(client, 10**6, 1, producer="q").result()
            first = cluster.leader_of("foo")
            cluster.kill9(first)
            send(client, 10**6 + 1, 1, producer="q").result()
            second = cluster.leader_of("foo")
            cluster.start(first)
            cluster.stop(second)
            send(client, 10**6 + 2, 1, producer="q").result()
            cluster.cont(second)
            cluster.terminate(cluster.leader_of("foo"))
            send(client, 10**6 + 3, 1, producer="q").result()
        assert producer.problem is None
        assert sorted(stored(client)) == payloads(0, producer.rows) + payloads(10**6, 4)
