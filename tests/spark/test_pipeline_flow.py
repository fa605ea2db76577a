"""The steps of a pipeline in Spark: decoding, transforming, encoding; and how progress is told."""

import json
import threading
from datetime import UTC, datetime
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark_stan.payloads.avro import avro_columns
from pyspark_stan.payloads.schema import PayloadSchema
from pyspark_stan.pipeline.config import parse_pipeline
from pyspark_stan.pipeline.flow import FlowError, decode, encode, transform
from pyspark_stan.pipeline.payload import Payload
from pyspark_stan.pipeline.progress import report_of
from pyspark_stan.pipeline.queries import Query
from pyspark_stan.pipeline.run import PipelineError, follow, reason_of
from pyspark_stan.pipeline.table import latest

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MESSAGES = "channel string, sequence long, timestamp timestamp, value binary, reply string"


def messages_of(spark, *values: bytes):
    rows = [("clicks", number, NOON, bytearray(value), None) for number, value in enumerate(values, 1)]
    return spark.createDataFrame(rows, MESSAGES)


def decoded(spark, payload: Payload, *values: bytes):
    return decode(messages_of(spark, *values), payload)


def json_payload(malformed: str = "fail", **columns: str) -> Payload:
    return Payload(format="json", columns=columns or {"user": "string", "n": "int"}, malformed=malformed)


def test_json_becomes_columns(spark):
    payload = json_payload(user="string", at="timestamp", tags="array<string>")
    rows = decoded(spark, payload, b'{"user":"a","at":"2026-03-01T12:00:00Z","tags":["x"],"more":1}', b"{}")
    assert rows.columns == ["user", "at", "tags", "_channel", "_sequence", "_timestamp"]
    first, second = rows.collect()
    assert (first.user, first.tags, first._channel, first._sequence) == ("a", ["x"], "clicks", 1)
    assert rows.selectExpr("date_format(at, 'HH:mm')").first()[0] == "12:00"
    assert (second.user, second._sequence) == (None, 2)


def test_the_newest_message_of_a_key_is_in_the_part_to_which_it_has_gone(spark):
    """After a doubling a key's messages are in another part, whose sequences begin again; other channels have none."""
    rows = [("sales.~0", 9, "a", 1), ("sales.~2", 1, "a", 2), ("sales.~0", 7, "b", 3), ("sales.~0", 8, "b", 4)]
    rows += [("plain", 5, "c", 5), ("plain", 6, "c", 6)]
    frame = spark.createDataFrame(rows, "_channel string, _sequence long, user string, n int")
    assert {row.user: row.n for row in latest(frame, "user").collect()} == {"a": 2, "b": 4, "c": 6}


MALFORMED = [b'{"user":', b'{"user":"b","n":"many"}', b"null", b"7", b"", b"\xff\xfe"]


def test_malformed_json_is_dropped_or_kept(spark):
    values = [b'{"user":"a","n":1}', *MALFORMED, b'{"user":"c"}']
    assert [row._sequence for row in decoded(spark, json_payload("drop"), *values).collect()] == [1, 8]
    kept = decoded(spark, json_payload("keep"), *values).collect()
    assert [(row.user, row.n) for row in kept] == [("a", 1), *([(None, None)] * 6), ("c", None)]
    assert [None if row._malformed is None else bytes(row._malformed) for row in kept] == [None, *MALFORMED, None]


@pytest.mark.parametrize("value", MALFORMED)
def test_malformed_json_stops_the_pipeline_and_is_told(spark, value):
    rows = decoded(spark, json_payload("fail"), b'{"user":"a"}', value)
    with pytest.raises(Exception, match="message 2 of channel clicks is not the json") as error:
        rows.select("user").collect()
    assert "message 2 of channel clicks" in reason_of(error.value)


def test_raw_is_left_as_it_is(spark):
    payload = Payload(format="raw", columns={"value": "binary"}, malformed="fail")
    (row,) = decoded(spark, payload, b"\x00\xff").collect()
    assert (bytes(row.value), row._sequence) == (b"\x00\xff", 1)


AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
            {"name": "sku", "type": "string"}, {"name": "tags", "type": {"type": "map", "values": "int"}}]}}},
    ],
}  # fmt: skip
ORDER = {
    "id": 7,
    "note": None,
    "at": NOON,
    "price": Decimal("12.50"),
    "lines": [{"sku": "bolt", "tags": {"m": 6}}],
}


def avro_message(record) -> bytes:
    fastavro = pytest.importorskip("fastavro")
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), record)
    return stream.getvalue()


def avro_payload(malformed: str) -> Payload:
    return Payload(
        format="avro",
        columns=avro_columns(AVRO),
        schema=PayloadSchema("avro", json.dumps(AVRO).encode()),
        malformed=malformed,
    )


def test_avro_becomes_columns(spark):
    rows = decoded(spark, avro_payload("fail"), avro_message(ORDER), avro_message({**ORDER, "id": 8, "note": "late"}))
    first, second = rows.collect()
    assert (first.id, first.note, first.price, first._sequence) == (7, None, Decimal("12.50"), 1)
    assert (first.lines[0].sku, first.lines[0].tags) == ("bolt", {"m": 6})
    assert rows.selectExpr("date_format(at, 'yyyy-MM-dd HH:mm')").first()[0] == "2026-03-01 12:00"
    assert (second.id, second.note) == (8, "late")


def test_malformed_avro_is_dropped_kept_or_stops(spark):
    good = avro_message(ORDER)
    values = [good, good[:-2], good + b"\x00", b"", b"\xff" * 30]
    assert [row._sequence for row in decoded(spark, avro_payload("drop"), *values).collect()] == [1]
    kept = decoded(spark, avro_payload("keep"), *values).collect()
    assert [row.id for row in kept] == [7, None, None, None, None]
    assert [bytes(row._malformed) for row in kept[1:]] == values[1:]
    with pytest.raises(Exception, match="message 2 of channel clicks is not the avro"):
        decoded(spark, avro_payload("fail"), *values[:2]).collect()


STEPS = """
from pyspark.sql.functions import udf

def doubled(n):
    return 2 * n

def all_doubled(rows):
    return rows.select(udf(doubled, "long", useArrow=False)("id").alias("n"))

def all_of_both(a, b):
    return a.union(b)

def none(rows):
    pass
"""


def query_of(**more: str) -> Query:
    return Query(**{"view": "events", "sql": "", "module": "", "script": "", "function": "", **more})


def test_rows_are_transformed_by_sql(spark):
    rows = spark.range(5)
    results = transform(spark, query_of(sql="SELECT sum(id) AS s FROM numbers"), {"numbers": rows})
    assert results.collect()[0].s == 10


def test_rows_are_transformed_by_a_function_whose_workers_find_it(spark, tmp_path):
    script = tmp_path / "steps_of_a_test.py"
    script.write_text(STEPS)
    results = transform(spark, query_of(script=str(script), function="all_doubled"), {"events": spark.range(3)})
    assert sorted(row.n for row in results.collect()) == [0, 2, 4]
    both = {"a": spark.range(2), "b": spark.range(2)}
    assert transform(spark, query_of(script=str(script), function="all_of_both"), both).count() == 4
    with pytest.raises(FlowError, match="none returns NoneType, and not a DataFrame"):
        transform(spark, query_of(script=str(script), function="none"), {"events": spark.range(3)})
    with pytest.raises(FlowError, match="has no function 'nowhere'"):
        transform(spark, query_of(script=str(script), function="nowhere"), {"events": spark.range(3)})


SINK = """
name = "p"
checkpoint = "c"
[source]
channels = ["clicks"]
[payload]
format = "raw"
[query]
sql = "SELECT 1"
[sink]
channel = "out"
"""


def sink_of(more: str = ""):
    return parse_pipeline(SINK + more, Path(), {}).sink


def test_results_become_json_with_all_their_columns(spark):
    times = "struct(timestamp'2026-03-01 12:00:00.123456' AS start, timestamp_ntz'2026-03-01 12:00:00.000001' AS local)"
    results = spark.sql(f"SELECT 'a' AS k, cast(null AS int) AS n, {times} AS w")
    (row,) = encode(results, sink_of()).collect()
    value = json.loads(row.value)
    times = {"start": "2026-03-01T12:00:00.123456Z", "local": "2026-03-01T12:00:00.000001"}
    assert value == {"k": "a", "n": None, "w": times}


def test_raw_results_are_published_as_they_are(spark):
    raw = sink_of('value = "raw"\n')
    results = encode(spark.sql("SELECT cast('x' AS binary) AS value, 1 AS id, 2 AS other"), raw)
    assert results.columns == ["value", "id"]
    with pytest.raises(FlowError, match="raw messages need a column value; there are other"):
        encode(spark.sql("SELECT 2 AS other"), raw)


def test_results_keep_the_column_of_their_ids(spark):
    sink = sink_of('delivery = "idempotent"\noptions.idColumn = "k"\n')
    assert encode(spark.sql("SELECT 'a' AS k, 1 AS n"), sink).columns == ["value", "k"]


def test_a_report_is_made_of_what_spark_tells():
    progress = {
        "batchId": 4,
        "numInputRows": 1000,
        "processedRowsPerSecond": 2857.4,
        "durationMs": {"triggerExecution": 350},
        "sink": {"numOutputRows": 12},
    }
    report = report_of(progress, {"b": 0, "a": 1500})
    assert report.line() == (
        "batch 4: 1,000 read in 350 ms, 2,857 a second, 12 published; behind by a 1,500, b 0"
    )  # fmt: skip
    assert not report.idle
    empty = report_of({"batchId": 5, "processedRowsPerSecond": "NaN", "sink": {"numOutputRows": -1}}, {})
    assert empty.idle
    assert empty.line() == "batch 5: 0 read in 0 ms, 0 a second; behind by nothing"


class FakeQuery:
    """A query with reports, that fails or answers no more if it is told to."""

    def __init__(self, *, error=None, gone=None, batches=()):
        self._error, self._gone, self._batches = error, gone, list(batches)
        self.isActive, self.status, self.recentProgress = True, {"isTriggerActive": True}, []

    def _go_on(self):
        if self._gone:
            raise self._gone
        if not self._batches:
            self.isActive = False
            return
        progress = {"batchId": self._batches.pop(0), "timestamp": "t", "numInputRows": 1, "sources": []}
        self.recentProgress.append(SimpleNamespace(json=json.dumps(progress)))

    def stop(self):
        self.isActive = False

    def exception(self):
        return self._error


class Looks(threading.Event):
    """Time passes for a query each time that somebody waits."""

    def __init__(self, query, stop_at=None):
        super().__init__()
        self.query, self.stop_at, self.looks = query, stop_at, 0

    def wait(self, timeout=None):
        self.looks += 1
        self.query._go_on()
        return self.looks == self.stop_at


def test_each_batch_is_shown_once():
    query, shown = FakeQuery(batches=[0, 1, 1, 2]), []
    follow(query, Looks(query), shown.append)
    assert [report.batch for report in shown] == [0, 1, 2]


def test_a_query_that_is_told_to_stop_is_stopped_behind_its_batch():
    query, shown = FakeQuery(batches=[0, 1, 2]), []
    follow(query, Looks(query, stop_at=2), shown.append)
    assert [report.batch for report in shown] == [0, 1]
    assert not query.isActive


FAILED = "[STREAM_FAILED] terminated with exception: Job aborted\n=== Streaming Query ===\nCaused by: a.B: first\n\tat x.Y(Z:1)\n"
DRIVER = (
    "[PYTHON_ERROR] Failed when latestOffset: Traceback (most recent call last):\n  File 'x', line 1\nOSError: refused\n\n"
    "Traceback (most recent call last):\n  File 'y', line 1\nstan_client.errors.Lost: the reason\n SQLSTATE: 38000\n"
    "=== Streaming Query ===\nIdentifier: [id = 1]\n\nCurrent State: INITIALIZING\nThread State: RUNNABLE"
)
PYTHON = "Caused by: org.apache.PythonException: Traceback (most recent call last):\n  File 'x', line 1\n    f()\n"


@pytest.mark.parametrize(
    "text",
    [
        "the reason",
        f"{FAILED}Caused by: c.d.E$F: the reason\n\tat y",
        DRIVER,
        f"{FAILED}{PYTHON}stan_client.errors.Lost: the reason\n\n\tat org.apache.Runner(Runner:1)\n",
    ],
)
def test_why_a_query_has_failed_is_told_in_a_line(text):
    query = FakeQuery(error=RuntimeError(text))
    with pytest.raises(PipelineError) as told:
        follow(query, Looks(query), print)
    assert str(told.value) == "the reason"


def test_a_spark_that_has_gone_is_told():
    query = FakeQuery(gone=OSError("connection reset"))
    with pytest.raises(PipelineError, match="Spark does not answer any more: connection reset"):
        follow(query, Looks(query), print)
