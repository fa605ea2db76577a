"""Decodes a column of Avro messages with fastavro, in batches of rows that Spark exchanges as Arrow."""

import json
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructType

from pyspark_stan.payloads.avro import reader_of
from pyspark_stan.payloads.schema import MALFORMED


def avro_column(value: Column, schema: str, columns: str) -> Column:
    """Return a struct column of *columns* and MALFORMED, which is null for a message that could be decoded.

    Args:
        value: a binary column of messages.
        schema: the Avro schema, as JSON.
        columns: the columns of the schema, as a schema in Spark's DDL syntax.

    Raises:
        ImportError: fastavro is not installed.
    """
    reader_of(json.loads(schema))  # so that a schema that fastavro refuses is refused before the query runs
    kind = StructType.fromDDL(f"{columns}, {MALFORMED} string")
    arrow = to_arrow_type(kind, timezone="UTC")

    def records(messages: pa.Array) -> pa.Array:
        read = reader_of(json.loads(schema))
        found = []
        for message in messages.to_pylist():
            try:
                found.append({**read(message), MALFORMED: None})
            except Exception as error:  # noqa: BLE001 - malformed bytes may raise any exception in fastavro
                found.append({MALFORMED: str(error) or type(error).__name__})
        return pa.array(found, arrow)

    as_udf: Any = arrow_udf  # its type hints do not allow a function that returns structs
    column: Column = as_udf(records, kind)(value)
    return column
