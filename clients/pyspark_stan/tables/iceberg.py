"""Tables of Iceberg, written by the package pyiceberg: a batch's number is a property of the table, set in the same commit."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_stan.tables.batches import into_table
from pyspark_stan.tables.upserts import DELETES, Upserts, check_columns, newest, upserts_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

READ_MAX: Final = 10
"""Rows of a table that may be read, and written again, for each row of a batch, so that pyiceberg needs no set of values."""
NO_RETRIES: Final = {"commit.retry.num-retries": "0"}
"""pyiceberg repeats an overtaken commit by itself, also where what overtook it was the same batch."""


def to_iceberg(
    table: str,
    catalog: Mapping[str, str],
    *,
    keys: Sequence[str] = (),
    order: str = "",
    deletes: str = "",
    app: str = "",
) -> "Callable[[DataFrame, int], None]":
    """Return a function for `df.writeStream.foreachBatch(...)` that puts each batch into an Iceberg table, once.

    The table and its namespace are made by the first batch; new columns are added to it.

    Args:
        table: its name with that of its namespace, `shop.orders`.
        catalog: properties of pyiceberg's load_catalog, with `name` if it is to have one: `{"type": "rest", "uri": "https://..."}`.
        keys: columns that identify a row, null as any other value: a newer row replaces the one that is there. None: rows are
            appended.
        order: with keys, the column whose greatest value tells the newest row, as for to_delta.
        deletes: with keys, a condition in SQL for rows that delete their key, as for to_delta.
        app: whose batches these are; "": the query's id. A new checkpoint needs a new one.

    Raises:
        OptionsError: names of columns that cannot be used. ImportError: pyiceberg is not installed. In a batch: TableError,
            IdentityError, and errors of pyiceberg.
    """
    upserts = upserts_of("iceberg", keys, order, deletes)
    _load_catalog()
    properties = dict(catalog)
    return into_table(table, lambda: _IcebergBatch(table, properties), upserts, app)


def _load_catalog() -> Any:
    try:
        from pyiceberg.catalog import load_catalog  # noqa: PLC0415 - only where a table is written
    except ImportError:
        raise ImportError("Iceberg tables need pyiceberg: pip install 'pyiceberg[sql-sqlite]'") from None
    return load_catalog


class _IcebergBatch:
    def __init__(self, name: str, properties: dict[str, str]) -> None:
        from pyiceberg.exceptions import CommitFailedException, ValidationException  # noqa: PLC0415 - as above

        self.conflicts: tuple[type[Exception], ...] = (CommitFailedException, ValidationException)
        self._name = name
        more = {key: value for key, value in properties.items() if key != "name"}
        self._catalog = _load_catalog()(properties.get("name"), **more)
        self._table: Any = self._catalog.load_table(name) if self._catalog.table_exists(name) else None

    def noted(self, name: str) -> int | None:
        version = self._table.properties.get(_property(name)) if self._table is not None else None
        return None if version is None else int(version)

    def prepare(self, schema: pa.Schema, upserts: Upserts | None) -> bool:
        table = self._table
        if table is None:
            self._catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
            self._catalog.create_table_if_not_exists(self._name, schema=schema)
            return False
        columns = table.schema().column_names
        if upserts:
            check_columns(columns, upserts._replace(order=""), f"the table {self._name}")
        if set(schema.names) <= set(columns):
            return True
        with table.update_schema() as update:  # a commit of its own: the next one reads the table by it
            update.union_by_name(schema)
        return False

    def put(self, rows: pa.Table, notes: Mapping[str, int], upserts: Upserts | None) -> None:
        table = self._table
        properties = {**table.metadata.properties, **NO_RETRIES}
        table.metadata = table.metadata.model_copy(
            update={"properties": properties}
        )  # of this object, not of the table
        with warnings.catch_warnings(), table.transaction() as work:
            warnings.filterwarnings("ignore", "Delete operation did not match any records")
            if upserts:
                rows = _replacing(table, work, rows, upserts)
            work.append(rows)  # also none: with a snapshot of its own a commit cannot be overtaken
            work.set_properties({_property(name): str(number) for name, number in notes.items()})


def _replacing(table: Any, work: Any, rows: pa.Table, upserts: Upserts) -> pa.Table:
    """Remove what *rows* replace or delete, and return those of them that are to be added.

    What is read has in each key a value between those of *rows*, or one of them: so a filter has two values or a set for each
    key, and not a condition for each row. It also matches rows whose keys are not in *rows*, which are written again.
    """
    near = _near(table, rows, upserts.keys)
    there = table.scan(row_filter=near).to_arrow()
    if there.num_rows:
        columns = [*upserts.keys, *([upserts.order] if upserts.order else [])]
        known = there.select(columns)
        coming = pa.table([rows.column(field.name).cast(field.type) for field in known.schema], columns)
        places = newest(pa.concat_tables([known.cast(coming.schema), coming]), upserts)
        stay, come = pc.less(places, there.num_rows), pc.greater_equal(places, there.num_rows)
        left = there.take(places.filter(stay))
        if left.num_rows < there.num_rows:
            work.overwrite(left, overwrite_filter=near)
        rows = rows.take(pc.subtract(places.filter(come), there.num_rows))
    return rows.filter(pc.invert(rows.column(DELETES))).drop_columns([DELETES])


def _near(table: Any, rows: pa.Table, keys: Sequence[str]) -> Any:
    """Return a filter that matches the rows of *table* with the keys of *rows*, and few others.

    A set costs pyiceberg much for each value. So the filter is what lies between, where that is not much more than *rows*.
    """
    from pyiceberg.expressions import AlwaysTrue, And  # noqa: PLC0415 - as above

    near = And(AlwaysTrue(), *(_one_of(rows.column(key), key, between=True) for key in keys))
    if sum(task.file.record_count for task in table.scan(row_filter=near).plan_files()) <= READ_MAX * rows.num_rows:
        return near
    return And(AlwaysTrue(), *(_one_of(rows.column(key), key, between=False) for key in keys))


def _one_of(column: pa.ChunkedArray, key: str, *, between: bool) -> Any:
    """Return a filter for *key*: a value of *column*, or any between its least and its greatest value; null if it has nulls."""
    from pyiceberg.expressions import And, GreaterThanOrEqual, In, IsNull, LessThanOrEqual, Or  # noqa: PLC0415 - as above

    values = column.drop_null()
    if not len(values):
        return IsNull(key)
    limits = pc.min_max(values)
    if between:
        known = And(GreaterThanOrEqual(key, limits["min"].as_py()), LessThanOrEqual(key, limits["max"].as_py()))
    else:
        known = In(key, values.unique().to_pylist())
    return Or(known, IsNull(key)) if column.null_count else known


def _property(app: str) -> str:
    return f"stan.batch.{app}"
