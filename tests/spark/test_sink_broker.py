"""The sink without Spark, with a real broker: what is seen when, what survives a broker that dies, who is fenced off."""

import asyncio

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructType
from pyspark_stan.errors import RowError
from pyspark_stan.options import ConnectionOptions
from pyspark_stan.transport import client_of
from pyspark_stan.writing.routing import REQUEST_OVERHEAD
from pyspark_stan.writing.sink import stream_writer
from stan_client import everything
from stan_client.blocking import BlockingClient
from stan_client.errors import ServerError
from stan_client.reading.direct import Direct
from stan_protocol.parted import part_of

from tests.kit.server import StanServer
from tests.spark.crash_kit import packed, read

VALUE = StructType().add("value", BinaryType())
ROUTED = StructType().add("value", BinaryType()).add("channel", StringType())


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A broker that tests may kill, if they start it again."""
    with StanServer(tmp_path_factory.mktemp("broker"), "-mc", "0") as made:
        yield made


@pytest.fixture(scope="module")
def client(server):
    with BlockingClient(server.url) as made:
        yield made


@pytest.fixture
def task(monkeypatch, channel):
    """Say which task of the query, called as the channel, the code runs in."""

    def be(batch, partition=0):
        context = object.__new__(TaskContext)  # calling the class gives the one there is
        context._partitionId, context._attemptNumber = partition, 0
        context._localProperties = {"sql.streaming.queryId": channel, "streaming.sql.batchId": str(batch)}
        monkeypatch.setattr(TaskContext, "_taskContext", context)

    return be


@pytest.fixture
def writer(server, channel):
    def make(schema=VALUE, **options):
        where = {"servers": server.url, **({} if schema is ROUTED else {"channel": channel})}
        return stream_writer({**where, **options}, schema, overwrite=False)

    return make


def values(*items):
    return pa.record_batch({"value": pa.array(items, pa.binary())})


def found(client, channel):
    return list(read(client, channel))


def test_nothing_is_seen_before_the_commit_and_all_of_it_after_in_order(client, task, writer, channel):
    sink = writer(batchrows="7")
    rows = [b"%d" % number for number in range(100)]
    task(0, partition=1)
    second = sink.write(iter([values(*rows[50:])]))
    task(0, partition=0)
    first = sink.write(iter([values(*rows[:30]), values(*rows[30:50])]))
    assert found(client, channel) == []

    sink.commit([second, first], 0)
    assert found(client, channel) == rows


def test_abort_after_a_commit_and_a_second_commit_change_nothing(client, task, writer, channel):
    sink = writer()
    task(0)
    message = sink.write(iter([values(b"1", b"2")]))
    sink.commit([message], 0)
    sink.abort([message], 0)
    sink.commit([message], 0)

    assert found(client, channel) == [b"1", b"2"]


def test_what_was_aborted_cannot_be_committed(client, task, writer, channel):
    sink = writer()
    task(0)
    message = sink.write(iter([values(b"1")]))
    sink.abort([message], 0)
    with pytest.raises(ServerError):
        sink.commit([message], 0)

    sink.commit([sink.write(iter([values(b"2")]))], 0)
    assert found(client, channel) == [b"2"]


def test_an_old_driver_is_fenced_off(client, task, writer, channel):
    old, new = writer(), writer()
    task(3)
    late, good = old.write(iter([values(b"1")])), new.write(iter([values(b"1")]))
    new.commit([good], 3)
    task(4)
    new.commit([new.write(iter([values(b"2")]))], 4)
    old.commit([late], 3)

    assert found(client, channel) == [b"1", b"2"]
    task(3)
    assert old.write(iter([values(b"1")])).done_before


def test_many_channels_are_committed_together(client, task, writer, channel):
    rows = [(b"%d" % number, f"{channel}.{number % 30}") for number in range(3000)]
    batch = pa.record_batch({"value": pa.array([v for v, _ in rows]), "channel": pa.array([c for _, c in rows])})
    sink = writer(ROUTED)
    task(0)
    message = sink.write(iter([batch]))
    assert found(client, f"{channel}.0") == []
    sink.commit([message], 0)

    for which in range(30):
        assert found(client, f"{channel}.{which}") == [b"%d" % number for number in range(which, 3000, 30)]


@pytest.mark.parametrize("delivery", ["transactional", "idempotent", "at-least-once"])
def test_a_client_that_was_closed_under_a_query_is_replaced(server, client, task, writer, channel, delivery):
    """Closed as nats-py does it when its attempts to reconnect are used up: before, between and behind the rows of a task."""
    sink = writer(delivery=delivery, batchrows="2")

    def break_off():
        ours = client_of(ConnectionOptions((server.url,), timeout_s=30.0 if delivery != "at-least-once" else 5.0))
        ours._wait(ours._direct._link.shut())

    def batches():
        for number in range(0, 30, 3):
            yield values(*[b"%d" % (number + each) for each in range(3)])
            if number in (9, 18):
                break_off()

    task(0)
    break_off()
    message = sink.write(batches())
    break_off()
    sink.commit([message], 0)
    rows = [b"%d" % number for number in range(30)]
    if delivery == "at-least-once":
        assert sorted(set(found(client, channel))) == sorted(rows)
    else:
        assert sorted(found(client, channel)) == sorted(rows)
        assert delivery != "transactional" or found(client, channel) == rows
    task(0)
    if delivery != "at-least-once":
        break_off()
        assert sink.write(iter([values(b"again")])).done_before


def test_staged_rows_survive_a_broker_that_dies(server, client, task, writer, channel):
    sink = writer()
    task(0)
    message = sink.write(iter([values(b"1", b"2")]))
    server.kill9()
    server.start()
    sink.commit([message], 0)
    server.kill9()
    server.start()
    sink.commit([message], 0)

    assert found(client, channel) == [b"1", b"2"]


@pytest.mark.parametrize("delivery", ["transactional", "idempotent"])
def test_a_broker_that_dies_while_rows_are_written_is_waited_for(server, client, task, writer, channel, delivery):
    rows = [b"%06d" % number for number in range(20_000)]

    def batches():
        for at in range(0, len(rows), 500):
            if at == 10_000:
                server.kill9()
                server.start()
            yield values(*rows[at : at + 500])

    sink = writer(delivery=delivery, batchrows="100")
    task(0)
    sink.commit([sink.write(batches())], 0)

    assert sorted(found(client, channel)) == rows


def test_idempotent_rows_that_come_again_are_left_out(client, task, writer, channel):
    sink = writer(delivery="idempotent")
    rows = [b"%d" % (number // 2) for number in range(5000)]
    task(0)
    sink.write(iter([values(*rows[:3000])]))  # an attempt that does not come to its end
    again = sink.write(iter([values(*reversed(rows))]))
    sink.commit([again], 0)

    assert again.duplicates == 3000
    assert sorted(found(client, channel)) == sorted(rows)
    assert sink.write(iter([values(*rows)])).done_before


def test_an_idempotent_driver_that_is_too_old_is_refused(client, task, writer, channel):
    for batch in (1, 2, 3):
        task(batch)
        writer(delivery="idempotent").write(iter([values(b"%d" % batch)]))
    task(0)
    with pytest.raises(ServerError):
        writer(delivery="idempotent").write(iter([values(b"0")]))

    assert found(client, channel) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("delivery", ["transactional", "idempotent", "at-least-once"])
def test_the_largest_row_is_written_and_a_larger_one_is_told(client, task, writer, channel, delivery):
    sink = writer(delivery=delivery)
    room = client.message_bytes_max() - REQUEST_OVERHEAD - 32 - len(channel)
    task(0)
    with pytest.raises(RowError, match="larger than"):
        sink.write(iter([values(b"x" * (room + 1))]))
    rows = [b"a", b"x" * room, b"b", b"y" * (room - 1), b"c" * 100_000]
    sink.commit([sink.write(iter([values(*rows)]))], 0)

    assert found(client, channel) == rows
    assert client.fetch(channel, start=everything(), count=1)[0].data == b"a"


def test_rows_and_publishes_of_others_share_a_channel(client, task, writer, channel):
    sink = writer()
    task(0)
    message = sink.write(iter([values(b"1")]))
    client.publish_batch(channel, packed([b"between"]), 1)
    sink.commit([message], 0)

    assert found(client, channel) == [b"between", b"1"]


KEYED = StructType().add("value", BinaryType()).add("key", StringType())


@pytest.mark.parametrize("delivery", ["transactional", "idempotent", "at-least-once"])
async def test_rows_go_to_the_parts_of_a_channel_before_and_after_they_are_doubled(
    client, task, writer, channel, server, delivery
):
    async with Direct(server.url) as direct:
        await direct.admin.create_parts(channel, 2)
        sink = writer(KEYED, delivery=delivery, includekey="true", batchrows="20")
        for batch, parts in enumerate((2, 4)):
            rows = [(b"%d" % (100 * batch + number), f"k{number % 13}") for number in range(100)]
            columns = zip(*rows, strict=True)
            task(batch)
            arrays = dict(zip(("value", "key"), map(pa.array, columns), strict=True))
            messages = [await asyncio.to_thread(sink.write, iter([pa.record_batch(arrays)]))]
            await asyncio.to_thread(sink.commit, messages, batch)
            for number in range(parts):
                stored = await asyncio.to_thread(found, client, f"{channel}.~{number}")
                wanted = [value for value, key in rows if part_of(key.encode(), parts) == number]
                assert [value for value in stored if int(value) >= 100 * batch] == wanted
            if batch == 0:
                await direct.admin.double_parts(channel, 2)
        task(1)
        again = await asyncio.to_thread(sink.write, iter([pa.record_batch(arrays)]))
        await asyncio.to_thread(sink.commit, [again], 1)
        total = sum([len(await asyncio.to_thread(found, client, f"{channel}.~{number}")) for number in range(4)])
        assert total == (300 if delivery == "at-least-once" else 200)


async def test_rows_without_a_key_go_to_the_part_that_they_name_and_a_key_stays_where_it_belongs(
    client, task, writer, channel, server
):
    schema = StructType().add("value", BinaryType()).add("key", StringType()).add("partition", IntegerType())
    sink = writer(schema, delivery="at-least-once", includekey="true", includepartition="true")
    wrong = 1 - part_of(b"k", 2)
    async with Direct(server.url) as direct:
        await direct.admin.create_parts(channel, 2)
    rows = {"value": pa.array([b"a", b"b"]), "key": pa.array([None, None], pa.string()), "partition": pa.array([1, 0])}
    task(0)
    await asyncio.to_thread(sink.write, iter([pa.record_batch(rows)]))
    for number, value in ((1, b"a"), (0, b"b")):
        assert await asyncio.to_thread(found, client, f"{channel}.~{number}") == [value]
    keyed = pa.record_batch({"value": pa.array([b"c"]), "key": pa.array(["k"]), "partition": pa.array([wrong])})
    with pytest.raises(ServerError, match="the key of the message belongs to another part than"):
        await asyncio.to_thread(sink.write, iter([keyed]))
