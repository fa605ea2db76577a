"""Reads and checks the options of the sink, together with the columns of the rows to be written.

As in pyspark_stan.options, all mistakes are reported together, with the option's name. Needs no broker.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
)
from stan_protocol.channels import is_channel_name
from stan_protocol.declared_options import filled, option
from stan_protocol.scalars import KiB, MiB

from pyspark_stan.options import ConnectionOptions, OptionReader

Delivery = Literal["transactional", "idempotent", "at-least-once"]
OnError = Literal["fail", "skip", "deadLetter"]

DELIVERIES: Final[tuple[Delivery, ...]] = ("transactional", "idempotent", "at-least-once")
DEAD_LETTER: Final = "deadletter:"
VERSION_MAX: Final = (1 << 63) - 1
ROWS_PER_REQUEST_MAX: Final = 100_000
REQUEST_BYTES_MAX: Final = 8 * MiB
"""Largest batchBytes; the broker accepts 32 MiB in one request, counted as messages with the name of their channel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The sink's options, checked."""

    connection: ConnectionOptions
    channel: str  # empty: each row has its channel in the column `channel`
    delivery: Delivery
    app: str = option("txnAppId", "")  # empty: the query's id
    version: int | None  # None: the batch's id
    id_column: str  # empty: ids come from the content
    in_flight_max: int = option("maxInFlight", 64, 1, 4096)
    batch_rows: int = option("batchRows", 10_000, 1, ROWS_PER_REQUEST_MAX)
    batch_bytes: int = option("batchBytes", 1 * MiB, 1 * KiB, REQUEST_BYTES_MAX)
    patience_s: float  # time that all attempts of one request may take together
    retries: int  # of a request with delivery at-least-once, which may be stored twice; 0 with the other deliveries
    on_error: OnError
    dead_letter: str  # channel for rows that cannot be published
    include_headers: bool = option("includeHeaders", False)
    include_key: bool = option("includeKey", False)
    include_reply: bool = option("includeReply", False)
    include_partition: bool = option("includePartition", False)


def sink_options(
    options: Mapping[str, str],
    schema: StructType | None,
    kind: Literal["batch", "stream", "any"] = "any",
    *,
    overwrite: bool = False,
) -> SinkOptions:
    """Return the checked options of a write.

    Args:
        options: as the user has given them.
        schema: schema of the rows; None if it is not known yet.
        kind: of write; "any" if it is not known yet.
        overwrite: Spark's flag for mode overwrite, which a stream in complete mode sets, too.

    Raises:
        OptionsError: has all mistakes in *options* and *schema*.
    """
    reader = OptionReader(options)
    connection = reader.connection()
    delivery = reader.choice("delivery", DELIVERIES, DELIVERIES[0])
    on_error, dead_letter = _on_error(reader)
    retries = reader.number("publish.numRetries", 5, 0, 1000)
    patience_s = reader.number("ackTimeoutMs", 30_000, 1) / 1000
    tries = 1 + retries if delivery == "at-least-once" else 1  # in the other modes the client itself repeats requests
    checked = filled(
        SinkOptions,
        reader,
        connection=replace(connection, timeout_s=patience_s / tries),
        channel=_channel(reader),
        delivery=next(each for each in DELIVERIES if each == delivery),
        version=reader.number("txnVersion", 0, 0, VERSION_MAX) if reader.given("txnVersion") else None,
        id_column=_id_column(reader, schema, delivery),
        patience_s=patience_s,
        retries=tries - 1,
        on_error=on_error,
        dead_letter=dead_letter,
    )
    if reader.given("txnVersion") and kind == "stream":
        reader.complain("txnVersion: a stream has many versions, which its batch ids are; for saves of your own only")
    if delivery == "at-least-once":
        for name in ("txnAppId", "txnVersion"):
            if reader.given(name):
                reader.complain(f"{name}: without effect for delivery 'at-least-once'")
    if overwrite and kind == "batch":
        reader.complain("mode 'overwrite': a channel only grows; use mode 'append'")
    if schema is not None:
        _check_columns(reader, checked, schema)
    reader.finish()
    return checked


def _channel(reader: OptionReader) -> str:
    """Return the option `channel`, or the path given to start() or save()."""
    channel, path = reader.text("channel"), reader.text("path")
    if channel and path and channel != path:
        reader.complain(f"channel: {channel!r}, but start(path) or save(path) says {path!r}")
    channel = channel or path
    if channel and not is_channel_name(channel.encode()):
        reader.complain(f"channel: {channel!r} is no channel's name")
    return channel


def _on_error(reader: OptionReader) -> tuple[OnError, str]:
    value = reader.text("onError", "fail")
    if value.lower() == "fail":
        return "fail", ""
    if value.lower() == "skip":
        return "skip", ""
    channel = value[len(DEAD_LETTER) :] if value.lower().startswith(DEAD_LETTER) else ""
    if not channel:
        reader.complain(f"onError: {value!r} is not one of fail, skip, deadLetter:<channel>")
    elif not is_channel_name(channel.encode()):
        reader.complain(f"onError: {channel!r} is no channel's name")
    return "deadLetter", channel


def _id_column(reader: OptionReader, schema: StructType | None, delivery: str) -> str:
    """Return the column of ids for delivery idempotent: the one that the option names, else `id` if there is such a column."""
    if reader.given("idColumn") and delivery != "idempotent":
        reader.complain(f"idColumn: goes with delivery 'idempotent', not with {delivery!r}")
    if delivery != "idempotent" or schema is None:
        return ""
    name = reader.text("idColumn")
    if name and name not in schema.names:
        reader.complain(f"idColumn: there is no column {name!r} among {', '.join(schema.names)}")
        return ""
    return name or ("id" if "id" in schema.names else "")


_TEXT: Final = (BinaryType, StringType)
_NUMBER: Final = (LongType, IntegerType)


def _check_columns(reader: OptionReader, options: SinkOptions, schema: StructType) -> None:
    """Complain about columns that are missing or of a wrong type."""
    _check_column(reader, schema, "value", _TEXT, "binary or string", "value: a column of this name is required")
    if not options.channel:
        missing = "channel: neither the option nor a column of this name says where to publish"
        _check_column(reader, schema, "channel", (StringType,), "string", missing)
    if options.include_reply:
        _check_column(reader, schema, "reply", _TEXT, "string or binary", "includeReply: there is no column reply")
    if options.include_partition:
        missing = "includePartition: there is no column partition"
        _check_column(reader, schema, "partition", _NUMBER, "int or long", missing)
    elif "partition" in schema.names and not reader.given("includePartition"):
        reader.complain(
            "partition: a column of this name, which is not written: includePartition=true puts each row into that part of its "
            "channel, false does without it"
        )
    kinds = (*_TEXT, *_NUMBER)
    if options.include_key:
        _check_column(reader, schema, "key", kinds, "binary, string, long or int", "includeKey: there is no column key")
    if options.id_column:
        _check_column(reader, schema, options.id_column, kinds, "binary, string, long or int", "")
    if options.include_headers:
        if "headers" not in schema.names:
            reader.complain("includeHeaders: there is no column headers")
        elif not _are_headers(schema["headers"].dataType):
            reader.complain("headers: the column is not array<struct<key:string,value:binary>>")


def _check_column(
    reader: OptionReader,
    schema: StructType,
    name: str,
    kinds: tuple[type[DataType], ...],
    expected: str,
    missing: str,
) -> None:
    if name not in schema.names:
        reader.complain(missing)
    elif not isinstance(schema[name].dataType, kinds):
        reader.complain(f"{name}: the column is {schema[name].dataType.simpleString()}, not {expected}")


def _are_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    pair = kind.elementType
    return (
        sorted(pair.names) == ["key", "value"]
        and isinstance(pair["key"].dataType, StringType)
        and isinstance(pair["value"].dataType, BinaryType)
    )
