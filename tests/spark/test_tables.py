"""Batches into tables of Delta Lake and Iceberg, without Spark: repetitions, batches of another query, and null keys."""

from types import SimpleNamespace
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark_stan.errors import IdentityError
from pyspark_stan.tables.delta import to_delta
from pyspark_stan.tables.iceberg import to_iceberg
from pyspark_stan.writing.identity import QUERY_ID, RUN_ID


class Frame:
    """A batch of a query, as far as it is asked; of Spark Connect without a query's id."""

    def __init__(self, rows, query="q1", run="r1"):
        self.rows = rows
        told = {QUERY_ID: query, RUN_ID: run}
        context = SimpleNamespace(getLocalProperty=told.get)
        self.sparkSession = SimpleNamespace(session_id=run) if query is None else SimpleNamespace(sparkContext=context)

    def toArrow(self):  # noqa: N802 - Spark's name
        return pa.table({"k": pa.array([row[0] for row in self.rows], pa.string()), "v": [row[1] for row in self.rows]})


class Target:
    """A table of one of the formats: a function for foreachBatch, and its rows."""

    def __init__(self, kind, place):
        self.kind, self.place = kind, place
        self.name = f"shop.t{uuid4().hex}"  # a process remembers which saves it has seen
        self.catalog = {"type": "sql", "uri": f"sqlite:///{place}/catalog.db", "warehouse": f"file://{place}"}

    def writing(self, **options):
        if self.kind == "delta":
            return to_delta(str(self.place / "table"), **options)
        return to_iceberg(self.name, self.catalog, **options)

    def rows(self):
        if self.kind == "delta":
            found = pytest.importorskip("deltalake").DeltaTable(str(self.place / "table")).to_pyarrow_table()
        else:
            found = pytest.importorskip("pyiceberg.catalog").load_catalog(**self.catalog).load_table(self.name)
            found = found.scan().to_arrow()
        return sorted(((row["k"], row["v"]) for row in found.to_pylist()), key=repr)


@pytest.fixture(params=["delta", "iceberg"])
def target(request, tmp_path):
    pytest.importorskip({"delta": "deltalake", "iceberg": "pyiceberg"}[request.param])
    return Target(request.param, tmp_path)


@pytest.mark.parametrize("query", ["q1", None], ids=["told", "on connect"])
def test_a_repeated_batch_adds_nothing_and_the_next_one_is_added(target, query):
    write = target.writing(app="app")
    write(Frame([("a", 1), ("b", 2)], query), 0)
    write(Frame([("b", 2), ("a", 1)], query, run="after a crash"), 0)
    write(Frame([("c", 3)], query), 1)
    assert target.rows() == [("a", 1), ("b", 2), ("c", 3)]


@pytest.mark.parametrize("batch", [0, 1, 2, 7])
def test_a_new_checkpoint_under_the_same_app_is_an_error(target, batch):
    write = target.writing(app="app")
    for at in range(3):
        write(Frame([("a", at)]), at)
    with pytest.raises(IdentityError, match="new checkpoint\\? Then give it an app of its own"):
        write(Frame([("new", 1)], "q2", "r2"), batch)
    target.writing(app="another")(Frame([("new", 1)], "q2", "r2"), batch)
    assert target.rows() == [("a", 0), ("a", 1), ("a", 2), ("new", 1)]


@pytest.mark.parametrize("batch", [0, 1, 2])
def test_a_new_checkpoint_on_connect_is_an_error(target, batch):
    write = target.writing(app="app")
    for at in range(3):
        write(Frame([("a", at)], None), at)
    with pytest.raises(IdentityError, match="give it an app of its own"):
        write(Frame([("new", 1)], None, "r2"), batch)
    assert target.rows() == [("a", 0), ("a", 1), ("a", 2)]


def test_queries_without_an_app_are_kept_apart_by_their_ids(target):
    for query in ("q1", "q2"):
        target.writing()(Frame([(query, 1)], query, query), 0)
    assert target.rows() == [("q1", 1), ("q2", 1)]


def test_a_row_with_a_null_key_replaces_the_one_with_a_null_key(target):
    write = target.writing(keys=["k"])
    write(Frame([(None, 1), ("a", 1)]), 0)
    write(Frame([(None, 2), ("a", 2)]), 1)
    assert target.rows() == sorted([("a", 2), (None, 2)], key=repr)


def test_of_rows_with_a_null_in_order_none_is_lost(spark, tmp_path):
    """Late fields, left joins and drift of a schema make such rows: null is older than any value."""
    deltalake = pytest.importorskip("deltalake")
    rows = [("a", 1, None), ("b", 1, 7), ("b", 2, None), (None, 3, None), ("c", 1, 1), ("c", 2, 2)]
    frame = spark.createDataFrame(rows, "k string, v int, o int")
    to_delta(str(tmp_path / "t"), keys=["k"], order="o", app="app")(frame, 0)
    found = deltalake.DeltaTable(str(tmp_path / "t")).to_pyarrow_table().to_pylist()
    assert sorted(((row["k"], row["v"], row["o"]) for row in found), key=repr) == sorted(
        [("a", 1, None), ("b", 1, 7), (None, 3, None), ("c", 2, 2)], key=repr
    )
