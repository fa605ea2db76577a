"""Data of messages decoded by their schemas: Avro, protobuf and JSON as JSON text, and what does not fit is refused."""

import io
import json
import math

import fastavro
import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from stan_protocol.schemas.decoding import decoder
from stan_protocol.schemas.kinds import SchemaError, SchemaKind
from stan_protocol.schemas.rules import SchemaText

RECORD = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "paid", "type": "boolean"},
        {"name": "total", "type": "double"},
        {"name": "weight", "type": "float"},
        {"name": "count", "type": "int"},
        {"name": "raw", "type": "bytes"},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "DONE"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "by", "type": {"type": "map", "values": "long"}},
    ],
}
VALUE = {
    "id": 12345678901234567890 % (1 << 62),
    "note": "größer",
    "paid": True,
    "total": 2.5,
    "weight": 0.5,
    "count": -7,
    "raw": b"\x00\xff",
    "hash": b"ab",
    "state": "DONE",
    "tags": ["a", "b"],
    "by": {"x": 1},
}


def avro(schema) -> SchemaText:
    return SchemaText(SchemaKind.AVRO, json.dumps(schema).encode())


def written(schema, value) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def test_avro_is_decoded_as_another_program_has_written_it():
    found = json.loads(decoder(avro(RECORD))(written(RECORD, VALUE)))
    assert found == VALUE | {"raw": "\x00ÿ", "hash": "ab"}


def test_whole_numbers_keep_all_digits():
    assert decoder(avro("long"))(written("long", (1 << 62) + 1)) == str((1 << 62) + 1)


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_numbers_that_json_does_not_have_are_texts(number):
    assert decoder(avro("double"))(written("double", number)) == f'"{number}"'


@pytest.mark.parametrize(
    "data", [b"", b"\x02", b"\xff" * 11, written(RECORD, VALUE)[:-1], written(RECORD, VALUE) + b"x"]
)
def test_avro_that_does_not_fit_is_refused(data):
    with pytest.raises(ValueError, match=r"\w"):
        decoder(avro(RECORD))(data)


def test_few_bytes_do_not_become_billions_of_items():
    billions = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x00"
    with pytest.raises(ValueError, match="more items than bytes"):
        decoder(avro({"type": "array", "items": "null"}))(billions)


def descriptors() -> bytes:
    file = FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    optional = FieldDescriptorProto.LABEL_OPTIONAL
    message.field.add(name="order_id", number=1, type=FieldDescriptorProto.TYPE_INT64, label=optional)
    message.field.add(name="note", number=2, type=FieldDescriptorProto.TYPE_STRING, label=optional)
    return FileDescriptorSet(file=[file]).SerializeToString()


def test_protobuf_is_decoded_under_the_names_of_its_fields():
    decode = decoder(SchemaText(SchemaKind.PROTOBUF, descriptors(), "shop.Order"))
    assert json.loads(decode(b"\x08\x07\x12\x02hi")) == {"order_id": "7", "note": "hi"}
    with pytest.raises(ValueError, match=r"is no shop\.Order"):
        decode(b"\x08")


def test_json_stays_as_it_is_written():
    decode = decoder(SchemaText(SchemaKind.JSON, b'{"type": "object"}'))
    assert decode(b'{"big": 12345678901234567890}') == '{"big": 12345678901234567890}'
    for data in (b"{", b"[" * 100_000, b"\xff"):
        with pytest.raises(ValueError, match=r"\w"):
            decode(data)


def test_text_that_is_no_schema_is_refused():
    with pytest.raises(SchemaError):
        decoder(SchemaText(SchemaKind.AVRO, b"{}"))
