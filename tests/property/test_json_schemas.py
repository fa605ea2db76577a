"""JSON Schemas by chance: which versions read each other's messages, against other validators that look at values by chance."""

import json
import random
from functools import partial

import jsonschema_rs
from jsonschema import Draft202012Validator
from stan_protocol.schemas import json_schema


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


DEFINITIONS = ("d", "e")


def a_rich_schema(chance, depth=3):
    """A schema by chance with all that keywords do to each other: references, several parts of one value, conditions."""
    if not depth:
        return chance.choice([{}, {"type": "integer"}, {"enum": [1, "x"]}, {"const": 1}, {"type": "string"}])
    part = partial(a_rich_schema, chance, depth - 1)
    parts = {
        "type": lambda: chance.choice(["integer", "string", "object", "array", ["integer", "object"]]),
        "const": lambda: chance.choice([1, 1.0, "x", None, True]),
        "enum": lambda: chance.sample([None, 1, 2, "x", True, [], [True], {}], chance.randrange(1, 5)),
        "minimum": lambda: chance.randrange(4),
        "exclusiveMaximum": lambda: chance.randrange(2, 6),
        "minLength": lambda: chance.randrange(3),
        "$ref": lambda: f"#/$defs/{chance.choice(DEFINITIONS)}",
        "allOf": lambda: [part() for _ in range(chance.randrange(1, 3))],
        "anyOf": lambda: [part() for _ in range(chance.randrange(1, 3))],
        "oneOf": lambda: [part() for _ in range(chance.randrange(1, 3))],
        "not": part,
        "if": part,
        "then": part,
        "else": part,
        "properties": lambda: {name: part() for name in chance.sample("abc", chance.randrange(1, 3))},
        "patternProperties": lambda: {chance.choice(["a", "b|c"]): part()},
        "additionalProperties": lambda: chance.choice([False, part()]),
        "required": lambda: chance.sample("abc", 1),
        "items": part,
        "prefixItems": lambda: [part()],
        "contains": part,
        "minContains": lambda: chance.randrange(3),
        "unevaluatedProperties": lambda: chance.choice([False, {"type": "integer"}]),
        "uniqueItems": lambda: True,
    }
    return {name: parts[name]() for name in chance.sample(sorted(parts), chance.choice([1, 1, 2, 2, 3, 4]))}


def changed(chance, schema):
    """The schema with one place that was lost or is another one."""
    found = json.loads(json.dumps(schema))
    places = [
        (each, key) for _, each in json_schema.objects(found) for key in each if key not in ("$defs", *DEFINITIONS)
    ]
    if places:
        each, key = chance.choice(places)
        other = a_rich_schema(chance, 2)
        if chance.random() < 0.5 or key not in other:
            del each[key]
        else:
            each[key] = other[key]
    return found


def closed(schema):
    """The schema for data that has no properties but those that it names, which is what the comparison takes for granted."""
    for _, each in list(json_schema.objects(schema)):
        if "properties" in each or "required" in each:
            each.setdefault("additionalProperties", {})
    return schema


def test_no_sampled_value_refutes_that_schemas_of_many_parts_are_compatible() -> None:
    chance, agreed, compatible = random.Random(13), 0, 0
    for _ in range(2500):
        writer = {**a_rich_schema(chance), "$defs": {name: a_rich_schema(chance, 2) for name in DEFINITIONS}}
        reader = changed(chance, writer)
        wrote, reads = (jsonschema_rs.validator_for(closed(each)) for each in (writer, reader))
        if json_schema.not_read(reader, writer):
            continue
        compatible += 1
        for _ in range(60):
            value = a_value(chance)
            try:
                if wrote.is_valid(value):
                    agreed += 1
                    assert reads.is_valid(value), (writer, reader, value)
            except RecursionError:
                break
    assert compatible > 200
    assert agreed > 2000


def test_a_schema_reads_itself() -> None:
    chance = random.Random(12)
    for _ in range(2000):
        schema = a_schema(chance)
        assert json_schema.not_read(schema, schema) == [], schema
