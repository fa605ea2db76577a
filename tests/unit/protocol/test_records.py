"""Dataclasses of what operators are told: each message becomes one and comes back, and a newer server's numbers are no error."""

from dataclasses import FrozenInstanceError, fields

import pytest
from stan_protocol import admin_types
from stan_protocol.admin_types import (
    AckLevel,
    ChannelStatus,
    Commit,
    CursorKind,
    CursorRef,
    CursorStatus,
    DeliveryPolicy,
    Limits,
    MemberStatus,
    SchemaKind,
    SchemaStatus,
)
from stan_protocol.proto import admin_pb2 as pb
from stan_protocol.records import MessageRecord, message_of, to_pb

NAMES = {"CursorRef": "Which"}
RECORDS = [
    each for each in vars(admin_types).values() if isinstance(each, type) and each.__mro__[1:2] == (MessageRecord,)
]


@pytest.mark.parametrize("record", RECORDS)
def test_an_empty_message_is_a_record_without_anything(record):
    kind = getattr(pb, NAMES.get(record.__name__, record.__name__))
    found = record.from_pb(kind())
    assert record.from_pb(to_pb(kind, found)) == found
    assert {field.name for field in fields(record)} <= set(kind.DESCRIPTOR.fields_by_name)
    with pytest.raises(FrozenInstanceError):
        setattr(found, fields(record)[0].name, None)


def test_names_are_text_and_come_back_as_the_bytes_that_they_were():
    found = ChannelStatus.from_pb(pb.ChannelStatus(name=b"o\xff"))
    assert found.name == "o\udcff"
    assert to_pb(pb.ChannelStatus, found).name == b"o\xff"


def test_what_is_not_set_is_none_and_what_is_set_to_nothing_is_not():
    found = ChannelStatus.from_pb(pb.ChannelStatus(limits=pb.Limits(max_msgs=0)))
    assert (found.limits, found.part_of) == (Limits(max_msgs=0), None)
    back = to_pb(pb.ChannelStatus, found)
    assert back.limits.HasField("max_msgs")
    assert not back.HasField("part_of")


def test_runs_are_pairs_and_lists_tuples():
    message = pb.CursorStatus(owed_runs=[1, 3, 7, 7], counts=[2], members=[pb.MemberStatus(client_id=b"me")])
    found = CursorStatus.from_pb(message)
    assert (found.owed_runs, found.counts, found.members) == (((1, 3), (7, 7)), (2,), (MemberStatus("me"),))
    assert to_pb(pb.CursorStatus, found) == message


def test_numbers_are_words_unless_this_version_does_not_know_them():
    found = ChannelStatus.from_pb(pb.ChannelStatus(commit=1, ack_level=9))
    assert (found.commit, found.ack_level) == (Commit.REPLICATED, 9)
    assert isinstance(found.commit, Commit)
    assert not isinstance(found.ack_level, AckLevel)
    assert CursorStatus.from_pb(pb.CursorStatus(kind=pb.QUEUE)).kind is CursorKind.QUEUE
    assert SchemaStatus.from_pb(pb.SchemaStatus(kind=pb.AVRO_SCHEMA, text=b"\xff")).kind is SchemaKind.AVRO


def test_a_list_in_a_message_of_its_own_is_the_list():
    message = pb.DeliveryPolicy(backoff=pb.Backoff(pauses=[1, 2]), dead_letter=b".dlq")
    found = DeliveryPolicy.from_pb(message)
    assert (found.backoff, found.max_deliver) == ((1, 2), None)
    assert to_pb(pb.DeliveryPolicy, found) == message
    assert to_pb(pb.DeliveryPolicy, DeliveryPolicy(backoff=())).HasField("backoff")


def test_a_request_is_made_of_records_and_text():
    request = message_of(pb.SkipRequest, version=1, which=CursorRef("orders", cursor_id=5), runs=[(1, 2), (4, 4)])
    assert (request.which.channel, request.which.cursor_id, list(request.runs)) == (b"orders", 5, [1, 2, 4, 4])
    assert not message_of(pb.MoveRequest, version=1, sequence=None).WhichOneof("to")


def test_a_field_that_there_is_not_is_an_error():
    with pytest.raises(KeyError):
        message_of(pb.DeliveryPolicy, strange=1)
