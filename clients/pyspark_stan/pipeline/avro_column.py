"""Avro messages as a column of Spark: read by fastavro, a batch of rows at a time, handed over as Arrow."""

import json
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructType

from pyspark_stan.pipeline.avro import reader_of
from pyspark_stan.pipeline.payload import MALFORMED


def avro_column(value: Column, schema: str, columns: str) -> Column:
    """The records in *value*: *columns* and MALFORMED, which is null for a message that could be read.

    Args:
        value: binary.
        schema: of Avro, as JSON.
        columns: what comes of it, in Spark's words.
    """
    reader_of(json.loads(schema))  # a schema that fastavro refuses is refused before anything runs
    kind = StructType.fromDDL(f"{columns}, {MALFORMED} string")
    arrow = to_arrow_type(kind, timezone="UTC")

    def records(messages: pa.Array) -> pa.Array:
        read = reader_of(json.loads(schema))
        found = []
        for message in messages.to_pylist():
            try:
                found.append({**read(message), MALFORMED: None})
            except Exception as error:  # noqa: BLE001 - whatever bytes from outside may lead to
                found.append({MALFORMED: str(error) or type(error).__name__})
        return pa.array(found, arrow)

    as_udf: Any = arrow_udf  # its type knows no function of structs
    column: Column = as_udf(records, kind)(value)
    return column
