"""Positions of deleted rows within data files, for readers of Iceberg: position deletes of its format 2.

They are needed from a deletion on until the files are written again without these rows.
"""

import io
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import POSITIONAL_DELETE_SCHEMA, ManifestContent, ManifestWriterV2

from stan_lake.columns import opened_file
from stan_lake.manifest import Run

_SCHEMA: Final = schema_to_pyarrow(POSITIONAL_DELETE_SCHEMA)


class DeletesWriter(ManifestWriterV2):  # type: ignore[misc,unused-ignore]
    """Writes a manifest of files with position deletes; pyiceberg itself writes those of data files only."""

    def content(self) -> ManifestContent:
        """See ManifestWriter."""
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def positions(opened: Any, runs: Sequence[Run]) -> list[int]:
    """Return the positions of rows whose sequences are in *runs*; *opened*: a data file for pyarrow."""
    with opened_file(opened) as parquet:
        sequences = parquet.read(["sequence"])["sequence"]
    ends = [
        [bisect_left(sequences, end, key=lambda one: one.as_py()) for end in (first, last + 1)] for first, last in runs
    ]
    return [*chain.from_iterable(range(*pair) for pair in ends)]


def position_deletes(rows: Mapping[str, Sequence[int]]) -> tuple[int, bytes]:
    """Return a file of position deletes, behind their number. *rows*: positions by the location of a data file."""
    paths = sorted(rows)
    columns = [
        pa.array(chain.from_iterable([path] * len(rows[path]) for path in paths), pa.string()),
        pa.array(chain.from_iterable(rows[path] for path in paths), pa.int64()),
    ]
    table = pa.Table.from_arrays(columns, schema=_SCHEMA)
    out = io.BytesIO()
    pq.write_table(table, out, compression="zstd")
    return table.num_rows, out.getvalue()
