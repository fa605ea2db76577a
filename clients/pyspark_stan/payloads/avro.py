"""Avro payloads: the columns of a schema, and the decoding of messages with fastavro.

A message is one record in Avro's binary encoding, without the header of a container file. Schemas for which Spark has no type are
refused: unions of several types beside null, and recursive schemas. There is no support for a schema registry: messages that
begin with a magic byte and a schema id cannot be decoded.
"""

from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any, Final

from pyspark_stan.payloads.types import quoted

_PRIMITIVE: Final = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
}
_LOGICAL: Final = {
    ("int", "date"): "date",
    ("long", "timestamp-millis"): "timestamp",
    ("long", "timestamp-micros"): "timestamp",
}
_STORED: Final = {"enum": "string", "fixed": "bytes"}
"""Avro's complex types that are decoded like a primitive one."""

Schema = str | list[Any] | dict[str, Any]


class AvroSchemaError(ValueError):
    """The schema cannot be expressed as columns of Spark; the text says which part."""


def avro_columns(schema: Schema) -> dict[str, str]:
    """Return the columns of a record *schema*: name -> type in Spark's words.

    Raises:
        AvroSchemaError: the schema is not a record, or contains a type that Spark does not have.
    """
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise AvroSchemaError("it must be a record")
    named: dict[str, Schema] = {}
    return _fields(schema, "", named, frozenset())


def _fields(record: Mapping[str, Any], path: str, named: dict[str, Schema], around: frozenset[str]) -> dict[str, str]:
    name = record.get("name")
    fields = record.get("fields")
    if not isinstance(name, str) or not isinstance(fields, list) or not fields:
        raise AvroSchemaError(f"{path or 'the record'} needs a name and fields")
    named[name] = dict(record)
    columns = {}
    for field in fields:
        if not isinstance(field, dict) or not isinstance(field.get("name"), str) or "type" not in field:
            raise AvroSchemaError(f"each field of {path or name} needs a name and a type")
        columns[field["name"]] = _type(field["type"], f"{path}.{field['name']}".strip("."), named, around | {name})
    return columns


def _type(schema: Schema, path: str, named: dict[str, Schema], around: frozenset[str]) -> str:
    if isinstance(schema, str):
        if schema in _PRIMITIVE:
            return _PRIMITIVE[schema]
        if schema in around:
            raise AvroSchemaError(f"{path} contains itself")
        if schema not in named:
            raise AvroSchemaError(f"{path} has the unknown type {schema!r}")
        return _type(named[schema], path, named, around)
    if isinstance(schema, list):
        some = [each for each in schema if each != "null"]
        if len(some) != 1:
            raise AvroSchemaError(f"{path} is a union of several types; only null and one other can be read")
        return _type(some[0], path, named, around)
    return _complex(schema, path, named, around)


def _complex(schema: dict[str, Any], path: str, named: dict[str, Schema], around: frozenset[str]) -> str:
    kind = schema.get("type")
    if isinstance(schema.get("name"), str) and kind in ("enum", "fixed"):
        named[schema["name"]] = schema
    match kind:
        case "record":
            inner = _fields(schema, path, named, around)
            return f"struct<{','.join(f'{quoted(name)}:{of}' for name, of in inner.items())}>"
        case "array":
            return f"array<{_type(schema.get('items', ''), path, named, around)}>"
        case "map":
            return f"map<string,{_type(schema.get('values', ''), path, named, around)}>"
        case dict() | list():
            return _type(kind, path, named, around)
    return _logical(schema, path) or _type(_STORED.get(str(kind), str(kind)), path, named, around)


def _logical(schema: dict[str, Any], path: str) -> str:
    """Return Spark's type for the logical type of *schema*, such as a date stored as an int; empty if it has none."""
    kind, logical = str(schema.get("type")), str(schema.get("logicalType", ""))
    if _STORED.get(kind, kind) == "bytes" and logical == "decimal":
        return f"decimal({schema.get('precision')},{schema.get('scale', 0)})"
    if kind in ("int", "long") and logical and (kind, logical) not in _LOGICAL:
        raise AvroSchemaError(f"{path} has the logical type {logical!r}, which is not known here")
    return _LOGICAL.get((kind, logical), "")


def reader_of(schema: Schema) -> Callable[[bytes], Mapping[str, Any]]:
    """Return a function that decodes a message into its columns; it raises any exception for a message that cannot be decoded.

    Raises:
        ImportError: fastavro is not installed.
    """
    try:
        import fastavro  # noqa: PLC0415 - only needed for Avro
    except ImportError:
        raise ImportError("Avro payloads need fastavro: pip install fastavro") from None

    parsed = fastavro.parse_schema(schema)

    def read(message: bytes) -> Mapping[str, Any]:
        stream = BytesIO(message)
        record = fastavro.schemaless_reader(stream, parsed, None)
        if stream.read(1):
            raise ValueError("the message goes on behind the record")
        if not isinstance(record, dict):
            raise TypeError("the message is no record")
        return record

    return read
