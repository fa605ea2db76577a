"""Columns of messages decoded by a schema, and of rows encoded by one, in batches that Spark exchanges as Arrow."""

import json
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql import types as T  # noqa: N812 - as everybody calls it
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type

from pyspark_stan.payloads.schema import MALFORMED, PayloadSchema
from pyspark_stan.payloads.types import ColumnType
from pyspark_stan.payloads.values import fitting_fields

_SIMPLE: Final[Mapping[str, T.DataType]] = {
    "string": T.StringType(),
    "binary": T.BinaryType(),
    "boolean": T.BooleanType(),
    "tinyint": T.ByteType(),
    "smallint": T.ShortType(),
    "int": T.IntegerType(),
    "bigint": T.LongType(),
    "float": T.FloatType(),
    "double": T.DoubleType(),
    "date": T.DateType(),
    "timestamp": T.TimestampType(),
    "timestamp_ntz": T.TimestampNTZType(),
}


def data_type(kind: ColumnType) -> T.DataType:
    """Return *kind* as an object of Spark's."""
    match kind.name:
        case "array":
            return T.ArrayType(data_type(kind.parts[0]))
        case "map":
            return T.MapType(data_type(kind.parts[0]), data_type(kind.parts[1]))
        case "struct":
            return T.StructType([T.StructField(name, data_type(part)) for name, part in kind.fields().items()])
    if kind.name.startswith("decimal"):
        digits, scale = kind.name.removeprefix("decimal(").removesuffix(")").split(",")
        return T.DecimalType(int(digits), int(scale))
    return _SIMPLE[kind.name]


def decoded(value: Column, schema: PayloadSchema, columns: Mapping[str, ColumnType]) -> Column:
    """Return a struct column of *columns* and MALFORMED, which is null for a message that could be decoded.

    Args:
        value: a binary column of messages.
        schema: by which they are written.
        columns: of the schema, all or some.

    Raises:
        ImportError: Avro needs fastavro. ValueError: the schema cannot be used.
    """
    schema.reader()  # so that a schema that cannot be used is refused before the query runs
    kind = T.StructType([T.StructField(name, data_type(of)) for name, of in columns.items()]).add(MALFORMED, "string")
    arrow = to_arrow_type(kind, timezone="UTC")

    def records(messages: pa.Array) -> pa.Array:
        read, fit = schema.reader(), fitting_fields(columns)
        rows = []
        for message in messages.to_pylist():
            try:
                rows.append({**fit(read(message)), MALFORMED: None})
            except Exception as error:  # noqa: BLE001 - malformed bytes may raise any exception
                rows.append({MALFORMED: str(error) or type(error).__name__})
        return pa.array(rows, arrow)

    as_udf: Any = arrow_udf  # its type hints do not allow a function that returns structs
    column: Column = as_udf(records, kind)(value)
    return column


def from_protobuf(value: Column | str, message: str, descriptors: bytes | str | Path) -> Column:
    """Return protobuf messages as a column of structs; null for bytes that are no such message.

    Args:
        value: a binary column, or its name.
        message: the full name of the message, as `shop.Order`.
        descriptors: a FileDescriptorSet as `protoc --include_imports -o` writes it, or the file with it.

    Raises:
        ValueError: the message is not there, or contains itself. OSError: the file cannot be read.
    """
    text = descriptors if isinstance(descriptors, bytes) else Path(descriptors).read_bytes()
    return _only_good(value, PayloadSchema("protobuf", text, message))


def from_avro(value: Column | str, schema: str) -> Column:
    """Return Avro data, each one datum without a header, as a column of structs; null for bytes that are no such record.

    Args:
        value: a binary column, or its name.
        schema: of a record, in JSON.

    Raises:
        ValueError: it is no schema, or has types that Spark does not have. ImportError: fastavro is not installed.
    """
    return _only_good(value, PayloadSchema("avro", schema.encode()))


def _only_good(value: Column | str, schema: PayloadSchema) -> Column:
    columns = schema.columns()
    row = decoded(F.col(value) if isinstance(value, str) else value, schema, columns)
    fields = F.struct(*(row.getField(name).alias(name) for name in columns))
    return F.when(row.getField(MALFORMED).isNull(), fields)


def to_avro(value: Column | str, schema: str) -> Column:
    """Return a column of structs as Avro data, each one datum without a header; a row that does not fit *schema* is an error.

    Args:
        value: a column of structs with the fields of the record, or its name.
        schema: of a record, in JSON.

    Raises:
        ValueError: it is no schema. ImportError: fastavro is not installed.
    """
    PayloadSchema("avro", schema.encode()).reader()

    def written(rows: pa.Array) -> pa.Array:
        import fastavro  # noqa: PLC0415 - in the worker

        parsed = fastavro.parse_schema(json.loads(schema))
        encoded = []
        for row in _plain(rows):
            out = BytesIO()
            fastavro.schemaless_writer(out, parsed, row)
            encoded.append(out.getvalue())
        return pa.array(encoded, pa.binary())

    as_udf: Any = arrow_udf
    column: Column = as_udf(written, T.BinaryType())(F.col(value) if isinstance(value, str) else value)
    return column


def _plain(rows: pa.Array) -> list[Any]:
    """Return Arrow's rows as Avro takes them: maps are dicts."""
    plain: list[Any] = rows.to_pylist(maps_as_pydicts="strict")
    return plain
