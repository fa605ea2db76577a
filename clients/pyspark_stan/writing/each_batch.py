"""A function for `foreachBatch`: the sink where Spark does not accept a sink written in Python, above all in update mode.

Promises what the sink promises, with the same delivery modes, under an identity made of the query's id and the batch's id. Two
saves of one batch under one identity are an error, on whichever executors they run. Spark Connect runs the function on the server
without a query's id, so there `txnAppId` must be given. A batch older than the newest one of that name is an error there, and so
is a first batch with other rows than the one that is there.
"""

from contextlib import ExitStack
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from pyspark_stan.errors import IdentityError
from pyspark_stan.writing.identity import QUERY_ID, RUN_ID, Identity, new_save, only_save
from pyspark_stan.writing.sink_options import SinkOptions, sink_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

OptionValue = str | int | bool


def foreach_batch(
    options: dict[str, OptionValue] | None = None, /, **more: OptionValue
) -> "Callable[[DataFrame, int], None]":
    """Return a function for `df.writeStream.foreachBatch(...)` that writes each batch to the sink.

    Args:
        options: options of the sink; needed for those whose names contain a dot.
        more: options of the sink, by name: `foreach_batch(servers="nats://...", channel="totals")`.

    Raises:
        OptionsError: raised here, not in the first batch.
    """
    given = {name: _text(value) for name, value in {**(options or {}), **more}.items()}
    checked = sink_options(given, None, "stream")

    def write(frame: "DataFrame", batch_id: int) -> None:
        writer = frame.write.format("stan").options(**given).mode("append")
        if checked.delivery == "at-least-once":
            writer.save()
            return
        app, run = _query_of(frame, checked)
        identity = Identity(app, batch_id)
        with only_save(identity, new_save(run)), ExitStack() as after:
            if not _tells_queries(frame):
                after.callback(frame.unpersist)
                _refuse_other(frame, checked, batch_id)
            writer.options(txnAppId=identity.app, txnVersion=str(identity.version)).save()

    return write


def _tells_queries(frame: "DataFrame") -> bool:
    """Return False on Spark Connect."""
    return hasattr(frame.sparkSession, "sparkContext")


def _query_of(frame: "DataFrame", options: SinkOptions) -> tuple[str, str | None]:
    """Return the app under which the batch is written, and an id of this run of the query. Raises IdentityError: there is no
    app."""
    session: Any = frame.sparkSession  # of Spark Connect, perhaps
    if _tells_queries(frame):
        property_of = session.sparkContext.getLocalProperty
        return options.app or _app(property_of(QUERY_ID), options.channel), property_of(RUN_ID)
    if not options.app:
        raise IdentityError("txnAppId: needed on Spark Connect, which does not tell the query's id")
    return options.app, session.session_id


def _app(query: str | None, channel: str) -> str:
    """Return the query's id with the channel, which distinguishes this save from another save of the same batch."""
    if not query:
        raise IdentityError("txnAppId: needed where Spark does not tell the query's id (a thread of your own)")
    return f"{query}/{channel or '*'}"


def _refuse_other(frame: "DataFrame", options: SinkOptions, batch_id: int) -> None:
    """Refuse a batch of another query under the same app, which would be lost as a repetition: one that is older than the newest
    one, for Spark repeats the newest one at most; and a first batch whose rows are not those of the one that is there. These are
    known by a mark, which is an app of its own.

    Raises:
        IdentityError: it is another query's. Others as of the requests.
    """
    from pyspark_stan import transport  # noqa: PLC0415 - only in the process that runs the batches

    def ask(name: str, *arguments: Any) -> Any:
        return transport.with_reconnect(options.connection, methodcaller(name, *arguments))

    newest = ask("last_committed", options.app)
    if batch_id == 0 and newest <= 0:
        mark = f"{options.app}/{_content(frame)}"
        if newest < 0:
            ask("commit", mark, 0, {})
            return
        if ask("last_committed", mark) == 0:
            return
    elif batch_id >= newest:
        return
    raise IdentityError(
        f"batch {batch_id} of '{options.app}' is another one than its batch {newest}, or comes after it: does the query have a "
        "new checkpoint? Then give it a txnAppId of its own"
    )


def _content(frame: "DataFrame") -> str:
    """Return a text for the rows of a batch, in any order. They are cached: a query with state runs once for each batch."""
    (row,) = frame.persist().selectExpr("count(*)", "sum(CAST(xxhash64(to_json(struct(*))) AS decimal(20)))").collect()
    return "-".join(map(str, row))


def _text(value: OptionValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
