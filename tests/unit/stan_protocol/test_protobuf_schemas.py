"""Protobuf as schemas: descriptors, which versions understand each other, and what data fits."""

import random
from types import SimpleNamespace

import pytest
from google.protobuf import descriptor_pb2 as d
from google.protobuf.message import DecodeError
from stan_protocol.proto import wire_pb2
from stan_protocol.schemas import protobuf
from stan_protocol.schemas.kinds import SchemaError

from stan.protocol.proto import entries_pb2

F = d.FieldDescriptorProto


def message(*fields, name="Order", nested=(), enums=()):
    made = d.DescriptorProto(name=name, nested_type=nested, enum_type=enums)
    for number, label, kind, type_name, called in fields:
        made.field.add(name=called, number=number, label=label, type=kind, type_name=type_name or None)
    return made


def one(number, kind, called="", type_name="", label=F.LABEL_OPTIONAL):
    return number, label, kind, type_name, called or f"f{number}"


def many(number, kind, called=""):
    return one(number, kind, called, label=F.LABEL_REPEATED)


def descriptors(*messages, syntax="proto3", enums=()):
    file = d.FileDescriptorProto(name="a.proto", package="shop", syntax=syntax, message_type=messages, enum_type=enums)
    return d.FileDescriptorSet(file=[file]).SerializeToString()


def parsed(*fields, **more):
    return protobuf.parse(descriptors(message(*fields), **more), "shop.Order")


@pytest.mark.parametrize(
    ("reader", "writer", "why"),
    [
        ([one(1, F.TYPE_INT32)], [one(1, F.TYPE_INT32)], None),
        ([one(1, F.TYPE_INT32), one(2, F.TYPE_STRING)], [one(1, F.TYPE_INT32)], None),
        ([], [one(1, F.TYPE_INT32)], None),
        ([one(1, F.TYPE_INT64)], [one(1, F.TYPE_INT32)], None),
        ([one(1, F.TYPE_INT32)], [one(1, F.TYPE_INT64)], "/f1: field 1 is int64, and is read as int32"),
        ([one(1, F.TYPE_STRING)], [one(1, F.TYPE_BYTES)], "/f1: field 1 is bytes, and is read as string"),
        ([one(1, F.TYPE_BYTES)], [one(1, F.TYPE_STRING)], None),
        ([one(1, F.TYPE_STRING, "new")], [one(1, F.TYPE_STRING, "old")], None),
        ([many(1, F.TYPE_INT32)], [one(1, F.TYPE_INT32)], "/f1: field 1 has one value, and is read as many"),
        ([one(1, F.TYPE_SINT32)], [one(1, F.TYPE_INT32)], "/f1: field 1 is int32, and is read as sint32"),
        (
            [one(1, F.TYPE_MESSAGE, "", ".shop.Order"), one(2, F.TYPE_STRING)],
            [one(1, F.TYPE_MESSAGE, "", ".shop.Order"), one(2, F.TYPE_BOOL)],
            "/f2: field 2 is bool, and is read as string",
        ),
    ],
)
def test_versions_are_compared_by_their_bytes(reader, writer, why) -> None:
    assert protobuf.not_read(parsed(*reader), parsed(*writer)) == ([] if why is None else [why])


def test_required_fields_and_closed_enums() -> None:
    colour = d.EnumDescriptorProto(name="Colour", value=[d.EnumValueDescriptorProto(name="RED", number=0)])
    more = d.EnumDescriptorProto(
        name="Colour", value=[*colour.value, d.EnumValueDescriptorProto(name="BLUE", number=4)]
    )
    wanted = one(1, F.TYPE_ENUM, "", ".shop.Colour", F.LABEL_REQUIRED)
    reader = parsed(wanted, syntax="proto2", enums=[colour])
    assert protobuf.not_read(reader, parsed(wanted, syntax="proto2", enums=[more])) == [
        "/f1: value 4 of the enum is not known"
    ]
    assert protobuf.not_read(reader, parsed(syntax="proto2", enums=[colour])) == [
        "/f1: is required, and may be missing"
    ]
    assert protobuf.checker(reader)(b"") == "/f1: is required"
    assert protobuf.checker(reader)(b"\x08\x00") == ""


@pytest.mark.parametrize(
    ("text", "name", "why"),
    [
        (b"\xff", "shop.Order", "no FileDescriptorSet"),
        (descriptors(message()), "Order", "no message 'Order'"),
        (descriptors(message(one(1, F.TYPE_MESSAGE, "", ".else.Where"))), "shop.Order", "not whole"),
        (b"", "", "no message"),
    ],
)
def test_what_is_no_schema_is_told(text, name, why) -> None:
    with pytest.raises(SchemaError, match=why):
        protobuf.parse(text, name)


def test_groups_are_refused_and_endless_chains_too_intricate() -> None:
    group = message(one(1, F.TYPE_GROUP, "g", ".shop.Order.G"), nested=[message(name="G")])
    with pytest.raises(SchemaError, match="groups"):
        protobuf.parse(descriptors(group, syntax="proto2"), "shop.Order")
    chain = [message(one(1, F.TYPE_MESSAGE, "", f".shop.M{at + 1}"), name=f"M{at}") for at in range(300)]
    last = protobuf.parse(descriptors(*chain, message(name="M300")), "shop.M0")
    assert "too intricate" in protobuf.not_read(last, last)[0]


# --- data -------------------------------------------------------------------------------------------------------------


def of(kind):
    """The schema of one of this project's own messages."""
    files, waiting = {}, [kind.DESCRIPTOR.file]
    while waiting:
        file = waiting.pop()
        if file.name not in files:
            waiting += file.dependencies
            proto = d.FileDescriptorProto()
            file.CopyToProto(proto)
            files[file.name] = proto
    return protobuf.parse(
        d.FileDescriptorSet(file=reversed(files.values())).SerializeToString(), kind.DESCRIPTOR.full_name
    )


def test_messages_fit_and_parts_of_them_do_not() -> None:
    chance, check = random.Random(5), protobuf.checker(of(entries_pb2.Snapshot))
    for _ in range(200):
        snapshot = entries_pb2.Snapshot(applied_index=chance.randrange(2**64), voters=["é"] * chance.randrange(3))
        for number in range(chance.randrange(4)):
            snapshot.clients.add(client_id=b"%d" % number, protocol=-1)
            snapshot.cursors.add(uid=number, counts=[number] * number)
        data = snapshot.SerializeToString()
        assert check(data) == ""
        cut = data[: chance.randrange(len(data) + 1)]
        try:
            whole = entries_pb2.Snapshot.FromString(cut) is not None
        except DecodeError:
            whole = False
        assert (check(cut) == "") == whole


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"garbage", "/: field 12 is not in PubMsg"),
        (b'{"id": 1}', "/: field 15 is not in PubMsg"),
        (b"\x08\x01", "/client_id: is no bytes"),
        (b"\x0a\x05ab", "/client_id: is cut off"),
        (b"\x0a", "/client_id: is cut off"),
        (b"\x82\x01\x02\x08\x01", "/headers/key: is no bytes"),
        (b"\x82\x01\x02\x0a\x05", "/headers/key: is cut off"),
        (b"", ""),
    ],
)
def test_what_does_not_fit_is_told_with_its_path(data, why) -> None:
    assert protobuf.checker(of(wire_pb2.PubMsg))(data) == why


def test_all_kinds_of_fields() -> None:
    kinds = [F.TYPE_DOUBLE, F.TYPE_FLOAT, F.TYPE_INT64, F.TYPE_FIXED32, F.TYPE_FIXED64, F.TYPE_STRING, F.TYPE_BOOL]
    schema = parsed(
        *[one(at, kind) for at, kind in enumerate(kinds, 1)], *[many(at + 10, kind) for at, kind in enumerate(kinds, 1)]
    )
    check = protobuf.checker(schema)
    good = (
        b"\x09"
        + bytes(8)
        + b"\x15"
        + bytes(4)
        + b"\x18\x01"
        + b"\x25"
        + bytes(4)
        + b"\x29"
        + bytes(8)
        + b"\x32\x01a\x38\x01"
    )
    assert check(good) == ""
    assert check(b"\x5a\x10" + bytes(16)) == "", "packed"
    assert check(b"\x5a\x0f" + bytes(15)) == "/f11: is cut off"
    assert check(b"\x6a\x02\x80\x80") == "/f13: is cut off"
    assert check(b"\x6a\x02\x80\x01") == ""
    assert check(b"\x32\x01\xff") == "/f6: is no text in UTF-8"
    nested = protobuf.checker(parsed(one(1, F.TYPE_MESSAGE, "", ".shop.Order")))
    data = b""
    for _ in range(70):
        size = len(data)
        data = b"\x0a" + (bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])) + data
    assert nested(data).endswith("is nested too deeply")


class Counted(list):
    """Fields of a message; counts how often they are gone through."""

    times = 0

    def __iter__(self):
        Counted.times += 1
        return super().__iter__()


def test_the_required_fields_of_a_type_are_looked_for_once_however_often_it_is_nested() -> None:
    inner = parsed(*(one(number, F.TYPE_INT32) for number in range(1, 500)))
    kind = SimpleNamespace(name="Order", full_name="shop.Order", fields=Counted(inner.fields))
    field = SimpleNamespace(
        name="in", number=500, type=F.TYPE_MESSAGE, is_repeated=True, is_required=False, message_type=kind
    )
    kind.fields_by_number = {**dict(inner.fields_by_number.items()), 500: field}
    assert protobuf.checker(kind)(b"\xa2\x1f\x00" * 1000) == ""
    assert Counted.times == 1
