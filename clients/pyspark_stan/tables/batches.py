"""A function for `foreachBatch` that puts each batch into a table once: the common part of the formats of tables.

The table itself records the last batch of an app, and its query, in the same commit as the rows: a batch that Spark repeats
adds nothing, and a batch of another query under the same app is an error. A query is known by its id, which its checkpoint has.
Spark Connect does not give it: there the newest batch is known by its rows, and an older one is an error. A commit that another
one has overtaken is made again after a look at what the table records by then: so two drivers do not add a batch twice.

A batch passes through the driver's memory, in Arrow.
"""

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import pyarrow as pa

from pyspark_stan.errors import IdentityError
from pyspark_stan.tables.upserts import DELETES, Upserts, changes_of
from pyspark_stan.writing.identity import QUERY_ID, RUN_ID, Identity, new_save, only_save

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


NOTE_END: Final = 1 << 53
"""Numbers that a table notes are below this: whatever stores them, also as floating point, stores them exactly."""
COMMITS_MAX: Final = 20
"""Attempts to commit a batch: other commits may overtake all but the last one."""

OTHER_QUERY: Final = (
    "batch {batch} of '{app}' for {name} is of another query than batch {last}, which is there: it would be taken for a "
    "repetition and lost. Does the query have a new checkpoint? Then give it an app of its own, and its rows are added to those "
    "that are there; or remove the table, and the query fills it from its beginning"
)


class TargetTable(Protocol):
    """A table, opened for one batch."""

    conflicts: tuple[type[Exception], ...]
    """Errors of `prepare` and `put`: another commit came first, and nothing was changed."""

    def noted(self, name: str) -> int | None:
        """The number that is noted in the table under a name; None: none is."""

    def prepare(self, schema: pa.Schema, upserts: Upserts | None) -> bool:
        """Make the table and the columns that rows of *schema* need; False: there was something to do, so open the table again.

        Raises:
            TableError: the table does not have the keys.
        """

    def put(self, rows: pa.Table, notes: Mapping[str, int], upserts: Upserts | None) -> None:
        """Put *rows* into the table and note numbers, at least 0, by name, in one commit; with *upserts* a row replaces an older
        one, or deletes it if it has a true DELETES."""


class BatchWriter(NamedTuple):
    """The query that writes a batch."""

    app: str  # under which the table has its batches
    query: str  # its id; "": Spark does not give it
    run: str | None  # an id of this run


class Mark(NamedTuple):
    """A number, under a name, that distinguishes a batch from those of other queries."""

    name: str
    number: int


def into_table(
    name: str, opened: Callable[[], TargetTable], upserts: Upserts | None, app: str
) -> "Callable[[DataFrame, int], None]":
    """Return a function for `foreachBatch`.

    Args:
        name: of the table, for errors.
        opened: opens the table.
        upserts: says which row replaces which; None: rows are appended.
        app: whose batches these are; "": the query's id.
    """

    def write(frame: "DataFrame", batch: int) -> None:
        writer = _writer_of(frame, app)
        with only_save(Identity(f"{writer.app}/{name}", batch), new_save(writer.run)):
            rows = None if writer.query else _rows_of(frame, upserts)
            if rows is None:
                mark = Mark(f"{writer.app}/query", _number(writer.query.encode()))
            else:
                mark = Mark(f"{writer.app}/rows", _number_of(rows))
            changes = None
            for left in reversed(range(COMMITS_MAX)):
                table = opened()
                if _is_there(table, writer, batch, mark, name):
                    return
                if changes is None:
                    changes = _rows_of(frame, upserts) if rows is None else rows
                    changes = changes_of(changes, upserts, name) if upserts else changes
                try:
                    if table.prepare(changes.drop_columns([DELETES]).schema if upserts else changes.schema, upserts):
                        table.put(changes, {writer.app: batch, mark.name: mark.number}, upserts)
                        return
                except table.conflicts:
                    if not left:
                        raise

    return write


def _rows_of(frame: "DataFrame", upserts: Upserts | None) -> pa.Table:
    if upserts is not None and upserts.deletes:
        frame = frame.selectExpr("*", f"({upserts.deletes}) AS {DELETES}")
    rows = frame.toArrow()  # with times in the time zone of the session
    return rows.cast(pa.schema([field.with_type(_in_utc(field.type)) for field in rows.schema]))


def _in_utc(kind: pa.DataType) -> pa.DataType:
    """Return *kind* with times in UTC, the only zone that Iceberg has."""
    if pa.types.is_timestamp(kind) and kind.tz:
        return pa.timestamp(kind.unit, "UTC")
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_in_utc(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_in_utc(kind.value_type)))
    return kind


def _is_there(table: TargetTable, writer: BatchWriter, batch: int, mark: Mark, name: str) -> bool:
    """Return True if the table has the batch. Raises IdentityError: what it has is of another query."""
    last = table.noted(writer.app)
    if last is None:
        return False
    foreign = table.noted(mark.name) != mark.number and (writer.query or batch == last)
    if foreign or (batch < last and not writer.query):
        raise IdentityError(OTHER_QUERY.format(batch=batch, app=writer.app, name=name, last=last))
    return batch <= last


def _number_of(rows: pa.Table) -> int:
    """Return a number for *rows*, in any order: a batch that Spark repeats may have another one."""
    return sum(_number(repr(row).encode()) for row in rows.to_pylist()) % NOTE_END


def _number(text: bytes) -> int:
    """Return a number below NOTE_END for *text*."""
    return int.from_bytes(blake2b(text, digest_size=8).digest()) % NOTE_END


def _writer_of(frame: "DataFrame", app: str) -> BatchWriter:
    """Return the writer of a batch. Raises IdentityError: Spark does not give it, and there is no *app*."""
    session: Any = frame.sparkSession  # of Spark Connect, perhaps
    context = getattr(session, "sparkContext", None)
    query = (context.getLocalProperty(QUERY_ID) if context is not None else None) or ""
    if not (app or query):
        raise IdentityError(
            "app: needed where Spark does not tell the query's id (Spark Connect, a thread of your own)"
        )
    return BatchWriter(
        app or query, query, context.getLocalProperty(RUN_ID) if context is not None else session.session_id
    )
