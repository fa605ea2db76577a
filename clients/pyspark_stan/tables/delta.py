"""Tables of Delta Lake, written by the package deltalake: a batch's number is in the commit as Delta's own txn action."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark_stan.tables.batches import into_table
from pyspark_stan.tables.upserts import DELETES, Upserts, check_columns, upserts_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def to_delta(
    location: str,
    *,
    keys: Sequence[str] = (),
    order: str = "",
    deletes: str = "",
    app: str = "",
    storage_options: Mapping[str, str] | None = None,
) -> "Callable[[DataFrame, int], None]":
    """Return a function for `df.writeStream.foreachBatch(...)` that puts each batch into a Delta table, once.

    The table is made by the first batch; new columns are added to it.

    Args:
        location: directory or URL of the table.
        keys: columns that identify a row, null as any other value: a newer row replaces the one that is there. None: rows are
            appended.
        order: with keys, the column whose greatest value tells the newest row, in a batch and in the table; null is less than
            any, and of equal ones the later row is newer. "": a batch has each key once, and replaces what is there.
        deletes: with keys, a condition in SQL for rows that delete their key; "": those whose other columns are null or empty,
            not counting those about the message (`_sequence`).
        app: whose batches these are, in Delta's words the appId; "": the query's id. A new checkpoint needs a new one.
        storage_options: of deltalake, for S3 and others.

    Raises:
        OptionsError: names of columns that cannot be used. ImportError: deltalake is not installed. In a batch: TableError,
            IdentityError, and errors of deltalake.
    """
    upserts = upserts_of("delta", keys, order, deletes)
    _delta()
    options = dict(storage_options or {})
    return into_table(location, lambda: _DeltaBatch(location, options), upserts, app)


def _delta() -> Any:
    try:
        import deltalake  # noqa: PLC0415 - only where a table is written
        import deltalake.exceptions  # noqa: PLC0415
    except ImportError:
        raise ImportError("Delta tables need deltalake: pip install deltalake") from None
    return deltalake


class _DeltaBatch:
    def __init__(self, location: str, storage_options: dict[str, str]) -> None:
        self._location = location
        self._options = storage_options
        delta = _delta()
        self.conflicts: tuple[type[Exception], ...] = (delta.exceptions.CommitFailedError,)
        there = delta.DeltaTable.is_deltatable(location, storage_options)
        self._table: Any = delta.DeltaTable(location, storage_options=storage_options) if there else None

    def noted(self, name: str) -> int | None:
        version = self._table.transaction_version(name) if self._table is not None else None
        return None if version is None else int(version)

    def prepare(self, schema: "pa.Schema", upserts: Upserts | None) -> bool:
        if self._table is None:  # empty: a first commit with rows would not see those of another driver
            empty = schema.empty_table()
            _delta().write_deltalake(self._location, empty, mode="ignore", storage_options=self._options)
            return False
        if upserts:
            check_columns(self._columns(), upserts._replace(order=""), f"the table {self._location}")
        return True

    def put(self, rows: "pa.Table", notes: Mapping[str, int], upserts: Upserts | None) -> None:
        delta = _delta()
        commit = delta.CommitProperties(app_transactions=[delta.Transaction(*note) for note in notes.items()])
        if upserts is None:
            delta.write_deltalake(self._table, rows, mode="append", schema_mode="merge", commit_properties=commit)
            return
        same = " AND ".join(f"(new.{_quoted(key)} IS NOT DISTINCT FROM old.{_quoted(key)})" for key in upserts.keys)
        newer = "true"
        if upserts.order in self._columns():
            order = _quoted(upserts.order)
            newer = f"(old.{order} IS NULL OR new.{order} >= old.{order})"
        merge = self._table.merge(
            rows, same, source_alias="new", target_alias="old", merge_schema=True, commit_properties=commit
        )
        merge.when_matched_delete(f"new.{DELETES} AND {newer}")
        merge.when_matched_update_all(f"NOT new.{DELETES} AND {newer}", except_cols=[DELETES])
        merge.when_not_matched_insert_all(f"NOT new.{DELETES}", except_cols=[DELETES])
        merge.execute()

    def _columns(self) -> list[str]:
        return [field.name for field in self._table.schema().fields]


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
