"""Tables of Delta Lake, written by the package deltalake: a batch's number is in the commit as Delta's own txn action."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark_stan.tables.batches import into_table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def to_delta(
    location: str,
    *,
    keys: Sequence[str] = (),
    order: str = "",
    app: str = "",
    storage_options: Mapping[str, str] | None = None,
) -> "Callable[[DataFrame, int], None]":
    """Return a function for `df.writeStream.foreachBatch(...)` that puts each batch into a Delta table, once.

    The table is made by the first batch; new columns are added to it.

    Args:
        location: directory or URL of the table.
        keys: columns that identify a row, null as any other value: its newest row replaces the one that is there. None: rows are
            appended.
        order: with keys, the column whose greatest value tells the newest row of a key within a batch; null is less than any.
        app: whose batches these are, in Delta's words the appId; "": the query's id. A new checkpoint needs a new one.
        storage_options: of deltalake, for S3 and others.

    Raises:
        ImportError: deltalake is not installed. In a batch: TableError, IdentityError, and errors of deltalake.
    """
    _delta()
    options = dict(storage_options or {})
    return into_table(location, lambda: _DeltaBatch(location, options), list(keys), order, app)


def _delta() -> Any:
    try:
        import deltalake  # noqa: PLC0415 - only where a table is written
    except ImportError:
        raise ImportError("Delta tables need deltalake: pip install deltalake") from None
    return deltalake


class _DeltaBatch:
    def __init__(self, location: str, storage_options: dict[str, str]) -> None:
        self._location = location
        self._options = storage_options
        delta = _delta()
        there = delta.DeltaTable.is_deltatable(location, storage_options)
        self._table = delta.DeltaTable(location, storage_options=storage_options) if there else None

    def noted(self, name: str) -> int | None:
        version = self._table.transaction_version(name) if self._table is not None else None
        return None if version is None else int(version)

    def put(self, rows: "pa.Table", notes: Mapping[str, int], keys: Sequence[str]) -> None:
        delta = _delta()
        commit = delta.CommitProperties(app_transactions=[delta.Transaction(*note) for note in notes.items()])
        if self._table is None or not keys:
            delta.write_deltalake(
                self._table or self._location,
                rows,
                mode="append",
                schema_mode="merge" if self._table is not None else None,
                storage_options=self._options,
                commit_properties=commit,
            )
            return
        same = " AND ".join(f'new."{key}" IS NOT DISTINCT FROM old."{key}"' for key in keys)  # null is equal to null
        merge = self._table.merge(
            rows, same, source_alias="new", target_alias="old", merge_schema=True, commit_properties=commit
        )
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
