"""JSON Schemas: validation for the registry, and the comparison of two: one may allow all that the other allows.

The comparison is by structure, and errs on the side of a complaint: a keyword that it cannot compare must be the same in both.
One thing is taken for granted, because nearly every evolution of a schema rests on it: a message has no properties but those that
its schema names, unless `additionalProperties` or `patternProperties` is a schema itself.
"""

import json
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import Any, Final

from stan_protocol.limits import SCHEMA_DEPTH_MAX, SCHEMA_STEPS_MAX
from stan_protocol.schemas.kinds import SchemaError, TooIntricate

Schema = bool | dict[str, Any]

ALL_TYPES: Final = frozenset({"null", "boolean", "object", "array", "number", "integer", "string"})
ALTERNATIVES: Final = ("anyOf", "oneOf")
REMARKS: Final = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "discriminator"}
    | {"$schema", "$id", "$comment", "$defs", "definitions", "$anchor", "format", "contentEncoding", "contentMediaType"}
)
"""Keywords that refuse nothing."""
_TOGETHER: Final = ("$ref", "anyOf", "oneOf", "allOf")
"""Keywords with schemas that apply to the same value."""
_ABOUT_ALL: Final = frozenset({"unevaluatedProperties", "unevaluatedItems"})
"""Keywords whose meaning depends on all others."""
_DEPENDENT: Final = (
    frozenset({"if", "then", "else"}),
    frozenset({"contains", "minContains", "maxContains"}),
    frozenset({"prefixItems", "items", "additionalItems"}),
    frozenset({"patternProperties", "additionalProperties"}),
)
"""Keywords whose meaning depends on each other."""
_READ_TOGETHER: Final = _DEPENDENT[:2]
"""Those of them that are compared by their texts."""
_REF_ALONE: Final = ("/draft-03", "/draft-04", "/draft-06", "/draft-07")
"""In the addresses of drafts in which nothing counts that stands beside a reference."""
_TEXT_STEP: Final = 8
"""Characters of values that are compared in one step."""
COMPARED: Final = frozenset(
    {"type", "enum", "const", "$ref", "allOf", *ALTERNATIVES, "properties", "required", "additionalProperties"}
    | {"items", "prefixItems", "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf"}
    | {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"}
)
"""Keywords for which there are rules below; of all others both schemas must have the same."""
_DRAFT_4: Final = "json-schema.org/draft-04"
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
        schema = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"no JSON: {error}") from None
    if not isinstance(schema, dict):
        raise SchemaError("a schema is an object")
    old = _DRAFT_4 in str(schema.get("$schema"))
    for path, value in objects(schema):
        if path and any(isinstance(value.get(key), str) for key in ("$id", *(("id",) if old else ()))):
            raise SchemaError(
                f"{path}: only the schema itself has an id, no part of it"
            )  # references would be relative to it
        for key in ("$ref", "$dynamicRef", "$recursiveRef"):
            if isinstance(value.get(key), str) and (key != "$ref" or not _is_local(value[key], schema)):
                raise SchemaError(f"{path}/{key}: only definitions of the schema itself can be referred to, as #/...")
    return schema


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def objects(value: Any, path: str = "", depth: int = SCHEMA_DEPTH_MAX) -> Iterator[tuple[str, dict[str, Any]]]:
    """All objects in a value, each with its path.

    Raises:
        SchemaError: it is nested too deeply.
    """
    if not depth:
        raise SchemaError(f"{path}: nested too deeply")
    if isinstance(value, dict):
        yield path, value
        for key, each in value.items():
            yield from objects(each, f"{path}/{key}", depth - 1)
    elif isinstance(value, list):
        for at, each in enumerate(value):
            yield from objects(each, f"{path}/{at}", depth - 1)


def _is_local(reference: str, root: dict[str, Any]) -> bool:
    return isinstance(resolved(reference, root), dict | bool)


def resolved(reference: str, root: dict[str, Any]) -> Any:
    """Return the part of a schema that `#` or `#/a/b` refers to; None: there is none."""
    if reference == "#":
        return root
    if not reference.startswith("#/") or "%" in reference:  # which would have to be decoded
        return None
    part: Any = root
    for token in reference[2:].split("/"):
        key = token.replace("~1", "/").replace("~0", "~")
        if not isinstance(part, dict) or key not in part:
            return None
        part = part[key]
    return part


def not_read(reader: dict[str, Any], writer: dict[str, Any]) -> list[str]:
    """Return why *reader* may not allow messages that *writer* allows, each with the path of a field; empty if it allows all."""
    try:
        return _Comparison(reader, writer).refused(writer, reader, "")
    except TooIntricate as problem:
        return [str(problem)]


class _Comparison:
    """Two schemas that are being compared.

    A writer's values are overestimated, and a reader's are not: the parts of a writer's schema that apply together are joined,
    where the keywords of some may get lost; those of a reader's are compared one by one.
    """

    def __init__(self, reader: dict[str, Any], writer: dict[str, Any]) -> None:
        self._reader, self._writer = reader, writer
        self._under_way: set[tuple[int, int]] = set()  # pairs of definitions: recursive ones meet themselves again
        self._steps = 0
        self._joined: dict[int, tuple[dict[str, Any], list[Any]]] = {}  # by id, with the object of that id
        self._texts: dict[int, tuple[Any, set[str]]] = {}  # the same
        self._without_siblings = any(name in str(writer.get("$schema")) for name in _REF_ALONE)

    def refused(self, wrote: Any, reads: Any, path: str) -> list[str]:
        """Return why *reads* may refuse something that *wrote* allows.

        Raises:
            TooIntricate: it takes more steps than a comparison may have.
        """
        self._spend(1, path)
        if reads is True or wrote is False or reads == {}:
            return []
        if reads is False:
            return [f"{path or '/'}: is not allowed"]
        wrote = {} if wrote is True else wrote
        pair = id(wrote), id(reads)
        if pair in self._under_way:
            return []
        self._spend(len(wrote) + len(reads), path)
        self._under_way.add(pair)
        try:
            return self._by_alternatives(wrote, reads, path)
        finally:
            self._under_way.discard(pair)

    def _spend(self, steps: int, path: str) -> None:
        self._steps += steps
        if self._steps > SCHEMA_STEPS_MAX or len(self._under_way) > PAIRS_DEEP_MAX:
            raise TooIntricate(path)

    def _by_alternatives(self, wrote: dict[str, Any], reads: dict[str, Any], path: str) -> list[str]:
        """Take references and alternatives apart, until two plain schemas are left."""
        if _ABOUT_ALL & reads.keys() and self._is_same(wrote, reads):
            return []
        reads = {name: value for name, value in reads.items() if not self._is_kept(name, wrote, reads)}
        together = [name for name in _TOGETHER if name in reads]
        if not together:
            alternatives = self._alternatives(wrote, reads)
            if alternatives is not None:
                return [why for one in alternatives for why in self.refused(one, reads, path)]
            return self._plain(wrote, reads, path)
        reasons = self._by_alternatives(
            wrote, {name: value for name, value in reads.items() if name not in _TOGETHER}, path
        )
        for name in together:
            if name == "$ref":
                reasons += self.refused(wrote, resolved(reads[name], self._reader), path)
            elif name == "allOf":
                reasons += [why for one in _list(reads[name]) for why in self.refused(wrote, one, path)]
            else:
                reasons += self._one_of(wrote, name, _list(reads[name]), path)
        return reasons

    def _is_kept(self, name: str, wrote: dict[str, Any], reads: dict[str, Any]) -> bool:
        """True if the reader has a keyword as the writer has it, and all that it refers to."""
        return name in ALTERNATIVES and name in wrote and self._is_same(wrote[name], reads[name])

    def _is_same(self, wrote: Any, reads: Any) -> bool:
        """Return True if two texts mean the same, with the definitions that they refer to."""
        waiting, seen = [(wrote, reads)], set[str]()
        while waiting:
            one, other = waiting.pop()
            if one != other:
                return False
            text = _canonical(one)
            self._spend(len(text) // _TEXT_STEP, "")
            if text != _canonical(other):
                return False
            for reference in _references(one) - seen:
                self._spend(1, "")
                seen.add(reference)
                waiting.append((resolved(reference, self._writer), resolved(reference, self._reader)))
        return True

    def _one_of(self, wrote: dict[str, Any], name: str, reads: list[Any], path: str) -> list[str]:
        """Compare with alternatives: written values have to fit one of the reader's, and with `oneOf` no other one."""
        parts = self._alternatives(wrote, {name: reads})
        if parts is not None:
            return [why for one in parts for why in self.refused(one, {name: reads}, path)]
        tried = [self.refused(wrote, one, path) for one in reads]
        if all(tried):
            return [f"{path or '/'}: fits none of {name}", *min(tried, key=len, default=[])]
        fitting = tried.index([])
        if name == "oneOf" and not all(
            self._are_disjoint(wrote, self._writer, other) or self._are_disjoint(reads[fitting], self._reader, other)
            for at, other in enumerate(reads)
            if at != fitting
        ):
            return [f"{path or '/'}: may fit several of oneOf"]
        return []

    def _are_disjoint(self, part: Any, root: dict[str, Any], reads: Any, depth: int = 4) -> bool:
        """Return True if nothing fits both; False also if that does not show at once."""
        self._spend(1, "")
        part, reads = _target(part, root), _target(reads, self._reader)
        if part is False or reads is False:
            return True
        if not isinstance(part, dict) or not isinstance(reads, dict) or not depth:
            return False
        types, allowed = (_types(each) | ({"number"} if "integer" in _types(each) else set()) for each in (part, reads))
        types, allowed = types - {"integer"}, allowed - {"integer"}  # 1.0 is one, too
        if not types & allowed:
            return True
        values, others = _values(part), _values(reads)
        if values is not None and others is not None and not (self._texts_of(values) & self._texts_of(others)):
            return all(map(_is_plain, (*values, *others)))
        needed = _words(part.get("required")) | _words(reads.get("required"))
        mine, its = _map(part.get("properties")), _map(reads.get("properties"))
        return (types == {"object"} or allowed == {"object"}) and any(
            self._are_disjoint(mine[name], root, its[name], depth - 1)
            for name in needed.keys() & mine.keys() & its.keys()
        )

    def _texts_of(self, values: list[Any]) -> set[str]:
        """Return values of an enum as texts that are equal if the values are."""
        if id(values) not in self._texts:
            texts = {_canonical(value) for value in values}
            self._spend(sum(map(len, texts)) // _TEXT_STEP, "")
            self._texts[id(values)] = values, texts
        self._spend(len(values), "")
        return self._texts[id(values)][1]

    def _alternatives(self, wrote: dict[str, Any], reads: dict[str, Any]) -> list[Any] | None:
        """The schemas one of which each thing that is written fits, with all that applies to it besides; None: there is one."""
        known = self._joined.get(id(wrote))
        if known is not None:
            return known[1]
        key = next((name for name in _TOGETHER if isinstance(wrote.get(name), str if name == "$ref" else list)), "")
        rest = {name: value for name, value in wrote.items() if name != key}
        if key == "$ref":
            there = resolved(wrote[key], self._writer)
            bare = self._without_siblings or not rest.keys() - REMARKS
            parts = [there if bare else _both(rest, there)]
        elif key == "allOf":
            joined: Any = rest
            for one in wrote[key]:
                self._spend(len(joined) if isinstance(joined, dict) else 1, "")
                joined = _both(joined, one)
            parts = [joined]
        elif key:
            parts = [_both(rest, one) for one in wrote[key]]
        elif (
            isinstance(types := wrote.get("type"), list)
            and len(types) > 1
            and any(name in reads for name in ALTERNATIVES)
        ):
            return [{**wrote, "type": one} for one in types]
        else:
            return None
        self._spend((1 + len(rest)) * len(parts), "")
        self._joined[id(wrote)] = wrote, parts
        return parts

    def _plain(self, wrote: dict[str, Any], reads: dict[str, Any], path: str) -> list[str]:
        here = path or "/"
        types, allowed = _types(wrote), _types(reads)
        lost = {one for one in types if one not in allowed and not (one == "integer" and "number" in allowed)}
        if lost:
            return [f"{here}: may be {_listed(lost)}, which is not allowed any more"]
        self._spend(len(reads) + len(wrote), path)
        reasons = [
            f"{here}: {key} cannot be compared, and is another one"
            for key in reads.keys() - COMPARED - REMARKS
            if key in _ABOUT_ALL or not self._has_same(key, wrote, reads)
        ]
        reasons += self._values_refused(wrote, reads, here) + _bounds_refused(wrote, reads, types, here)
        if "object" in types:
            reasons += self._object(wrote, reads, path)
        if "array" in types:
            reasons += self._array(wrote, reads, path)
        return reasons

    def _has_same(self, key: str, wrote: dict[str, Any], reads: dict[str, Any]) -> bool:
        """True if both schemas have a keyword with the same meaning."""
        names = next((names for names in _READ_TOGETHER if key in names), {key})
        return all(
            (name in wrote) == (name in reads) and self._is_same(wrote.get(name), reads.get(name)) for name in names
        )

    def _values_refused(self, wrote: dict[str, Any], reads: dict[str, Any], here: str) -> list[str]:
        allowed = _values(reads)
        if allowed is None:
            return []
        given = _values(wrote)
        if given is None:
            return [f"{here}: may be another value than the {len(allowed)} that are allowed"]
        lost = self._texts_of(given) - self._texts_of(allowed)
        return [f"{here}: {value[:80]} is not allowed any more" for value in sorted(lost)[:3]]

    def _object(self, wrote: dict[str, Any], reads: dict[str, Any], path: str) -> list[str]:
        properties = _map(reads.get("properties"))
        more, allowed = wrote.get("additionalProperties", True), reads.get("additionalProperties", True)
        there, needed = _words(wrote.get("required")), _words(reads.get("required"))
        known = dict.fromkeys(there, more) | _map(wrote.get("properties"))
        self._spend(len(known) + len(properties) + len(there) + len(needed), path)
        reasons = [f"{path}/{name}: is required, and may be missing" for name in needed if name not in there]
        for name, schema in known.items():
            if name in properties:
                reasons += self.refused(schema, properties[name], f"{path}/{name}")
            elif isinstance(allowed, dict):
                reasons += self.refused(schema, allowed, f"{path}/{name}")
            elif allowed is False and schema is not False:
                reasons.append(f"{path}/{name}: is not allowed any more")
        return reasons + self._other_names(wrote, reads, properties.keys() - known.keys(), path)

    def _other_names(
        self, wrote: dict[str, Any], reads: dict[str, Any], only_read: AbstractSet[str], path: str
    ) -> list[str]:
        """The same of members that the writer does not name: any, also those that only the reader knows."""
        properties, allowed = _map(reads.get("properties")), reads.get("additionalProperties", True)
        more = [wrote["additionalProperties"]] if isinstance(wrote.get("additionalProperties"), dict) else []
        matched = list(_map(wrote.get("patternProperties")).values())
        reasons = [
            why
            for others in (*matched, *more)
            for name in only_read
            for why in self.refused(others, properties[name], f"{path}/{name}")
        ]
        free = more if self._has_same("patternProperties", wrote, reads) else [*matched, *more]
        return reasons + [why for others in free for why in self.refused(others, allowed, f"{path}/*")]

    def _array(self, wrote: dict[str, Any], reads: dict[str, Any], path: str) -> list[str]:
        first, items = _list(wrote.get("prefixItems")), _list(reads.get("prefixItems"))
        others, allowed = wrote.get("items", True), reads.get("items", True)
        if isinstance(others, list) or isinstance(allowed, list):  # tuples of drafts before 2020-12
            same = self._is_same(others, allowed) and self._has_same("additionalItems", wrote, reads)
            return [] if same else [f"{path}/*: items cannot be compared, and are others"]
        reasons = []
        for at in range(max(len(first), len(items))):
            one = first[at] if at < len(first) else others
            reasons += self.refused(one, items[at] if at < len(items) else allowed, f"{path}/{at}")
        return reasons + self.refused(others, allowed, f"{path}/*")


def _both(first: Any, second: Any) -> Any:
    """Return a schema for all values that both allow, and maybe more: of a common keyword, the one of *second* counts."""
    if first is False or second is False:
        return False
    first, second = {} if first is True else first, {} if second is True else second
    if not first or not second:
        return first or second
    lost = {name for names in _DEPENDENT if names & first.keys() and names & second.keys() for name in names}
    joined = {name: value for name, value in first.items() if name not in lost} | second
    if "properties" in first and "properties" in second:
        joined["properties"] = {**_map(first["properties"]), **_map(second["properties"])}
    if "required" in first and "required" in second:
        joined["required"] = [*_list(first["required"]), *_list(second["required"])]
    if "type" in first and "type" in second:
        types = sorted(_types({"type": first["type"]}) & _types({"type": second["type"]}))
        if not types:
            return False
        joined["type"] = types
    return joined


def _target(schema: Any, root: dict[str, Any]) -> Any:
    """Return the schema, or the one it refers to."""
    for _ in range(PAIRS_DEEP_MAX):
        if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
            return schema
        schema = resolved(schema["$ref"], root)
    return True


def _references(value: Any) -> set[str]:
    """The references in a text."""
    return {part["$ref"] for _, part in objects(value) if isinstance(part.get("$ref"), str)}


def _canonical(value: Any) -> str:
    """A text of a value: that of another one is the same if they are equal, and not if one is a truth value, say, and one 1."""
    return json.dumps(value, sort_keys=True)


def _is_plain(value: Any) -> bool:
    """Return True if no other text means an equal value: 1 and 1.0 are equal."""
    return value is None or isinstance(value, str | bool)


def _types(schema: dict[str, Any]) -> frozenset[str]:
    """Return the types that a value may have."""
    names = schema.get("type")
    if names is None:
        given = (
            schema["enum"] if isinstance(schema.get("enum"), list) else [schema["const"]] if "const" in schema else None
        )
        return ALL_TYPES if given is None else frozenset(_type_of(value) for value in given)
    types = frozenset(one for one in (names if isinstance(names, list) else [names]) if isinstance(one, str))
    return types | {"integer"} if "number" in types else types


def _type_of(value: Any) -> str:
    return TYPE_NAMES[type(value)]


def _values(schema: dict[str, Any]) -> list[Any] | None:
    """The values that are allowed; None: the schema does not list them."""
    listed = schema["enum"] if isinstance(schema.get("enum"), list) else None
    if "const" not in schema:
        return listed
    const = schema["const"]
    return [const] if listed is None or _canonical(const) in map(_canonical, listed) else []


def _bounds_refused(wrote: dict[str, Any], reads: dict[str, Any], types: frozenset[str], here: str) -> list[str]:
    reasons = []
    if types & {"number", "integer"}:
        low, lowest = _low(wrote), _low(reads)
        high, highest = _high(wrote), _high(reads)
        if lowest is not None and (low is None or low < lowest):
            reasons.append(f"{here}: may be less than {lowest[0]}, which is the least")
        if highest is not None and (high is None or high > highest):
            reasons.append(f"{here}: may be more than {highest[0]}, which is the most")
        step, bound = wrote.get("multipleOf"), reads.get("multipleOf")
        whole = bound == 1 and "number" not in types
        divides = isinstance(step, int) and isinstance(bound, int) and bound and step % bound == 0
        if bound is not None and not whole and not divides and step != bound:
            reasons.append(f"{here}: need not be a multiple of {bound}")
    for key, of in BOUNDED.items():
        if not _is_number(reads.get(key)) or not types & of:
            continue
        given, bound = wrote.get(key) if _is_number(wrote.get(key)) else None, reads[key]
        if key in LEAST and bound and (given is None or given < bound):
            reasons.append(f"{here}: {key} is {bound}, and was {given or 0}")
        elif key in MOST and (given is None or given > bound):
            reasons.append(f"{here}: {key} is {bound}, and was {'not told' if given is None else given}")
    return reasons


def _low(schema: dict[str, Any]) -> tuple[float, bool] | None:
    """The least value, and True if it is excluded itself: the larger of two refuses more."""
    bounds = [(schema["minimum"], False)] if _is_number(schema.get("minimum")) else []
    if schema.get("exclusiveMinimum") is True:  # draft 4
        return (bounds[0][0], True) if bounds else None
    bounds += [(schema["exclusiveMinimum"], True)] if _is_number(schema.get("exclusiveMinimum")) else []
    return max(bounds, default=None)


def _high(schema: dict[str, Any]) -> tuple[float, bool] | None:
    """The largest value, and False if it is excluded itself: the smaller of two refuses more."""
    bounds = [(schema["maximum"], True)] if _is_number(schema.get("maximum")) else []
    if schema.get("exclusiveMaximum") is True:
        return (bounds[0][0], False) if bounds else None
    bounds += [(schema["exclusiveMaximum"], False)] if _is_number(schema.get("exclusiveMaximum")) else []
    return min(bounds, default=None)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _map(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _words(value: Any) -> dict[str, None]:
    return dict.fromkeys(one for one in _list(value) if isinstance(one, str))


def _listed(words: set[str]) -> str:
    return " or ".join(sorted(words))
