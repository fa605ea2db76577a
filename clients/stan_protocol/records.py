"""Protobuf messages as dataclasses, and back. Pure.

Names are str, and bytes in them that are no UTF-8 become surrogates. Runs (first, last, first, last, ...) are pairs. A message
or an optional field that is not set is None, a message that only wraps a list is the list. Values of an enum that this version
does not know stay numbers.
"""

from collections.abc import Callable
from dataclasses import fields
from enum import IntEnum
from functools import cache
from operator import attrgetter
from types import EllipsisType, NoneType
from typing import Any, Self, TypeVar, get_args

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

M = TypeVar("M", bound=Message)
Read = Callable[[Any], Any]


class MessageRecord:
    """A dataclass with fields of a message."""

    __slots__ = ()

    @classmethod
    def from_pb(cls, message: Message) -> Self:
        """Return the record of a message."""
        kind: Any = cls
        get, readers = _plan(kind, message.DESCRIPTOR)
        values = [*get(message)]
        for at, read in readers:
            values[at] = read(message)
        return cls(*values)


def message_of(kind: type[M], /, **given: Any) -> M:
    """Return a message of a kind with the given fields, which may be records; a field that is None is not set."""
    known = kind.DESCRIPTOR.fields_by_name
    return kind(**{name: _written(known[name], value) for name, value in given.items() if value is not None})


def to_pb(kind: type[M], record: MessageRecord) -> M:
    """Return a record as a message; the inverse of `MessageRecord.from_pb`."""
    return message_of(kind, **{field.name: getattr(record, field.name) for field in fields(record)})  # type: ignore[arg-type]


def is_runs(field: Any) -> bool:
    """Return True for a list of numbers in which each pair is a run: `runs`, `owed_runs`, ..."""
    return bool(field.is_repeated and field.message_type is None and field.name.endswith("runs"))


def _written(field: Any, value: Any) -> Any:
    if is_runs(field):
        return [sequence for run in value for sequence in run]
    if field.is_repeated:
        return [_written_one(field, each) for each in value]
    return _written_one(field, value)


def _written_one(field: Any, value: Any) -> Any:
    if isinstance(value, str) and field.type == FieldDescriptor.TYPE_BYTES:
        return value.encode("utf-8", "surrogateescape")
    if field.message_type is None or isinstance(value, Message):
        return value
    kind = GetMessageClass(field.message_type)
    return (
        to_pb(kind, value) if isinstance(value, MessageRecord) else kind(**{field.message_type.fields[0].name: value})
    )


@cache
def _plan(kind: Any, message: Any) -> tuple[Read, list[tuple[int, Read]]]:
    """Return a getter of all fields of a kind of records, and readers of converted fields, by place. Cached, because
    there may be ten thousand records."""
    known, own = message.fields_by_name, fields(kind)
    readers = ((at, _reader(known[field.name], field.type)) for at, field in enumerate(own))
    return _getter([field.name for field in own]), [(at, read) for at, read in readers if read is not None]


def _getter(names: list[str]) -> Read:
    get = attrgetter(*names)
    return get if len(names) > 1 else lambda message: (get(message),)


def _reader(field: FieldDescriptor, annotation: Any) -> Read | None:
    get, inner = attrgetter(field.name), get_args(annotation)
    read = _converter(field, inner[0] if NoneType in inner else annotation)
    if NoneType in inner:
        return lambda message: read(get(message)) if message.HasField(field.name) else None
    return None if read is _same else lambda message: read(get(message))


def _converter(field: FieldDescriptor, annotation: Any) -> Read:
    match get_args(annotation):
        case (inner, EllipsisType()) if field.message_type is not None and not field.is_repeated:
            get, listed = attrgetter(field.message_type.fields[0].name), _list_of(_same)
            return lambda message: listed(get(message))
        case (_, EllipsisType()) if is_runs(field):
            return _pairs
        case (inner, EllipsisType()):
            return _list_of(_converter(field, inner))
    if annotation is str and field.type == FieldDescriptor.TYPE_BYTES:
        return _text
    if issubclass(annotation, MessageRecord):
        read: Read = annotation.from_pb
        return read
    return _enum(annotation) if issubclass(annotation, IntEnum) else _same


def _list_of(read: Read) -> Read:
    return tuple if read is _same else lambda values: tuple(map(read, values))


def _enum(kind: type[IntEnum]) -> Read:
    known: dict[int, Any] = {int(each): each for each in kind}
    return lambda value: known.get(value, value)


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


def _pairs(values: Any) -> tuple[tuple[int, int], ...]:
    return tuple(zip(values[::2], values[1::2], strict=True))


def _same(value: Any) -> Any:
    return value
