"""The data of a message as JSON text for people, by its schema. The data is untrusted: the work is bounded by its size.

Avro's bytes and fixed become texts with a character for each byte, as in Avro's own JSON; whole numbers keep all their digits.
"""

import json
import struct
from collections.abc import Callable
from typing import Any, Final

from google.protobuf import json_format
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from stan_protocol.limits import SCHEMA_DEPTH_MAX
from stan_protocol.schemas import avro, protobuf
from stan_protocol.schemas.kinds import SchemaKind
from stan_protocol.schemas.misfit import Misfit, Path
from stan_protocol.schemas.rules import SchemaText

Decoder = Callable[[bytes], str]
"""Returns JSON. Raises ValueError with the reason: the data does not fit."""


def decoder(schema: SchemaText) -> Decoder:
    """Return a function that decodes data by a schema. Raises SchemaError: it is none."""
    return _MAKERS[schema.kind](schema)


def _of_json(_schema: SchemaText) -> Decoder:
    def decode(data: bytes) -> str:
        try:
            json.loads(data)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"is no JSON: {error}") from None
        return data.decode()

    return decode


def _of_avro(schema: SchemaText) -> Decoder:
    parsed = avro.parse(schema.text)

    def decode(data: bytes) -> str:
        reading = AvroReading(data)
        try:
            value = reading.read(parsed, None, SCHEMA_DEPTH_MAX)
            reading.end()
        except Misfit as misfit:
            raise ValueError(str(misfit)) from None
        return json.dumps(value, ensure_ascii=False)

    return decode


def _of_protobuf(schema: SchemaText) -> Decoder:
    kind = GetMessageClass(protobuf.parse(schema.text, schema.message))

    def decode(data: bytes) -> str:
        try:
            message = kind.FromString(data)
            return json_format.MessageToJson(message, preserving_proto_field_name=True, indent=None, ensure_ascii=False)
        except (DecodeError, json_format.Error, TypeError) as error:
            raise ValueError(f"is no {schema.message}: {error}") from None

    return decode


_MAKERS: Final = {SchemaKind.JSON: _of_json, SchemaKind.AVRO: _of_avro, SchemaKind.PROTOBUF: _of_protobuf}


class AvroReading(avro.DatumWalk):
    """Builds the value of one datum."""

    def read(self, schema: avro.AvroType, path: Path, depth: int) -> Any:
        """Return one value. Raises Misfit."""
        self.step(path, depth)
        match schema.kind:
            case "null":
                return None
            case "record":
                return {one.name: self.read(one.type, (path, one.name), depth - 1) for one in schema.fields}
            case "union":
                return self.read(schema.parts[self.index(schema.parts, "branch", path)], path, depth - 1)
            case "array" | "map":
                return self._read_items(schema, path, depth)
            case "string" | "bytes" | "fixed":
                return self._read_text(schema, path)
            case _:
                return self._read_number(schema, path)

    def _read_text(self, schema: avro.AvroType, path: Path) -> str:
        if schema.kind == "string":
            return self.text(path).decode()
        size = schema.size if schema.kind == "fixed" else self.long(path)
        return self.read_bytes(size, path).decode("latin-1")

    def _read_number(self, schema: avro.AvroType, path: Path) -> Any:
        if schema.kind in ("float", "double"):
            number = struct.unpack(
                "<f" if schema.kind == "float" else "<d", self.read_bytes(avro.SIZES[schema.kind], path)
            )[0]
            return number if number - number == 0 else str(number)
        if schema.kind == "enum":
            return schema.symbols[self.index(schema.symbols, "symbol", path)]
        at = self.at
        self.number(schema, path)
        self.at, end = at, self.at
        value = self.read_bytes(1, path) == b"\1" if schema.kind == "boolean" else self.long(path)
        self.at = end
        return value

    def _read_items(self, schema: avro.AvroType, path: Path, depth: int) -> Any:
        found: dict[str, Any] = {}
        items: list[Any] = []
        for each in self.places(path):
            name = self.text(each).decode() if schema.kind == "map" else ""
            value = self.read(schema.parts[0], each, depth - 1)
            if schema.kind == "map":
                found[name] = value
            else:
                items.append(value)
        return found if schema.kind == "map" else items
