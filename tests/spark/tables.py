"""Batches of queries and tables to put them into, without Spark."""

import sqlite3
from types import SimpleNamespace
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark_stan.tables.delta import to_delta
from pyspark_stan.tables.iceberg import to_iceberg
from pyspark_stan.writing.identity import QUERY_ID, RUN_ID

KINDS = {"k": pa.string(), "text": pa.string()}
"""Types of columns that are not int64."""


class Frame:
    """A batch of a query, as far as it is asked; of Spark Connect without a query's id."""

    def __init__(self, rows, query="q1", run="r1", *, columns="k v", meanwhile=None):
        self.rows, self.columns = rows, columns.split(" ")
        self.meanwhile = meanwhile  # what another driver does while this one makes the rows
        self._marks = {}
        told = {QUERY_ID: query, RUN_ID: run}
        context = SimpleNamespace(getLocalProperty=told.get)
        self.sparkSession = SimpleNamespace(session_id=run) if query is None else SimpleNamespace(sparkContext=context)

    def selectExpr(self, star, more):  # noqa: N802 - Spark's name
        assert star == "*"
        condition, _, name = more.rpartition(" AS ")
        with sqlite3.connect(":memory:") as base:
            base.execute(f"CREATE TABLE rows ({', '.join(self.columns)})")
            places = ", ".join("?" * len(self.columns))
            base.executemany(f"INSERT INTO rows VALUES ({places})", self.rows)  # noqa: S608 - the test's own
            found = base.execute(f"SELECT {condition} FROM rows ORDER BY rowid").fetchall()  # noqa: S608 - the test's own
        self._marks[name] = pa.array([None if mark is None else bool(mark) for (mark,) in found], pa.bool_())
        return self

    def toArrow(self):  # noqa: N802 - Spark's name
        if self.meanwhile:
            self.meanwhile()
        columns = zip(*self.rows, strict=True) if self.rows else [[]] * len(self.columns)
        made = {
            name: pa.array(values, KINDS.get(name, pa.int64()))
            for name, values in zip(self.columns, columns, strict=True)
        }
        return pa.table({**made, **self._marks})


class Target:
    """A table of one of the formats: a function for foreachBatch, and its rows."""

    def __init__(self, kind, place):
        pytest.importorskip({"delta": "deltalake", "iceberg": "pyiceberg"}[kind])
        self.kind, self.place = kind, place
        self.name = f"shop.t{uuid4().hex}"  # a process remembers which saves it has seen
        self.catalog = {"type": "sql", "uri": f"sqlite:///{place}/catalog.db", "warehouse": f"file://{place}"}

    @property
    def directory(self):
        return str(self.place / "table")

    def writing(self, **options):
        if self.kind == "delta":
            return to_delta(self.directory, **options)
        return to_iceberg(self.name, self.catalog, **options)

    def rows(self, columns="k v"):
        """The rows as tuples, in the order of their texts."""
        if self.kind == "delta":
            import deltalake  # noqa: PLC0415 - not installed everywhere

            found = deltalake.DeltaTable(self.directory).to_pyarrow_table()
        else:
            from pyiceberg.catalog import load_catalog  # noqa: PLC0415

            found = load_catalog(**self.catalog).load_table(self.name).scan().to_arrow()
        return sorted((tuple(row[name] for name in columns.split(" ")) for row in found.to_pylist()), key=repr)
