"""Tables of Iceberg, written by the package pyiceberg: a batch's number is a property of the table, set in the same commit."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark_stan.tables.batches import into_table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def to_iceberg(
    table: str,
    catalog: Mapping[str, str],
    *,
    keys: Sequence[str] = (),
    order: str = "",
    app: str = "",
) -> "Callable[[DataFrame, int], None]":
    """Return a function for `df.writeStream.foreachBatch(...)` that puts each batch into an Iceberg table, once.

    The table and its namespace are made by the first batch; new columns are added to it.

    Args:
        table: its name with that of its namespace, `shop.orders`.
        catalog: properties of pyiceberg's load_catalog, with `name` if it is to have one: `{"type": "rest", "uri": "https://..."}`.
        keys: columns that identify a row, null as any other value: its newest row replaces the one that is there. None: rows are
            appended.
        order: with keys, the column whose greatest value tells the newest row of a key within a batch; null is less than any.
        app: whose batches these are; "": the query's id. A new checkpoint needs a new one.

    Raises:
        ImportError: pyiceberg is not installed. In a batch: TableError, IdentityError, and errors of pyiceberg.
    """
    _load_catalog()
    properties = dict(catalog)
    return into_table(table, lambda: _IcebergBatch(table, properties), list(keys), order, app)


def _load_catalog() -> Any:
    try:
        from pyiceberg.catalog import load_catalog  # noqa: PLC0415 - only where a table is written
    except ImportError:
        raise ImportError("Iceberg tables need pyiceberg: pip install 'pyiceberg[sql-sqlite]'") from None
    return load_catalog


class _IcebergBatch:
    def __init__(self, name: str, properties: dict[str, str]) -> None:
        self._name = name
        more = {key: value for key, value in properties.items() if key != "name"}
        self._catalog = _load_catalog()(properties.get("name"), **more)
        self._table = self._catalog.load_table(name) if self._catalog.table_exists(name) else None

    def noted(self, name: str) -> int | None:
        version = self._table.properties.get(_property(name)) if self._table is not None else None
        return None if version is None else int(version)

    def put(self, rows: "pa.Table", notes: Mapping[str, int], keys: Sequence[str]) -> None:
        table = self._table
        if table is None:
            self._catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
            table = self._catalog.create_table_if_not_exists(self._name, schema=rows.schema)
        if set(rows.column_names) - set(table.schema().column_names):
            with table.update_schema() as schema:  # a commit of its own: the next one reads the table by it
                schema.union_by_name(rows.schema)
        with warnings.catch_warnings(), table.transaction() as work:
            warnings.filterwarnings("ignore", "Delete operation did not match any records")  # all keys are new
            if keys and rows.num_rows:
                work.overwrite(rows, overwrite_filter=_with_keys(rows, keys))
            else:
                work.append(rows)
            work.set_properties({_property(name): str(number) for name, number in notes.items()})


def _with_keys(rows: "pa.Table", keys: Sequence[str]) -> Any:
    """Return a filter for the rows of a table with the keys of *rows*."""
    from pyiceberg.expressions import And, EqualTo, In, IsNull, Or  # noqa: PLC0415 - as above

    if len(keys) == 1:
        values = rows.column(keys[0]).to_pylist()
        known = In(keys[0], {value for value in values if value is not None})
        return Or(known, IsNull(keys[0])) if None in values else known
    filters = [
        And(*(IsNull(key) if row[key] is None else EqualTo(key, row[key]) for key in keys))
        for row in rows.select(list(keys)).to_pylist()
    ]
    return filters[0] if len(filters) == 1 else Or(*filters)


def _property(app: str) -> str:
    return f"stan.batch.{app}"
