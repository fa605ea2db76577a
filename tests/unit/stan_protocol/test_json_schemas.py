"""JSON Schemas: what the registry takes, which versions read each other's messages, and what data fits."""

import json

import pytest
from stan_protocol.schemas import json_data, json_schema
from stan_protocol.schemas.json_weight import pattern_size
from stan_protocol.schemas.kinds import Compatibility, SchemaError, SchemaKind
from stan_protocol.schemas.rules import NumberedText, SchemaText, compared, fault, incompatible

from stan import limits

OPEN = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a"]}
TREE = {"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}}}}}


def also(schema, **properties):
    return {**schema, "properties": {**schema["properties"], **properties}}


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        (OPEN, OPEN),
        ({}, OPEN),
        (also(OPEN, c={"type": "string"}), OPEN),
        ({**OPEN, "properties": {"a": {"type": "integer"}}}, OPEN),
        ({**OPEN, "required": []}, OPEN),
        (also(OPEN, a={"type": "number"}), OPEN),
        (also(OPEN, a={"type": ["integer", "null"]}), OPEN),
        (also(OPEN, a={"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}), OPEN),
        (also(OPEN, a={"oneOf": [{"type": "null"}, {"type": "integer"}]}), also(OPEN, a={"type": ["null", "integer"]})),
        ({"enum": [1, 2, 3]}, {"enum": [1, 2]}),
        ({"type": "string"}, {"enum": ["x", "y"]}),
        ({"type": "string"}, {"const": "x"}),
        ({"minimum": 0, "maximum": 10, "type": "integer"}, {"minimum": 1, "exclusiveMaximum": 10, "type": "integer"}),
        ({"type": "string", "maxLength": 9}, {"type": "string", "maxLength": 8, "minLength": 1}),
        ({"items": {"type": "number"}}, {"type": "array", "items": {"type": "integer"}}),
        ({"prefixItems": [{"type": "string"}]}, {"type": "array", "items": {"type": "string"}}),
        (TREE, TREE),
        ({**TREE, "title": "T"}, {**TREE, "description": "another one"}),
        ({"pattern": "^a"}, {"pattern": "^a", "type": "string"}),
        ({"allOf": [{"type": "string"}, {"maxLength": 3}]}, {"type": "string", "maxLength": 2}),
        ({"type": "string"}, {"allOf": [{"type": "string"}, {"maxLength": 3}]}),
        ({"type": "number", "multipleOf": 2}, {"type": "integer", "multipleOf": 4}),
        ({"additionalProperties": {"type": "integer"}, "type": "object"}, OPEN | {"properties": {"a": {"type": "integer"}}}),
    ],
)  # fmt: skip
def test_what_is_written_by_the_one_is_read_by_the_other(reader, writer) -> None:
    assert json_schema.not_read(reader, writer) == []


@pytest.mark.parametrize(
    ("reader", "writer", "why"),
    [
        ({**OPEN, "required": ["a", "b"]}, OPEN, "/b: is required, and may be missing"),
        (also(OPEN, a={"type": "string"}), OPEN, "/a: may be integer, which is not allowed any more"),
        (OPEN, also(OPEN, a={"type": "number"}), "/a: may be number, which is not allowed any more"),
        (OPEN, also(OPEN, a={"type": ["integer", "null"]}), "/a: may be null, which is not allowed any more"),
        (also(OPEN, a={"anyOf": [{"type": "string"}, {"type": "null"}]}), OPEN, "/a: fits none of anyOf"),
        ({**OPEN, "properties": {"a": {}}, "additionalProperties": False}, OPEN, "/b: is not allowed any more"),
        ({"enum": [1, 2]}, {"enum": [1, 2, 3]}, "/: 3 is not allowed any more"),
        ({"enum": [1]}, {"type": "integer"}, "/: may be another value than the 1 that are allowed"),
        ({"enum": [True]}, {"enum": [1]}, "/: may be integer, which is not allowed any more"),
        ({"minimum": 1}, {"minimum": 0}, "/: may be less than 1, which is the least"),
        ({"exclusiveMinimum": 1}, {"minimum": 1}, "/: may be less than 1, which is the least"),
        ({"maximum": 1}, {}, "/: may be more than 1, which is the most"),
        ({"maxLength": 1}, {"maxLength": 2}, "/: maxLength is 1, and was 2"),
        ({"minItems": 1}, {}, "/: minItems is 1, and was 0"),
        ({"multipleOf": 3}, {"multipleOf": 2}, "/: need not be a multiple of 3"),
        ({"pattern": "^a"}, {"pattern": "^b"}, "/: pattern cannot be compared, and is another one"),
        ({"not": {"type": "null"}}, {}, "/: not cannot be compared, and is another one"),
        ({"items": {"type": "string"}}, {"items": {"type": "integer"}}, "/*: may be integer, which is not allowed any more"),
        ({"items": False}, {"type": "array"}, "/*: is not allowed"),
        ({"prefixItems": [{"type": "string"}]}, {"type": "array", "items": {"type": "null"}}, "/0: may be null,"),
        ({"items": [{}]}, {"items": {}}, "/*: items cannot be compared, and are others"),
        (OPEN, {"type": "object", "additionalProperties": {"type": "string"}}, "/a: is required, and may be missing"),
        ({"additionalProperties": {"type": "null"}}, OPEN, "/a: may be integer, which is not allowed any more"),
    ],
)  # fmt: skip
def test_what_may_be_written_and_not_be_read_is_told_with_its_path(reader, writer, why) -> None:
    assert any(found.startswith(why) for found in json_schema.not_read(reader, writer)), json_schema.not_read(
        reader, writer
    )


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        ({"$ref": "#/$defs/n", "minimum": 5, "$defs": {"n": {"minimum": 0}}}, {"minimum": 0}),
        ({"$ref": "#/$defs/n", "maximum": 5, "$defs": {"n": {"maximum": 9}}}, {"maximum": 9}),
        ({"$ref": "#/$defs/n", "enum": [1], "$defs": {"n": {"enum": [1, 2]}}}, {"enum": [1, 2]}),
        (
            {"$ref": "#/$defs/n", "properties": {"a": {"minLength": 3}}, "$defs": {"n": {"properties": {"a": {}}}}},
            {"properties": {"a": {"type": "string"}}},
        ),
        ({"allOf": [{"minimum": 5}, {"minimum": 0}]}, {"minimum": 0}),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, {"type": "integer"}),
        ({"oneOf": [{"minimum": 0}, {"maximum": 9}], "type": "integer"}, {"minimum": 0, "maximum": 9, "type": "integer"}),
        ({"const": 1, "enum": [1, 2]}, {"enum": [1, 2]}),
        ({"const": 1, "enum": [2]}, {"const": 1}),
        ({"enum": [[1]]}, {"enum": [[True]]}),
        ({"type": "number", "minimum": 1, "exclusiveMinimum": True}, {"type": "number", "minimum": 1}),
        ({"properties": {"a": {"type": "string"}}}, {"required": ["a"]}),
        ({"additionalProperties": False}, {"type": "object", "patternProperties": {"^a": {}}}),
        ({"contains": {"const": 1}}, {"type": "array", "contains": {"const": 1}, "minContains": 0}),
        (
            {"properties": {"a": {}}, "unevaluatedProperties": False},
            {"properties": {"a": {}, "b": {}}, "unevaluatedProperties": False},
        ),
        (
            {"not": {"$ref": "#/$defs/n"}, "$defs": {"n": {"type": "string"}}},
            {"not": {"$ref": "#/$defs/n"}, "$defs": {"n": {"type": "null"}}},
        ),
        (
            {"minimum": 5},
            {"$ref": "#/$defs/n", "minimum": 5, "$defs": {"n": {}}, "$schema": "http://json-schema.org/draft-07/schema#"},
        ),
    ],
)  # fmt: skip
def test_what_is_said_of_one_value_in_several_places_is_not_taken_for_compatible(reader, writer) -> None:
    assert json_schema.not_read(reader, writer)


@pytest.mark.parametrize(
    "schema",
    [
        {"oneOf": [{"required": ["a"]}, {"required": ["b"]}], "properties": {"a": {}, "b": {}}},
        {"oneOf": [{"properties": {"kind": {"const": kind}}, "required": ["kind"], "type": "object"} for kind in "ab"]},
        {"$ref": "#/$defs/n", "$defs": {"n": {"anyOf": [{"type": "null"}, {"items": {"$ref": "#/$defs/n"}, "type": "array"}]}}},
        {"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}], "unevaluatedProperties": False},
    ],
)  # fmt: skip
def test_a_schema_of_several_parts_may_get_an_optional_property(schema) -> None:
    more = also(schema, z={"type": "string"}) if "properties" in schema else schema
    assert json_schema.not_read(more, schema) == []


def test_intricate_schemas_end_in_a_complaint() -> None:
    """Definitions that refer to each other in ever new ways neither hang nor use up the stack."""
    refs = [{"$ref": f"#/$defs/{number}", "minLength": number} for number in range(12)]
    defs = {str(number): {"anyOf": refs, "properties": {"x": refs[number - 1]}} for number in range(12)}
    reader = {"$ref": "#/$defs/0", "$defs": defs}
    writer = {"$ref": "#/$defs/1", "$defs": json.loads(json.dumps(defs).replace("minLength", "maxLength"))}
    assert any("too intricate" in why for why in json_schema.not_read(reader, writer))


def test_enums_are_compared_in_steps_of_their_sizes(monkeypatch) -> None:
    values = [f"value {number}" for number in range(3000)]
    assert json_schema.not_read({"enum": values}, {"enum": values[::-1]}) == []
    assert json_schema.not_read({"enum": values}, {"enum": [*values, "z"]}) == ['/: "z" is not allowed any more']
    monkeypatch.setattr(json_schema, "SCHEMA_STEPS_MAX", 5000)
    assert "too intricate" in json_schema.not_read({"enum": values}, {"enum": values})[0]


def test_names_are_compared_in_steps_of_their_number(monkeypatch) -> None:
    names = [f"n{number}" for number in range(3000)]
    assert json_schema.not_read({"required": names}, {"required": names[::-1]}) == []
    monkeypatch.setattr(json_schema, "SCHEMA_STEPS_MAX", 5000)
    assert "too intricate" in json_schema.not_read({"required": names}, {"required": names})[0]


def chained(count, key):
    """Definitions each of which has the next one twice."""
    names = [f"#/$defs/a{number}" for number in range(1, count + 1)]
    defs = {f"a{number}": {key: [{"$ref": name}, {"$ref": name}]} for number, name in enumerate(names)}
    return {"$ref": "#/$defs/a0", "$defs": {**defs, f"a{count}": {}}}


def nested(count):
    return b'{"c":' * count + b"1" + b"}" * count


@pytest.mark.parametrize("key", ["allOf", "anyOf", "oneOf"])
def test_a_schema_whose_parts_apply_to_one_value_without_bound_is_refused(key) -> None:
    json_data.checker(json.dumps(chained(8, key)).encode())
    with pytest.raises(SchemaError, match="more than 10000 of its parts apply to one value"):
        json_data.checker(json.dumps(chained(30, key)).encode())


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"anyOf": [{"$ref": "#"}]}, "refers to itself without end"),
        ({"$ref": "#/$defs/0", "$defs": {**{str(n): {"$ref": f"#/$defs/{n + 1}"} for n in range(900)}, "900": {}}}, "in a chain"),
        ({"patternProperties": {"x{9999}": {}, "(y{200}){100}": {}}}, "patterns have more than 20000 characters"),
        ({"$ref": "#/$defs/%61", "$defs": {"a": {}}}, "only definitions of the schema itself"),
        ({"$defs": {"a": {"$id": "http://x/a"}}}, "only the schema itself has an id"),
    ],
)  # fmt: skip
def test_a_schema_that_cannot_be_weighed_is_refused(schema, why) -> None:
    with pytest.raises(SchemaError, match=why):
        json_data.checker(json.dumps(schema).encode())


def test_data_of_which_a_recursive_schema_makes_too_much_work_is_refused() -> None:
    """Each level of the data doubles the steps: as many as a check may have are done, and no more."""
    part = {"properties": {"c": {"$ref": "#/$defs/n"}}}
    check = json_data.checker(
        json.dumps({"$ref": "#/$defs/n", "$defs": {"n": {"anyOf": [part, {**part, "title": "x"}]}}}).encode()
    )
    assert check(nested(10)) == ""
    assert check(nested(40)) == "/: is too large to be checked by this schema"


def test_long_texts_are_matched_with_small_patterns_only() -> None:
    small, large = (
        json_data.checker(json.dumps({"pattern": pattern}).encode()) for pattern in ("^[a-z ]*$", "a(a|b){1000}$")
    )
    data = json.dumps("ab " * 300_000).encode()
    assert small(data) == ""
    assert large(data) == "/: is too large to be checked by this schema"
    assert large(b'"a"') == '/: "a" does not match "a(a|b){1000}$"'


@pytest.mark.parametrize(
    ("pattern", "size"),
    [
        ("", 0),
        ("abc", 3),
        (r"\d{3}-[a-z{9}]{2,4}", 8),
        ("(ab){3}", 6),
        ("((ab){3}){4}", 24),
        ("a{", 2),
        ("a{2,}", 2),
        ("a{x}", 4),
    ],
)
def test_the_size_of_a_pattern_has_its_repeats_written_out(pattern, size) -> None:
    assert pattern_size(pattern) == size


def test_ordinary_schemas_are_light() -> None:
    """Large data of plain records, and deep data of a schema for any value, is checked whatever its size and depth."""
    record = {
        "properties": {"id": {"type": "string", "pattern": "^[0-9a-f]{8}-[0-9a-f]{4}$"}, "n": {"type": "number"}},
        "required": ["n"],
    }
    check = json_data.checker(json.dumps({"type": "array", "items": record}).encode())
    assert check(json.dumps([{"id": "01234567-89ab", "n": 1}] * 30_000).encode()) == ""
    value = [
        {"type": "number"},
        {"items": {"$ref": "#/$defs/v"}, "type": "array"},
        {"additionalProperties": {"$ref": "#/$defs/v"}, "type": "object"},
    ]
    check = json_data.checker(json.dumps({"$ref": "#/$defs/v", "$defs": {"v": {"oneOf": value}}}).encode())
    assert check(nested(60)) == ""
    assert check(json.dumps([[1, {"a": 2}]] * 50_000).encode()) == ""


def numbered(*schemas):
    return [
        NumberedText(at, SchemaText(SchemaKind.JSON, json.dumps(each).encode())) for at, each in enumerate(schemas, 1)
    ]


def test_promises_are_kept_to_all_versions() -> None:
    text, number, both = ({"type": one} for one in ("string", "integer", ["string", "integer"]))
    new = SchemaText(SchemaKind.JSON, json.dumps(both).encode())
    assert incompatible(new, numbered(text, number), Compatibility.BACKWARD) == []
    assert len(incompatible(new, numbered(text, number), Compatibility.FORWARD)) == 2
    assert incompatible(new, numbered(text, number), Compatibility.FULL)[0].startswith("is not read by version 2: /: ")
    assert incompatible(numbered(text)[0].schema, numbered(number), Compatibility.NONE) == []
    assert compared(new, numbered(text)[0].schema) == ([], ["/: may be integer, which is not allowed any more"])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "no JSON"),
        (b"[]", "a schema is an object"),
        (b'{"minimum": NaN}', "NaN is no JSON"),
        (b'{"a": ' * 70 + b"1" + b"}" * 70, "nested too deeply"),
        (b'{"a": ' * 5000 + b"1" + b"}" * 5000, ""),
        (b'{"$ref": "http://example.com/"}', "only definitions of the schema itself"),
        (b'{"$ref": "#/nowhere"}', "only definitions of the schema itself"),
        (b'{"$dynamicRef": "#x"}', "only definitions of the schema itself"),
        (b"x" * (limits.SCHEMA_BYTES_MAX + 1), "at most 65536 bytes"),
    ],
)
def test_what_is_no_schema_is_told(text, why) -> None:
    found = fault(SchemaText(SchemaKind.JSON, text))
    assert found
    assert why in found


# --- data -------------------------------------------------------------------------------------------------------------

DATA = {
    "type": "object",
    "properties": {"a/b": {"type": "array", "items": {"type": "object", "required": ["x~y"]}}, "n": {"maximum": 5}},
    "patternProperties": {"^x-": {"type": "string", "pattern": "^(a+)+$"}},
}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"{}", ""),
        (b'{"a/b": [{"x~y": 1}], "n": 5}', ""),
        (b'{"a/b": [{"x~y": 1}, {}]}', '/a~1b/1/x~0y: "x~y" is a required property'),
        (b'{"n": 6}', "/n: 6 is greater than the maximum of 5"),
        (b"[]", '/: [] is not of type "object"'),
        (b"\xff", "/: is no JSON in UTF-8"),
        (b"", "/: is no JSON in UTF-8"),
        (b'{"n": Infinity}', "/: is no JSON in UTF-8"),
        (b'{"n": ' + b"9" * 5000 + b"}", "/: is no JSON in UTF-8"),
        (b"[" * 100_000, "/: is no JSON in UTF-8"),
        (b"[" * 66 + b"]" * 66, "/: is nested deeper than 64 levels"),
        (b'{"d":' * 65 + b"1" + b"}" * 65, "/: is nested deeper than 64 levels"),
    ],
)
def test_data_is_checked(data, why) -> None:
    assert json_data.checker(json.dumps(DATA).encode())(data) == why


def test_patterns_take_time_in_proportion_to_the_data() -> None:
    """An expression that takes a backtracking engine for ever."""
    check = json_data.checker(json.dumps(DATA).encode())
    assert check(json.dumps({"x-1": "a" * 200_000 + "b"}).encode())


def test_schemas_that_cannot_be_checked_are_refused(monkeypatch) -> None:
    for text in (b'{"pattern": "(?=a)"}', b'{"type": "foo"}', b'{"$schema": "urn:another"}', b'{"minimum": "x"}'):
        with pytest.raises(SchemaError):
            json_data.checker(text)
    monkeypatch.setattr(json_data, "AVAILABLE", False)
    with pytest.raises(SchemaError, match="jsonschema-rs"):
        json_data.checker(b"{}")
