"""The source in Spark itself: what Spark makes of it, in one session."""

import json
import os
from collections import Counter

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import functions
from pyspark_stan import StanQueryListener, lag, register

from tests.kit.server import until
from tests.spark.filling import fill


@pytest.fixture
def loaded(spark, broker):
    """A DataFrame of a channel, batch or stream."""

    def load(channel, *, stream=False, **options):
        reader = (spark.readStream if stream else spark.read).format("stan").option("servers", broker.url)
        return reader.options(**options).load(channel)

    return load


def run(frame, checkpoint, take, **options):
    """Run a stream for what there is now; *take* gets the rows of each batch. Returns the query."""

    def each(rows, _number):
        take(rows.collect())

    writer = frame.writeStream.options(checkpointLocation=str(checkpoint), **options)
    query = writer.foreachBatch(each).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def test_a_batch_is_found_by_its_name_and_has_its_columns(client, loaded, channel):
    fill(client, channel, [b"one", b"two"], replies=[b"", b"inbox"], headers=[[], [(b"k", b"v")]], keys=[b"", b"k 7"])
    frame = loaded(channel, includeHeaders="true", includeKey="true")
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == [
        ("channel", "string"),
        ("sequence", "bigint"),
        ("timestamp", "timestamp"),
        ("value", "binary"),
        ("reply", "string"),
        ("headers", "array<struct<key:string,value:binary>>"),
        ("key", "binary"),
    ]
    one, two = frame.orderBy("sequence").collect()
    assert (one.channel, one.sequence, one.value, one.reply, one.headers) == (channel, 1, b"one", None, [])
    assert (two.reply, [tuple(header) for header in two.headers]) == ("inbox", [("k", b"v")])
    assert (one.key, two.key) == (None, b"k 7")
    assert one.timestamp.year > 2000


def test_the_users_columns_and_many_tasks(spark, broker, client, channel):
    fill(client, channel, [b"%d" % number for number in range(20_000)])
    reader = spark.read.format("stan").option("servers", broker.url).schema("value binary, sequence long")
    frame = reader.option("minPartitions", 4).load(channel)
    assert frame.columns == ["value", "sequence"]
    assert frame.rdd.getNumPartitions() == 4
    numbers = functions.sum(frame.value.cast("string").cast("long"))
    total = frame.select(functions.count("*"), functions.sum("sequence"), numbers).first()
    assert tuple(total) == (20_000, 20_000 * 20_001 // 2, 19_999 * 20_000 // 2)


def test_three_versions_of_a_schema_are_the_columns_of_one_query(client, loaded, channel, tmp_path):
    kinds = (
        {"id": "integer", "total": "integer"},
        {"id": "integer", "total": "number"},
        {"id": "integer", "note": "string"},
    )
    for version, fields in enumerate(kinds, 1):
        text = {"type": "object", "properties": {name: {"type": kind} for name, kind in fields.items()}}
        client._wait(client._direct.admin.add_schema(channel, json.dumps(text).encode(), compatibility=3))
        value = {"id": version, "total": version / 2} if version < 3 else {"id": version, "note": "late"}
        fill(client, channel, [json.dumps(value).encode()], headers=[[(b"stan-schema", b"%d" % version)]])
    fill(client, channel, [b'{"id": "four"}'])
    options = {"schema": "auto", "malformed": "keep"}
    frame = loaded(channel, **options)
    assert frame.columns == ["id", "total", "note", "_channel", "_sequence", "_timestamp", "_malformed"]
    rows = frame.orderBy("_sequence").select("id", "total", "note", "_malformed").collect()
    assert [tuple(row) for row in rows] == [
        *[(1, 0.5, None, None), (2, 1.0, None, None), (3, None, "late", None), (None, None, None, b'{"id": "four"}')],
    ]
    batches = []
    stream = loaded(channel, stream=True, startingOffsets="earliest", **options).where("id > 1")
    run(stream.select("note"), tmp_path, batches.append)
    assert sorted(row.note or "" for row in batches[0]) == ["", "late"]
    with pytest.raises(PySparkException, match=f"message 4 of {channel} is not what its schema says: id: 'four'"):
        loaded(channel, schema="auto").collect()


def test_an_empty_table(loaded, spark, broker):
    frame = spark.read.format("stan").option("servers", broker.url).option("subscribePattern", "nothing").load()
    assert frame.count() == 0


def test_mistakes_are_told_at_load(loaded):
    with pytest.raises(PySparkException) as caught:
        loaded("orders", minPartitons="2", failOnDataLoss="perhaps")
    assert "minPartitions?" in str(caught.value)
    assert "failOnDataLoss: 'perhaps'" in str(caught.value)


def test_a_column_that_there_is_not(spark, broker):
    with pytest.raises(PySparkException, match="no column offset"):
        spark.read.format("stan").option("servers", broker.url).schema("offset long").load("orders").collect()


def test_filters_are_pushed_down_where_both_sides_want_it(spark, client, loaded, channel):
    fill(client, channel, [b"%d" % number for number in range(100)])
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = loaded(channel, pushdown="true", maxRecordsPerPartition="10").where("sequence > 95")
        assert [row.sequence for row in frame.collect()] == [96, 97, 98, 99, 100]
        assert frame.rdd.getNumPartitions() == 1  # of ten
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_stream_goes_on_where_its_checkpoint_is(client, loaded, channel, tmp_path):
    """Limits cut it into batches, two runs and a new channel in between lose and repeat nothing."""
    fill(client, f"{channel}.a", [b"%d" % number for number in range(25)])
    options = {"subscribePattern": rf"{channel}\..*", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "10"}
    batches = []
    run(loaded(None, stream=True, **options), tmp_path, batches.append)
    assert [len(rows) for rows in batches] == [10, 10, 5]
    fill(client, f"{channel}.a", [b"25", b"26"])
    fill(client, f"{channel}.b", [b"first"])
    query = run(loaded(None, stream=True, **options), tmp_path, batches.append)
    rows = [row for taken in batches for row in taken]
    assert sorted((row.channel[-1], row.sequence, row.value) for row in rows) == [
        *(("a", number + 1, b"%d" % number) for number in range(27)),
        ("b", 1, b"first"),
    ]
    assert lag(query.lastProgress) == lag(json.loads(query.lastProgress.json)) == {f"{channel}.a": 0, f"{channel}.b": 0}
    assert query.lastProgress.numInputRows == 3


def test_many_small_channels_are_few_tasks_and_small_offsets(client, loaded, channel, tmp_path):
    """120 channels by a pattern of NATS, 20 more behind a restart: about as many tasks as cores, nothing lost, nothing twice."""
    cores = os.cpu_count() or 1
    for number in range(120):
        fill(client, f"{channel}.{number:03}", [b"1", b"2"])
    options = {"subscribe": f"{channel}.*"}
    assert loaded(None, **options).rdd.getNumPartitions() <= cores
    batches = []
    run(loaded(None, stream=True, startingOffsets="earliest", **options), tmp_path, batches.append)
    for number in range(110, 140):
        fill(client, f"{channel}.{number:03}", [b"3"])
    query = run(loaded(None, stream=True, **options), tmp_path, batches.append)
    found = Counter((row.channel, row.value) for taken in batches for row in taken)
    wanted = [(number, value) for number in range(120) for value in (b"1", b"2")] + [(n, b"3") for n in range(110, 140)]
    assert found == Counter((f"{channel}.{number:03}", value) for number, value in wanted)
    (report,) = query.lastProgress.sources
    assert len(report.endOffset) < 2300
    assert lag(query.lastProgress) == {f"{channel}.{number:03}": 0 for number in range(140)}


def test_a_stream_at_rest_runs_no_batches_and_is_behind_by_what_comes(spark, client, loaded, channel, tmp_path):
    told = []
    listener = StanQueryListener(lambda name, behind: told.append((name, behind)))
    spark.streams.addListener(listener)
    rows = []
    query = (
        loaded(
            channel, stream=True, consumerName=f"audit-{channel}", startingOffsets="earliest", waitForChannels="true"
        )
        .writeStream.options(checkpointLocation=str(tmp_path), queryName="resting")
        .foreachBatch(lambda frame, _number: rows.extend(row.value for row in frame.collect()))
        .start()
    )
    try:
        for count in range(1, 4):
            fill(client, channel, [b"%d" % count])
            until(lambda count=count: len(rows) >= count)
        assert rows == [b"1", b"2", b"3"]
        assert query.lastProgress.batchId < 3
        until(lambda: client.bookmarks(f"audit-{channel}"))
        until(lambda: ("resting", {channel: 0}) in told)
    finally:
        query.stop()
        spark.streams.removeListener(listener)


def test_what_is_missing_ends_the_query_with_its_reason(client, loaded, channel, tmp_path):
    fill(client, channel, [b"one"])
    frame = loaded(channel, stream=True, startingOffsets=json.dumps({channel: 5}))
    with pytest.raises(StreamingQueryException, match=f"{channel} ends at 2, before 5"):
        run(frame, tmp_path / "start", list)
    with pytest.raises(StreamingQueryException, match=f"no channel {channel}.missing"):
        run(loaded(f"{channel}.missing", stream=True), tmp_path / "name", list)


def test_a_format_that_is_registered_by_hand(spark, loaded, channel):
    register(spark)
    assert "sequence" in loaded(channel).columns
