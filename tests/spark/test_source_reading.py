"""The readers without Spark: plain objects over channels in memory."""

import json
import pickle
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import BinaryType, LongType, StringType, StructType
from pyspark_stan.datasource import StanDataSource
from pyspark_stan.errors import OptionsError
from pyspark_stan.options import SEQUENCE_MAX
from pyspark_stan.reading.cpus import usable_cpus
from pyspark_stan.reading.metrics import lag, lag_bytes, lag_seconds, summary
from pyspark_stan.reading.unread import Unread
from pyspark_stan.schema import full_schema
from stan_client import ChannelInfo, ConnectionClosedError, DataLossError, RequestTimeoutError, ServerError

from tests.spark.source_broker import Channel, SourceBroker, use

ALL = ReadAllAvailable()


@pytest.fixture
def broker(monkeypatch):
    found = SourceBroker(orders=[b"one", b"two", b"three", b"four", b"five"], payments=[b"p1", b"p2"])
    found.gone = use(monkeypatch, found)
    return found


def source(**options):
    given = {"servers": "nats://nowhere:1", "fetch.retryIntervalMs": "0", **options}
    if not {"assign", "subscribePattern"} & set(given):
        given.setdefault("subscribe", "orders")
    return StanDataSource({key.lower(): str(value) for key, value in given.items()})


def batch(schema=None, **options):
    made = source(**options)
    return made.reader(schema or made.schema())


def stream(schema=None, **options):
    made = source(**options)
    return made.streamReader(schema or made.schema())


def again(value):
    """What comes out of pickle."""
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - its own


def rows_of(reader, partitions=None):
    """Everything that *reader* reads, as a task would: from a pickled copy of it."""
    reader = again(reader)
    partitions = reader.partitions() if partitions is None else partitions
    found = [batch for part in partitions for batch in reader.read(again(part))]
    return pa.Table.from_batches(found).to_pylist() if found else []


def values_of(reader, partitions=None):
    return [row["value"] for row in rows_of(reader, partitions)]


def through_json(offset):
    """An offset as Spark hands it back."""
    return json.loads(json.dumps(offset))


# --- columns --------------------------------------------------------------------------------------------------------


def test_columns(broker):
    broker["orders"].add(b"", timestamp=1_700_000_000_123_456_789, reply="inbox", headers=[("k", b"v"), ("k", b"")])
    rows = rows_of(batch(includeHeaders="true"))
    assert [row["sequence"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert rows[0] == {
        "channel": "orders",
        "sequence": 1,
        "timestamp": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        "value": b"one",
        "reply": None,
        "headers": [],
    }
    assert rows[5]["timestamp"] == datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC)
    assert (rows[5]["value"], rows[5]["reply"]) == (b"", "inbox")
    assert rows[5]["headers"] == [{"key": "k", "value": b"v"}, {"key": "k", "value": b""}]


def test_replies_are_null_where_there_is_none(broker):
    broker["orders"].add(b"six", reply="inbox")
    assert [row["reply"] for row in rows_of(batch())] == [None] * 5 + ["inbox"]


def test_keys_are_a_column_if_they_are_asked_for(broker):
    broker["orders"].add(b"six", key=b"\x00k")
    broker["orders"].add(b"seven")
    assert "key" not in rows_of(batch(includeHeaders="true"))[5]
    assert [row["key"] for row in rows_of(batch(includeKey="true"))] == [None] * 5 + [b"\x00k", None]
    alone = StructType().add("key", BinaryType()).add("sequence", LongType())
    assert rows_of(batch(alone))[5] == {"key": b"\x00k", "sequence": 6}


@pytest.mark.parametrize("headers", [True, False])
@pytest.mark.parametrize("key", [True, False])
def test_batches_have_the_schema_that_spark_compares_with(broker, headers, key):
    reader = batch(full_schema(headers=headers, key=key))
    found = next(reader.read(reader.partitions()[0]))
    assert found.schema.equals(to_arrow_schema(full_schema(headers=headers, key=key), timezone="UTC"))
    found.validate(full=True)


def test_columns_that_the_user_names(broker):
    schema = StructType().add("value", BinaryType(), nullable=False).add("sequence", LongType())
    assert rows_of(batch(schema))[0] == {"value": b"one", "sequence": 1}


def test_columns_that_there_are_not(broker):
    schema = (
        StructType().add("value", StringType()).add("offset", LongType()).add("reply", StringType(), nullable=False)
    ).add("key", BinaryType(), nullable=False)
    with pytest.raises(OptionsError) as caught:
        batch(schema)
    assert len(caught.value.complaints) == 4


# --- batches --------------------------------------------------------------------------------------------------------


def test_a_batch_reads_everything_once(broker):
    assert values_of(batch(subscribe="orders,payments")) == [b"one", b"two", b"three", b"four", b"five", b"p1", b"p2"]
    assert len(batch(maxRecordsPerPartition=2).partitions()) == 3
    assert values_of(batch(maxRecordsPerPartition=2)) == [b"one", b"two", b"three", b"four", b"five"]


def test_channels_by_pattern_match_as_a_whole(broker):
    broker.channels["orders.old"] = Channel(7, [b"old"])
    assert values_of(batch(subscribePattern="order.")) == [b"one", b"two", b"three", b"four", b"five"]
    assert values_of(batch(subscribePattern=r"(payments|orders\.\w+)")) == [b"old", b"p1", b"p2"]


def test_a_channel_whose_name_is_no_text_is_not_read_by_a_pattern(broker, caplog):
    broker.channels["orders\udcff"] = Channel(9, [b"foreign"])
    assert values_of(batch(subscribePattern="orders.*"))
    assert "is not read: its name is not UTF-8" in caplog.text


def test_no_channel_at_all_is_an_empty_table(broker):
    reader = batch(subscribePattern="none")
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []  # what Spark makes of no partitions


def test_a_channel_that_does_not_exist_is_refused(broker):
    with pytest.raises(OptionsError, match="there is no channel ordres"):
        batch(subscribe="ordres").partitions()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": '{"orders": 4}'}, [b"four", b"five"]),
        ({"startingOffsets": '{"orders": -2}', "endingOffsets": '{"orders": 3}'}, [b"one", b"two"]),
        ({"endingOffsets": '{"orders": -1}'}, [b"one", b"two", b"three", b"four", b"five"]),
        ({"startingTimestamp": "4000"}, [b"four", b"five"]),
        ({"startingTimestamp": "1970-01-01T00:00:04.000001"}, [b"five"]),
        ({"startingOffsetsByTimestamp": '{"orders": 5000}'}, [b"five"]),
        ({"endingTimestamp": "3000"}, [b"one", b"two"]),
        ({"endingTimestamp": "99000"}, [b"one", b"two", b"three", b"four", b"five"]),
        ({"startingTimestamp": "6000", "startingOffsetsByTimestampStrategy": "latest"}, []),
        ({"assign": '{"orders": [2, 4]}'}, [b"two", b"three"]),
        ({"assign": '{"orders": 5}'}, [b"five"]),
    ],
)
def test_where_a_batch_starts_and_ends(broker, options, expected):
    assert values_of(batch(**options)) == expected


@pytest.mark.parametrize(
    "options",
    [{"startingTimestamp": "6000"}, {"startingOffsets": '{"orders": 7}'}, {"endingOffsets": '{"orders": 7}'}],
)
def test_a_place_behind_the_end_is_refused(broker, options):
    with pytest.raises(OptionsError, match=r"orders (ends at 6|has no message)"):
        batch(**options).partitions()


def test_sequences_that_spark_cannot_count_are_refused(broker):
    broker["orders"].messages[SEQUENCE_MAX] = broker["orders"].messages[1]
    with pytest.raises(OverflowError, match="orders"):
        batch().partitions()


@pytest.mark.parametrize("replica", [True, False])
def test_how_the_broker_is_asked(broker, replica):
    values_of(batch(fromReplica=str(replica).lower(), fetchBytes=5000))
    assert broker.reads == [{"max_bytes": 5000, "from_replica": replica}]


# --- loss -----------------------------------------------------------------------------------------------------------


def test_the_partition_is_the_number_of_the_part(broker):
    """Of a channel with parts, whose parts are named so; other channels have one, 0."""
    broker.channels["sales.~12"] = Channel(9, [b"a", b"b"])
    found = batch(subscribePattern=r"sales\.~\d+|payments", includePartition="true")
    rows = [row for part in found.partitions() for each in found.read(part) for row in each.to_pylist()]
    assert {(row["channel"], row["partition"]) for row in rows} == {("sales.~12", 12), ("payments", 0)}
    assert "partition" not in source().schema().names


def test_messages_removed_before_the_batch_is_planned_are_no_loss(broker):
    broker["orders"].forget_before(4)
    assert values_of(batch()) == [b"four", b"five"]


@pytest.mark.parametrize("first", [3, 6])
def test_messages_removed_before_they_are_read(broker, caplog, first):
    parts = batch().partitions()
    broker["orders"].forget_before(first)
    with pytest.raises(
        DataLossError, match=rf"messages 1 to {first - 1} of orders .* limits have removed .*failOnDataLoss"
    ):
        values_of(batch(), parts)
    assert values_of(batch(failOnDataLoss="false"), parts) == [b"one", b"two", b"three", b"four", b"five"][first - 1 :]
    assert f"messages 1 to {first - 1} of orders" in caplog.text


@pytest.mark.parametrize("removed", [(1, 2), (3, 4), (1, 2, 3), (1, 2, 3, 4)])
def test_what_was_compacted_has_expired_or_was_deleted_is_no_loss_wherever_it_was(broker, removed):
    reader = stream(startingOffsets="earliest")
    start = through_json(reader.initialOffset())
    parts = batch().partitions()
    broker["orders"].remove(*removed)
    left = [data for at, data in enumerate((b"one", b"two", b"three", b"four", b"five"), 1) if at not in removed]
    assert values_of(batch(), parts) == left
    assert values_of(batch(startingOffsets='{"orders": 1}')) == left
    end = through_json(reader.latestOffset(start, ALL))
    assert values_of(reader, reader.partitions(start, end)) == left


def test_holes_at_the_beginning_cost_no_batches(broker):
    """Limits of a batch count what is there, and a channel of which nothing is left is no reason for a batch."""
    many = broker.channels["many"] = Channel(30, [b"%d" % number for number in range(1, 1001)])
    reader = stream(subscribe="many", startingOffsets="earliest", maxOffsetsPerTrigger=100)
    start = through_json(reader.initialOffset())
    many.remove(*range(1, 951))
    end = through_json(reader.latestOffset(start, ReadMaxRows(100)))
    assert values_of(reader, reader.partitions(start, end)) == [b"%d" % number for number in range(951, 1001)]
    many.add(b"1001")
    many.remove(*range(951, 1002))
    assert [reader.latestOffset(end, ReadMaxRows(100)) for _ in range(2)] == [end, end]
    assert broker.waited[-1] > 0, "it waits for news"
    many.add(b"1002")
    after = through_json(reader.latestOffset(end, ReadMaxRows(100)))
    assert values_of(reader, reader.partitions(end, after)) == [b"1002"]


@pytest.mark.parametrize("available_now", [False, True])
def test_holes_amid_a_channel_cost_no_batches(broker, available_now):
    """Compaction, expiry, deletions: no batch is empty, and the batches have all that is there."""
    many = broker.channels["many"] = Channel(30, [b"%d" % number for number in range(1, 1001)])
    kept = [3, 4, 5, 250, 777, 778, 1000] if available_now else [3, 4, 5, 250, 777, 778, 990]
    reader = stream(subscribe="many", startingOffsets="earliest", maxOffsetsPerTrigger=2)
    start = through_json(reader.initialOffset())
    many.remove(*{*range(1, 1001)} - {*kept})
    if available_now:
        reader.prepareForTriggerAvailableNow()
    found = []
    for _ in kept:
        end = through_json(reader.latestOffset(start, ReadMaxRows(2)))
        found += [values_of(reader, reader.partitions(start, end))] if end != start else []
        start = end
    assert all(found)
    assert [value for batch_ in found for value in batch_] == [b"%d" % number for number in kept]
    asked = len(broker.waited)
    assert reader.latestOffset(start, ReadMaxRows(2)) == start
    assert len(broker.waited) <= asked + 1
    if available_now:  # what came later is not read, and the end stays the end
        many.remove(1000)
        many.add(b"later")
        assert reader.latestOffset(start, ReadMaxRows(2)) == start


def test_a_look_is_one_request_about_all_positions(broker):
    reader = stream(subscribe="orders,payments", startingOffsets="earliest", maxOffsetsPerTrigger=3)
    start = through_json(reader.latestOffset(through_json(reader.initialOffset()), ReadMaxRows(3)))
    assert start["orders"] + start["payments"] == 5
    reader.latestOffset(start, ReadMaxRows(3))
    assert broker.positions == [
        {},
        {"orders": 0, "payments": 0},
        {"orders": start["orders"] - 1, "payments": start["payments"] - 1},
    ]


def test_an_idle_stream_waits_behind_a_hole_and_reads_what_comes_there(broker):
    reader = stream(startingOffsets="earliest")
    start = through_json(reader.latestOffset(through_json(reader.initialOffset()), ALL))
    broker["orders"].add(b"six")
    broker["orders"].remove(6)
    broker.waited.clear()
    for _ in range(3):
        assert reader.latestOffset(start, ALL) == start
    assert broker.waited[0] == 0 < broker.waited[1] == broker.waited[2]
    assert broker.positions[-1] == {"orders": 6}
    broker["orders"].add(b"seven")
    end = through_json(reader.latestOffset(start, ALL))
    assert values_of(reader, reader.partitions(start, end)) == [b"seven"]


def test_an_idle_stream_waits_for_what_it_reads_only_and_for_channels_to_come(broker):
    both = stream(subscribe="orders,payments", startingOffsets="earliest")
    start = through_json(both.latestOffset(through_json(both.initialOffset()), ALL))
    reader = stream(subscribe="orders,later", waitForChannels="true")
    start = through_json(reader.latestOffset(start, ALL))
    for _ in range(2):
        assert reader.latestOffset(start, ALL) == start
    assert broker.positions[-1] == {"orders": 5, "later": 0}
    assert broker.waited[-1] > 0


def test_what_limits_remove_after_the_start_of_available_now_is_loss(broker):
    reader = stream(startingOffsets="earliest", maxOffsetsPerTrigger=2)
    reader.prepareForTriggerAvailableNow()
    start = through_json(reader.latestOffset(through_json(reader.initialOffset()), ReadMaxRows(2)))
    broker["orders"].forget_before(5)
    end = through_json(reader.latestOffset(start, ReadMaxRows(2)))
    with pytest.raises(DataLossError, match="messages 3 to 4 of orders"):
        values_of(reader, reader.partitions(start, end))


def test_a_channel_made_again_is_read_from_its_beginning_whatever_is_behind_the_position(broker):
    reader = stream(subscribe="orders", startingOffsets="earliest", maxOffsetsPerTrigger=2, failOnDataLoss="false")
    start = through_json(reader.latestOffset(through_json(reader.initialOffset()), ReadMaxRows(2)))
    made = broker.channels["orders"] = Channel(77, [b"%d" % number for number in range(1, 9)])
    made.remove(3, 4)
    end = through_json(reader.latestOffset(start, ReadMaxRows(2)))
    assert values_of(reader, reader.partitions(start, end)) == [b"1", b"2"]


def test_what_limits_have_removed_behind_a_hole_is_loss(broker):
    reader = stream(startingOffsets="earliest")
    start = through_json(reader.initialOffset())
    broker["orders"].forget_before(3)
    broker["orders"].remove(3)
    end = through_json(reader.latestOffset(start, ALL))
    with pytest.raises(DataLossError, match="messages 1 to 2 of orders"):
        values_of(reader, reader.partitions(start, end))


def test_a_start_that_retention_has_passed_is_loss(broker):
    broker["orders"].forget_before(3)
    with pytest.raises(DataLossError, match="messages 1 to 2"):
        values_of(batch(startingOffsets='{"orders": 1}'))


def test_holes_behind_the_oldest_message_are_no_loss(broker):
    for removed in (2, 3, 4):  # as compaction would
        del broker["orders"].messages[removed]
    broker.answer_rows = 1
    assert values_of(batch()) == [b"one", b"five"]


def test_a_channel_made_again_before_it_is_read(broker):
    parts = batch().partitions()
    broker.channels["orders"] = Channel(9, [b"other"] * 9)
    with pytest.raises(DataLossError, match="deleted and made again"):
        values_of(batch(), parts)
    assert values_of(batch(failOnDataLoss="false"), parts) == []


def test_a_channel_deleted_before_it_is_read(broker):
    parts = batch().partitions()
    del broker.channels["orders"]
    with pytest.raises(DataLossError, match="was deleted"):
        values_of(batch(), parts)
    assert values_of(batch(failOnDataLoss="false"), parts) == []


def test_a_channel_that_ends_too_early(broker):
    parts = batch().partitions()
    del broker["orders"].messages[5]
    with pytest.raises(DataLossError, match=r"messages 5 to 5 of orders .* ends before"):
        values_of(batch(), parts)


# --- what passes ----------------------------------------------------------------------------------------------------


def test_what_passes_is_tried_again_from_where_the_reader_is(broker):
    reader = batch()
    parts = reader.partitions()
    broker.failures = [OSError(), RequestTimeoutError()]
    broker.fetch_failures = [RequestTimeoutError(), ConnectionClosedError()]
    assert values_of(reader, parts) == [b"one", b"two", b"three", b"four", b"five"]
    assert broker.gone.forgotten == 1


def test_what_does_not_pass_is_an_error(broker):
    reader = batch(**{"fetch.numRetries": 2})
    parts = reader.partitions()
    broker.failures = [RequestTimeoutError()] * 3
    with pytest.raises(RequestTimeoutError):
        values_of(reader, parts)
    broker.failures = [RequestTimeoutError()] * 3
    with pytest.raises(RequestTimeoutError):
        reader.partitions()
    broker.failures = [RequestTimeoutError()] * 2
    assert reader.partitions() == parts


def test_a_refusal_is_an_error_at_once(broker):
    reader = batch()
    parts = reader.partitions()
    broker.failures = [ServerError("stan: permission denied")]
    with pytest.raises(ServerError):
        values_of(reader, parts)


# --- filters --------------------------------------------------------------------------------------------------------

SECOND_3 = datetime(1970, 1, 1, 0, 0, 3, tzinfo=UTC)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([IsNotNull(("sequence",)), GreaterThan(("sequence",), 3)], [b"four", b"five", b"p1", b"p2"][:2]),
        ([LessThanOrEqual(("sequence",), 1)], [b"one", b"p1"]),
        ([EqualTo(("sequence",), 2)], [b"two", b"p2"]),
        ([EqualTo(("channel",), "payments")], [b"p1", b"p2"]),
        ([In(("channel",), ("payments", "other")), LessThan(("sequence",), 2)], [b"p1"]),
        ([EqualTo(("channel",), "other")], []),
        ([GreaterThanOrEqual(("timestamp",), SECOND_3)], [b"three", b"four", b"five"]),
        ([GreaterThan(("timestamp",), SECOND_3)], [b"four", b"five"]),
        ([LessThan(("timestamp",), SECOND_3), EqualTo(("channel",), "orders")], [b"one", b"two"]),
        ([EqualTo(("timestamp",), SECOND_3)], [b"three"]),
        ([EqualTo(("value",), b"one")], [b"one", b"two", b"three", b"four", b"five", b"p1", b"p2"]),
    ],
)
def test_filters_make_ranges_smaller_and_are_handed_back(broker, filters, expected):
    reader = batch(subscribe="orders,payments", pushdown="true")
    assert list(reader.pushFilters(filters)) == filters
    assert values_of(reader) == expected


def test_a_reader_that_was_not_asked_for_filters_has_none(broker):
    assert type(batch()).pushFilters is DataSourceReader.pushFilters  # else Spark refuses it by default


# --- streams --------------------------------------------------------------------------------------------------------


def test_a_stream_reads_what_comes_after_its_start(broker):
    reader = stream()
    start = through_json(reader.initialOffset())
    assert reader.latestOffset(start, ALL) == start
    broker["orders"].add(b"six")
    end = through_json(reader.latestOffset(start, ALL))
    about = {"*cluster": "aa", "*inc": {"orders": 1}, "*init": {"orders": 6}, "*tasks": usable_cpus()}
    assert end == {**about, "*read": [6_000], "orders": 7}
    assert values_of(reader, reader.partitions(start, end)) == [b"six"]
    assert reader.partitions(end, end) == []
    assert reader.reportLatestOffset() == {"*cluster": "aa", "orders": 7}


def test_the_tasks_are_those_that_the_user_names_from_the_next_batch_on(broker):
    """A batch that is repeated has the tasks of its offsets."""
    for number in range(200):
        broker.channels[f"small.{number}"] = Channel(100 + number, [b"x"])
    broker.channels["small.large"] = Channel(99, [b"x"] * 5)
    names = {"subscribePattern": r"small\..*", "startingOffsets": "earliest"}
    assert len(batch(subscribePattern=names["subscribePattern"], parallelism=3).partitions()) == 3
    reader = stream(**names, parallelism=2)
    start = through_json(reader.initialOffset())
    end = through_json(reader.latestOffset(start, ALL))
    assert len(reader.partitions(start, end)) == 2
    other = stream(**names, parallelism=4)
    assert len(other.partitions(start, end)) == 2
    for channel in broker.channels.values():
        channel.add(b"y")
    later = through_json(other.latestOffset(end, ALL))
    assert len(other.partitions(end, later)) == 4
    assert through_json(stream(**names).latestOffset(later, ALL)) == later


def test_equal_offsets_are_equal_text(broker):
    reader = stream(subscribe="payments,orders", startingOffsets="earliest")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert list(end) == sorted(end)
    assert json.dumps(reader.latestOffset(through_json(end), ALL)) == json.dumps(end)
    assert json.dumps(reader.initialOffset()) == json.dumps(start)


def test_a_crash_in_the_first_batch_loses_nothing(broker):
    """Where it began is told again after the crash, and "latest" is another place by then; the log knows where it ended."""
    before = stream()
    start = before.initialOffset()
    broker["orders"].add(b"six")
    logged = through_json(before.latestOffset(start, ALL))
    after = stream()
    assert values_of(after, after.partitions(after.initialOffset(), logged)) == [b"six"]


def test_where_a_stream_starts(broker):
    reader = stream(startingOffsets='{"orders": 4}')
    start = reader.initialOffset()
    assert values_of(reader, reader.partitions(start, reader.latestOffset(start, ALL))) == [b"four", b"five"]
    assert stream(startingTimestamp="3000").initialOffset()["orders"] == 3
    with pytest.raises(OptionsError, match="startingOffsetsByTimestampStrategy"):
        stream(startingTimestamp="9000").initialOffset()


def test_a_channel_that_does_not_exist_yet_is_waited_for(broker):
    reader = stream(subscribe="late", waitForChannels="true")
    start = through_json(reader.initialOffset())
    assert reader.latestOffset(start, ALL) == start
    broker.channels["late"] = Channel(8, [b"first"])
    end = through_json(reader.latestOffset(start, ALL))
    assert values_of(reader, reader.partitions(start, end)) == [b"first"]
    assert end["*inc"] == {"late": 8}


@pytest.mark.parametrize(
    "option", [{}, {"startingOffsets": '{"orders": 2, "ordres": 3}'}, {"startingTimestamp": "2000"}]
)
@pytest.mark.parametrize("now", [True, False])
def test_a_stream_refuses_names_of_channels_that_do_not_exist(broker, option, now):
    reader = stream(subscribe="orders,ordres", **option)
    if now:
        reader.prepareForTriggerAvailableNow()
    with pytest.raises(OptionsError, match=r"no channel ordres \(waitForChannels=true waits for it\)"):
        reader.latestOffset(through_json(reader.initialOffset()), ALL)


def test_a_name_that_is_added_to_a_query_is_refused_and_a_channel_that_was_read_is_a_loss(broker):
    reader = stream(startingOffsets="earliest")
    offset = through_json(reader.latestOffset(reader.initialOffset(), ALL))
    with pytest.raises(OptionsError, match="no channel ordres"):
        stream(subscribe="orders,ordres").latestOffset(offset, ALL)
    del broker.channels["orders"]
    for wait in ("true", "false"):
        with pytest.raises(DataLossError, match="orders was deleted"):
            stream(waitForChannels=wait).latestOffset(offset, ALL)


def test_a_pattern_may_match_nothing(broker):
    for one in (stream(subscribe="eu.*"), stream(subscribePattern="eu.*")):
        start = through_json(one.initialOffset())
        assert one.latestOffset(start, ALL) == start


def test_a_stream_says_once_what_it_waits_for(broker, caplog):
    reader = stream(subscribe="late,orders", waitForChannels="true")
    start = through_json(reader.initialOffset())
    for _ in range(2):
        reader.latestOffset(start, ALL)
    lines = [record.message for record in caplog.records]
    assert lines == ["there is no channel late; the stream waits for it"]


def test_patterns_of_nats_are_read_as_patterns(broker):
    broker.channels.update({name: Channel(at, [b"x"]) for at, name in enumerate(("eu.a", "eu.b.c", "us.a"), 20)})
    for said, names, asked in (
        ("eu.*", ["eu.a"], "eu.*"),
        ("eu.>", ["eu.a", "eu.b.c"], "eu.>"),
        ("eu.*,us.*,orders", ["eu.a", "orders", "us.a"], ">"),
        ("eu.*, eu.b.*", ["eu.a", "eu.b.c"], "eu.>"),
        ("orders,orders.*", ["orders"], ">"),
        ("eu.*,eu.*.c", ["eu.a", "eu.b.c"], "eu.>"),
    ):
        reader = batch(subscribe=said)
        assert [one.channel for part in reader.partitions() for one in part.ranges] == names
        assert broker.patterns[-1] == asked


@pytest.mark.parametrize(
    ("pattern", "asked"),
    [
        (r"orders\.eu\..*", "orders.eu.>"),
        (r"orders\.e.*", "orders.>"),
        (r"orders.*", ">"),
        (r"orders\.eu", "orders.>"),
        (r"orders\.?x", ">"),
        (r"orders\.eu\.?x", "orders.>"),
        (r"a\.b|c\.d", ">"),
        (r"(?i)a\.b", ">"),
        (r"a\.[bc]", "a.>"),
        (r"a\.b{0}", "a.>"),
    ],
)
def test_the_literal_beginning_of_a_regular_expression_asks_the_broker_for_less(broker, pattern, asked):
    batch(subscribePattern=pattern).partitions()
    assert broker.patterns == [asked]


def test_holes_of_retention_cost_no_batches(broker):
    """With failOnDataLoss=false limits count what is there, and the first batch tells what is not."""
    many = broker.channels["many"] = Channel(30, [b"%d" % number for number in range(1, 1001)])
    reader = stream(subscribe="many", startingOffsets="earliest", maxOffsetsPerTrigger=100, failOnDataLoss="false")
    start = through_json(reader.initialOffset())
    many.forget_before(951)
    end = through_json(reader.latestOffset(start, ReadMaxRows(100)))
    assert values_of(reader, reader.partitions(start, end)) == [b"%d" % number for number in range(951, 1001)]
    assert end["many"] == 1001


def test_channels_that_match_later_are_read_from_their_beginning(broker):
    reader = stream(subscribePattern="orders.*")
    start = through_json(reader.initialOffset())
    broker.channels["orders.new"] = Channel(8, [b"a", b"b", b"c"])
    broker["orders.new"].forget_before(2)
    broker.channels["other"] = Channel(9, [b"x"])
    end = through_json(reader.latestOffset(start, ALL))
    assert values_of(reader, reader.partitions(start, end)) == [b"b", b"c"]
    broker["orders.new"].add(b"d")
    next_end = through_json(reader.latestOffset(end, ALL))
    assert values_of(reader, reader.partitions(end, next_end)) == [b"d"]


def test_a_channel_that_is_not_subscribed_any_more_stays_where_it_is(broker):
    two = stream(subscribe="orders,payments", startingOffsets="earliest")
    start = through_json(two.latestOffset(two.initialOffset(), ALL))
    broker["orders"].add(b"six")
    del broker.channels["payments"]
    end = stream(subscribe="orders").latestOffset(start, ALL)
    assert (end["orders"], end["payments"]) == (7, 3)


def test_limits(broker):
    reader = stream(subscribe="orders,payments", startingOffsets="earliest", maxOffsetsPerTrigger=3)
    assert reader.getDefaultReadLimit() == ReadMaxRows(3)
    offset, steps = through_json(reader.initialOffset()), []
    while (end := through_json(reader.latestOffset(offset, ReadMaxRows(3)))) != offset:
        steps.append(sum(one.end - one.first for part in reader.partitions(offset, end) for one in part.ranges))
        offset = end
    assert steps == [3, 3, 1]
    assert stream().getDefaultReadLimit() == ALL


def test_everything_is_everything_in_spite_of_limits(broker):
    reader = stream(startingOffsets="earliest", maxOffsetsPerTrigger=1)
    assert reader.latestOffset(reader.initialOffset(), ALL)["orders"] == 6


def test_bytes_are_a_limit_beside_rows(broker):
    broker.channels["orders"] = Channel(1, [bytes(1000)] * 20)
    reader = stream(startingOffsets="earliest", maxBytesPerTrigger=5100)
    assert reader.getDefaultReadLimit() == ReadMaxBytes(5100)
    assert reader.latestOffset(reader.initialOffset(), ReadMaxBytes(5100))["orders"] == 6
    both = stream(startingOffsets="earliest", maxBytesPerTrigger=5100, maxOffsetsPerTrigger=3)
    assert both.latestOffset(both.initialOffset(), ReadMaxRows(3))["orders"] == 4
    tight = stream(startingOffsets="earliest", maxBytesPerTrigger=1)
    assert tight.latestOffset(tight.initialOffset(), ReadMaxBytes(1))["orders"] == 2


def test_a_stream_waits_for_a_minimum_but_not_for_ever(broker, monkeypatch):
    reader = stream(startingOffsets="earliest", minOffsetsPerTrigger=6, maxTriggerDelay="1h")
    start = through_json(reader.initialOffset())
    assert reader.latestOffset(start, ALL) == start
    broker["orders"].add(b"six")
    end = through_json(reader.latestOffset(start, ALL))
    assert end["orders"] == 7
    broker["orders"].add(b"seven")
    assert reader.latestOffset(end, ALL) == end
    impatient = stream(startingOffsets="earliest", minOffsetsPerTrigger=6, maxTriggerDelay="0s")
    assert impatient.latestOffset(end, ALL)["orders"] == 8


def test_available_now_ends_where_it_was_when_it_began(broker):
    reader = stream(subscribePattern=".*", startingOffsets="earliest", maxOffsetsPerTrigger=4, minOffsetsPerTrigger=4)
    reader.prepareForTriggerAvailableNow()
    broker["orders"].add(b"too late")
    broker.channels["new"] = Channel(8, [b"too late"])
    offset, read = through_json(reader.initialOffset()), []
    while (end := through_json(reader.latestOffset(offset, ReadMaxRows(4)))) != offset:
        read += values_of(reader, reader.partitions(offset, end))
        offset = end
    assert sorted(read) == sorted([b"one", b"two", b"three", b"four", b"five", b"p1", b"p2"])


def test_an_idle_stream_lets_the_broker_wait(broker):
    reader = stream()
    start = through_json(reader.initialOffset())
    broker.waited.clear()
    for _ in range(2):
        reader.latestOffset(start, ALL)
    assert broker.waited[0] == 0 < broker.waited[1]


def test_a_channel_made_again(broker, caplog):
    reader = stream(startingOffsets="earliest")
    offset = through_json(reader.latestOffset(reader.initialOffset(), ALL))
    broker.channels["orders"] = Channel(9, [b"new"])
    with pytest.raises(DataLossError, match="orders was deleted and made again"):
        reader.latestOffset(offset, ALL)
    tolerant = stream(startingOffsets="earliest", failOnDataLoss="false")
    end = through_json(tolerant.latestOffset(offset, ALL))
    assert values_of(tolerant, tolerant.partitions(offset, end)) == [b"new"]
    assert "made again" in caplog.text
    assert tolerant.latestOffset(end, ALL) == end


def test_channels_of_another_cluster_are_loss_and_are_read_from_their_beginning(broker, caplog):
    """A server that was set up anew has channels with the uids of the old ones, which may have overtaken the positions."""
    reader = stream(subscribe="orders,payments", startingOffsets="earliest")
    offset = through_json(reader.latestOffset(reader.initialOffset(), ALL))
    broker.cluster = "bb"
    broker["orders"].add(b"six")
    planned = reader.partitions(reader.initialOffset(), offset)
    with pytest.raises(
        DataLossError, match="orders cannot be read, for the channel was deleted and made again, here or"
    ):
        values_of(reader, planned)
    with pytest.raises(
        DataLossError, match=r"of another cluster now: .* set up anew, .* reads the channels from their"
    ):
        reader.latestOffset(offset, ALL)
    tolerant = stream(subscribe="orders,payments", startingOffsets="earliest", failOnDataLoss="false")
    end = through_json(tolerant.latestOffset(offset, ALL))
    expected = [b"one", b"two", b"three", b"four", b"five", b"six", b"p1", b"p2"]
    assert values_of(tolerant, tolerant.partitions(offset, end)) == expected
    assert tolerant.latestOffset(end, ALL) == end
    assert caplog.text.count("another cluster now") == 1


def test_a_query_that_began_without_any_channel_has_no_cluster_yet(broker):
    channels, broker.channels = broker.channels, {}
    reader = stream(startingOffsets="earliest")
    start = through_json(reader.initialOffset())
    broker.channels = channels
    end = through_json(reader.latestOffset(start, ALL))
    assert ("*cluster" in start, end["*cluster"]) == (False, "aa")
    assert len(values_of(reader, reader.partitions(start, end))) == 5


def test_a_channel_that_ends_before_the_position_is_loss_and_is_read_from_its_beginning(broker, caplog):
    """As behind a server that was set up anew: its first channel has the uid of the first channel of the old one."""
    reader = stream(startingOffsets="earliest")
    offset = through_json(reader.latestOffset(reader.initialOffset(), ALL))
    for life in (1, 2):
        broker.channels["orders"] = Channel(broker["orders"].uid, [b"new"])
        with pytest.raises(
            DataLossError, match=r"orders ends before message 2, and 6 is the next .* lost its end, or .* an older"
        ):
            stream(startingOffsets="earliest").latestOffset(offset, ALL)
        tolerant = stream(startingOffsets="earliest", failOnDataLoss="false")
        end = through_json(tolerant.latestOffset(offset, ALL))
        assert values_of(tolerant, tolerant.partitions(offset, end)) == [b"new"]
        assert tolerant.latestOffset(end, ALL) == end
        assert caplog.text.count("reads the channel from its oldest message") == life
        for data in (b"a", b"b", b"c", b"d"):
            broker["orders"].add(data)
        offset = through_json(tolerant.latestOffset(end, ALL))
        assert values_of(tolerant, tolerant.partitions(end, offset)) == [b"a", b"b", b"c", b"d"]


def lose_end(channel, kept, *messages):
    """As a loss of power does: the channel has its first messages only, and others the sequences of the lost ones, 1 ms later."""
    newest = max(message.timestamp for message in channel.messages.values())
    channel.remove(*range(kept + 1, channel.last + 1))
    channel.newest = 0
    for at, data in enumerate(messages, 1):
        channel.add(data, timestamp=newest + at * 1_000_000)


@pytest.mark.parametrize("limit", [ALL, ReadMaxRows(2)], ids=["all", "some"])
@pytest.mark.parametrize("available_now", [False, True])
def test_a_channel_that_lost_its_end_and_has_overtaken_the_position_is_loss(broker, caplog, limit, available_now):
    def begun(**options):
        made = stream(startingOffsets="earliest", **options)
        if available_now:
            made.prepareForTriggerAvailableNow()
        return made

    reader = begun()
    offset = through_json(reader.latestOffset(reader.initialOffset(), limit))
    read = offset["orders"] - 1
    lose_end(broker["orders"], 1, b"a", b"b", b"c", b"d", b"e", b"f")
    with pytest.raises(
        DataLossError, match=rf"orders has other messages before message {read + 1} than those .* lost its end"
    ):
        begun().latestOffset(offset, limit)
    tolerant = begun(failOnDataLoss="false")
    found = []
    for _ in range(5):
        end = through_json(tolerant.latestOffset(offset, limit))
        found += values_of(tolerant, tolerant.partitions(offset, end))
        offset = end
    assert found == [b"one", b"a", b"b", b"c", b"d", b"e", b"f"]
    assert tolerant.latestOffset(offset, limit) == offset
    assert caplog.text.count("reads the channel from its oldest message") == 1


def test_a_channel_that_lost_its_end_and_has_as_many_messages_again_is_read_again_once(broker):
    reader = stream(startingOffsets="earliest")
    offset = through_json(reader.latestOffset(reader.initialOffset(), ALL))
    lose_end(broker["orders"], 4, b"other")
    tolerant = stream(startingOffsets="earliest", failOnDataLoss="false")
    end = through_json(tolerant.latestOffset(offset, ALL))
    assert values_of(tolerant, tolerant.partitions(offset, end)) == [b"one", b"two", b"three", b"four", b"other"]
    assert tolerant.latestOffset(end, ALL) == end
    assert stream(startingOffsets="earliest").latestOffset(end, ALL) == end


@pytest.mark.parametrize("removed", [(5,), (4, 5), (1, 2, 3, 4, 5)])
def test_messages_in_front_of_the_position_that_are_gone_are_no_loss(broker, removed):
    reader = stream(startingOffsets="earliest")
    offset = through_json(reader.latestOffset(reader.initialOffset(), ALL))
    broker["orders"].add(b"six")
    broker["orders"].remove(*removed)
    end = reader.latestOffset(offset, ALL)
    assert values_of(reader, reader.partitions(offset, end)) == [b"six"]


def test_an_answer_older_than_the_position_is_no_loss(broker):
    reader = stream(startingOffsets="earliest")
    offset = through_json(reader.latestOffset(reader.initialOffset(), ALL))
    newest = broker["orders"].messages.pop(5)
    ask = broker.info

    def late(*names, **options):
        found = ask(*names, **options)
        broker["orders"].messages[5] = newest
        return found

    broker.info = late
    assert reader.latestOffset(offset, ALL) == offset


def test_a_channel_deleted(broker, caplog):
    reader = stream(startingOffsets="earliest")
    offset = through_json(reader.latestOffset(reader.initialOffset(), ALL))
    del broker.channels["orders"]
    with pytest.raises(DataLossError, match="orders was deleted"):
        reader.latestOffset(offset, ALL)
    tolerant = stream(startingOffsets="earliest", failOnDataLoss="false")
    for _ in range(3):
        assert tolerant.latestOffset(offset, ALL) == offset
    assert len([record for record in caplog.records if "deleted" in record.message]) == 1


def test_the_position_is_told_only_if_it_has_a_name(broker):
    reader = stream(subscribe="orders,late", waitForChannels="true", consumerName="audit", startingOffsets="earliest")
    end = reader.latestOffset(reader.initialOffset(), ALL)
    reader.commit(through_json(end))
    assert broker.cursors == {"audit": {"orders": 6}}
    stream(startingOffsets="earliest").commit(through_json(end))
    assert list(broker.cursors) == ["audit"]
    broker.cluster, broker.cursors = "bb", {}
    reader.commit(through_json(end))
    assert broker.cursors == {}, "the positions are those of another cluster"


def test_a_position_that_cannot_be_told_stops_nothing(broker, caplog):
    reader = stream(consumerName="audit", **{"fetch.numRetries": 0})
    end = reader.initialOffset()
    for error in (RequestTimeoutError(), ServerError("no")):
        broker.failures = [error]
        reader.commit(end)
    assert caplog.text.count("position of audit is not told") == 2


# --- channels with parts ----------------------------------------------------------------------------------------------


def batches_of(reader, offset, limit=ALL):
    """The values of one batch after the other until there is nothing more, and where that is."""
    found = []
    while (end := through_json(reader.latestOffset(offset, limit))) != offset:
        found.append(sorted(values_of(reader, reader.partitions(offset, end))))
        offset = end
    return found, offset


@pytest.mark.parametrize("name", ["sales", "sales,payments.*", "sales.*"])
def test_a_channel_with_parts_is_all_of_its_parts(broker, name):
    broker.divide("sales", [b"a", b"b"], [b"c"])
    reader = batch(subscribe=name, includePartition="true")
    assert [(row["channel"], row["partition"], row["value"]) for row in rows_of(reader)] == [
        ("sales.~0", 0, b"a"),
        ("sales.~0", 0, b"b"),
        ("sales.~1", 1, b"c"),
    ]
    assert batches_of(*begun(stream(subscribe=name, startingOffsets="earliest")))[0] == [[b"a", b"b", b"c"]]


def begun(reader):
    return reader, through_json(reader.initialOffset())


@pytest.mark.parametrize("name", ["sales", "sales.*"])
@pytest.mark.parametrize("again", [True, False])
def test_new_parts_are_read_behind_those_from_which_their_keys_came(broker, name, again):
    """Also by a query that is started again, and by one that begins after the doubling."""
    broker.divide("sales", [b"a0", b"a1"], [b"b0"])

    def reader():
        return stream(subscribe=name, startingOffsets="earliest")

    first, offset = begun(reader())
    found, offset = batches_of(first, offset)
    assert found == [[b"a0", b"a1", b"b0"]]
    broker["sales.~0"].add(b"a2")
    broker.divide("sales", [b"a3"], [b"b1"])
    broker["sales.~1"].add(b"b2")
    found, offset = batches_of(reader() if again else first, offset)
    assert found == [[b"a2", b"b1", b"b2"], [b"a3"]]
    assert batches_of(*begun(reader()))[0] == [[b"a0", b"a1", b"a2", b"b0", b"b2"], [b"a3", b"b1"]]
    assert broker.looked_up == ["sales"] * 3, "a look-up for each start and each doubling"
    broker["sales.~3"].add(b"b3")
    assert batches_of(first, offset)[0] == [[b"b3"]]


def test_new_parts_wait_over_batches_with_a_limit_and_where_messages_are_gone(broker):
    broker.divide("sales", [b"%d" % number for number in range(4)])
    reader, offset = begun(stream(subscribe="sales", startingOffsets="earliest", maxOffsetsPerTrigger=2))
    broker.divide("sales", [b"new"])
    assert batches_of(reader, offset, ReadMaxRows(2))[0] == [[b"0", b"1"], [b"2", b"3"], [b"new"]]
    broker["sales.~0"].remove(1, 2, 3, 4)
    assert batches_of(*begun(stream(subscribe="sales", startingOffsets="earliest")))[0] == [[b"new"]]


def test_a_part_that_still_waits_is_read_whole_when_its_turn_comes(broker):
    """Here the part from which its keys came has lost its end, and is behind the split until it has as many messages again."""
    broker.divide("sales", [b"0", b"1"])
    reader, offset = begun(stream(subscribe="sales", startingOffsets="earliest", failOnDataLoss="false"))
    broker.divide("sales", [b"new", b"newer"])
    lose_end(broker["sales.~0"], 1)
    found, offset = batches_of(reader, offset)
    assert found == [[b"0"]]
    for _ in range(3):
        assert through_json(reader.latestOffset(offset, ALL)) == offset
    broker["sales.~0"].add(b"other")
    assert batches_of(reader, offset)[0] == [[b"other"], [b"new", b"newer"]]


def test_a_new_part_that_limits_have_cut_before_it_was_read_is_loss(broker):
    broker.divide("sales", [b"a"])
    reader, offset = begun(stream(subscribe="sales"))
    broker.divide("sales", [b"new", b"newer"])
    broker["sales.~1"].forget_before(2)
    with pytest.raises(DataLossError, match=r"messages 1 to 1 of sales\.~1"):
        batches_of(reader, offset)


def test_a_channel_with_parts_may_be_waited_for_and_is_a_loss_when_it_is_gone(broker):
    reader, offset = begun(stream(subscribe="sales", waitForChannels="true"))
    assert batches_of(reader, offset) == ([], offset)
    broker.divide("sales", [b"a"], [b"b"])
    found, offset = batches_of(reader, offset)
    assert found == [[b"a", b"b"]]
    for name in ("sales.~0", "sales.~1"):
        del broker.channels[name]
    del broker.parted["sales"]
    for one in (reader, stream(subscribe="sales")):
        with pytest.raises(DataLossError, match=r"sales\.~. was deleted"):
            one.latestOffset(offset, ALL)


@pytest.mark.parametrize("name", ["sales", "sales.*"])
def test_a_channel_that_was_made_again_with_other_parts_is_read_whole(broker, name):
    broker.divide("sales", [b"%d" % number for number in range(9)])
    broker.divide("sales", [b"x"])
    reader, offset = begun(stream(subscribe=name, startingOffsets="earliest", failOnDataLoss="false"))
    _, offset = batches_of(reader, offset)
    broker.channels.pop("sales.~0"), broker.channels.pop("sales.~1"), broker.parted.pop("sales")
    broker.cluster = "bb"
    broker.divide("sales", [b"a"], [b"b"])
    assert batches_of(reader, offset)[0] == [[b"a", b"b"]]


def test_a_channel_that_is_called_like_a_part_is_none(broker):
    broker.channels["sales.~0"] = Channel(9, [b"alone"])
    with pytest.raises(OptionsError, match="no channel sales"):
        batch(subscribe="sales").partitions()
    reader, offset = begun(stream(subscribe="sales", waitForChannels="true"))
    assert batches_of(reader, offset) == ([], offset)
    assert batches_of(reader, offset) == ([], offset)
    assert values_of(batch(subscribe="sales.~0")) == [b"alone"]


def test_where_a_channel_with_parts_starts_and_ends(broker):
    broker.divide("sales", [b"a", b"b", b"c"], [b"d"])
    of_times = {"startingOffsetsByTimestamp": '{"sales": 2000}', "startingOffsetsByTimestampStrategy": "latest"}
    assert values_of(batch(subscribe="sales", **of_times)) == [b"b", b"c"]
    assert len(values_of(batch(subscribe="sales", startingOffsets='{"sales": -2}'))) == 4
    latest = stream(subscribe="sales", startingOffsets='{"sales": -1}').initialOffset()
    assert (latest["sales.~0"], latest["sales.~1"]) == (4, 2)
    assert values_of(batch(subscribe="sales.~0", startingOffsets='{"sales.~0": 3}')) == [b"c"]
    for options in ({"assign": '{"sales": 2}'}, {"subscribe": "sales", "endingOffsets": '{"sales": 2}'}):
        with pytest.raises(OptionsError, match=r"sales has parts with sequences of their own: subscribe to sales\.\*"):
            batch(**options).partitions()


def test_parts_are_read_where_the_whole_may_not_be_looked_at(broker):
    broker.divide("sales", [b"a"])
    reader = batch(subscribe="sales.*")

    def refuse(_channel):
        raise ServerError("stan: not permitted")

    broker.parts = refuse
    assert values_of(reader) == [b"a"]


# --- how far behind -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_text", [True, False])
def test_lag(as_text):
    end = {"*init": {"a": 1, "b": 1}, "*inc": {}, "*tasks": 2, "a": 5, "b": 9}
    latest = {"a": 12, "b": 9, "new": 4}
    texts = [json.dumps(offset) if as_text else offset for offset in (end, latest)]
    ours = {"endOffset": texts[0], "latestOffset": texts[1]}
    other = {"endOffset": '{"t": {"0": 3}}' if as_text else 7, "latestOffset": None}
    assert lag({"sources": [other, ours]}) == {"a": 7, "b": 0, "new": 3}
    assert summary({"a": 7, "b": 0, "new": 2}) == {
        "minOffsetsBehindLatest": 0,
        "maxOffsetsBehindLatest": 7,
        "avgOffsetsBehindLatest": 3,
    }


@pytest.mark.parametrize("latest", [{"a": 12}, {"a": 20, "*cluster": "bb"}])
def test_lag_behind_a_server_that_was_set_up_anew_is_all_it_has(latest):
    end = {"*init": {"a": 1}, "*inc": {}, "*tasks": 2, "*cluster": "aa", "a": 15}
    assert lag({"sources": [{"endOffset": end, "latestOffset": latest}]}) == {"a": latest["a"] - 1}


def test_how_old_unread_messages_are_at_least(broker, monkeypatch):
    """Those that come while the query runs are as old as the newest at the look that found them."""
    now = 100.0
    monkeypatch.setattr("pyspark_stan.reading.unread.time.time_ns", lambda: int(now * 1e9))

    def batch_of(reader, offset, limit):
        end = through_json(reader.latestOffset(offset, ReadMaxRows(limit)))
        return end, lag_seconds({"sources": [{"endOffset": end, "latestOffset": reader.reportLatestOffset()}]})

    reader, offset = begun(stream(subscribe="orders,payments", startingOffsets='{"orders": 1, "payments": -1}'))
    broker.channels["orders"].messages[1].timestamp = 10_000_000
    assert lag_seconds({"sources": [{"endOffset": offset, "latestOffset": reader.reportLatestOffset()}]}) == {}
    offset, ages = batch_of(reader, offset, 2)
    assert ages == {"orders": 95.0}, "message 3 of second 3 is not older than the newest one, of second 5"
    broker["orders"].add(b"six", timestamp=60_000_000_000)
    now = 101.0
    offset, ages = batch_of(reader, offset, 2)
    assert ages == {"orders": 96.0}
    offset, ages = batch_of(reader, offset, 1)
    assert ages == {"orders": 41.0}
    broker["payments"].add(b"p3", timestamp=101_500_000_000)  # its clock is fast
    offset, ages = batch_of(reader, offset, 1)
    assert ages in ({"payments": 0.0}, {"orders": 41.0})
    offset, ages = batch_of(reader, offset, 1)
    assert ages == {}
    unread = stream(startingOffsets="earliest", minOffsetsPerTrigger=50, maxTriggerDelay="1h")
    assert batch_of(unread, through_json(unread.initialOffset()), 1)[1] == {"orders": 100.99}
    assert lag_seconds(None) == {}


def test_how_many_bytes_are_unread(broker):
    sources = []
    for name in ("orders", "payments"):
        reader, offset = begun(stream(subscribe=name, startingOffsets="earliest"))
        end = through_json(reader.latestOffset(offset, ReadMaxRows(1)))
        sources.append({"endOffset": end, "latestOffset": reader.reportLatestOffset()})
    size = {name: sum(message.ByteSize() for message in broker[name].messages.values()) for name in broker.channels}
    assert lag_bytes({"sources": sources}) == {"orders": size["orders"] * 4 // 5, "payments": size["payments"] // 2}
    assert lag_bytes({"sources": sources[:1] * 2}) == {"orders": size["orders"] * 4 // 5 * 2}
    assert lag({"sources": sources}) == {"orders": 4, "payments": 1}
    everything = through_json(reader.latestOffset(offset, ALL))
    assert lag_bytes({"sources": [{"endOffset": everything, "latestOffset": reader.reportLatestOffset()}]}) == {}


def test_many_looks_make_ages_shorter_and_never_longer(monkeypatch):
    """Message p is of second p, and each look finds one more."""
    monkeypatch.setattr("pyspark_stan.reading.unread.time.time_ns", lambda: 5000 * 10**9)
    unread, infos = Unread(), [{"a": ChannelInfo("a", 1, 1, last, 0, 10**9, last * 10**9)} for last in range(1, 2001)]

    def since(position):
        unread.note(infos[-1], {"a": position})
        (age,) = unread.seconds().values()
        return 5000 - age

    for info in infos:
        unread.note(info, {"a": 1})
    assert since(1) == 1
    assert 1000 <= since(1000) < 1050
    assert since(2000) == 2000
    unread.note(infos[-1], {"a": 2001})
    assert unread.seconds() == {}


def test_no_lag_before_anything_is_known():
    assert lag(None) == {}
    assert lag({"sources": [{"endOffset": None, "latestOffset": None}]}) == {}
