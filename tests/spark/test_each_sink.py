"""Every sink has each batch of a query once: new checkpoints under the same name, repetitions, two drivers at once. No Spark."""

from types import SimpleNamespace
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructType
from pyspark_stan import foreach_batch
from pyspark_stan.errors import IdentityError
from pyspark_stan.pipeline.config import parse_pipeline
from pyspark_stan.pipeline.flow import table_writer
from pyspark_stan.writing.identity import EXECUTION_ID, RUN_ID
from pyspark_stan.writing.sink import batch_writer, stream_writer

from tests.spark.fake_client import FakeClient
from tests.spark.tables import Frame, Target

SERVERS = {"servers": "nats://nowhere:4222"}
VALUE = StructType().add("value", BinaryType())

PIPELINE = """
name = "p"
checkpoint = "state"
[source]
channels = ["orders"]
[payload]
format = "raw"
[query]
sql = "SELECT 1"
[sink]
app = "{app}"
"""


def record_batches(rows):
    return iter([pa.record_batch({"value": pa.array([row.encode() for row in rows], pa.binary())})])


class IntoTable:
    """A table, by its function or by the file of a pipeline."""

    def __init__(self, kind, place, *, pipeline=False):
        self.target, self.pipeline = Target(kind, place), pipeline

    def _writing(self, app):
        if not self.pipeline:
            return self.target.writing(app=app)
        sink = 'delta = "table"'
        if self.target.kind == "iceberg":
            pairs = ", ".join(f'{name} = "{value}"' for name, value in self.target.catalog.items())
            sink = f'iceberg = "{self.target.name}"\ncatalog = {{ {pairs} }}'
        return table_writer(parse_pipeline(PIPELINE.format(app=app) + sink, self.target.place, {}).sink.table)

    def batch(self, rows, number, query="q1", run="r1", *, app="app", meanwhile=None):
        frame = Frame([(row, 0) for row in rows], query, run, meanwhile=meanwhile)
        self._writing(app)(frame, number)

    def rows(self):
        return [row for row, _ in self.target.rows()]


class IntoChannel:
    """A channel, by the format's sink."""

    def __init__(self, client, task):
        self.client, self.task = client, task

    def batch(self, rows, number, query="q1", run="r1", *, app="app", meanwhile=None):
        writer = stream_writer({**SERVERS, "channel": "a", "txnAppId": app}, VALUE, overwrite=False)
        self.task(batch=number, query=query, **{RUN_ID: run, EXECUTION_ID: uuid4().hex})
        message = writer.write(record_batches(rows))
        if meanwhile:
            meanwhile()
        writer.commit([message], number)

    def rows(self):
        return sorted(data.decode() for data in self.client.data("a"))


class Save:
    """What `frame.write` gives, as far as foreach_batch uses it."""

    def __init__(self, rows, meanwhile, workers):
        self.rows, self.meanwhile, self.workers, self.given = rows, meanwhile, workers, {}

    def format(self, _name):
        return self

    def mode(self, _name):
        return self

    def options(self, **given):
        self.given.update({name.lower(): value for name, value in given.items()})
        return self

    def save(self):
        writer = batch_writer(self.given, VALUE, overwrite=False)
        with self.workers():
            message = writer.write(record_batches(self.rows))
        if self.meanwhile:
            self.meanwhile()
        with self.workers():
            writer.commit([message])


class ByForeachBatch(IntoChannel):
    """A channel, by the function for foreachBatch."""

    def batch(self, rows, number, query="q1", run="r1", *, app="app", meanwhile=None):
        frame = Frame([(row,) for row in rows], query, run, columns="value")
        frame.write = Save(rows, meanwhile, self.task.workers)
        frame.persist = frame.unpersist = lambda: frame
        frame.selectExpr = lambda *_: SimpleNamespace(collect=lambda: [(len(rows), hash(frozenset(rows)))])
        self.task(batch=number, query=query, **{RUN_ID: run, EXECUTION_ID: uuid4().hex})
        foreach_batch(servers=SERVERS["servers"], channel="a", txnAppId=app)(frame, number)


@pytest.fixture(params=["delta", "iceberg", "pipeline, delta", "pipeline, iceberg", "channel", "foreach_batch"])
def sink(request, tmp_path, monkeypatch, task):
    kind = request.param.rpartition(" ")[2]
    if kind in ("delta", "iceberg"):
        return IntoTable(kind, tmp_path, pipeline=request.param.startswith("pipeline"))
    client = FakeClient()
    monkeypatch.setattr("pyspark_stan.transport.client_of", lambda connection: client)
    return (IntoChannel if kind == "channel" else ByForeachBatch)(client, task)


@pytest.fixture
def on_connect(monkeypatch, task):
    client = FakeClient()
    monkeypatch.setattr("pyspark_stan.transport.client_of", lambda connection: client)
    return ByForeachBatch(client, task)


class TestForeachBatchOnConnect:
    """Spark Connect does not tell the query's id."""

    @pytest.mark.parametrize("there", [1, 3])
    def test_a_new_checkpoint_under_the_same_name_is_an_error(self, on_connect, there):
        for number in range(there):
            on_connect.batch([f"old {number}"], number, None)
        with pytest.raises(IdentityError, match=r"new checkpoint\? Then give it a txnAppId of its own"):
            on_connect.batch(["new"], 0, None, "r2")
        on_connect.batch(["new"], 0, None, "r2", app="another")
        assert on_connect.rows() == ["new", *(f"old {number}" for number in range(there))]

    @pytest.mark.parametrize("number", [0, 1])
    def test_a_repeated_batch_adds_nothing(self, on_connect, number):
        for at in range(number + 1):
            on_connect.batch(["a", f"old {at}"], at, None)
        on_connect.batch([f"old {number}", "a"], number, None, "after a crash")
        on_connect.batch(["next"], number + 1, None, "after a crash")
        assert len(on_connect.rows()) == 2 * (number + 1) + 1


class TestEachSink:
    def test_a_repeated_batch_adds_nothing(self, sink):
        sink.batch(["a", "b"], 0)
        sink.batch(["a", "b"], 0, run="after a crash")
        sink.batch(["c"], 1)
        assert sink.rows() == ["a", "b", "c"]

    @pytest.mark.parametrize("number", [0, 1, 2])
    def test_a_new_checkpoint_under_the_same_name_is_an_error(self, sink, number):
        for at in range(3):
            sink.batch([f"old {at}"], at)
        with pytest.raises(IdentityError, match=r"new checkpoint\? Then give it .* of its own"):
            sink.batch(["new"], number, query="q2", run="r2")
        assert sink.rows() == ["old 0", "old 1", "old 2"]
        sink.batch(["new"], number, query="q2", run="r2", app="another")
        assert sink.rows() == ["new", "old 0", "old 1", "old 2"]

    @pytest.mark.parametrize("before", [0, 1], ids=["the first batch", "a later one"])
    def test_two_drivers_of_a_checkpoint_at_once_add_a_batch_once(self, sink, before):
        for at in range(before):
            sink.batch([f"old {at}"], at)
        sink.batch(["a", "b"], before, run="late", meanwhile=lambda: sink.batch(["a", "b"], before, run="early"))
        assert sink.rows() == ["a", "b", *(f"old {at}" for at in range(before))]

    def test_of_two_checkpoints_at_once_under_one_name_the_later_is_an_error(self, sink):
        with pytest.raises(IdentityError, match="new checkpoint\\?"):
            sink.batch(["late"], 0, "q1", "late", meanwhile=lambda: sink.batch(["early"], 0, "q2", "early"))
        assert sink.rows() == ["early"]

    def test_a_batch_that_has_failed_is_repeated_by_the_same_run(self, sink):
        def fail():
            raise OSError("a task has failed")

        with pytest.raises(OSError, match="a task"):
            sink.batch(["a"], 0, meanwhile=fail)
        sink.batch(["a"], 0)
        assert sink.rows() == ["a"]
