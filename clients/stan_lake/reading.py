"""Reads ranges of sequences from the files of a table, as Arrow record batches, in order.

Rows that were deleted, or have expired, are left out, though they may still lie in the files.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from stan_lake.columns import MICROSECONDS, SCHEMA, opened_file
from stan_lake.errors import naming
from stan_lake.manifest import DataFile, Run, TableManifest, within
from stan_lake.store import Store
from stan_lake.table import LakeTable

BATCH_ROWS: Final = 1 << 16


def read_file(
    store: Store,
    path: str,
    file: DataFile,
    first: int,
    end: int,
    columns: Sequence[str],
    *,
    deleted: Sequence[Run] = (),
    now_ns: int = 0,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file with sequences of [first, end).

    Args:
        store: of the lake.
        path: of the file, in the store.
        file: its entry in the manifest.
        first: sequence.
        end: sequence after the last one.
        columns: names, in any order, not empty; batches have them in this order.
        deleted: runs that are left out.
        now_ns: Unix ns; messages that have expired by then are left out.

    Raises:
        LakeError, OSError: it cannot be read.
    """
    excluded = within(deleted, max(first, file.first), min(end - 1, file.last))
    expires = 0 < file.expires_at_ns <= now_ns
    complete = first <= file.first and end > file.last and not excluded and not expires
    names = list(dict.fromkeys([*columns, *(() if complete else ("sequence",)), *(("expires_at",) if expires else ())]))
    with naming(store.location(path)), opened_file(store.opened(path)) as parquet:
        _check(parquet, file, names)
        groups = [*(range(parquet.num_row_groups) if complete else _groups(parquet, first, end))]
        missing = _rows(parquet, groups)
        for batch in parquet.iter_batches(BATCH_ROWS, row_groups=groups, columns=names):
            missing -= batch.num_rows
            rows = batch if complete else _cut(batch, first, end, excluded)
            if expires:
                rows = _unexpired(rows, now_ns)
            if rows.num_rows:
                yield rows.select(list(columns))
        if missing:
            raise ValueError(f"it lacks {missing} messages")


def _check(opened: pq.ParquetFile, file: DataFile, names: Sequence[str]) -> None:
    """Raise ValueError if a file has not what the manifest says: a Parquet file has no checksum of its own description."""
    rows = _rows(opened, range(opened.num_row_groups))
    if rows != file.rows:
        raise ValueError(f"it has {rows} messages, not {file.rows}")
    for name in names:
        kind, expected = opened.schema_arrow.field(name).type, SCHEMA.field(name).type
        if kind != expected:
            raise ValueError(f"its column {name} is {kind}, not {expected}")


def _rows(opened: pq.ParquetFile, groups: Iterable[int]) -> int:
    return sum(opened.metadata.row_group(number).num_rows for number in groups)


def _groups(opened: pq.ParquetFile, first: int, end: int) -> Iterator[int]:
    """Return the row groups with sequences of [first, end), by their statistics."""
    place = opened.schema_arrow.get_field_index("sequence")
    for number in range(opened.num_row_groups):
        statistics = opened.metadata.row_group(number).column(place).statistics
        if statistics is None or not statistics.has_min_max or (statistics.min < end and statistics.max >= first):
            yield number


def _cut(batch: pa.RecordBatch, first: int, end: int, excluded: Sequence[Run]) -> pa.RecordBatch:
    """Return the rows with sequences of [first, end) outside of *excluded*."""
    sequences = batch.column("sequence")
    if not batch.num_rows:
        return batch
    low, high = (bisect_left(sequences, bound, key=lambda one: one.as_py()) for bound in (first, end))
    rows = batch.slice(low, high - low)
    if not excluded or not rows.num_rows:
        return rows
    keep: Any = pa.repeat(pa.scalar(True), rows.num_rows)  # noqa: FBT003 - pyarrow's
    column = rows.column("sequence")
    for begin, last in within(excluded, column[0].as_py(), column[-1].as_py()):
        inside = pa.compute.and_(pa.compute.greater_equal(column, begin), pa.compute.less_equal(column, last))
        keep = pa.compute.and_not(keep, inside)
    return rows.filter(keep)


def _unexpired(batch: pa.RecordBatch, now_ns: int) -> pa.RecordBatch:
    now = pa.scalar(now_ns // 1000, pa.int64()).cast(MICROSECONDS)
    alive = pa.compute.greater(batch.column("expires_at"), now)
    return batch.filter(pa.compute.fill_null(alive, fill_value=True))


def sequence_at(table: LakeTable, manifest: TableManifest, time_ns: int) -> int:
    """Return the sequence of the first message at or after a time (Unix ns, of which the files have microseconds); `next` of the
    manifest if there is none."""
    micros = time_ns // 1000
    for file in manifest.files:
        if file.last_time_ns // 1000 < micros:
            continue
        path = table.path(file.name)
        for batch in read_file(table.store, path, file, file.first, file.last + 1, ("sequence", "timestamp")):
            later = pa.compute.greater_equal(batch.column("timestamp").cast(pa.int64()), micros)
            place = pa.compute.index(later, pa.scalar(True)).as_py()  # noqa: FBT003 - pyarrow's
            if place >= 0:
                return int(batch.column("sequence")[place].as_py())
    return manifest.next
