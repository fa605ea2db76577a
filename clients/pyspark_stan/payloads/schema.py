"""A schema of payloads in any of the formats: its columns, and the decoding of messages into them."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

from pyspark_stan.payloads.types import ColumnType, parse_type

Format = Literal["json", "avro", "protobuf"]
MALFORMED: Final = "_malformed"
"""Column of the bytes that could not be decoded."""


class PayloadSchema(NamedTuple):
    """The format of messages: a JSON Schema, an Avro schema, or descriptors of protobuf and the name of a message in them."""

    format: Format
    text: bytes
    message: str = ""

    def columns(self) -> dict[str, ColumnType]:
        """Return the columns of messages: name -> type.

        Raises:
            ValueError: they have no columns, or types that Spark does not have; the text says which.
        """
        if self.format == "protobuf":
            from pyspark_stan.payloads.protobuf import protobuf_columns  # noqa: PLC0415 - only where it is needed, as below

            return protobuf_columns(self.text, self.message)
        if self.format == "avro":
            from pyspark_stan.payloads.avro import avro_columns  # noqa: PLC0415

            return {name: parse_type(kind) for name, kind in avro_columns(json.loads(self.text)).items()}
        from pyspark_stan.payloads.json_schema import json_columns  # noqa: PLC0415

        columns = json_columns(json.loads(self.text))
        if not columns:
            raise ValueError("it tells no properties")
        return columns

    def reader(self) -> Callable[[bytes], Mapping[str, Any]]:
        """Return a function that decodes a message; it raises any exception for one that cannot be decoded.

        Raises:
            ImportError: fastavro is not installed. ValueError: it is no schema.
        """
        if self.format == "protobuf":
            from pyspark_stan.payloads.protobuf import protobuf_reader  # noqa: PLC0415

            return protobuf_reader(self.text, self.message)
        if self.format == "avro":
            from pyspark_stan.payloads.avro import reader_of  # noqa: PLC0415

            return reader_of(json.loads(self.text))
        from pyspark_stan.payloads.json_schema import json_reader  # noqa: PLC0415

        return json_reader()
