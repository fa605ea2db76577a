"""The columns of a JSON Schema, and the reading of a message in JSON. Pure.

A part without a type in Spark (values of several types, references in a circle, objects without properties) is a text column,
which has such a value as JSON.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from pyspark_stan.payloads.types import TEXT, ColumnType, merged, struct

_SIMPLE: Final = {"integer": "bigint", "number": "double", "boolean": "boolean"}
_FORMATS: Final = {"date-time": "timestamp", "date": "date"}
_OF_VALUES: Final = {bool: "boolean", int: "integer", float: "number", str: "string"}
_REFERENCES_MAX: Final = 64
"""Depth to which types may be nested; deeper ones are text."""


def json_columns(schema: Any) -> dict[str, ColumnType]:
    """Return the columns of messages that fit *schema*: name -> type; none if it has no properties."""
    return _Schema(schema).type_of(schema, ()).fields() if isinstance(schema, dict) else {}


class _Schema:
    """A schema that may refer to parts of itself."""

    def __init__(self, root: Any) -> None:
        self._root = root

    def type_of(self, part: Any, around: tuple[str, ...]) -> ColumnType:
        """Return the type of a part; *around*: references that are being followed."""
        if not isinstance(part, dict) or len(around) > _REFERENCES_MAX:
            return TEXT
        reference = part.get("$ref")
        if isinstance(reference, str):
            return TEXT if reference in around else self.type_of(self._referred(reference), (*around, reference))
        for key in ("anyOf", "oneOf", "allOf"):
            if isinstance(part.get(key), list) and "properties" not in part:
                return self._one_of(part[key], around)
        kinds = _kinds(part)
        if kinds == {"integer", "number"}:
            kinds = {"number"}
        return self._of_kind(kinds.pop(), part, (*around, "")) if len(kinds) == 1 else TEXT

    def _one_of(self, branches: list[Any], around: tuple[str, ...]) -> ColumnType:
        types = [self.type_of(each, (*around, "")) for each in branches if not _is_null(each)]
        if not types:
            return TEXT
        kind = types[0]
        for each in types[1:]:
            kind = merged(kind, each)
        return kind

    def _of_kind(self, kind: str, part: dict[str, Any], around: tuple[str, ...]) -> ColumnType:
        if kind == "object":
            properties, more = part.get("properties"), part.get("additionalProperties")
            if isinstance(properties, dict) and properties:
                return struct({name: self.type_of(each, around) for name, each in properties.items()})
            return ColumnType("map", (TEXT, self.type_of(more, around))) if isinstance(more, dict) and more else TEXT
        if kind == "array":
            items = part.get("items")
            return ColumnType("array", (self.type_of(items, around),)) if isinstance(items, dict) else TEXT
        if kind == "string":
            return ColumnType(_FORMATS.get(str(part.get("format")), "string"))
        return ColumnType(_SIMPLE.get(kind, "string"))

    def _referred(self, reference: str) -> Any:
        place = self._root
        for step in reference.removeprefix("#").strip("/").split("/"):
            if step:
                place = place.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(place, dict) else None
        return place


def _kinds(part: dict[str, Any]) -> set[str]:
    """Return the kinds of values that a part allows, beside null."""
    kind = part.get("type")
    if kind is None and "properties" in part:
        kind = "object"
    if kind is None:
        values = part["enum"] if isinstance(part.get("enum"), list) else [part["const"]] if "const" in part else []
        return {_OF_VALUES.get(type(value), "") for value in values if value is not None}
    return {str(each) for each in (kind if isinstance(kind, list) else [kind])} - {"null"}


def _is_null(part: Any) -> bool:
    return isinstance(part, dict) and (part.get("type") == "null" or part.get("const", 0) is None)


def json_reader() -> Callable[[bytes], Mapping[str, Any]]:
    """Return a function that decodes a message; it raises ValueError for other data than a JSON object."""

    def read(message: bytes) -> Mapping[str, Any]:
        document = json.loads(message, parse_constant=_refused)
        if not isinstance(document, dict):
            raise TypeError("the message is no object")
        return document

    return read


def _refused(word: str) -> None:
    raise ValueError(f"{word} is no JSON")
