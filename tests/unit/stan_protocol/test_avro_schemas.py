"""Avro schemas: what is one, which versions read each other's data (against fastavro), and what data fits."""

import io
import json
import random

import fastavro
import pytest
from stan_protocol.schemas import avro
from stan_protocol.schemas.kinds import SchemaError


def record(*fields, name="R", **more):
    return {
        "type": "record",
        "name": name,
        "fields": [dict(zip(("name", "type", "default"), one, strict=False)) for one in fields],
        **more,
    }


def parsed(schema):
    return avro.parse(json.dumps(schema).encode())


TREE = record(("left", ["null", "Tree"]), ("value", "int"), name="Tree")


@pytest.mark.parametrize(
    ("reader", "writer", "why"),
    [
        ("long", "int", None),
        ("int", "long", "/: may be long, and is read as int"),
        ("string", "bytes", None),
        (["null", "string"], "string", None),
        ("string", ["null", "string"], "/: may be null, and is read as string"),
        (["null", "int"], "string", "/: may be string, which no branch of the union reads"),
        (record(("a", "int"), ("b", "int", 0)), record(("a", "int")), None),
        (record(("a", "int"), ("b", "int")), record(("a", "int")), "/b: has no default, and is not written"),
        (record(("a", "int")), record(("a", "int"), ("b", "int")), None),
        (record(("a", "string")), record(("a", "int")), "/a: may be int"),
        (record(("a", "int"), name="S"), record(("a", "int")), "/: is called R, and is read as S"),
        (record(("a", "int"), name="S", aliases=["R"]), record(("a", "int")), None),
        (record(("a", "int"), name="x.R"), record(("a", "int"), name="y.R"), None),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, {"type": "enum", "name": "E", "symbols": ["A", "B"]}, "/: symbol B"),
        (
            {"type": "enum", "name": "E", "symbols": ["A"], "default": "A"},
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
            None,
        ),
        ({"type": "fixed", "name": "F", "size": 3}, {"type": "fixed", "name": "F", "size": 4}, "/: has 4 bytes"),
        ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}, None),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "long"}, "/*: may be long, and is read as int"),
        (TREE, TREE, None),
        ({**TREE, "fields": TREE["fields"][:1]}, TREE, None),
        (TREE, {**TREE, "fields": TREE["fields"][:1]}, "/value: has no default, and is not written"),
    ],
)  # fmt: skip
def test_versions_are_compared_by_the_rules_of_resolution(reader, writer, why) -> None:
    found = avro.not_read(parsed(reader), parsed(writer))
    assert found == [] if why is None else found[0].startswith(why), found


def test_a_renamed_field_is_read_by_its_alias() -> None:
    reader = record(("new", "int"))
    reader["fields"][0]["aliases"] = ["old"]
    assert avro.not_read(parsed(reader), parsed(record(("old", "int")))) == []


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("nothing", '"nothing" is no type'),
        ({}, "null is no type"),
        (7, "no type"),
        (["int", "int"], "branches of different types"),
        ([["int"], "null"], "no union among them"),
        ([], "branches of different types"),
        (record(("a", "int"), ("a", "int")), "fields with different names"),
        ({"type": "record", "name": "R"}, "fields with different names"),
        ({"type": "record", "fields": []}, "a record has a name"),
        ({"type": "fixed", "name": "F"}, "a fixed has a size"),
        ({"type": "fixed", "name": "F", "size": True}, "a fixed has a size"),
        ({"type": "enum", "name": "E", "symbols": ["A", "A"]}, "different symbols"),
        (record(("a", record(("x", "int"))), ("b", record(("y", "int")))), "R is declared twice"),
        ({"type": "array"}, "/items: no type"),
    ],
)
def test_what_is_no_schema_is_told(schema, why) -> None:
    with pytest.raises(SchemaError, match=why):
        parsed(schema)


def test_schemas_nested_too_deeply_and_endless_chains() -> None:
    deep = "int"
    for _ in range(70):
        deep = {"type": "array", "items": deep}
    with pytest.raises(SchemaError, match="too deeply"):
        parsed(deep)
    with pytest.raises(SchemaError, match="no JSON"):
        avro.parse(b"[" * 100_000)
    chain = ["null", record(("x", "int"), name="R0")]
    chain += [record(("x", f"R{number - 1}"), name=f"R{number}") for number in range(1, 500)]
    last = record(("all", chain), ("x", "R499"), name="Last")
    assert any("too intricate" in why for why in avro.not_read(parsed(last), parsed(last)))


# --- data -------------------------------------------------------------------------------------------------------------

PERSON = record(
    ("name", "string"),
    ("age", ["null", "int"]),
    ("tags", {"type": "array", "items": "string"}),
    ("scores", {"type": "map", "values": "double"}),
    ("kind", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}),
    ("id", {"type": "fixed", "name": "Id", "size": 4}),
    ("ok", "boolean"),
    ("raw", "bytes"),
    ("when", {"type": "long", "logicalType": "unheard-of"}),
    ("next", ["null", "R"]),
)


def a_person(chance, depth=2):
    return {
        "name": "é" * chance.randrange(5),
        "age": chance.choice([None, 0, -1, 2**31 - 1]),
        "tags": ["x" * n for n in range(chance.randrange(4))],
        "scores": {str(n): n / 3 for n in range(chance.randrange(4))},
        "kind": chance.choice("AB"),
        "id": b"1234",
        "ok": chance.choice([True, False]),
        "raw": chance.randbytes(chance.randrange(5)),
        "when": chance.randrange(2**62),
        "next": a_person(chance, depth - 1) if depth and chance.random() < 0.5 else None,
    }


def written(schema, value):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def test_what_fastavro_writes_fits_and_a_part_of_it_does_not() -> None:
    chance, check = random.Random(3), avro.checker(parsed(PERSON))
    for _ in range(200):
        data = written(PERSON, a_person(chance))
        assert check(data) == ""
        assert check(data + b"\0") == "/: 1 bytes are left over"
        assert check(data[: chance.randrange(len(data))])


def test_bytes_by_chance_fit_only_if_fastavro_reads_them_to_their_end() -> None:
    chance, check, fitting = random.Random(4), avro.checker(parsed(PERSON)), 0
    schema = fastavro.parse_schema(PERSON)
    for _ in range(3000):
        data = bytearray(written(PERSON, a_person(chance, 1)))
        data[chance.randrange(len(data))] = chance.randrange(256)
        if check(bytes(data)) == "":
            fitting += 1
            rest = io.BytesIO(bytes(data))
            fastavro.schemaless_reader(rest, schema, None)
            assert not rest.read()
    assert fitting > 100


@pytest.mark.parametrize(
    ("schema", "data", "why"),
    [
        (PERSON, b"", "/name: is cut off"),
        (PERSON, b"\x02\xff\0", "/name: is no text in UTF-8"),
        (PERSON, b"\x02a\x04", "/age: is no branch"),
        (PERSON, b"\x02a\0\x02\x0ab", "/tags/0: is cut off"),
        ("int", b"\xff\xff\xff\xff\xff\x01", "/: is no int"),
        ("long", b"\xff" * 10, "/: is no number"),
        ("boolean", b"\2", "/: is no boolean"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\2", "/: is no symbol"),
        ("bytes", b"\1", "/: is cut off"),
    ],
)
def test_what_does_not_fit_is_told_with_its_path(schema, data, why) -> None:
    assert avro.checker(parsed(schema))(data) == why


def test_a_few_bytes_that_tell_of_billions_of_items_take_no_time() -> None:
    billions = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"
    nothing = {"type": "array", "items": "null"}
    assert "more items than bytes" in avro.checker(parsed(nothing))(billions)
    assert "more items than bytes" in avro.checker(parsed({"type": "array", "items": record()}))(billions)
    assert "is cut off" in avro.checker(parsed({"type": "map", "values": "null"}))(billions)
    assert "nested too deeply" in avro.checker(parsed(record(("next", ["null", "R"]))))(b"\x02" * 100)
