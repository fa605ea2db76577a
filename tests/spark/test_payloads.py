"""Payloads without Spark: the columns of schemas, what types have in common, and values that fit them."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from google.protobuf import descriptor_pb2 as d
from google.protobuf import timestamp_pb2
from google.protobuf.message_factory import GetMessageClass
from pyspark_stan.payloads.json_schema import json_columns
from pyspark_stan.payloads.schema import PayloadSchema
from pyspark_stan.payloads.types import ddl, merged, parse_type
from pyspark_stan.payloads.values import UnfitError, fitting, fitting_fields
from stan_protocol.schemas.kinds import SchemaError
from stan_protocol.schemas.protobuf import parse

F = d.FieldDescriptorProto


def columns(schema):
    return ddl(json_columns(schema))


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        ({"type": "integer"}, "bigint"),
        ({"type": ["number", "null"]}, "double"),
        ({"type": ["integer", "number"]}, "double"),
        ({"anyOf": [{"type": "boolean"}, {"type": "null"}]}, "boolean"),
        ({"type": "string", "format": "date-time"}, "timestamp"),
        ({"type": "string", "format": "date"}, "date"),
        ({"enum": ["a", "b", None]}, "string"),
        ({"const": 7}, "bigint"),
        ({"type": "array", "items": {"type": "integer"}}, "array<bigint>"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "map<string,double>"),
        ({"type": "object", "properties": {"a b": {"type": "string"}}}, "struct<`a b`:string>"),
        ({"$ref": "#/$defs/line"}, "struct<`sku`:string,`next`:string>"),
        ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, "string"),
        ({"type": ["integer", "string"]}, "string"),
        ({"type": "object"}, "string"),
        ({"type": "array"}, "string"),
        ({"$ref": "#/nowhere"}, "string"),
        (True, "string"),
        ({}, "string"),
    ],
)
def test_a_json_schema_becomes_types(told, kind):
    line = {"type": "object", "properties": {"sku": {"type": "string"}, "next": {"$ref": "#/$defs/line"}}}
    schema = {"type": "object", "properties": {"x": told}, "$defs": {"line": line}}
    assert columns(schema) == f"`x` {kind}"
    assert str(parse_type(kind)) == kind


def test_a_schema_that_is_nested_without_end_is_text():
    told = {"type": "string"}
    for _ in range(200):
        told = {"type": "array", "items": told}
    assert columns({"properties": {"x": told}}).count("array") < 100


@pytest.mark.parametrize("schema", [b"true", b"[]", b'{"type": "object"}', b'{"type": "integer"}'])
def test_a_schema_without_properties_is_refused(schema):
    with pytest.raises(ValueError, match="tells no properties"):
        PayloadSchema("json", schema).columns()


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("int", "bigint", "bigint"),
        ("bigint", "double", "double"),
        ("bigint", "string", "string"),
        ("struct<a:int,b:string>", "struct<b:string,c:date,a:double>", "struct<`a`:double,`b`:string,`c`:date>"),
        ("array<struct<a:int>>", "array<struct<b:int>>", "array<struct<`a`:int,`b`:int>>"),
        ("map<string,int>", "map<string,bigint>", "map<string,bigint>"),
        ("array<int>", "int", "string"),
        ("decimal(9,2)", "decimal(9,3)", "string"),
    ],
)
def test_what_two_types_have_in_common(one, other, both):
    assert str(merged(parse_type(one), parse_type(other))) == both


# --- protobuf -----------------------------------------------------------------------------------------------------------


def field(name, number, kind, *, label=F.LABEL_OPTIONAL, type_name="", optional=False):
    found = F(name=name, number=number, type=kind, label=label, type_name=type_name or None)
    if optional:
        found.proto3_optional, found.oneof_index = True, 0
    return found


def order_descriptors():
    entry = d.DescriptorProto(name="TagsEntry", field=[field("key", 1, F.TYPE_STRING), field("value", 2, F.TYPE_INT32)])
    entry.options.map_entry = True
    line = d.DescriptorProto(name="Line", field=[field("sku", 1, F.TYPE_STRING), field("n", 2, F.TYPE_UINT64)])
    fields = [
        field("id", 1, F.TYPE_INT64),
        field("note", 2, F.TYPE_STRING, optional=True),
        field("lines", 3, F.TYPE_MESSAGE, label=F.LABEL_REPEATED, type_name=".shop.Line"),
        field("tags", 4, F.TYPE_MESSAGE, label=F.LABEL_REPEATED, type_name=".shop.Order.TagsEntry"),
        field("state", 5, F.TYPE_ENUM, type_name=".shop.State"),
        field("at", 6, F.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp"),
        field("blob", 7, F.TYPE_BYTES),
        field("first", 8, F.TYPE_MESSAGE, type_name=".shop.Line"),
    ]
    order = d.DescriptorProto(name="Order", field=fields, nested_type=[entry])
    order.oneof_decl.add(name="_note")
    state = d.EnumDescriptorProto(name="State")
    for number, name in enumerate(("PLACED", "PAID")):
        state.value.add(name=name, number=number)
    file = d.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3", message_type=[order, line])
    file.enum_type.append(state)
    file.dependency.append("google/protobuf/timestamp.proto")
    stamp = d.FileDescriptorProto.FromString(timestamp_pb2.DESCRIPTOR.serialized_pb)
    return d.FileDescriptorSet(file=[stamp, file]).SerializeToString()


def test_protobuf_becomes_columns_and_values():
    schema = PayloadSchema("protobuf", order_descriptors(), "shop.Order")
    assert ddl(schema.columns()) == (
        "`id` bigint, `note` string, `lines` array<struct<`sku`:string,`n`:decimal(20,0)>>, `tags` map<string,int>, "
        "`state` string, `at` timestamp, `blob` binary, `first` struct<`sku`:string,`n`:decimal(20,0)>"
    )
    kind = GetMessageClass(parse(schema.text, schema.message))
    message = kind(id=7, lines=[{"sku": "bolt", "n": 1 << 63}], tags={"m": 6}, state=1, blob=b"\xff")
    message.at.FromJsonString("2026-03-01T12:00:00.5Z")
    fit = fitting_fields(schema.columns())
    assert fit(schema.reader()(message.SerializeToString())) == {
        "id": 7,
        "note": None,
        "lines": [{"sku": "bolt", "n": Decimal(1 << 63)}],
        "tags": [("m", 6)],
        "state": "PAID",
        "at": datetime(2026, 3, 1, 12, 0, 0, 500_000, UTC),
        "blob": b"\xff",
        "first": None,
    }
    unknown = schema.reader()(kind(state=9).SerializeToString())
    assert unknown["state"] == "9"
    with pytest.raises(Exception, match="parsing"):
        schema.reader()(b"\xff\xff")


def test_a_message_that_contains_itself_is_refused():
    node = d.DescriptorProto(name="Node", field=[field("next", 1, F.TYPE_MESSAGE, type_name=".a.Node")])
    file = d.FileDescriptorProto(name="a.proto", package="a", syntax="proto3", message_type=[node])
    text = d.FileDescriptorSet(file=[file]).SerializeToString()
    with pytest.raises(SchemaError, match=r"a\.Node contains itself"):
        PayloadSchema("protobuf", text, "a.Node").columns()


# --- values -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value", "fits"),
    [
        ("bigint", 7, 7),
        ("bigint", 7.0, 7),
        ("double", 7, 7.0),
        ("string", "é", "é"),
        ("string", {"a": [1, None]}, '{"a": [1, null]}'),
        ("string", 1.5, "1.5"),
        ("timestamp", "2026-03-01T12:00:00Z", datetime(2026, 3, 1, 12, tzinfo=UTC)),
        ("timestamp", "2026-03-01T12:00:00", datetime(2026, 3, 1, 12, tzinfo=UTC)),
        ("date", "2026-03-01", date(2026, 3, 1)),
        ("array<int>", [1, None], [1, None]),
        ("map<string,int>", {"a": 1}, [("a", 1)]),
        ("struct<a:int,b:string>", {"a": 1, "z": 2}, {"a": 1, "b": None}),
        ("decimal(20,0)", 12, Decimal(12)),
        ("int", None, None),
    ],
)
def test_values_that_fit(kind, value, fits):
    assert fitting(parse_type(kind))(value) == fits


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *[("bigint", value) for value in (1.5, "7", True, 1 << 63, float("nan"), [])],
        *[("int", 1 << 31), ("double", "1.5"), ("double", True), ("double", 10**400), ("boolean", 1)],
        *[("string", "\ud800"), ("binary", "a"), ("timestamp", 5), ("timestamp", "soon"), ("date", 5)],
        *[("array<int>", "ab"), ("map<string,int>", []), ("struct<a:int>", [1]), ("struct<a:int>", {"a": "x"})],
    ],
)
def test_values_that_do_not_fit(kind, value):
    with pytest.raises(UnfitError):
        fitting(parse_type(kind))(value)


def test_what_does_not_fit_is_named_by_its_path():
    fit = fitting_fields({"order": parse_type("struct<line:struct<n:int>>")})
    with pytest.raises(UnfitError, match=r"^order\.line\.n: 'x' is no int$"):
        fit({"order": {"line": {"n": "x"}}})


@pytest.mark.parametrize("text", ["7", "[]", "{", '"a"', ""])
def test_what_is_no_json_object_is_refused(text):
    with pytest.raises((ValueError, TypeError)):
        PayloadSchema("json", json.dumps({}).encode()).reader()(text.encode())
