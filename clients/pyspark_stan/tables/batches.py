"""A function for `foreachBatch` that puts each batch into a table once: what is common to the formats of tables.

The table itself says which batch of a query it has last, in the same commit as the rows: a batch that Spark repeats adds nothing.
A batch passes through the driver's memory, in Arrow.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from stan_client.errors import StanClientError

from pyspark_stan.writing.identity import QUERY_ID, RUN_ID, Identity, IdentityError, only_save

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


class TableError(StanClientError, ValueError):
    """Rows that cannot be put into the table."""


class TargetTable(Protocol):
    """A table, opened for one batch."""

    def last_batch(self, app: str) -> int:
        """The newest batch of *app* that is in the table; -1: none."""

    def put(self, rows: "pa.Table", app: str, batch: int, keys: Sequence[str]) -> None:
        """Add *rows* and note the batch, in one commit; with *keys* a row replaces the one with the same keys."""


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

    def write(frame: "DataFrame", batch: int) -> None:
        query, run = _query_of(frame, app)
        with only_save(Identity(f"{query}/{name}", batch), run):
            table = opened()
            if table.last_batch(query) >= batch:
                return
            rows = (_newest(frame, keys, order) if keys and order else frame).toArrow()
            if keys:
                _refuse_repeated(rows, keys, name)
            table.put(rows, query, batch, keys)

    return write


def _query_of(frame: "DataFrame", app: str) -> tuple[str, str | None]:
    """Return whose batches these are, and what tells this run from others. Raises IdentityError: Spark does not tell it."""
    session: Any = frame.sparkSession  # of Spark Connect, perhaps
    context = getattr(session, "sparkContext", None)
    query = app or (context.getLocalProperty(QUERY_ID) if context is not None else None)
    if not query:
        raise IdentityError(
            "app: needed where Spark does not tell the query's id (Spark Connect, a thread of your own)"
        )
    return query, context.getLocalProperty(RUN_ID) if context is not None else session.session_id


def _newest(frame: "DataFrame", keys: Sequence[str], order: str) -> "DataFrame":
    newest = frame.groupBy(*keys).agg(F.max_by(F.struct("*"), order).alias("newest"))
    return newest.select("newest.*")


def _refuse_repeated(rows: "pa.Table", keys: Sequence[str], name: str) -> None:
    if rows.num_rows != rows.group_by(list(keys)).aggregate([]).num_rows:
        raise TableError(
            f"stan: a batch has several rows with the same {', '.join(keys)} for {name}: order tells which is the newest"
        )
