"""A function for `foreachBatch` that puts each batch into a table once: the common part of the formats of tables.

The table itself records the last batch of an app, and its query, in the same commit as the rows: a batch that Spark repeats
adds nothing, and a batch of another query under the same app is an error. A query is known by its id, which its checkpoint has.
Spark Connect does not give it: there the newest batch is known by its rows, and an older one is an error.

A batch passes through the driver's memory, in Arrow.
"""

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from pyspark_stan.errors import IdentityError, TableError
from pyspark_stan.writing.identity import QUERY_ID, RUN_ID, Identity, new_save, only_save

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


NOTE_END: Final = 1 << 53
"""Numbers that a table notes are below this: whatever stores them, also as floating point, stores them exactly."""

OTHER_QUERY: Final = (
    "batch {batch} of '{app}' for {name} is of another query than batch {last}, which is there: it would be taken for a "
    "repetition and lost. Does the query have a new checkpoint? Then give it an app of its own"
)


class TargetTable(Protocol):
    """A table, opened for one batch."""

    def noted(self, name: str) -> int | None:
        """The number that is noted in the table under a name; None: none is."""

    def put(self, rows: "pa.Table", notes: Mapping[str, int], keys: Sequence[str]) -> None:
        """Add *rows* and note numbers, at least 0, by name, in one commit; with *keys* a row replaces the one with the same
        keys."""


class BatchWriter(NamedTuple):
    """The query that writes a batch."""

    app: str  # under which the table has its batches
    query: str  # its id; "": Spark does not give it
    run: str | None  # an id of this run


def into_table(
    name: str, opened: Callable[[], TargetTable], keys: Sequence[str], order: str, app: str
) -> "Callable[[DataFrame, int], None]":
    """Return a function for `foreachBatch`.

    Args:
        name: of the table, for errors.
        opened: opens the table, once for each batch.
        keys: columns that identify a row; none: rows are appended.
        order: with keys, the column whose greatest value tells which row of a key is the newest in a batch; "": a batch has each
            key once.
        app: whose batches these are; "": the query's id.
    """

    def rows_of(frame: "DataFrame") -> "pa.Table":
        rows = (_newest(frame, keys, order) if keys and order else frame).toArrow()
        if keys:
            _refuse_repeated(rows, keys, name)
        return rows

    def write(frame: "DataFrame", batch: int) -> None:
        writer = _writer_of(frame, app)
        with only_save(Identity(f"{writer.app}/{name}", batch), new_save(writer.run)):
            table = opened()
            rows = None if writer.query else rows_of(frame)
            if rows is None:
                mark, number = f"{writer.app}/query", _number(writer.query.encode())
            else:
                mark, number = f"{writer.app}/rows", _number_of(rows)
            last, known = table.noted(writer.app), table.noted(mark)
            if last is not None:
                foreign = known != number and (writer.query or batch == last)
                if foreign or (batch < last and not writer.query):
                    raise IdentityError(OTHER_QUERY.format(batch=batch, app=writer.app, name=name, last=last))
                if batch <= last:
                    return
            table.put(rows_of(frame) if rows is None else rows, {writer.app: batch, mark: number}, keys)

    return write


def _number_of(rows: "pa.Table") -> int:
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


def _newest(frame: "DataFrame", keys: Sequence[str], order: str) -> "DataFrame":
    """Return of each key the row with the greatest *order*; null is less than any value."""
    newest = frame.groupBy(*keys).agg(F.max_by(F.struct("*"), F.struct(order)).alias("newest"))
    return newest.select("newest.*")


def _refuse_repeated(rows: "pa.Table", keys: Sequence[str], name: str) -> None:
    if rows.num_rows != rows.group_by(list(keys)).aggregate([]).num_rows:
        raise TableError(
            f"stan: a batch has several rows with the same {', '.join(keys)} for {name}: order tells which is the newest"
        )
