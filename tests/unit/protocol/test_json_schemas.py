"""JSON Schemas: what the registry takes, which versions read each other's messages, and what data fits."""

import json
import random

import pytest
from jsonschema import Draft202012Validator

from stan import limits
from stan.protocol.schemas import json_data, json_schema
from stan.protocol.schemas.kinds import Compatibility, SchemaError, SchemaKind
from stan.protocol.schemas.rules import NumberedText, SchemaText, compared, fault, incompatible

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


def a_schema(chance, depth=3):
    """A schema by chance, of what the comparison knows."""
    kind = chance.choice(
        ["integer", "number", "string", "array", "object", "enum", "anyOf", "null", "any"][: 9 if depth else 3]
    )
    match kind:
        case "integer" | "number":
            bounds = {
                "minimum": chance.randrange(3),
                "maximum": chance.randrange(3, 6),
                "multipleOf": chance.choice([1, 2]),
            }
            return {"type": kind} | {key: bounds[key] for key in chance.sample(sorted(bounds), chance.randrange(3))}
        case "string":
            return {"type": kind} | chance.choice([{}, {"maxLength": chance.randrange(1, 4)}, {"minLength": 1}])
        case "array":
            return {"type": kind, "items": a_schema(chance, depth - 1)} | chance.choice(
                [{}, {"maxItems": chance.randrange(3)}]
            )
        case "object":
            names = chance.sample("abc", chance.randrange(4))
            found = {"type": kind, "properties": {name: a_schema(chance, depth - 1) for name in names}}
            found["additionalProperties"] = chance.choice([False, {"type": "integer"}])
            return found | chance.choice([{}, {"required": [*names[:1]]}])
        case "enum":
            return {"enum": chance.sample([None, 1, 2, "x", [], {}], chance.randrange(1, 4))}
        case "anyOf":
            return {"anyOf": [a_schema(chance, depth - 1) for _ in range(2)]}
        case "null":
            return {"type": "null"}
    return {}


def a_value(chance, depth=3):
    match chance.randrange(7 if depth else 5):
        case 0:
            return None
        case 1 | 2:
            return chance.choice([0, 1, 2, 3, 4, 5, 6])
        case 3:
            return chance.choice([0.5, 2.5])
        case 4:
            return "x" * chance.randrange(4)
        case 5:
            return [a_value(chance, depth - 1) for _ in range(chance.randrange(3))]
    return {name: a_value(chance, depth - 1) for name in chance.sample("abc", chance.randrange(3))}


def test_no_value_of_a_writer_is_refused_by_a_reader_that_is_said_to_read_it() -> None:
    """The comparison against another validator of JSON Schema, over schemas and values by chance."""
    chance, agreed = random.Random(11), 0
    for _ in range(6000):
        writer = a_schema(chance)
        reader = (
            a_schema(chance)
            if chance.random() < 0.5
            else {**writer, **chance.choice([{}, {"maximum": 5}, {"title": "t"}])}
        )
        if json_schema.not_read(reader, writer):
            continue
        wrote, reads = Draft202012Validator(writer), Draft202012Validator(reader)
        for _ in range(30):
            value = a_value(chance)
            if wrote.is_valid(value):
                agreed += 1
                assert reads.is_valid(value), (writer, reader, value)
    assert agreed > 5000


def test_a_schema_reads_itself() -> None:
    chance = random.Random(12)
    for _ in range(2000):
        schema = a_schema(chance)
        assert json_schema.not_read(schema, schema) == [], schema


def test_intricate_schemas_end_in_a_complaint() -> None:
    """Definitions that refer to each other in ever new ways neither hang nor use up the stack."""
    refs = [{"$ref": f"#/$defs/{number}", "minLength": number} for number in range(12)]
    defs = {str(number): {"anyOf": refs, "properties": {"x": refs[number - 1]}} for number in range(12)}
    reader = {"$ref": "#/$defs/0", "$defs": defs}
    writer = {"$ref": "#/$defs/1", "$defs": json.loads(json.dumps(defs).replace("minLength", "maxLength"))}
    assert any("too intricate" in why for why in json_schema.not_read(reader, writer))


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
        (b"[" * 65 + b"]" * 65, "/: is nested deeper than 64 levels"),
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
