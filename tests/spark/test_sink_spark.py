"""The sink in Spark, with a real broker: streams, saves, update and complete mode, repeated batches, failing tasks."""

import asyncio
from collections import Counter
from pathlib import Path

import pyspark_stan
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as fn
from pyspark_stan.errors import OptionsError
from stan_client import everything
from stan_client.blocking import BlockingClient
from stan_client.reading.direct import Direct
from stan_protocol.parted import part_of
from stan_protocol.proto.wire_pb2 import MsgProto

from tests.spark.crash_kit import packed, read

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def client(broker):
    """A connection of the test's own."""
    with BlockingClient(broker.url) as made:
        yield made


@pytest.fixture
def put(client, channel):
    """Publish to the source channel; returns its name."""

    def publish(*values):
        client.publish_batch(channel, packed(values), len(values))
        return channel

    return publish


@pytest.fixture
def target(channel):
    """Where the sink writes."""
    return f"{channel}.out"


@pytest.fixture
def source(spark, broker):
    """A stream of a channel's values, as text."""

    def load(name, **options):
        reader = spark.readStream.format("stan").option("servers", broker.url).option("startingOffsets", "earliest")
        return reader.options(**options).load(name).selectExpr("string(value) AS value", "sequence")

    return load


def finish(writer, checkpoint):
    """Process what there is; returns the query."""
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def test_a_new_checkpoint_under_the_same_name_is_told_and_nothing_is_lost_silently(
    source, put, target, client, broker, tmp_path
):
    """Batch 0 of a new checkpoint has other rows than batch 0 of the old one, and the same number."""
    channel = put(b"1", b"2")

    def stream(**options):
        frame = source(channel, **options).select("value")
        return frame.writeStream.format("stan").option("servers", broker.url).option("txnAppId", f"{target}-app")

    finish(stream().option("channel", target), tmp_path / "first")
    put(b"3", b"4")
    later = stream(startingOffsets=f'{{"{channel}": 3}}').option("channel", target)
    with pytest.raises(StreamingQueryException, match="another writer has committed"):
        finish(later, tmp_path / "second")
    finish(stream().option("channel", target), tmp_path / "first")  # the query that has begun goes on
    assert list(read(client, target)) == [b"1", b"2", b"3", b"4"]


def values(client, channel):
    return sorted(read(client, channel))


def forget_commit(checkpoint):
    """As if the driver had died after the sink's commit and before Spark's own: the newest batch will be repeated."""
    newest = max(
        (path for path in Path(checkpoint, "commits").iterdir() if path.name.isdigit()), key=lambda p: int(p.name)
    )
    newest.unlink()
    Path(newest.parent, f".{newest.name}.crc").unlink(missing_ok=True)


# --- streams ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("delivery", "copies"), [("transactional", 1), ("idempotent", 1), ("at-least-once", 2)])
def test_a_batch_that_spark_repeats_is_there_as_often_as_its_delivery_says(
    client, put, target, source, broker, tmp_path, delivery, copies
):
    rows = [b"a", b"b", b"a", b"c"]
    name = put(*rows)
    options = {"servers": broker.url, "channel": target, "delivery": delivery}
    writer = source(name).repartition(2).writeStream.format("stan").options(**options)
    finish(writer, tmp_path)
    assert values(client, target) == sorted(rows)

    forget_commit(tmp_path)
    finish(writer, tmp_path)
    assert values(client, target) == sorted(copies * rows)


def test_rows_choose_channels_and_carry_headers_replies_and_keys(client, put, channel, source, broker, tmp_path):
    name = put(b"0", b"1", b"2", b"3")
    head = fn.struct(fn.lit("n").alias("key"), fn.col("value").cast("binary").alias("value"))
    frame = source(name).select(
        fn.concat(fn.lit(f"{channel}.odd."), fn.col("value").cast("int") % 2).alias("channel"),
        fn.concat(fn.lit("reply."), "value").alias("reply"),
        fn.array(head).alias("headers"),
        fn.when(fn.col("value").cast("int") > 1, fn.col("value").cast("int")).alias("key"),
        "value",
    )
    options = {"servers": broker.url, "includeHeaders": "true", "includeReply": "true", "includeKey": "true"}
    finish(frame.writeStream.format("stan").options(**options), tmp_path)

    fetched = client.fetch_batch(f"{channel}.odd.1", start=everything())
    found = [MsgProto.FromString(each) for each in _records(fetched.records)]
    assert [(m.data, m.reply, m.headers[0].key, m.headers[0].value, m.key) for m in found] == [
        (b"1", b"reply.1", b"n", b"1", b""),
        (b"3", b"reply.3", b"n", b"3", b"3"),
    ]


def _records(records):
    at = 0
    while at < len(records):
        size = int.from_bytes(records[at : at + 4], "little")
        yield records[at + 4 : at + 4 + size]
        at += 4 + size


def test_complete_mode_appends_the_whole_result_each_time(client, put, target, source, broker, tmp_path):
    name = put(b"a", b"a", b"b")
    counted = source(name).groupBy("value").count().selectExpr("concat(value, count) AS value")
    writer = counted.writeStream.format("stan").outputMode("complete").options(servers=broker.url, channel=target)
    finish(writer, tmp_path)
    put(b"b")
    finish(writer, tmp_path)

    assert values(client, target) == [b"a2", b"a2", b"b1", b"b2"]


def test_update_mode_writes_what_has_changed_once(client, put, target, source, broker, tmp_path):
    name = put(b"a", b"a", b"b")
    counted = source(name).groupBy("value").count().selectExpr("concat(value, count) AS value")
    write = pyspark_stan.foreach_batch(servers=broker.url, channel=target)
    writer = counted.writeStream.outputMode("update").foreachBatch(write)
    finish(writer, tmp_path)
    put(b"b", b"c")
    finish(writer, tmp_path)
    forget_commit(tmp_path)
    put(b"c")
    finish(writer, tmp_path)  # repeats the second batch, which must leave the counts as they were, and goes on

    assert values(client, target) == [b"a2", b"b1", b"b2", b"c1", b"c2"]


def test_two_saves_of_one_batch_are_told_apart_by_their_channels_or_refused(
    client, put, target, source, broker, tmp_path
):
    def save_twice(others):
        def write(frame, _batch):
            for channel in (target, others):
                frame.write.format("stan").options(servers=broker.url, channel=channel).mode("append").save()

        return write

    name = put(b"1", b"2")
    finish(source(name).writeStream.foreachBatch(save_twice(f"{target}.too")), tmp_path / "a")
    assert values(client, target) == values(client, f"{target}.too") == [b"1", b"2"]

    with pytest.raises(Exception, match="another save of the same batch"):
        finish(source(name).repartition(4).writeStream.foreachBatch(save_twice(target)), tmp_path / "b")


def test_a_foreach_batch_that_is_called_twice_for_a_batch_is_refused_but_not_after_a_failure(
    client, put, target, source, broker, tmp_path
):
    write = pyspark_stan.foreach_batch(servers=broker.url, channel=target)

    def once_more(frame, batch):
        with pytest.raises(Exception, match="value: a column"):
            write(frame.selectExpr("sequence"), batch)
        write(frame, batch)
        write(frame, batch)

    name = put(b"1", b"2")
    with pytest.raises(Exception, match="another save of the same batch"):
        finish(source(name).coalesce(1).writeStream.foreachBatch(once_more), tmp_path)
    assert values(client, target) == [b"1", b"2"]


def test_a_failing_task_leaves_nothing_that_a_reader_sees(client, put, target, source, broker, tmp_path):
    name = put(*[b"%d" % n for n in range(1000)])
    fine = source(name).writeStream.format("stan").options(servers=broker.url, channel=target, batchRows="10")
    broken = (
        source(name)
        .selectExpr("if(sequence = 990, raise_error('no'), value) AS value")
        .writeStream.format("stan")
        .options(servers=broker.url, channel=target, batchRows="10")
    )
    with pytest.raises(Exception, match="no"):
        finish(broken, tmp_path)
    assert values(client, target) == []

    finish(fine, tmp_path)
    assert len(values(client, target)) == 1000


# --- saves ------------------------------------------------------------------------------------------------------------


def test_a_save_with_a_name_and_a_version_is_done_once(client, spark, broker, target):
    frame = spark.range(1000).selectExpr("string(id) AS value")
    saver = frame.write.format("stan").mode("append").options(servers=broker.url, txnAppId=f"app of {target}")
    for version in (1, 2, 1):
        saver.option("txnVersion", version).save(target)

    assert Counter(Counter(values(client, target)).values()) == {2: 1000}


def test_a_save_without_an_identity_is_refused(spark, broker, target):
    frame = spark.range(3).selectExpr("string(id) AS value")
    with pytest.raises(Exception, match="needs txnAppId and txnVersion"):
        frame.write.format("stan").mode("append").options(servers=broker.url).save(target)


def test_a_save_at_least_once_needs_no_identity(client, spark, broker, target):
    frame = spark.range(1000).selectExpr("string(id) AS value")
    frame.write.format("stan").mode("append").options(servers=broker.url, delivery="at-least-once").save(target)

    assert len(values(client, target)) == 1000


def test_dead_letters_are_part_of_the_transaction(client, spark, broker, target):
    frame = spark.range(10).selectExpr("if(id = 3, null, string(id)) AS value")
    options = {"txnAppId": target, "txnVersion": "1", "onError": f"deadLetter:{target}.dead"}
    saver = frame.write.format("stan").mode("append").options(servers=broker.url, **options)
    saver.save(target)

    assert len(values(client, target)) == 9
    assert values(client, f"{target}.dead") == [b""]


def test_wrong_options_are_all_told(spark, broker):
    frame = spark.range(3).selectExpr("id AS text")
    with pytest.raises(Exception, match="onError") as raised:
        frame.write.format("stan").mode("append").options(servers=broker.url, onError="x", chanel="y").save()
    for word in ("value: a column of this name is required", "onError: 'x'", "chanel: no such option; channel?"):
        assert word in str(raised.value)

    with pytest.raises(OptionsError, match="onError"):
        pyspark_stan.foreach_batch(servers=broker.url, channel="a", onError="x")
    with pytest.raises(OptionsError, match="txnVersion"):
        pyspark_stan.foreach_batch(servers=broker.url, channel="a", txnVersion=1)


@pytest.mark.parametrize("delivery", ["transactional", "idempotent", "at-least-once"])
def test_a_channel_with_parts_is_written_and_read_as_one_also_when_its_parts_are_doubled(
    client, put, channel, source, broker, spark, tmp_path, delivery
):
    """Between two micro-batches of the query that writes, and of the one that reads."""
    whole, copy = f"{channel}.whole", f"{channel}.copy"
    with asyncio.Runner() as runner:

        async def operate(ask):
            async with Direct(broker.url) as direct:
                return await ask(direct.admin)

        runner.run(operate(lambda admin: admin.create_parts(whole, 2)))
        options = {"servers": broker.url, "channel": whole, "delivery": delivery, "includeKey": "true"}
        numbered = source(put(*(b"%d" % number for number in range(100))))
        keyed = numbered.selectExpr("value", "concat('k', cast(value as int) % 13) AS key")
        written = keyed.writeStream.format("stan").options(**options)
        reading = spark.readStream.format("stan").option("servers", broker.url).option("startingOffsets", "earliest")
        of_parts = reading.option("includePartition", "true").option("includeKey", "true").load(whole)
        told = of_parts.selectExpr("concat_ws(' ', partition, sequence, string(key), string(value)) AS value")
        copied = told.writeStream.format("stan").options(servers=broker.url, channel=copy)

        for step in range(2):
            finish(written, tmp_path / "written")
            finish(copied, tmp_path / "copied")
            if step == 0:
                runner.run(operate(lambda admin: admin.double_parts(whole, 2)))
                put(*(b"%d" % number for number in range(100, 200)))
    seen = [tuple(row.split()) for row in (value.decode() for value in values(client, copy))]
    assert sorted(int(value) for *_, value in seen) == list(range(200)), "nothing is lost, nothing there twice"
    for part, _, key, value in seen:
        assert key == f"k{int(value) % 13}"
        assert int(part) == part_of(key.encode(), 2 if int(value) < 100 else 4)
    for key in {key for *_, key, _ in seen}:
        in_order = sorted(
            (int(value) >= 100, int(sequence), int(value)) for _, sequence, of, value in seen if of == key
        )
        numbers = [value for *_, value in in_order]
        assert numbers == sorted(numbers), "the order of a key"
