"""Reads of a channel whose older messages are in a lake, without Spark: plain objects over a channel in memory."""

import asyncio
import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import GreaterThanOrEqual, LessThan
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark_stan.datasource import StanDataSource
from pyspark_stan.errors import OptionsError
from pyspark_stan.reading import cold
from pyspark_stan.reading.source import StanStreamReader
from stan_client import DataLossError
from stan_lake import LakeTable, open_store
from stan_lake.tierer import ChannelTierer, TierSettings

from tests.kit.lake import UID, OneChannel
from tests.spark.source_broker import Channel, SourceBroker, use

ALL = ReadAllAvailable()


class Both:
    """A channel as the tierer and as the source ask for it."""

    def __init__(self, monkeypatch, url):
        self.url = str(url)
        self.channel = OneChannel()
        self.broker = SourceBroker()
        self.broker.channels["orders"] = Channel(UID)
        use(monkeypatch, self.broker)
        monkeypatch.setattr(cold, "KNOWN_S", 0.0)

    def publish(self, count, **fields):
        self.channel.publish(count, **fields)
        self._same()

    def tier(self, target_bytes=200):
        """Everything comes into the lake, and goes from the broker."""

        async def run():
            table = LakeTable(open_store(self.url), "orders", UID, chunk_files=2)
            tierer = ChannelTierer(table, self.channel, TierSettings(name="lake", target_bytes=target_bytes, age_s=0))
            await tierer.begin(self.channel.info)
            await tierer.step(self.channel.info, self.channel.place)

        asyncio.run(run())
        self._same()

    def remove(self, *sequences):
        self.channel.remove(*sequences)
        self._same()

    def drop_below(self, first):
        self.channel.drop_below(first)
        self._same()

    def _same(self):
        of_source = self.broker["orders"]
        of_source.messages, of_source.first = dict(self.channel.messages), self.channel.first
        of_source.lost_until = self.channel.first - 1

    def source(self, **options):
        given = {"servers": "nats://nowhere:1", "subscribe": "orders", "cold": self.url, "fetch.retryIntervalMs": "0"}
        return StanDataSource({key.lower(): str(value) for key, value in {**given, **options}.items()})

    def batch(self, **options):
        made = self.source(**options)
        return made.reader(made.schema())

    def stream(self, **options) -> StanStreamReader:
        made = self.source(**options)
        return made.streamReader(made.schema())


@pytest.fixture
def both(monkeypatch, tmp_path):
    return Both(monkeypatch, tmp_path / "lake")


def sequences(reader, parts):
    found = []
    for part in parts:
        for batch in reader.read(part):
            found += batch.column("sequence").to_pylist()
    return found


def all_of(reader):
    return sequences(reader, reader.partitions())


def test_a_hole_of_the_broker_is_read_from_the_lake(both):
    both.publish(20)
    messages = dict(both.channel.messages)
    both.tier()
    both.broker["orders"].messages = {1: messages[1], 20: messages[20]}
    both.broker["orders"].first, both.broker["orders"].lost_until = 1, 0
    reader = both.stream(startingOffsets="earliest", maxOffsetsPerTrigger=4)
    offset, found = reader.initialOffset(), []
    while (end := reader.latestOffset(offset, ReadMaxRows(4))) != offset:
        found += sequences(reader, reader.partitions(offset, end))
        offset = end
    assert found == list(range(1, 21))


def test_cold_and_hot_are_one(both):
    both.publish(50)
    both.tier()
    both.publish(20)
    assert both.broker["orders"].first == 51
    assert all_of(both.batch()) == list(range(1, 71))
    assert all_of(both.batch(startingOffsets=json.dumps({"orders": 48}), endingOffsets=json.dumps({"orders": 53}))) == [
        *range(48, 53)
    ]
    assert all_of(both.batch(minPartitions=7)) == list(range(1, 71))
    assert all_of(both.batch(maxRecordsPerPartition=3)) == list(range(1, 71))


def test_columns_are_those_of_the_source(both):
    both.publish(3, reply=b"answers", headers=[{"key": b"a", "value": b"b"}])
    both.tier()
    both.publish(3)
    made = both.source(includeHeaders="true", includeKey="true")
    reader = made.reader(made.schema())
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    rows = pa.Table.from_batches(batches)
    assert rows.schema == to_arrow_schema(made.schema(), timezone="UTC")
    assert rows["value"].to_pylist() == rows["key"].to_pylist() == [b"%d" % at for at in range(1, 7)]
    assert rows["reply"].to_pylist() == ["answers"] * 3 + [None] * 3
    assert rows["headers"].to_pylist() == [[{"key": "a", "value": b"b"}]] * 3 + [[]] * 3
    assert rows["channel"].to_pylist() == ["orders"] * 6
    assert rows["timestamp"].to_pylist() == [datetime.fromtimestamp(at, UTC) for at in range(1, 7)]


def test_a_plan_does_not_begin_where_the_broker_does_because_of_an_old_look_into_the_lake(both, monkeypatch):
    """A driver that looked before anything was there, or less, has no say about what the broker has lost since."""
    monkeypatch.setattr(cold, "KNOWN_S", 1000.0)
    cold._manifests.clear()
    both.publish(30)
    assert all_of(both.batch()) == list(range(1, 31))  # looks into the lake, which is empty
    both.tier()
    both.publish(10)
    assert both.broker["orders"].first == 31
    assert all_of(both.batch()) == list(range(1, 41))
    both.tier()
    both.publish(1)
    assert both.broker["orders"].first == 41
    by_time = both.batch(startingTimestamp="1970-01-01T00:00:35Z")
    assert all_of(by_time) == list(range(35, 42))


def test_a_chunk_of_the_manifest_is_read_once(both, tmp_path):
    cold._manifests.clear()
    both.publish(50)
    both.tier()
    assert all_of(both.batch()) == list(range(1, 51))
    chunks = list(tmp_path.glob("lake/channel=*/uid=*/_files.*"))
    assert chunks
    for chunk in chunks:
        chunk.unlink()
    assert all_of(both.batch()) == list(range(1, 51))


def test_what_went_into_the_lake_between_plan_and_task_is_read_there(both):
    both.publish(30)
    reader = both.batch(maxRecordsPerPartition=10)
    parts = reader.partitions()
    both.tier()
    assert both.broker["orders"].first == 31
    assert sequences(reader, parts) == list(range(1, 31))


def test_what_goes_into_the_lake_while_a_task_reads_is_read_there(both):
    both.publish(30)
    reader = both.batch()
    (part,) = reader.partitions()
    found = []
    for batch in reader.read(part):
        found += batch.column("sequence").to_pylist()
        if len(found) == 6:
            both.tier()
    assert found == list(range(1, 31))


def test_file_that_is_written_anew_while_a_task_reads_is_followed(both, monkeypatch):
    monkeypatch.setattr(cold, "KNOWN_S", 1000.0)
    cold._manifests.clear()
    both.publish(30)
    both.tier()
    reader = both.batch()
    parts = reader.partitions()
    both.remove(5)
    both.tier()
    store = open_store(both.url)
    table = LakeTable(store, "orders", UID)
    table.drop_replaced(table.manifest(), 1 << 40)
    assert sequences(reader, parts) == [at for at in range(1, 31) if at != 5]


def test_what_is_lost_is_an_error(both):
    both.publish(10)
    both.tier()
    both.publish(10)
    both.drop_below(15)  # limits that do not wait
    reader = both.batch()
    with pytest.raises(DataLossError, match="messages 11 to 14"):
        all_of(reader)
    both.tier()
    with pytest.raises(DataLossError, match="messages 11 to 14"):
        all_of(both.batch())
    kept = both.batch(failOnDataLoss="false")
    assert all_of(kept) == [*range(1, 11), *range(15, 21)]


def test_channel_that_was_deleted_meanwhile_is_read_from_the_lake(both):
    both.publish(20)
    both.tier()
    reader = both.batch()
    parts = reader.partitions()
    both.broker.channels["orders"] = Channel(UID + 1)
    assert sequences(reader, parts) == list(range(1, 21))


def test_times_and_filters_reach_the_lake(both):
    both.publish(50)
    both.tier()
    both.publish(20)
    assert all_of(both.batch(startingTimestamp="40000")) == list(range(40, 71))
    assert all_of(both.batch(startingTimestamp="60000")) == list(range(60, 71))
    assert all_of(both.batch(endingTimestamp="40000")) == list(range(1, 40))
    for column, value in (("sequence", [30, 60]), ("timestamp", [datetime.fromtimestamp(at, UTC) for at in (30, 60)])):
        reader = both.batch(pushdown="true")
        list(reader.pushFilters([GreaterThanOrEqual((column,), value[0]), LessThan((column,), value[1])]))
        assert all_of(reader) == list(range(30, 60))


def test_stream_begins_in_the_lake_and_goes_on_in_the_broker(both):
    both.publish(50)
    both.tier()
    both.publish(5)
    stream = both.stream(startingOffsets="earliest", maxOffsetsPerTrigger=20)
    at, found = stream.initialOffset(), []
    for _ in range(10):
        end = stream.latestOffset(at, stream.getDefaultReadLimit())
        if end == at:
            both.publish(10)
            continue
        again = both.stream(startingOffsets="earliest")
        parts = again.partitions(at, end)
        both.tier()
        assert [part.ranges for part in both.stream().partitions(at, end)] == [part.ranges for part in parts]
        found += sequences(again, parts)
        at = end
    assert found == list(range(1, len(found) + 1))
    assert len(found) > 70


def test_time_to_live_and_deletions_hold_in_the_lake(both):
    both.publish(5)
    both.publish(5, expires_at=1_000_000_000)
    both.publish(5)
    both.tier(10_000)
    assert all_of(both.batch()) == [*range(1, 6), *range(11, 16)]
    both.remove(2, 3, 13)
    both.tier()
    assert all_of(both.batch()) == [1, 4, 5, 11, 12, 14, 15]


def test_wrong_lakes_are_told_of_with_the_other_mistakes(both):
    with pytest.raises(OptionsError, match=r"cold: .*names no directory"):
        both.batch(cold="file://elsewhere/x").partitions()
    with pytest.raises(OptionsError, match="cold: not with schema"):
        both.source(schema="auto").reader(None)


def test_lake_without_the_channel_changes_nothing(both):
    both.publish(10)
    assert all_of(both.batch()) == list(range(1, 11))


@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("publish"), st.integers(1, 30)),
            st.tuples(st.just("tier"), st.integers(100, 2000)),
            st.tuples(st.just("plan"), st.integers(1, 40)),
            st.tuples(st.just("read"), st.just(0)),
        ),
        max_size=15,
    )
)
def test_whatever_happens_between_plan_and_task_each_message_comes_once(tmp_path_factory, steps):
    with pytest.MonkeyPatch.context() as patch:
        both = Both(patch, tmp_path_factory.mktemp("lake"))
        both.publish(1)
        planned = None
        for what, how in [*steps, ("plan", 7), ("tier", 300), ("read", 0)]:
            match what:
                case "publish":
                    both.publish(how)
                case "tier":
                    both.tier(how)
                case "plan":
                    reader = both.batch(maxRecordsPerPartition=how)
                    planned = reader, reader.partitions(), both.channel.last
                case "read" if planned:
                    reader, parts, last = planned
                    assert sequences(reader, parts) == list(range(1, last + 1))
