"""A function for `foreachBatch`: the sink where Spark does not accept a sink written in Python, above all in update mode.

Promises what the sink promises, with the same delivery modes, under an identity made of the query's id and the batch's id. Two
saves of one batch under one identity are an error, on whichever executors they run. Spark Connect runs the function on the server
without a query's id, so there `txnAppId` must be given, and a batch older than the newest one of that name is an error.
"""

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
        app, run = _query_of(frame, checked, batch_id)
        identity = Identity(app, batch_id)
        with only_save(identity, new_save(run)):
            writer.options(txnAppId=identity.app, txnVersion=str(identity.version)).save()

    return write


def _query_of(frame: "DataFrame", options: SinkOptions, batch_id: int) -> tuple[str, str | None]:
    """Return the app under which the batch is written, and an id of this run of the query.

    Raises:
        IdentityError: there is no app, or on Spark Connect it has a newer batch. Others as of the request for the newest batch.
    """
    session: Any = frame.sparkSession  # of Spark Connect, perhaps
    context = getattr(session, "sparkContext", None)
    if context is not None:
        property_of = context.getLocalProperty
        return options.app or _app(property_of(QUERY_ID), options.channel), property_of(RUN_ID)
    if not options.app:
        raise IdentityError("txnAppId: needed on Spark Connect, which does not tell the query's id")
    _refuse_old(options, batch_id)
    return options.app, session.session_id


def _app(query: str | None, channel: str) -> str:
    """Return the query's id with the channel, which distinguishes this save from another save of the same batch."""
    if not query:
        raise IdentityError("txnAppId: needed where Spark does not tell the query's id (a thread of your own)")
    return f"{query}/{channel or '*'}"


def _refuse_old(options: SinkOptions, batch_id: int) -> None:
    """Refuse a batch older than the app's newest one: Spark repeats the newest one at most, so it is another query's, which would
    be lost as a repetition."""
    from pyspark_stan import transport  # noqa: PLC0415 - only in the process that runs the batches

    newest = transport.with_reconnect(options.connection, methodcaller("last_committed", options.app))
    if batch_id < newest:
        raise IdentityError(
            f"batch {batch_id} of '{options.app}' comes after its batch {newest}: does the query have a new checkpoint? "
            "Then give it a txnAppId of its own"
        )


def _text(value: OptionValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
