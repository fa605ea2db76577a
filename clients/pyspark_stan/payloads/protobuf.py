"""Protobuf payloads: the columns of a message, and the reading of its bytes, by descriptors as protoc writes them.

A field that was not set is null where protobuf can tell, and else its default; enums are their names, Timestamps are timestamps,
uint64 is decimal(20,0). Messages that contain themselves have no type in Spark, and are refused.
"""

from collections.abc import Callable, Mapping
from datetime import UTC
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass
from stan_protocol.schemas.kinds import SchemaError
from stan_protocol.schemas.protobuf import parse

from pyspark_stan.payloads.types import ColumnType, struct

_F: Final[Any] = FieldDescriptor
_SIMPLE: Final = {
    **dict.fromkeys((_F.TYPE_INT32, _F.TYPE_SINT32, _F.TYPE_SFIXED32), "int"),
    **dict.fromkeys((_F.TYPE_INT64, _F.TYPE_SINT64, _F.TYPE_SFIXED64), "bigint"),
    **dict.fromkeys((_F.TYPE_UINT32, _F.TYPE_FIXED32), "bigint"),
    **dict.fromkeys((_F.TYPE_UINT64, _F.TYPE_FIXED64), "decimal(20,0)"),
    _F.TYPE_FLOAT: "float",
    _F.TYPE_DOUBLE: "double",
    _F.TYPE_BOOL: "boolean",
    _F.TYPE_STRING: "string",
    _F.TYPE_ENUM: "string",
    _F.TYPE_BYTES: "binary",
}
_TIMESTAMP: Final = "google.protobuf.Timestamp"


def protobuf_columns(descriptors: bytes, message: str) -> dict[str, ColumnType]:
    """Return the columns of *message* in a serialized FileDescriptorSet: name -> type.

    Raises:
        SchemaError: it is not there, has no fields, or contains itself.
    """
    columns = _fields(parse(descriptors, message), ())
    if not columns:
        raise SchemaError(f"{message} has no fields")
    return columns


def _fields(message: Any, around: tuple[str, ...]) -> dict[str, ColumnType]:
    if message.full_name in around:
        raise SchemaError(f"{message.full_name} contains itself, which no column can")
    return {field.name: _column(field, (*around, message.full_name)) for field in message.fields}


def _column(field: Any, around: tuple[str, ...]) -> ColumnType:
    if _is_map(field):
        pair = field.message_type.fields_by_name
        return ColumnType("map", (_single(pair["key"], around), _single(pair["value"], around)))
    single = _single(field, around)
    return ColumnType("array", (single,)) if field.is_repeated else single


def _single(field: Any, around: tuple[str, ...]) -> ColumnType:
    if field.type != _F.TYPE_MESSAGE:
        return ColumnType(_SIMPLE[field.type])
    if field.message_type.full_name == _TIMESTAMP:
        return ColumnType("timestamp")
    return struct(_fields(field.message_type, around))


def _is_map(field: Any) -> bool:
    return field.type == _F.TYPE_MESSAGE and bool(field.message_type.GetOptions().map_entry)


def protobuf_reader(descriptors: bytes, message: str) -> Callable[[bytes], Mapping[str, Any]]:
    """Return a function that decodes a message into its columns; it may raise any exception for other bytes.

    Raises:
        SchemaError: the message is not in the descriptors.
    """
    kind = GetMessageClass(parse(descriptors, message))
    return lambda data: _values(kind.FromString(data))


def _values(message: Any) -> dict[str, Any]:
    return {field.name: _value(message, field) for field in message.DESCRIPTOR.fields}


def _value(message: Any, field: Any) -> Any:
    value = getattr(message, field.name)
    if _is_map(field):
        item = field.message_type.fields_by_name["value"]
        return {key: _plain(each, item) for key, each in value.items()}
    if field.is_repeated:
        return [_plain(each, field) for each in value]
    return None if field.has_presence and not message.HasField(field.name) else _plain(value, field)


def _plain(value: Any, field: Any) -> Any:
    if field.type == _F.TYPE_ENUM:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known is not None else str(value)
    if field.type != _F.TYPE_MESSAGE:
        return value
    if field.message_type.full_name == _TIMESTAMP:
        return value.ToDatetime(UTC)
    return _values(value)
