"""Protobuf as schemas: descriptors of a message, compared by how programs read each other's bytes, and checks of data.

Data is walked by its descriptors and not decoded. A field that its version does not know is refused: a writer with a newer one
names it in the header, and bytes that are no message at all often look like unknown fields.
"""

from collections.abc import Callable
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from stan_protocol.kernel.wire_py import read_varint
from stan_protocol.limits import SCHEMA_DEPTH_MAX, SCHEMA_STEPS_MAX
from stan_protocol.schemas.kinds import SchemaError, TooIntricate
from stan_protocol.schemas.misfit import Misfit, Path

_F: Final[Any] = FieldDescriptor
MESSAGES: Final = {_F.TYPE_MESSAGE}
PAIRS_DEEP_MAX: Final = 96
"""Pairs of messages that may be under way at once: each takes some of the program's stack."""
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
WIRE_TYPES: Final = {
    **dict.fromkeys(
        (_F.TYPE_INT32, _F.TYPE_INT64, _F.TYPE_UINT32, _F.TYPE_UINT64, _F.TYPE_SINT32, _F.TYPE_SINT64), VARINT
    ),
    **dict.fromkeys((_F.TYPE_BOOL, _F.TYPE_ENUM), VARINT),
    **dict.fromkeys((_F.TYPE_DOUBLE, _F.TYPE_FIXED64, _F.TYPE_SFIXED64), FIXED64),
    **dict.fromkeys((_F.TYPE_FLOAT, _F.TYPE_FIXED32, _F.TYPE_SFIXED32), FIXED32),
    **dict.fromkeys((_F.TYPE_STRING, _F.TYPE_BYTES, _F.TYPE_MESSAGE), BYTES),
}
TYPE_NAMES: Final = {value: name[5:].lower() for name, value in vars(_F).items() if name.startswith("TYPE_")}
ALSO_READ: Final = {
    _F.TYPE_INT32: {_F.TYPE_BOOL, _F.TYPE_ENUM},
    _F.TYPE_INT64: {_F.TYPE_INT32, _F.TYPE_UINT32, _F.TYPE_BOOL, _F.TYPE_ENUM},
    _F.TYPE_UINT32: {_F.TYPE_BOOL},
    _F.TYPE_UINT64: {_F.TYPE_UINT32, _F.TYPE_BOOL},
    _F.TYPE_SINT64: {_F.TYPE_SINT32},
    _F.TYPE_BYTES: {_F.TYPE_STRING},
}
"""For each type of a reader the other types of a writer that it reads without loss."""


def parse(descriptors: bytes, message: str) -> Descriptor:
    """The descriptor of a message in a FileDescriptorSet, with all that it imports.

    Raises:
        SchemaError: that is not there, or not whole; or the message uses groups.
    """
    try:
        files = FileDescriptorSet.FromString(descriptors)
    except DecodeError:
        raise SchemaError("no FileDescriptorSet (protoc --include_imports -o)") from None
    pool = DescriptorPool()
    try:
        for file in files.file:
            pool.AddSerializedFile(file.SerializeToString())
        descriptor = pool.FindMessageTypeByName(message)
    except KeyError:
        raise SchemaError(f"no message {message[:80]!r} in the descriptors: tell its full name") from None
    except (TypeError, ValueError) as error:
        raise SchemaError(f"the descriptors are not whole (protoc --include_imports): {error}") from None
    if descriptor is None:  # as the types of protobuf have it
        raise SchemaError(f"no message {message[:80]!r} in the descriptors")
    _refuse_groups(descriptor)
    return descriptor


def shown(descriptors: bytes) -> str:
    """A FileDescriptorSet as people read it."""
    return str(FileDescriptorSet.FromString(descriptors))


def _refuse_groups(root: Any) -> None:
    seen, waiting = {root.full_name}, [root]
    while waiting:
        message = waiting.pop()
        for field in message.fields:
            if field.type == _F.TYPE_GROUP:
                raise SchemaError(f"{message.full_name}.{field.name}: groups cannot be checked")
            if field.type in MESSAGES and field.message_type.full_name not in seen:
                seen.add(field.message_type.full_name)
                waiting.append(field.message_type)


# --- comparison -------------------------------------------------------------------------------------------------------


def not_read(reader: Descriptor, writer: Descriptor) -> list[str]:
    """Return why a program with *reader* may misunderstand data of *writer*, each reason with the path of a field."""
    try:
        return _Comparison().refused(writer, reader, "")
    except TooIntricate as problem:
        return [str(problem)]


class _Comparison:
    def __init__(self) -> None:
        self._under_way: set[tuple[str, str]] = set()  # pairs of messages: recursive ones meet themselves again
        self._steps = 0

    def refused(self, wrote: Descriptor, reads: Descriptor, path: str) -> list[str]:
        """Return the parts of *wrote* that *reads* may misunderstand.

        Raises:
            TooIntricate: it takes more steps than a comparison may have.
        """
        pair = wrote.full_name, reads.full_name
        if pair in self._under_way:
            return []
        self._under_way.add(pair)
        reasons: list[str] = []
        for number, field in reads.fields_by_number.items():
            self._spend(1, path)
            there = wrote.fields_by_number.get(number)
            if field.is_required and (there is None or not there.is_required):
                reasons.append(f"{path}/{field.name}: is required, and may be missing")
            if there is not None:
                reasons += self._field(there, field, f"{path}/{field.name}")
        self._under_way.discard(pair)
        return reasons

    def _spend(self, steps: int, path: str) -> None:
        self._steps += steps
        if self._steps > SCHEMA_STEPS_MAX or len(self._under_way) > PAIRS_DEEP_MAX:
            raise TooIntricate(path)

    def _field(self, wrote: Any, reads: Any, path: str) -> list[str]:
        if wrote.is_repeated != reads.is_repeated:
            one, other = ("many values", "one") if wrote.is_repeated else ("one value", "many")
            return [f"{path}: field {wrote.number} has {one}, and is read as {other}"]
        if wrote.type != reads.type and wrote.type not in ALSO_READ.get(reads.type, ()):
            return [
                f"{path}: field {wrote.number} is {TYPE_NAMES[wrote.type]}, and is read as {TYPE_NAMES[reads.type]}"
            ]
        if wrote.type in MESSAGES and reads.type in MESSAGES:
            return self.refused(wrote.message_type, reads.message_type, path)
        if wrote.type == reads.type == _F.TYPE_ENUM and reads.enum_type.is_closed:
            known = reads.enum_type.values_by_number
            self._spend(len(wrote.enum_type.values_by_number), path)
            lost = sorted(number for number in wrote.enum_type.values_by_number if number not in known)
            return [f"{path}: value {number} of the enum is not known" for number in lost]
        return []


# --- data -------------------------------------------------------------------------------------------------------------


def checker(message: Descriptor) -> Callable[[bytes], str]:
    """Return a function that checks the data of a message: it returns the path to the misfit, and the reason; "" if it fits."""
    required: dict[str, list[FieldDescriptor]] = {}  # by the full name of a message; collected once

    def check(data: bytes) -> str:
        try:
            _walk(message, data, None, SCHEMA_DEPTH_MAX, required)
        except Misfit as misfit:
            return str(misfit)
        return ""

    return check


def _walk(message: Descriptor, data: bytes, path: Path, depth: int, required: dict[str, list[FieldDescriptor]]) -> None:
    """Step over the fields of one message."""
    if not depth:
        raise Misfit(path, "is nested too deeply")
    fields, seen = message.fields_by_number, set()
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at, end, path)
        field, wire = fields.get(tag >> 3), tag & 7
        if field is None:
            raise Misfit(path, f"field {tag >> 3} is not in {message.name}")
        seen.add(field.number)
        at = _field(field, wire, data, at, (path, field.name), depth, required)
    if message.full_name not in required:
        required[message.full_name] = [field for field in message.fields if field.is_required]
    for field in required[message.full_name]:
        if field.number not in seen:
            raise Misfit((path, field.name), "is required")


def _field(
    field: Any, wire: int, data: bytes, at: int, path: Path, depth: int, required: dict[str, list[FieldDescriptor]]
) -> int:
    """Step over one field; returns where it ends."""
    end, expected = len(data), WIRE_TYPES[field.type]
    packed = wire == BYTES and field.is_repeated and expected != BYTES
    if wire != expected and not packed:
        raise Misfit(path, f"is no {TYPE_NAMES[field.type]}")
    if wire == VARINT:
        return _varint(data, at, end, path)[1]
    size, at = (8, at) if wire == FIXED64 else (4, at) if wire == FIXED32 else _varint(data, at, end, path)
    if at + size > end:
        raise Misfit(path, "is cut off")
    content = data[at : at + size]
    if packed:
        _packed(expected, content, path)
    elif field.type in MESSAGES:
        _walk(field.message_type, content, path, depth - 1, required)
    elif field.type == _F.TYPE_STRING:
        try:
            content.decode()
        except UnicodeDecodeError:
            raise Misfit(path, "is no text in UTF-8") from None
    return at + size


def _packed(wire: int, content: bytes, path: Path) -> None:
    at = 0
    if wire != VARINT and len(content) % (8 if wire == FIXED64 else 4):
        raise Misfit(path, "is cut off")
    while wire == VARINT and at < len(content):
        _, at = _varint(content, at, len(content), path)


def _varint(data: bytes, at: int, end: int, path: Path) -> tuple[int, int]:
    try:
        return read_varint(data, at, end)
    except ValueError:
        raise Misfit(path, "is cut off") from None
