"""The format of a pipeline's messages, and the columns that they are decoded into. Needs no Spark.

Each row has the columns of its payload and those of METADATA. `malformed` decides about a message that cannot be decoded:
it stops the pipeline, is dropped, or becomes a row with its bytes in the column _malformed and null in the payload's columns.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from pyspark_stan.payloads.schema import MALFORMED, PayloadSchema
from pyspark_stan.payloads.types import ColumnType, TypeTextError, parse_type
from pyspark_stan.pipeline.tables import TomlTable

METADATA: Final = {"_channel": "string", "_sequence": "bigint", "_timestamp": "timestamp"}
"""Columns of every row, and their types: the message's channel and sequence, and when the broker stored it."""
FORMATS: Final = ("json", "avro", "protobuf", "registered", "raw")

Format = Literal["json", "avro", "protobuf", "registered", "raw"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """The decoding of messages into columns."""

    format: Format
    columns: Mapping[str, str]  # name -> type; none if they are those of the registered schemas
    schema: PayloadSchema | None = None  # of Avro and protobuf
    malformed: Literal["fail", "drop", "keep"]

    @property
    def title(self) -> str:
        """Format, columns and the treatment of malformed messages, as shown to the user."""
        shown = ", ".join(f"{name} {kind}" for name, kind in self.columns.items())
        treatment = {"fail": "stop at", "drop": "drop", "keep": "keep"}[self.malformed]
        shown = shown or "the columns of the schemas that are registered"
        return f"{self.format}: {shown}" + ("" if self.format == "raw" else f"; {treatment} what is not")


def payload_of(table: TomlTable, directory: Path) -> Payload:
    """Read the table `payload`, complaining about mistakes in it; schema files are relative to *directory*."""
    kind = table.choice("format", FORMATS, "json")
    malformed = table.choice("malformed", ("fail", "drop", "keep"), "fail")
    schema: PayloadSchema | None = None
    columns = {"value": "binary"}
    if kind == "json":
        columns = _json_columns(table)
    elif kind == "avro":
        schema, columns = _avro(table, directory)
    elif kind == "protobuf":
        schema, columns = _protobuf(table, directory)
    elif kind == "registered":
        columns = {}
        if table.given("schema"):
            table.complain("schema", "has no meaning for registered payloads: the broker has their schemas")
    else:
        for key in ("schema", "malformed"):
            if table.given(key):
                table.complain(key, "has no meaning for raw payloads: they are one column, value binary")
    for name in columns.keys() & {*METADATA, MALFORMED}:
        table.complain("schema", f"{name!r} is the name of a column that every row has")
    table.finish()
    return Payload(format=kind, columns=columns, schema=schema, malformed=malformed)  # type: ignore[arg-type]


def _json_columns(table: TomlTable) -> dict[str, str]:
    if not table.given("schema"):
        table.complain("schema", 'is missing: a table [payload.schema] with lines such as user = "string"')
        return {}
    columns = table.table("schema")
    types = columns.texts_by_key()
    if table.holds("schema", dict) and not types:
        table.complain("schema", "has no columns")
    for name, kind in types.items():
        try:
            parse_type(kind)
        except TypeTextError as error:
            columns.complain(name, f"the type {kind!r} {error}" if kind.strip() else "the type is empty")
    lowered = [name.lower() for name in types]
    for name in types:
        if lowered.count(name.lower()) > 1:
            columns.complain(name, "is there twice, for Spark: upper and lower case are the same in a column's name")
    return types


def _avro(table: TomlTable, directory: Path) -> tuple[PayloadSchema | None, dict[str, str]]:
    schema = avro_schema_of(table, directory)
    try:
        return schema, _shown(schema.columns()) if schema else {}
    except ValueError as error:
        table.complain(_avro_key(table), f"is not an Avro schema that can be used: {error}")
        return None, {}


def avro_schema_of(table: TomlTable, directory: Path) -> PayloadSchema | None:
    """Read an Avro schema from `schema` or `schema_file`; None, with a complaint, if there is none."""
    key = _avro_key(table)
    if table.given("schema") and table.given("schema_file"):
        table.complain("schema_file", "give schema or schema_file, not both")
    if key == "schema":
        text = table.text("schema", required=True, verbatim=True)
    else:
        _, text = table.file("schema_file", directory)
    if not text.strip():
        return None
    try:
        return PayloadSchema("avro", json.dumps(json.loads(text)).encode())
    except ValueError as error:
        table.complain(key, f"is not an Avro schema that can be used: {error}")
        return None


def _avro_key(table: TomlTable) -> str:
    return "schema_file" if table.given("schema_file") else "schema"


def _protobuf(table: TomlTable, directory: Path) -> tuple[PayloadSchema | None, dict[str, str]]:
    if table.given("schema"):
        table.complain("schema", "has no meaning for protobuf: write descriptor_file and message")
    message = table.text("message", required=True)
    path = directory / table.text("descriptor_file", required=True)
    if not message or table.complained_of("descriptor_file"):
        return None, {}
    try:
        schema = PayloadSchema("protobuf", path.read_bytes(), message)
        return schema, _shown(schema.columns())
    except OSError as error:
        table.complain("descriptor_file", f"cannot read {path}: {error.strerror}")
    except ValueError as error:
        table.complain("message", str(error))
    return None, {}


def _shown(columns: Mapping[str, ColumnType]) -> dict[str, str]:
    return {name: str(kind) for name, kind in columns.items()}
