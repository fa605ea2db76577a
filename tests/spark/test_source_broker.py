"""The readers without Spark over a real broker: what it tells, removes and forgets."""

import asyncio
import os
import sys

import nkeys
import pyarrow as pa
import pytest
import stan_client
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark_stan import transport
from pyspark_stan.datasource import StanDataSource
from pyspark_stan.errors import UnreachableError
from pyspark_stan.options import ConnectionOptions, source_options
from pyspark_stan.transport import client_of, forget
from stan_client import DataLossError, Direct
from stan_client.blocking import BlockingClient
from stan_client.errors import CannotConnectError, ConnectionClosedError
from stan_protocol.parted import part_of

from tests.integration.test_compaction_server import POLICY, SMALL
from tests.kit.fake_broker import nats_server
from tests.kit.ports import free_port
from tests.kit.server import StanServer, until
from tests.spark.filling import fill

ALL = ReadAllAvailable()


@pytest.fixture
def source(broker):
    """Makes data sources; closes the connections of this process afterwards."""

    def make(server=broker, **options):
        given = {"servers": server.url, "fetch.retryIntervalMs": 20, "requestTimeoutMs": 20_000, **options}
        connections.add(ConnectionOptions((server.url,), timeout_s=20.0))
        return StanDataSource({key.lower(): str(value) for key, value in given.items()})

    connections = set()
    yield make
    for connection in connections:
        if (connected := transport._pool.get((os.getpid(), connection))) is not None:
            forget(connection, connected)


def read(reader, partitions):
    found = [batch for part in partitions for batch in reader.read(part)]
    return pa.Table.from_batches(found).to_pylist() if found else []


def batch(made):
    return made.reader(made.schema())


def test_a_batch(client, source, channel):
    fill(client, channel, [b"%d" % number for number in range(1000)], replies=[b"r%d" % n for n in range(1000)])
    reader = batch(source(subscribe=channel, minPartitions=3))
    parts = reader.partitions()
    rows = read(reader, parts)
    assert len(parts) == 3
    assert [row["value"] for row in rows] == [b"%d" % number for number in range(1000)]
    assert [row["sequence"] for row in rows] == list(range(1, 1001))
    assert {row["channel"] for row in rows} == {channel}
    assert [row["reply"] for row in rows] == [f"r{number}" for number in range(1000)]


def test_times_find_their_place(client, source, channel):
    for value in (b"one", b"two", b"three"):
        fill(client, channel, [value])
    everything = batch(source(subscribe=channel))
    second = read(everything, everything.partitions())[1]["timestamp"]
    later = batch(source(subscribe=channel, startingTimestamp=second.isoformat()))
    assert [row["value"] for row in read(later, later.partitions())][-2:] == [b"two", b"three"]
    before = batch(source(subscribe=channel, endingTimestamp=second.isoformat()))
    assert [row["value"] for row in read(before, before.partitions())][:1] == [b"one"]
    assert len(read(before, before.partitions())) < 3


def test_a_stream_of_a_pattern(client, source, channel):
    made = source(subscribePattern=rf"{channel}\.\w+", startingOffsets="earliest", consumerName=f"audit-{channel}")
    reader = made.streamReader(made.schema())
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) == start
    fill(client, f"{channel}.a", [b"a1", b"a2"])
    fill(client, f"{channel}.b", [b"b1"])
    end = reader.latestOffset(start, ALL)
    assert [row["value"] for row in read(reader, reader.partitions(start, end))] == [b"a1", b"a2", b"b1"]
    reader.commit(end)
    kept = client.bookmarks(f"audit-{channel}")[f"audit-{channel}"]
    assert {name: cursor.sequence for name, cursor in kept.items()} == {f"{channel}.a": 3, f"{channel}.b": 2}
    fill(client, f"{channel}.b", [b"b2"])
    after = reader.latestOffset(end, ALL)
    assert [row["value"] for row in read(reader, reader.partitions(end, after))] == [b"b2"]


def test_a_channel_with_parts_is_read_by_its_name_in_the_order_of_each_key_over_a_doubling(tmp_path, source):
    made = {"subscribe": "sales", "startingOffsets": "earliest", "includePartition": "true", "includeKey": "true"}
    keys = [f"k{number}" for number in range(12)]

    def publish(value):
        async def each():
            async with await stan_client.connect(server.url, client_id="shop") as shop:
                for key in keys:
                    await shop.publish("sales", value, key=key)

        asyncio.run(each())

    def change(parts):
        async def ask():
            async with Direct(server.url) as direct:
                await (
                    direct.admin.double_parts("sales", parts) if doubled else direct.admin.create_parts("sales", parts)
                )

        asyncio.run(ask())

    def read_on(reader, offset):
        while (end := reader.latestOffset(offset, ALL)) != offset:
            rows = read(reader, reader.partitions(offset, end))
            assert {row["channel"] == f"sales.~{row['partition']}" for row in rows} == {True}
            seen.extend((row["key"].decode(), row["value"], row["partition"]) for row in rows)
            offset = end
        return offset

    seen, doubled = [], False
    with StanServer(tmp_path) as server:
        change(2)
        reader = source(server, **made).streamReader(source(server, **made).schema())
        publish(b"1")
        offset = read_on(reader, reader.initialOffset())
        publish(b"2")
        doubled = True
        change(2)
        publish(b"3")
        read_on(reader, offset)
        typed = batch(source(server, subscribe="sales"))
        assert len(read(typed, typed.partitions())) == 36
    for key in keys:
        of_key = [(value, part) for at, value, part in seen if at == key]
        assert [value for value, _ in of_key] == [b"1", b"2", b"3"]
        assert [part for _, part in of_key] == [part_of(key.encode(), parts) for parts in (2, 2, 4)]


def test_retention(tmp_path, source):
    with StanServer(tmp_path, "-mm", "50") as server, BlockingClient(server.url) as client:
        fill(client, "orders", [b"%d" % number for number in range(40)])
        early = batch(source(server, subscribe="orders"))
        parts = early.partitions()
        fill(client, "orders", [b"%d" % number for number in range(40, 80)])
        assert [row["sequence"] for row in read(early, early.partitions())] == list(range(31, 81))
        with pytest.raises(DataLossError, match="messages 1 to 30 of orders"):
            read(early, parts)
        tolerant = batch(source(server, subscribe="orders", failOnDataLoss="false"))
        assert [row["sequence"] for row in read(tolerant, parts)] == list(range(31, 41))


def test_what_was_purged_or_deleted_is_no_loss(tmp_path, source):
    with StanServer(tmp_path, "-mm", "50") as server, BlockingClient(server.url) as client:
        fill(client, "orders", [b"%d" % number for number in range(40)])
        reader = batch(source(server, subscribe="orders"))
        parts = reader.partitions()

        async def remove():
            async with Direct(server.url) as direct:
                await direct.admin.purge("orders", up_to=20)
                await direct.admin.delete_message("orders", 21)

        asyncio.run(remove())
        assert [row["sequence"] for row in read(reader, parts)] == list(range(22, 41))
        assert [info.lost_until for info in client.info(["orders"]).values()] == [0]
        fill(client, "orders", [b"%d" % number for number in range(40, 75)])
        with pytest.raises(DataLossError, match="messages 1 to 25 of orders"):
            read(reader, parts)


def test_a_compacted_channel_loses_nothing_for_a_query_that_is_behind(tmp_path, source):
    conf = tmp_path / "stan.conf"
    conf.write_text(POLICY)
    keys = [b"k%d" % (number % 3) for number in range(1000)]
    with (
        StanServer(tmp_path, "-sc", str(conf), command=(sys.executable, "-c", SMALL)) as server,
        BlockingClient(server.url) as client,
    ):
        for at in range(0, 1000, 50):
            fill(client, "orders", [os.urandom(200) for _ in range(50)], keys=keys[at : at + 50])
        made = source(server, subscribe="orders", startingOffsets="earliest")
        reader = made.streamReader(made.schema())
        start = reader.initialOffset()
        until(lambda: client.info(["orders"])["orders"].first > 1)
        fill(client, "orders", [bytes(200)] * 10, keys=keys[:10])
        end = reader.latestOffset(start, ALL)
        sequences = [row["sequence"] for row in read(reader, reader.partitions(start, end))]
        assert sequences == sorted(sequences)
        assert {keys[(at - 1) % 1000] for at in sequences[-10:]} == {b"k0", b"k1", b"k2"}
        assert client.info(["orders"])["orders"].lost_until == 0


def test_a_broker_that_restarts_in_the_middle(tmp_path, source):
    with StanServer(tmp_path) as server, BlockingClient(server.url) as client:
        values = [b"%d" % number + bytes(5000) for number in range(2000)]
        fill(client, "orders", values)
        reader = batch(source(server, subscribe="orders", fetchBytes=100_000))
        parts = reader.partitions()
        found = []
        for part in parts:
            for batch_number, rows in enumerate(reader.read(part)):
                found += rows.column("value").to_pylist()
                if batch_number == 3:
                    server.kill9()
                    server.start()
        assert found == values


def break_off(connection):
    """Close the NATS connection of this process's client, as nats-py does when its attempts to reconnect are used up."""
    client = client_of(connection)
    client._wait(client._direct._link.shut())
    with pytest.raises(ConnectionClosedError):
        client.info(["ch"])


def test_a_client_that_was_closed_is_replaced(broker, client, source):
    fill(client, "closed", [b"1", b"2"])
    made = source(subscribe="closed")
    connection = ConnectionOptions((broker.url,), timeout_s=20.0)
    reader = batch(made)
    break_off(connection)
    parts = reader.partitions()
    break_off(connection)
    assert [row["value"] for row in read(reader, parts)] == [b"1", b"2"]


def test_a_connection_is_tried_for_until_a_server_is_there(monkeypatch):
    """A worker that is born while NATS restarts; nobody waits for one that refuses the login."""
    attempts = []

    def connect(*_args, **_named):
        attempts.append(1)
        passing = len(attempts) < 4
        raise CannotConnectError(
            "nats://127.0.0.1:1", "refused" if passing else "Authorization Violation", passing=passing
        )

    monkeypatch.setattr("pyspark_stan.transport.BlockingClient", connect)
    monkeypatch.setattr("pyspark_stan.transport.CONNECT_PAUSE_S", 0.001)
    with pytest.raises(UnreachableError, match="Authorization Violation"):
        client_of(ConnectionOptions(("nats://127.0.0.1:1",)))
    assert len(attempts) == 4


def test_no_server(source, monkeypatch):
    class Nowhere:
        url = f"nats://127.0.0.1:{free_port()}"

    monkeypatch.setattr("pyspark_stan.transport.CONNECT_PATIENCE_S", 0.5)

    made = StanDataSource({"servers": Nowhere.url, "subscribe": "orders", "fetch.numretries": "0"})
    with pytest.raises(UnreachableError, match=Nowhere.url):
        batch(made).partitions()


def test_an_nkey_logs_in_and_no_secret_is_told(tmp_path):
    seed, other = (nkeys.encode_seed(bytes([number] * 32), nkeys.PREFIX_BYTE_USER) for number in (1, 2))
    public = nkeys.from_seed(bytearray(seed)).public_key.decode()
    (tmp_path / "right.nk").write_bytes(seed)
    (tmp_path / "wrong.nk").write_bytes(other)
    (tmp_path / "nats.conf").write_text(f"authorization {{ users = [{{ nkey: {public} }}] }}\n")
    with nats_server("-c", str(tmp_path / "nats.conf")) as url:

        def connection(name):
            return source_options({"servers": url, "subscribe": "a", "nkey": str(tmp_path / name)}).connection

        forget(connection("right.nk"), client_of(connection("right.nk")))
        with pytest.raises(UnreachableError, match="Authorization Violation") as caught:
            client_of(connection("wrong.nk"))
    assert other.decode() not in str(caught.value)


def test_connections_are_shared_by_all_who_ask_for_the_same(broker):
    one, other = ConnectionOptions((broker.url,)), ConnectionOptions((broker.url,), timeout_s=1.0)
    first = client_of(one)
    assert client_of(ConnectionOptions((broker.url,))) is first
    assert client_of(other) is not first
    forget(one, first)
    assert client_of(one) is not first
    for connection in (one, other):
        forget(connection, client_of(connection))
