"""The data frames of a pipeline: messages -> decode -> rows -> transform -> results -> encode -> messages.

Promises that a message which does not fit the payload's schema is handled as `payload.malformed` says; where it stops the
pipeline, the error names its channel and sequence.
"""

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from pyspark_stan.datasource import StanDataSource
from pyspark_stan.payloads.column import decoded, to_avro
from pyspark_stan.payloads.schema import MALFORMED
from pyspark_stan.payloads.types import ddl, parse_type, quoted
from pyspark_stan.pipeline.config import Pipeline, Sink, TableSink
from pyspark_stan.pipeline.payload import METADATA, Payload
from pyspark_stan.pipeline.queries import Query
from pyspark_stan.tables.delta import to_delta
from pyspark_stan.tables.iceberg import to_iceberg
from pyspark_stan.writing.each_batch import foreach_batch

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PASSED_ON = ("id", "headers", "reply", "key")
"""Columns beside `value` that the sink understands; results in raw form keep them."""
_JSON: Final = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSZZZZZ",  # Spark's own format cuts off microseconds
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


class FlowError(Exception):
    """The pipeline cannot be built as its file describes; the text says why."""


def start(spark: "SparkSession", pipeline: Pipeline) -> "StreamingQuery":
    """Start the pipeline's streaming query, which resumes from the checkpoint if there is one. Raises FlowError."""
    spark.dataSource.register(StanDataSource)
    reader = spark.readStream.format("stan").option("parallelism", spark.sparkContext.defaultParallelism)
    messages = {each.view: reader.options(**pipeline.source_options(each)).load() for each in pipeline.inputs}
    results = results_of(spark, pipeline, messages)
    writer = (
        (results if pipeline.sink.table else encode(results, pipeline.sink))
        .writeStream.queryName(pipeline.name)
        .outputMode(pipeline.sink.mode)
        .option("checkpointLocation", pipeline.checkpoint)
    )
    if pipeline.available_now:
        writer = writer.trigger(availableNow=True)
    elif pipeline.every:
        writer = writer.trigger(processingTime=pipeline.every)
    if pipeline.sink.table:
        return writer.foreachBatch(table_writer(pipeline.sink.table)).start()
    if pipeline.sink.mode == "update":  # Spark does not allow this mode for a sink written in Python
        return writer.foreachBatch(foreach_batch({**pipeline.sink_options()})).start()
    return writer.format("stan").options(**pipeline.sink_options()).start()


def table_writer(table: TableSink) -> "Callable[[DataFrame, int], None]":
    """Return the function that puts each batch into the table. Raises FlowError: a package for it is missing."""
    more: dict[str, Any] = {"keys": table.keys, "order": table.order, "deletes": table.deletes, "app": table.app}
    try:
        if table.format == "delta":
            return to_delta(table.name, **more)
        return to_iceberg(table.name, table.catalog, **more)
    except ImportError as error:
        raise FlowError(str(error)) from None


def results_of(spark: "SparkSession", pipeline: Pipeline, messages: Mapping[str, DataFrame]) -> DataFrame:
    """Return the results for data frames of messages, by their views, with the columns of the data source. Raises FlowError."""
    events = {}
    for each in pipeline.inputs:
        rows = decode(messages[each.view], each.payload)
        events[each.view] = rows.withWatermark(*each.watermark) if each.watermark else rows
    return transform(spark, pipeline.query, events)


# --- messages to rows -----------------------------------------------------------------------------------------------


def decode(messages: DataFrame, payload: Payload) -> DataFrame:
    """Decode *messages* into rows: the columns of the payload, then METADATA, then MALFORMED if malformed messages are kept."""
    if payload.format == "registered":  # the source has decoded them
        return messages
    whence = [F.col(name[1:]).alias(name) for name in METADATA]
    if payload.format == "raw":
        return messages.select("value", *whence)
    parsed = _parsed(payload)
    rows = messages.select(parsed.alias("parsed"), "value", *whence)
    wrong = F.col("parsed").isNull() | F.col(f"parsed.{MALFORMED}").isNotNull()
    if payload.malformed == "fail":
        place = F.concat(F.lit("message "), "_sequence", F.lit(" of channel "), "_channel")
        text = F.concat(place, F.lit(f" is not the {payload.format} that the payload's schema tells"))
        rows = rows.where(F.when(wrong, F.raise_error(text).cast("boolean")).otherwise(F.lit(True)))  # noqa: FBT003
    elif payload.malformed == "drop":
        rows = rows.where(~wrong)
    columns = [F.when(~wrong, F.col(f"parsed.{quoted(name)}")).alias(name) for name in payload.columns]
    malformed = [F.when(wrong, F.col("value")).alias(MALFORMED)] if payload.malformed == "keep" else []
    return rows.select(*columns, *(F.col(name) for name in METADATA), *malformed)


def _parsed(payload: Payload) -> "Column":
    """Return a struct column of the payload's columns and MALFORMED; MALFORMED is null if the message could be decoded. The
    struct itself may be null for a message that could not."""
    if payload.schema is not None:
        columns = {name: parse_type(kind) for name, kind in payload.columns.items()}
        return decoded(F.col("value"), payload.schema, columns)
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": MALFORMED}
    return F.from_json(F.col("value").cast("string"), f"{ddl(payload.columns)}, {MALFORMED} string", options)


# --- rows to results ------------------------------------------------------------------------------------------------


def transform(spark: "SparkSession", query: Query, events: Mapping[str, DataFrame]) -> DataFrame:
    """Run the query over the rows of all views. A function gets the only one, or each by its name.

    Raises:
        FlowError: the module has no such function, or the function does not return a data frame.
    """
    if query.sql:
        for view, rows in events.items():
            rows.createOrReplaceTempView(view)
        return spark.sql(query.sql)
    if query.script:
        spark.sparkContext.addPyFile(query.script)  # so that workers can import it as well
    module = importlib.import_module(Path(query.script).stem if query.script else query.module)
    function = getattr(module, query.function, None)
    if not callable(function):
        raise FlowError(f"query.function: {query.script or query.module} has no function {query.function!r}")
    results = function(*events.values()) if len(events) == 1 else function(**events)
    if not isinstance(results, DataFrame):
        raise FlowError(f"query.function: {query.function} returns {type(results).__name__}, and not a DataFrame")
    return results


# --- results to messages --------------------------------------------------------------------------------------------


def encode(results: DataFrame, sink: Sink) -> DataFrame:
    """Encode each result as one message in the column `value`, with the columns that the sink understands.

    Raises:
        FlowError: the sink publishes raw messages, and the results have no column `value`.
    """
    if sink.value == "raw":
        if "value" not in results.columns:
            raise FlowError(f"sink.value: raw messages need a column value; there are {', '.join(results.columns)}")
        return results.select("value", *(name for name in PASSED_ON if name in results.columns))
    value = to_avro(F.struct("*"), sink.avro) if sink.avro else F.to_json(F.struct("*"), _JSON)
    named = sink.more.get("idColumn", "")
    return results.select(value.alias("value"), *([named] if named in results.columns else []))
