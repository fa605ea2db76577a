"""Pipelines from channel to channel, on a real broker: the two examples, resumed, stopped, and failing."""

import json
import threading
from collections import Counter
from itertools import islice

import pytest
from pyspark_stan.examples import EXAMPLES
from pyspark_stan.examples.clicks import Click, clicks, counted
from pyspark_stan.examples.orders import COLUMNS, events, table_of
from pyspark_stan.pipeline import flow
from pyspark_stan.pipeline.config import parse_pipeline
from pyspark_stan.pipeline.run import PipelineError, follow
from pyspark_stan.pipeline.table import read_table
from stan_client.blocking import BlockingClient

from tests.spark.filling import fill


@pytest.fixture
def client(broker):
    with BlockingClient(broker.url) as found:
        yield found


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
    found = []
    info = client.info([channel]).get(channel)
    for part in client.read_range(channel, 1, info.last) if info and info.last else ():
        found += [json.loads(message.data) for message in part.messages()]
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
