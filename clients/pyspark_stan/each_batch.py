"""A function for `foreachBatch`: the sink where Spark does not accept a sink written in Python, above all in update mode.

Promises what the sink promises, with the same delivery modes, under an identity made of the query's id and the batch's id. Two
saves of one batch under one identity are an error, on whichever executors they run.
"""

from typing import TYPE_CHECKING

from pyspark_stan.identity import QUERY_ID, RUN_ID, Identity, IdentityError, only_save
from pyspark_stan.sink_options import sink_options

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
    said = {name: _text(value) for name, value in {**(options or {}), **more}.items()}
    checked = sink_options(said, None, "stream")

    def write(frame: "DataFrame", batch_id: int) -> None:
        writer = frame.write.format("stan").options(**said).mode("append")
        if checked.delivery == "at-least-once":
            writer.save()
            return
        property_of = frame.sparkSession.sparkContext.getLocalProperty
        identity = Identity(checked.app or _app(property_of(QUERY_ID), checked.channel), batch_id)
        with only_save(identity, property_of(RUN_ID)):
            writer.options(txnAppId=identity.app, txnVersion=str(identity.version)).save()

    return write


def _app(query: str | None, channel: str) -> str:
    """Return the query's id with the channel, which distinguishes this save from another save of the same batch."""
    if not query:
        raise IdentityError("txnAppId: needed where Spark does not tell the query's id (a thread of your own)")
    return f"{query}/{channel or '*'}"


def _text(value: OptionValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
