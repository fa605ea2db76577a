"""Pipelines from channel to channel, on a real broker: the two examples, resumed, stopped, and failing."""

import json
import threading
from collections import Counter
from io import BytesIO
from itertools import islice

import fastavro
import pytest
from google.protobuf import descriptor_pb2 as d
from google.protobuf.message_factory import GetMessageClass
from pyspark_stan.examples import EXAMPLES
from pyspark_stan.examples.clicks import Click, clicks, counted
from pyspark_stan.examples.orders import COLUMNS, events, table_of
from pyspark_stan.pipeline import flow
from pyspark_stan.pipeline.config import parse_pipeline
from pyspark_stan.pipeline.run import PipelineError, follow
from pyspark_stan.pipeline.table import read_table
from stan_protocol.schemas.protobuf import parse

from tests.spark.filling import fill


@pytest.fixture
def pipeline_of(broker, channel, tmp_path):
    """An example's pipeline, or one by its text, from and to channels that no other test uses."""

    def make(text, *, available_now=True):
        text = EXAMPLES[text].toml if text in EXAMPLES else text
        for name in ("clicks", "orders"):
            text = text.replace(f'channels = ["{name}"]', f'channels = ["{channel}"]')
        text = text.replace('channel = "clicks-per-page"', f'channel = "{channel}.out"')
        text = text.replace('channel = "orders-table"', f'channel = "{channel}.out"')
        if available_now:
            text = text.replace('every = "1 second"', "available_now = true")
        return parse_pipeline(text, tmp_path, {"STAN_SERVER": broker.url})

    return make


def run(spark, pipeline):
    """Run a pipeline over what there is; returns its reports."""
    reports = []
    follow(flow.start(spark, pipeline), threading.Event(), reports.append)
    return reports


def messages_in(client, channel):
    return [json.loads(data) for data in data_in(client, channel)]


def data_in(client, channel):
    found = []
    info = client.info([channel]).get(channel)
    for part in client.read_range(channel, 1, info.last) if info and info.last else ():
        found += [message.data for message in part.messages()]
    return found


def test_clicks_are_counted_once_each_over_a_restart_and_too_late_ones_left_out(spark, client, channel, pipeline_of):
    pipeline = pipeline_of("clicks")
    stream = list(islice(clicks(seed=5, per_s=20.0), 2000))
    first, second = stream[:1000], stream[1000:]
    newest = max(click.at_ms for click in stream)
    fill(client, channel, [click.message() for click in first] + [b"no JSON"])
    reports = run(spark, pipeline)
    assert sum(report.rows for report in reports) == 1001
    assert all(report.lag == {channel: 0} for report in reports if report.rows)
    before = messages_in(client, f"{channel}.out")
    assert before
    too_late = Click("user-0", "home", min(click.at_ms for click in first))
    closing = Click("user-0", "home", newest + 60_000)
    fill(client, channel, [click.message() for click in [too_late, *second, closing]])
    run(spark, pipeline)
    results = messages_in(client, f"{channel}.out")
    assert results[: len(before)] == before
    assert {(result["start"], result["page"]): result["clicks"] for result in results} == counted(stream)
    assert max(Counter((result["start"], result["page"]) for result in results).values()) == 1


def test_orders_are_a_table_kept_by_its_changelog(spark, broker, client, channel, pipeline_of):
    pipeline = pipeline_of("orders")
    happened = list(islice(events(seed=3), 900))
    for part in (happened[:500], happened[500:]):
        fill(client, channel, [event.message() for event in part])
        run(spark, pipeline)
    expected = table_of(happened)
    changelog = messages_in(client, f"{channel}.out")
    assert len(changelog) > len(expected), "orders that went on after the first part are there again"
    table = read_table(spark, COLUMNS, "order_id", servers=broker.url, subscribe=f"{channel}.out")
    rows = {row.order_id: row for row in table.collect()}
    assert {key: (row.status, int(row.amount * 100)) for key, row in rows.items()} == {
        key: (event.status, event.cents) for key, event in expected.items()
    }
    assert {key: row.changes for key, row in rows.items()} == Counter(event.order_id for event in happened)


BOTH = """
name = "both"
checkpoint = "both"
[connection]
servers = "${STAN_SERVER}"
[sources.placed]
channels = ["clicks"]
payload = { format = "protobuf", descriptor_file = "order.pb", message = "shop.Order" }
watermark = { column = "_timestamp", delay = "1 minute" }
[sources.paid]
channels = ["orders"]
payload.format = "registered"
watermark = { column = "_timestamp", delay = "1 minute" }
[query]
sql = '''
SELECT placed.id, item, amount FROM placed JOIN paid ON placed.id = paid.id
AND paid._timestamp BETWEEN placed._timestamp - INTERVAL 1 HOUR AND placed._timestamp + INTERVAL 1 HOUR
'''
[sink]
channel = "clicks-per-page"
value = "avro"
schema = '''
{"type": "record", "name": "Paid", "fields": [
  {"name": "id", "type": "long"}, {"name": "item", "type": "string"}, {"name": "amount", "type": ["null", "double"]}]}
'''
[trigger]
available_now = true
"""


def order_file():
    """Descriptors of a message with an id and an item."""
    file = d.FileDescriptorProto(name="a.proto", package="shop", syntax="proto3")
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=d.FieldDescriptorProto.TYPE_INT64, label=1)
    order.field.add(name="item", number=2, type=d.FieldDescriptorProto.TYPE_STRING, label=1)
    return d.FileDescriptorSet(file=[file]).SerializeToString()


def test_two_sources_are_joined_and_published_in_avro(spark, client, channel, pipeline_of, tmp_path):
    (tmp_path / "order.pb").write_bytes(order_file())
    order = GetMessageClass(parse(order_file(), "shop.Order"))
    paid = json.dumps({"type": "object", "properties": {"id": {"type": "integer"}, "amount": {"type": "number"}}})
    client._wait(client._direct.admin.add_schema(f"{channel}.paid", paid.encode()))
    text = BOTH.replace('channels = ["orders"]', f'channels = ["{channel}.paid"]')
    fill(client, channel, [order(id=1, item="pot").SerializeToString(), order(id=2, item="cup").SerializeToString()])
    fill(client, f"{channel}.paid", [b'{"id": 2, "amount": 1.5}', b'{"id": 3, "amount": 2}'])
    run(spark, pipeline_of(text))
    fill(client, f"{channel}.paid", [b'{"id": 1}'])
    run(spark, pipeline_of(text))
    schema = fastavro.parse_schema(json.loads(pipeline_of(text).sink.avro))
    found = [fastavro.schemaless_reader(BytesIO(data), schema, None) for data in data_in(client, f"{channel}.out")]
    assert found == [{"id": 2, "item": "cup", "amount": 1.5}, {"id": 1, "item": "pot", "amount": None}]


TABLE = """
name = "table"
checkpoint = "table"
[connection]
servers = "${STAN_SERVER}"
[source]
channels = ["clicks"]
[payload.schema]
id = "int"
n = "int"
[query]
sql = "SELECT id, sum(n) AS total FROM events GROUP BY id"
[sink]
keys = ["id"]
mode = "update"
SINK
[trigger]
available_now = true
"""
SINKS = {
    "delta": 'delta = "tables/totals"',
    "iceberg": 'iceberg = "shop.totals"\ncatalog = { type = "sql", uri = "sqlite:///PLACE/c.db", warehouse = "file://PLACE/w" }',
}


def totals(kind, place):
    """The rows of the table, by id."""
    if kind == "delta":
        table = pytest.importorskip("deltalake").DeltaTable(str(place / "tables/totals")).to_pyarrow_table()
    else:
        catalog = pytest.importorskip("pyiceberg.catalog")
        options = {"type": "sql", "uri": f"sqlite:///{place}/c.db", "warehouse": f"file://{place}/w"}
        table = catalog.load_catalog(None, **options).load_table("shop.totals").scan().to_arrow()
    return {row["id"]: row["total"] for row in table.to_pylist()}


@pytest.mark.parametrize("kind", SINKS)
def test_a_table_is_kept_by_update_mode(spark, client, channel, pipeline_of, tmp_path, kind):
    pytest.importorskip({"delta": "deltalake", "iceberg": "pyiceberg"}[kind])
    text = TABLE.replace("SINK", SINKS[kind].replace("PLACE", str(tmp_path)))
    fill(client, channel, [b'{"id": 1, "n": 1}', b'{"id": 2, "n": 5}', b'{"id": 1, "n": 2}'])
    run(spark, pipeline_of(text))
    assert totals(kind, tmp_path) == {1: 3, 2: 5}
    fill(client, channel, [b'{"id": 2, "n": 1}', b'{"id": 3, "n": 7}'])
    run(spark, pipeline_of(text))
    assert totals(kind, tmp_path) == {1: 3, 2: 6, 3: 7}


COPY = """
name = "copy"
checkpoint = "copy"
[connection]
servers = "${STAN_SERVER}"
[source]
channels = ["clicks"]
[payload.schema]
n = "int"
[query]
sql = "SELECT n + 1 AS n FROM events"
[sink]
channel = "clicks-per-page"
[trigger]
every = "1 second"
"""


def test_a_malformed_message_fails_the_pipeline_and_is_told(spark, client, channel, pipeline_of):
    fill(client, channel, [b'{"n": 1}', b"{"])
    with pytest.raises(
        PipelineError, match=f"message 2 of channel {channel} is not the json that the payload's schema"
    ):
        run(spark, pipeline_of(COPY))
    assert messages_in(client, f"{channel}.out") == []


def test_a_pipeline_stops_when_it_is_told_to_and_goes_on_where_it_was(spark, client, channel, pipeline_of):
    stop, reports = threading.Event(), []

    def show(report):
        reports.append(report)
        if report.rows:
            stop.set()

    fill(client, channel, [b'{"n": 1}', b'{"n": 2}'])
    query = flow.start(spark, pipeline_of(COPY, available_now=False))
    follow(query, stop, show)
    assert not query.isActive
    fill(client, channel, [b'{"n": 3}'])
    run(spark, pipeline_of(COPY))
    assert sorted(result["n"] for result in messages_in(client, f"{channel}.out")) == [2, 3, 4]
