"""Removes messages from a table: hides them by one commit, then rewrites their files without them.

Used by the tierer, for messages purged and deleted in the broker, and by hand (`delete`), for messages unknown to the broker.
Promises: from the first commit on no reader of ours sees a removed message; whatever dies, a repetition does the rest;
`next` stays, so that nothing comes into the lake a second time; messages outside of the runs stay.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import pyarrow as pa

from stan_lake.columns import SCHEMA, bounds, parquet
from stan_lake.manifest import DataFile, Replaced, Run, TableManifest, merged, within, without
from stan_lake.reading import read_file
from stan_lake.table import REPLACED_KEPT_S, LakeTable

AT_ONCE: Final = -(1 << 60)
"""Seconds for which replaced files stay, whatever the clock says."""


class Deleted(NamedTuple):
    """The result of `delete`."""

    messages: int  # that are not in the lake any more
    files: int  # that were replaced, or are gone


def hidden(before: TableManifest, runs: Sequence[Run], now_s: int) -> TableManifest:
    """Return the manifest without the messages of *runs* (merged ones): whole files are gone, of others the sequences are named.
    *before* itself if it has none of them."""
    gone = {file for file in before.files if within(runs, file.first, file.last) == [(file.first, file.last)]}
    left = tuple(file for file in before.files if file not in gone)
    named = [run for file in left for run in within(runs, file.first, file.last)]
    outside = before.deleted
    for file in gone:
        outside = without(outside, file.first, file.last)
    deleted = merged([*outside, *named])
    if not gone and deleted == before.deleted:
        return before
    replaced = [Replaced(name=file.name, at_s=now_s) for file in before.files if file in gone]
    return replace(before, files=left, deleted=deleted, replaced=(*before.replaced, *replaced))


def written(table: LakeTable, before: TableManifest, rows: pa.Table) -> DataFile:
    """Write a file with *rows*, for the manifest after *before*."""
    limits = bounds(rows)
    name = table.file_name(before, limits["first"], limits["last"])
    data = parquet(rows)
    table.write(name, data)
    return DataFile(name=name, bytes=len(data), **limits)


def rewritten(table: LakeTable, before: TableManifest, files: Sequence[DataFile], now_s: int) -> TableManifest:
    """Rewrite adjacent files as one, without deleted and expired messages; returns the committed manifest."""
    batches = [
        batch.cast(SCHEMA)
        for file in files
        for batch in read_file(
            table.store,
            table.path(file.name),
            file,
            file.first,
            file.last + 1,
            SCHEMA.names,
            deleted=before.deleted,
            now_ns=now_s * 1_000_000_000,
        )
    ]
    rows = pa.Table.from_batches(batches, SCHEMA)
    new = (written(table, before, rows),) if rows.num_rows else ()
    place = before.files.index(files[0])
    return table.commit(
        replace(
            before,
            files=(*before.files[:place], *new, *before.files[place + len(files) :]),
            deleted=without(before.deleted, files[0].first, files[-1].last),
            replaced=(*before.replaced, *(Replaced(name=file.name, at_s=now_s) for file in files)),
        ),
        now_s,
    )


def delete(table: LakeTable, runs: Sequence[Run], now_s: int, *, at_once: bool = False) -> Deleted:
    """Delete messages from a table, as its only writer; a tierer that runs goes on afterwards.

    Args:
        table: of the channel.
        runs: of sequences; those that the lake has not, or not yet, are left out.
        now_s: Unix seconds.
        at_once: remove the files that had them now, not after an hour; queries that have begun fail then.

    Raises:
        LakeError, OSError: it was not completed; TakenOverError: a tierer was started meanwhile. Readers see no half of it
            in any case, and a repetition does the rest.
    """
    manifest = table.take_over()
    rows, known = _rows(manifest), {file.name for file in manifest.files}
    changed = hidden(manifest, within(merged(runs), 1, manifest.next - 1), now_s)
    if changed is not manifest:
        manifest = table.commit(changed, now_s)
    for file in manifest.files:
        if within(manifest.deleted, file.first, file.last):
            manifest = rewritten(table, manifest, [file], now_s)
    manifest = table.drop_replaced(manifest, now_s, AT_ONCE if at_once else REPLACED_KEPT_S)
    table.release(manifest)
    return Deleted(rows - _rows(manifest), len(known - {file.name for file in manifest.files}))


def drop(table: LakeTable) -> int:
    """Remove a table with all of its files, at once; returns how many messages it had. Only of a channel that is gone
    from the broker: else it comes into the lake again. Raises as `delete`."""
    manifest = table.manifest()
    deleted = delete(table, [(1, manifest.next)], 0, at_once=True)
    table.remove()
    return deleted.messages


def _rows(manifest: TableManifest) -> int:
    return sum(file.rows for file in manifest.files)
