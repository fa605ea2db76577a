"""JSON Schemas: what the registry takes, and whether all that one schema allows is allowed by another.

The comparison is by structure, and errs on the side of a complaint: a keyword that it cannot compare must be the same in both.
One thing is taken for granted, because nearly every evolution of a schema rests on it: a message has no properties but those that
its schema names, unless `additionalProperties` or `patternProperties` is a schema itself.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

from stan.limits import SCHEMA_DEPTH_MAX, SCHEMA_STEPS_MAX
from stan.protocol.schemas.kinds import SchemaError

Schema = bool | dict[str, Any]

ALL_TYPES: Final = frozenset({"null", "boolean", "object", "array", "number", "integer", "string"})
ALTERNATIVES: Final = ("anyOf", "oneOf")
REMARKS: Final = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "discriminator"}
    | {"$schema", "$id", "$comment", "$defs", "definitions", "$anchor", "format", "contentEncoding", "contentMediaType"}
)
"""Keywords that refuse nothing."""
COMPARED: Final = frozenset(
    {"type", "enum", "const", "$ref", "allOf", *ALTERNATIVES, "properties", "required", "additionalProperties"}
    | {"items", "prefixItems", "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf"}
    | {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"}
)
"""Keywords for which there are rules below; of all others both schemas must have the same."""
PAIRS_DEEP_MAX: Final = 96
"""Pairs that may be under way at once: each takes some of the program's stack."""
LEAST: Final = ("minLength", "minItems", "minProperties")
MOST: Final = ("maxLength", "maxItems", "maxProperties")
TYPE_NAMES: Final = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}
BOUNDED: Final = {
    "minLength": {"string"},
    "maxLength": {"string"},
    "minItems": {"array"},
    "maxItems": {"array"},
    "minProperties": {"object"},
    "maxProperties": {"object"},
}


def parse(text: bytes) -> dict[str, Any]:
    """Read a schema.

    Raises:
        SchemaError: it is no JSON object, is nested too deeply, or refers to something outside of itself.
    """
    try:
        found = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"no JSON: {error}") from None
    if not isinstance(found, dict):
        raise SchemaError("a schema is an object")
    for path, value in _walk(found, "", SCHEMA_DEPTH_MAX):
        for key in ("$ref", "$dynamicRef", "$recursiveRef"):
            if isinstance(value.get(key), str) and (key != "$ref" or not _is_local(value[key], found)):
                raise SchemaError(f"{path}/{key}: only definitions of the schema itself can be referred to, as #/...")
    return found


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _walk(value: Any, path: str, depth: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """All objects in a value, each with its path."""
    if not depth:
        raise SchemaError(f"{path}: nested too deeply")
    if isinstance(value, dict):
        yield path, value
        for key, each in value.items():
            yield from _walk(each, f"{path}/{key}", depth - 1)
    elif isinstance(value, list):
        for at, each in enumerate(value):
            yield from _walk(each, f"{path}/{at}", depth - 1)


def _is_local(reference: str, root: dict[str, Any]) -> bool:
    return isinstance(_resolved(reference, root), dict | bool)


def _resolved(reference: str, root: dict[str, Any]) -> Any:
    """What `#` or `#/a/b` refers to; None: nothing."""
    if reference == "#":
        return root
    if not reference.startswith("#/"):
        return None
    found: Any = root
    for token in reference[2:].split("/"):
        key = token.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, dict) or key not in found:
            return None
        found = found[key]
    return found


def not_read(reader: dict[str, Any], writer: dict[str, Any]) -> list[str]:
    """Why messages that *writer* allows may not be allowed by *reader*, each with the path of a field; empty if all are."""
    return _Comparison(reader, writer).refused(writer, reader, "")


class _Comparison:
    """Two schemas that are being compared."""

    def __init__(self, reader: dict[str, Any], writer: dict[str, Any]) -> None:
        self._reader, self._writer = reader, writer
        self._under_way: set[tuple[int, int]] = set()  # pairs of definitions: recursive ones meet themselves again
        self._steps = 0

    def refused(self, wrote: Any, reads: Any, path: str) -> list[str]:
        """Why something that *wrote* allows may be refused by *reads*."""
        self._steps += 1
        if self._steps > SCHEMA_STEPS_MAX or len(self._under_way) > PAIRS_DEEP_MAX:
            return [f"{path or '/'}: the schemas are too intricate to be compared"]
        if reads is True or wrote is False or reads == {}:
            return []
        if reads is False:
            return [f"{path or '/'}: is not allowed"]
        wrote = {} if wrote is True else wrote
        pair = id(wrote), id(reads)
        if pair in self._under_way:
            return []
        self._under_way.add(pair)
        try:
            return self._by_alternatives(wrote, reads, path)
        finally:
            self._under_way.discard(pair)

    def _by_alternatives(self, wrote: dict[str, Any], reads: dict[str, Any], path: str) -> list[str]:
        """Take references and alternatives apart, until two plain schemas are left."""
        if isinstance(wrote.get("$ref"), str):
            return self.refused(self._joined(wrote, self._writer), reads, path)
        if isinstance(reads.get("$ref"), str):
            return self.refused(wrote, self._joined(reads, self._reader), path)
        found = self._by_what_is_written(wrote, reads, path)
        return self._by_what_is_read(wrote, reads, path) if found is None else found

    def _by_what_is_written(self, wrote: dict[str, Any], reads: dict[str, Any], path: str) -> list[str] | None:
        """Each alternative of the writer has to be read; None: there are none."""
        for key in ALTERNATIVES:
            if isinstance(wrote.get(key), list):
                rest = {name: value for name, value in wrote.items() if name != key}
                return [why for one in wrote[key] for why in self.refused(_both(rest, one), reads, path)]
        if (
            isinstance(types := wrote.get("type"), list)
            and len(types) > 1
            and any(key in reads for key in ALTERNATIVES)
        ):
            return [why for one in types for why in self.refused({**wrote, "type": one}, reads, path)]
        if isinstance(wrote.get("allOf"), list):
            joined: Any = {name: value for name, value in wrote.items() if name != "allOf"}
            for one in wrote["allOf"]:
                joined = _both(joined, self._joined(one, self._writer) if isinstance(one, dict) else one)
            return self.refused(joined, reads, path)
        return None

    def _by_what_is_read(self, wrote: dict[str, Any], reads: dict[str, Any], path: str) -> list[str]:
        """What is written has to fit one alternative of the reader."""
        for key in ALTERNATIVES:
            if isinstance(reads.get(key), list):
                rest = {name: value for name, value in reads.items() if name != key}
                found = self.refused(wrote, rest, path)
                tried = [self.refused(wrote, one, path) for one in reads[key]]
                return found + ([] if not all(tried) else [f"{path or '/'}: fits none of {key}", *min(tried, key=len)])
        if isinstance(reads.get("allOf"), list):
            rest = {name: value for name, value in reads.items() if name != "allOf"}
            return [why for one in (rest, *reads["allOf"]) for why in self.refused(wrote, one, path)]
        return self._plain(wrote, reads, path)

    @staticmethod
    def _joined(schema: dict[str, Any], root: dict[str, Any]) -> Any:
        """A schema with what it refers to; itself if it refers to nothing."""
        if not isinstance(schema.get("$ref"), str):
            return schema
        rest = {name: value for name, value in schema.items() if name != "$ref" and name not in REMARKS}
        there = _resolved(schema["$ref"], root)
        return _both(rest, there) if rest else there

    def _plain(self, wrote: dict[str, Any], reads: dict[str, Any], path: str) -> list[str]:
        here = path or "/"
        types, allowed = _types(wrote), _types(reads)
        lost = {one for one in types if one not in allowed and not (one == "integer" and "number" in allowed)}
        if lost:
            return [f"{here}: may be {_listed(lost)}, which is not allowed any more"]
        found = [
            f"{here}: {key} cannot be compared, and is another one"
            for key in reads.keys() - COMPARED - REMARKS
            if reads[key] != wrote.get(key)
        ]
        found += _values_refused(wrote, reads, here) + _bounds_refused(wrote, reads, types, here)
        if "object" in types:
            found += self._object(wrote, reads, path)
        if "array" in types:
            found += self._array(wrote, reads, path)
        return found

    def _object(self, wrote: dict[str, Any], reads: dict[str, Any], path: str) -> list[str]:
        known, wanted = _map(wrote.get("properties")), _map(reads.get("properties"))
        more, allowed = wrote.get("additionalProperties", True), reads.get("additionalProperties", True)
        missing = [name for name in _list(reads.get("required")) if name not in _list(wrote.get("required"))]
        found = [f"{path}/{name}: is required, and may be missing" for name in missing]
        for name, schema in known.items():
            if name in wanted:
                found += self.refused(schema, wanted[name], f"{path}/{name}")
            elif isinstance(allowed, dict):
                found += self.refused(schema, allowed, f"{path}/{name}")
            elif allowed is False and schema is not False:
                found.append(f"{path}/{name}: is not allowed any more")
        if isinstance(more, dict):  # any name may be written: those that only the reader knows, too
            for name in wanted.keys() - known.keys():
                found += self.refused(more, wanted[name], f"{path}/{name}")
            found += self.refused(more, allowed, f"{path}/*")
        return found

    def _array(self, wrote: dict[str, Any], reads: dict[str, Any], path: str) -> list[str]:
        first, wanted = _list(wrote.get("prefixItems")), _list(reads.get("prefixItems"))
        others, allowed = wrote.get("items", True), reads.get("items", True)
        if isinstance(others, list) or isinstance(allowed, list):  # tuples of drafts before 2020-12
            return [] if others == allowed else [f"{path}/*: items cannot be compared, and are others"]
        found = []
        for at in range(max(len(first), len(wanted))):
            one = first[at] if at < len(first) else others
            found += self.refused(one, wanted[at] if at < len(wanted) else allowed, f"{path}/{at}")
        return found + self.refused(others, allowed, f"{path}/*")


def _both(one: Any, other: Any) -> Any:
    """A schema that allows what both allow, at least: of a keyword that both have, the one of *other* counts."""
    if one is False or other is False:
        return False
    one, other = {} if one is True else one, {} if other is True else other
    if not one or not other:
        return one or other
    joined = {**one, **other}
    if "properties" in one and "properties" in other:
        joined["properties"] = {**_map(one["properties"]), **_map(other["properties"])}
    if "required" in one and "required" in other:
        joined["required"] = [*_list(one["required"]), *_list(other["required"])]
    if "type" in one and "type" in other:
        joined["type"] = sorted(_types(one) & _types(other)) or ["null"]
    return joined


def _types(schema: dict[str, Any]) -> frozenset[str]:
    """What a value may be."""
    told = schema.get("type")
    if told is None:
        given = (
            schema["enum"] if isinstance(schema.get("enum"), list) else [schema["const"]] if "const" in schema else None
        )
        return ALL_TYPES if given is None else frozenset(_type_of(value) for value in given)
    found = frozenset(one for one in (told if isinstance(told, list) else [told]) if isinstance(one, str))
    return found | {"integer"} if "number" in found else found


def _type_of(value: Any) -> str:
    return TYPE_NAMES[type(value)]


def _values_refused(wrote: dict[str, Any], reads: dict[str, Any], here: str) -> list[str]:
    allowed = _values(reads)
    if allowed is None:
        return []
    given = _values(wrote)
    if given is None:
        return [f"{here}: may be another value than the {len(allowed)} that are allowed"]
    lost = [value for value in given if not any(_same(value, other) for other in allowed)]
    return [f"{here}: {json.dumps(value)[:80]} is not allowed any more" for value in lost[:3]]


def _values(schema: dict[str, Any]) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    return schema["enum"] if isinstance(schema.get("enum"), list) else None


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def _bounds_refused(wrote: dict[str, Any], reads: dict[str, Any], types: frozenset[str], here: str) -> list[str]:
    found = []
    if types & {"number", "integer"}:
        low, lowest = _low(wrote), _low(reads)
        high, highest = _high(wrote), _high(reads)
        if lowest is not None and (low is None or low < lowest):
            found.append(f"{here}: may be less than {lowest[0]}, which is the least")
        if highest is not None and (high is None or high > highest):
            found.append(f"{here}: may be more than {highest[0]}, which is the most")
        step, wanted = wrote.get("multipleOf"), reads.get("multipleOf")
        whole = wanted == 1 and "number" not in types
        divides = isinstance(step, int) and isinstance(wanted, int) and wanted and step % wanted == 0
        if wanted is not None and not whole and not divides and step != wanted:
            found.append(f"{here}: need not be a multiple of {wanted}")
    for key, of in BOUNDED.items():
        if key not in reads or not types & of:
            continue
        told, wanted = wrote.get(key), reads[key]
        if key in LEAST and wanted and (told is None or told < wanted):
            found.append(f"{here}: {key} is {wanted}, and was {told or 0}")
        elif key in MOST and (told is None or told > wanted):
            found.append(f"{here}: {key} is {wanted}, and was {'not told' if told is None else told}")
    return found


def _low(schema: dict[str, Any]) -> tuple[float, bool] | None:
    """The least value, and True if it is excluded itself: the larger of two refuses more."""
    bounds = [(schema["minimum"], False)] if _is_number(schema.get("minimum")) else []
    bounds += [(schema["exclusiveMinimum"], True)] if _is_number(schema.get("exclusiveMinimum")) else []
    return max(bounds, default=None)


def _high(schema: dict[str, Any]) -> tuple[float, bool] | None:
    """The largest value, and False if it is excluded itself: the smaller of two refuses more."""
    bounds = [(schema["maximum"], True)] if _is_number(schema.get("maximum")) else []
    bounds += [(schema["exclusiveMaximum"], False)] if _is_number(schema.get("exclusiveMaximum")) else []
    return min(bounds, default=None)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _map(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _listed(words: set[str]) -> str:
    return " or ".join(sorted(words))
