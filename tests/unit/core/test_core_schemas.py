"""Schemas: the state machine, the requests, and what becomes of messages that do not fit, on one node and on nodes that lag."""

import json
from dataclasses import replace
from itertools import pairwise
from operator import attrgetter
from random import Random

import pytest
from google.protobuf import descriptor_pb2
from stan_protocol.kernel.rows import pack_rows
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.proto import extension_pb2 as extension
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.refusals import (
    NO_SCHEMA_VERSION,
    SCHEMA_CHANGED,
    SCHEMA_OF_ANOTHER_KIND,
    SCHEMA_VERSION_EXISTS,
    WRONG_SCHEMA_VERSION,
)
from stan_protocol.scalars import SECOND

from stan import limits
from stan.config import Config
from stan.core.features.schemas import requests as schema_requests
from stan.core.metadata.schemas import TOO_MANY_SCHEMAS, TOO_MANY_VERSIONS, TOO_MUCH_TEXT, Schemas
from stan.policies import KNOWN, VALID, PolicyRule
from stan.protocol.kernel import server as kernel
from stan.protocol.proto import entries_pb2 as pb
from tests.kit.core_harness import CLUSTERED, CoreHarness, Node

PREFIX = "_STAN.x.test-cluster."
FIRST = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
SECOND_ = {**FIRST, "properties": {**FIRST["properties"], "note": {"type": "string", "maxLength": 5}}}
BROKEN = {**SECOND_, "required": ["id", "note"]}
ORDERS = '"orders"'


def text(schema):
    return json.dumps(schema).encode()


def add(node, schema, pattern="orders", **more):
    asked = {"pattern": pattern.encode(), "kind": admin.JSON_SCHEMA, "text": text(schema), **more}
    answer = node.ask(f"{PREFIX}admin.add_schema", admin.AddSchemaRequest(version=1, **asked), admin.ChangeResponse)
    return answer and (answer.error.decode(), answer.schema_version, answer.changed)


def check(node, schema, **more):
    asked = {"pattern": b"orders", "kind": admin.JSON_SCHEMA, "text": text(schema), **more}
    request = admin.CheckSchemaRequest(version=1, **asked)
    answer = node.ask(f"{PREFIX}admin.check_schema", request, admin.CheckSchemaResponse)
    return answer.error.decode(), answer.schema_version, answer.changed, [one.decode() for one in answer.complaints]


def remove(node, version=0, pattern="orders"):
    request = admin.RemoveSchemaRequest(version=1, pattern=pattern.encode(), schema_version=version)
    answer = node.ask(f"{PREFIX}admin.remove_schema", request, admin.ChangeResponse)
    return answer.error.decode(), answer.changed


def schemas(node, **asked):
    answer = node.ask(f"{PREFIX}schemas", admin.SchemasRequest(version=1, **asked), admin.SchemasResponse)
    assert not answer.error, answer.error
    return [(one.pattern.decode(), one.schema_version) for one in answer.schemas], answer.more


def ask_for(harness, schema, pattern="orders"):
    request = admin.SetPolicyRequest(version=1, pattern=pattern.encode(), policy=admin.DeliveryPolicy(schema=schema))
    answer = harness.ask(f"{PREFIX}admin.set_policy", request, admin.ChangeResponse)
    assert not answer.error, answer.error


def publish(node, *messages, channel="orders", **more):
    """Publish in one read; *messages*: data and the version that it names (None: none). Returns the errors of the acks."""
    frames = []
    for at, (data, version) in enumerate(messages):
        headers = [] if version is None else [wire.Header(key=b"stan-schema", value=str(version).encode())]
        message = wire.PubMsg(
            client_id=b"me", guid=b"%d" % Random(len(data) + at).getrandbits(60), subject=channel.encode(), data=data,
            headers=headers, **more,
        ).SerializeToString()  # fmt: skip
        subject = b"_STAN.pub.test-cluster." + channel.encode()
        frames.append(b"MSG %b 1 _INBOX.acks %d\r\n%b\r\n" % (subject, len(message), message))
    scan = kernel.scan(b"".join(frames), 0, 1, 2, b"_STAN.pub.test-cluster.")
    assert not scan.malformed
    node.broker.frames.step_publishes(scan.publishes)
    node.turn()
    return [wire.PubAck.FromString(said.payload).error.decode() for said in node.hear("_INBOX.acks")]


def stored(harness, channel="orders"):
    info = harness.state.channels[channel.encode()]
    return harness.indexes[info.group, info.uid].last_sequence


# --- the registry -----------------------------------------------------------------------------------------------------


def test_versions_are_numbered_and_a_text_has_one_number(harness) -> None:
    assert add(harness, FIRST) == ("", 1, 1)
    assert add(harness, FIRST) == ("", 1, 0)
    assert add(harness, SECOND_) == ("", 2, 1)
    assert add(harness, FIRST) == ("", 1, 0)
    assert schemas(harness) == ([("orders", 1), ("orders", 2)], False)
    assert schemas(harness, max=1) == ([("orders", 1)], True)
    assert schemas(harness, after_pattern=b"orders", after_version=1) == ([("orders", 2)], False)
    assert schemas(harness, channel=b"orders", schema_version=2) == ([("orders", 2)], False)
    assert schemas(harness, channel=b"other") == ([], False)
    assert schemas(harness, pattern=b"orders") == ([("orders", 1), ("orders", 2)], False)


def test_a_version_that_breaks_its_promise_is_refused_with_the_path(harness) -> None:
    add(harness, FIRST)
    add(harness, SECOND_)
    error, *_ = add(harness, BROKEN)
    assert error == (
        "stan: the schema is not backward compatible: it does not read version 2: /note: is required, and may be missing"
    )
    assert check(harness, BROKEN)[3] == [
        "does not read version 2: /note: is required, and may be missing",
        "does not read version 1: /note: is required, and may be missing",
    ]
    assert check(harness, FIRST) == ("", 1, 0, [])
    assert check(harness, {**FIRST, "title": "T"}) == ("", 0, 1, [])
    assert add(harness, BROKEN, compatibility=admin.NONE) == ("", 3, 1)
    assert add(harness, BROKEN, compatibility=admin.FULL) == ("", 3, 1), "only the promise is another one"
    assert add(harness, BROKEN, compatibility=admin.FULL) == ("", 3, 0)
    assert "is not read by version 3" in add(harness, SECOND_ | {"title": "T"})[0]


def test_what_is_no_schema_is_refused(harness) -> None:
    for bad in (b"", b"[]", b"{", b'{"type": "foo"}', b'{"$ref": "http://127.0.0.1/x"}', b'{"pattern": "(?=a)"}'):
        error, *_ = add(harness, FIRST, text=bad)
        assert error.startswith("stan: this is no schema of kind json: "), bad
    assert "at most 65536 bytes" in add(harness, {"title": "x" * 70_000})[0]
    assert add(harness, FIRST, kind=0)[0] == "stan: a schema is of kind json, avro or protobuf"
    assert add(harness, FIRST, kind=9)[0] == "stan: a schema is of kind json, avro or protobuf"
    for pattern in ("", "a..b", "a b.*x"):
        assert add(harness, FIRST, pattern=pattern)[0]
    assert schemas(harness) == ([], False)


def test_no_channel_has_two_schemas(harness) -> None:
    assert add(harness, FIRST, "orders.*") == ("", 1, 1)
    for pattern in ("orders.new", "*.new", ">", "orders.>"):
        assert add(harness, FIRST, pattern)[0] == (
            'stan: pattern "orders.*" covers some of the same channels: a channel has one schema'
        )
    assert add(harness, FIRST, "orders") == ("", 1, 1)
    assert add(harness, FIRST, "orders.new.old") == ("", 1, 1)
    assert schemas(harness, channel=b"orders.x") == ([("orders.*", 1)], False)


def test_numbers_are_never_given_twice(harness) -> None:
    add(harness, FIRST)
    add(harness, SECOND_)
    assert remove(harness, 2) == ("", 1)
    assert remove(harness, 2) == ('stan: the schema of pattern "orders" has no version 2', 0)
    assert add(harness, SECOND_) == ("", 3, 1)
    assert remove(harness) == ("", 2)
    assert remove(harness) == ('stan: no schema is registered for pattern "orders"', 0)
    assert add(harness, FIRST, "orders.>") == ("", 4, 1)
    harness.restart()
    assert add(harness, FIRST) == ("", 4, 1)
    assert add(harness, SECOND_, schema_version=2) == ("", 2, 1), "one that is put back has the number that it had"
    assert add(harness, BROKEN, schema_version=2)[0] == SCHEMA_VERSION_EXISTS.format(2)
    assert schemas(harness, pattern=b"orders") == ([("orders", 2), ("orders", 4)], False)


def test_the_registry_is_bounded(monkeypatch, harness) -> None:
    monkeypatch.setattr(limits, "SCHEMA_PATTERNS_MAX", 1)
    monkeypatch.setattr(limits, "SCHEMA_VERSIONS_MAX", 2)
    monkeypatch.setattr(limits, "SCHEMAS_BYTES_MAX", 300)
    add(harness, FIRST)
    assert add(harness, FIRST, "b")[0] == TOO_MANY_SCHEMAS
    assert add(harness, {"title": "x" * 300})[0] == TOO_MUCH_TEXT
    add(harness, {**FIRST, "title": "T"})
    assert add(harness, {**FIRST, "title": "U"})[0] == TOO_MANY_VERSIONS


def test_a_change_of_a_state_that_is_not_this_one_is_not_applied() -> None:
    registry = Schemas()
    change = pb.SchemaChange(pattern=b"a", kind=1, add=pb.SchemaVersion(text=b"{}"))
    assert registry.apply(change, 5) == ""
    assert registry.apply(change, 6) == SCHEMA_CHANGED
    change.changed, change.kind, change.add.version = 5, 2, 0
    assert registry.apply(change, 7) == SCHEMA_OF_ANOTHER_KIND
    assert registry.apply(pb.SchemaChange(pattern=b"b", remove_all=True), 8) == ""
    assert registry.by_pattern.keys() == {b"a"}


def test_schemas_outlive_a_restart_and_a_transfer(harness) -> None:
    for pattern in ("a", "b", "c"):
        add(harness, FIRST, pattern)
        add(harness, SECOND_, pattern)
    remove(harness, 0, "b")
    meta, again = harness.follower(0), harness.state.copy_of_meta()
    assert again.schemas.by_pattern == meta.schemas.by_pattern
    assert (again.schemas.floor, again.schemas.by_pattern.keys()) == (2, {b"a", b"c"})
    rows = [row for row in meta.take_changed_rows().parts if row[0] == Schemas.KIND]
    assert [(key, state is None) for _, key, state in rows] == [
        (b"", False),
        (b"a", False),
        (b"b", True),
        (b"c", False),
    ]
    assert not [row for row in meta.take_changed_rows().parts if row[0] == Schemas.KIND]
    meta.touch_all()
    assert [row[1] for row in meta.take_changed_rows().parts if row[0] == Schemas.KIND] == [b"", b"a", b"c"]


# --- messages ---------------------------------------------------------------------------------------------------------

GOOD, BAD, LONG = b'{"id": 1}', b'{"id": "one"}', b'{"id": 1, "note": "too long"}'
WHY = "stan: the message does not fit version {} of the schema of " + ORDERS + ": {}"


def test_messages_are_checked_and_each_refusal_tells_the_path(harness) -> None:
    add(harness, FIRST)
    add(harness, SECOND_)
    assert publish(harness, (BAD, None)) == [""], "nobody has asked for checks"
    ask_for(harness, VALID)
    assert publish(harness, (GOOD, None), (BAD, None), (LONG, None), (LONG, 1), (b"garbage", 2), (GOOD, 3), (GOOD, "x")) == [
        WHY.format(2, '/id: "one" is not of type "integer"'),
        WHY.format(2, '/note: "too long" is longer than 5 characters'),
        WHY.format(2, "/: is no JSON in UTF-8"),
        f'stan: header stan-schema: "3" is no version of the schema of {ORDERS}',
        f'stan: header stan-schema: "x" is no version of the schema of {ORDERS}',
        "",
        "",
    ]  # fmt: skip
    assert stored(harness) == 3
    assert harness.broker.view.totals().refused_by_schema == 5
    (note,) = [note for _, note in harness.notes if "refused" in note]
    assert "one" not in note
    assert publish(harness, (BAD, None), (BAD, 1)) == [
        WHY.format(n, '/id: "one" is not of type "integer"') for n in (2, 1)
    ]
    ask_for(harness, 0)
    assert publish(harness, (BAD, None)) == [""]


def test_of_known_messages_only_the_header_counts(harness) -> None:
    add(harness, FIRST)
    ask_for(harness, KNOWN)
    assert publish(harness, (BAD, 1), (GOOD, None), (GOOD, 2)) == [
        NO_SCHEMA_VERSION, WRONG_SCHEMA_VERSION.format('"2"', ORDERS), "",
    ]  # fmt: skip


def test_without_a_schema_nothing_fits(harness) -> None:
    ask_for(harness, VALID, "orders.>")
    assert publish(harness, (GOOD, None), channel="orders.x") == [
        'stan: no schema is registered for channel "orders.x"'
    ]
    add(harness, FIRST, "orders.*")
    assert publish(harness, (GOOD, None), channel="orders.x") == [""]
    remove(harness, 0, "orders.*")
    assert publish(harness, (GOOD, None), channel="orders.x") == [
        'stan: no schema is registered for channel "orders.x"'
    ]


def test_a_refusal_is_bounded_and_messages_without_a_reply_have_none(harness) -> None:
    add(harness, {"propertyNames": {"maxLength": 3}})
    ask_for(harness, VALID)
    (error,) = publish(harness, (json.dumps({"x" * 5000: 1}).encode(), None))
    assert error.endswith("...")
    assert len(error) <= limits.SCHEMA_REFUSAL_BYTES_MAX + 3


def test_who_cannot_check_says_so(monkeypatch, harness) -> None:
    add(harness, FIRST)
    ask_for(harness, VALID)
    monkeypatch.setattr("stan_protocol.schemas.json_data.AVAILABLE", False)
    (error,) = publish(harness, (GOOD, None))
    assert error.startswith(
        'stan: this server cannot check messages by version 1 of the schema of "orders": to check JSON'
    )
    request = admin.SetPolicyRequest(version=1, pattern=b"a", policy=admin.DeliveryPolicy(schema=VALID))
    answer = harness.ask(f"{PREFIX}admin.set_policy", request, admin.ChangeResponse)
    assert "jsonschema-rs" in answer.error.decode()
    request.policy.schema = KNOWN
    assert not harness.ask(f"{PREFIX}admin.set_policy", request, admin.ChangeResponse).error


def test_a_batch_with_one_bad_row_is_refused_as_a_whole(harness) -> None:
    add(harness, FIRST)
    ask_for(harness, VALID)

    def batch(*rows):
        ends = [0]
        for row in rows:
            ends.append(ends[-1] + len(row))
        offsets = b"".join(end.to_bytes(4, "little") for end in ends)
        packed = pack_rows(offsets, b"".join(rows), 0, len(rows))
        request = extension.BatchRequest(channel=b"orders", rows=packed, count=len(rows))
        answer = harness.ask(f"{PREFIX}batch", request, extension.BatchResponse)
        stage = extension.StageRequest(app=b"a", txn=b"t", channel=b"orders", count=len(rows), rows=packed)
        staged = harness.ask(f"{PREFIX}stage", stage, extension.StageResponse)
        assert answer.error == staged.error
        return answer.error.decode(), answer.last_sequence

    why = 'the message does not fit version 1 of the schema of "orders": /id: "one" is not of type "integer"'
    assert batch(GOOD, BAD, GOOD) == (f"stan: row 1 is refused: {why}", 0)
    assert batch(GOOD, GOOD) == ("", 2)


def test_delayed_messages_are_checked_when_they_come_and_not_when_they_are_due(harness) -> None:
    add(harness, FIRST)
    ask_for(harness, VALID)
    due = harness.wall + 60 * SECOND
    assert publish(harness, (GOOD, None), deliver_at=due) == [""]
    assert "/id" in publish(harness, (BAD, None), deliver_at=due)[0]
    remove(harness)
    harness.pass_time(61)
    assert stored(harness) == 1


def test_a_channel_with_a_delay_heeds_the_schema_of_its_target() -> None:
    rules = (
        PolicyRule(pattern="orders.later", delay=60 * SECOND, target="orders"),
        PolicyRule(pattern="orders", schema=VALID),
    )
    harness = CoreHarness(config=Config(policies=rules))
    harness.connect()
    add(harness, FIRST)
    assert publish(harness, (GOOD, None), channel="orders.later") == [""]
    assert "/id" in publish(harness, (BAD, None), channel="orders.later")[0]
    assert publish(harness, (BAD, None), channel="orders.other") == [""]


# --- nodes ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def early_node():
    """A node that knows the schema, and not yet the channel."""
    made = Node(config=replace(CLUSTERED, policies=(PolicyRule(pattern="orders", schema=VALID),)))
    made.feed_client()
    made.feed_meta(schema=version(FIRST))
    made.lead(*range(1, CLUSTERED.store.raft_groups + 1))
    return made


@pytest.fixture
def node(early_node):
    early_node.feed_channel("orders", 1)
    return early_node


def version(schema, **more):
    return pb.SchemaChange(pattern=b"orders", kind=1, add=pb.SchemaVersion(text=text(schema)), **more)


def answer(node, index):
    """The leader of the metadata says how new its state is."""
    said = b"%d" % index
    for asked in filter(attrgetter("reply"), node.hear("_STAN.node.test-cluster.read_index")):
        node.hears(b"MSG %b 3 %d\r\n%b\r\n" % (asked.reply.encode(), len(said), said))
    node.turn()


def test_a_node_asks_for_newer_metadata_before_it_refuses(node) -> None:
    """A version that this node does not know yet is waited for; what the publisher sends meanwhile keeps its place."""
    assert publish(node, (GOOD, 2)) == []
    assert publish(node, (b'{"id": 2}', None)) == []
    assert node.stored("orders", 1) == []
    applied = node.state.applied
    changed = node.follower(0).schemas.by_pattern[b"orders"].changed
    answer(node, applied + 1)
    assert node.stored("orders", 1) == []
    node.feed_meta(schema=version(SECOND_, changed=changed))
    node.turn()
    assert node.stored("orders", 1) == [GOOD, b'{"id": 2}']


def test_publishes_that_wait_for_their_channel_and_then_for_its_schema_keep_their_order(early_node) -> None:
    node = early_node
    assert publish(node, (GOOD, 2)) == []
    assert publish(node, (b'{"id": 2}', None)) == []
    node.feed_channel("orders", 1)
    node.turn()
    changed = node.follower(0).schemas.by_pattern[b"orders"].changed
    answer(node, node.state.applied + 1)
    node.feed_meta(schema=version(SECOND_, changed=changed))
    node.turn()
    assert node.stored("orders", 1) == [GOOD, b'{"id": 2}']


def test_a_node_whose_metadata_are_new_enough_refuses(node) -> None:
    assert publish(node, (BAD, None)) == []
    answer(node, node.state.applied)
    (refused,) = node.hear("_INBOX.acks")
    assert "/id" in wire.PubAck.FromString(refused.payload).error.decode()
    assert [one.groups for one in node.leased if b"/id" in one.data] == [(1,)], "another leader may take it meanwhile"


# --- other kinds ------------------------------------------------------------------------------------------------------


def test_avro_and_protobuf_are_checked_too(harness) -> None:
    avro = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "id", "type": "int"}, {"name": "note", "type": "string"}],
    }
    add(harness, avro, "avro", kind=admin.AVRO_SCHEMA)
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", package="shop", syntax="proto3")
    file.message_type.add(name="Order").field.add(name="id", number=1, type=5, label=1)
    descriptors = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    assert add(harness, {}, "proto", kind=admin.PROTOBUF_SCHEMA, text=descriptors)[0] == (
        "stan: this is no schema of kind protobuf: no message '' in the descriptors: tell its full name"
    )
    assert add(harness, {}, "proto", kind=admin.PROTOBUF_SCHEMA, text=descriptors, message=b"shop.Order") == ("", 1, 1)
    ask_for(harness, VALID, ">")
    assert publish(harness, (b"\x02\x02a", None), channel="avro") == [""]
    assert "/note: is cut off" in publish(harness, (b"\x02\x04a", None), channel="avro")[0]
    assert publish(harness, (b"\x08\x07", None), channel="proto") == [""]
    assert "/: field 15 is not in Order" in publish(harness, (b'{"id": 7}', None), channel="proto")[0]
    worse = {**avro, "fields": [*avro["fields"], {"name": "more", "type": "int"}]}
    error, *_ = add(harness, worse, "avro", kind=admin.AVRO_SCHEMA)
    assert error.endswith("it does not read version 1: /more: has no default, and is not written")
    assert "another kind" in add(harness, FIRST, "avro")[0]


def test_a_schema_is_compared_with_many_large_versions_in_many_turns(harness, monkeypatch) -> None:
    """Each turn compares with one of them, so that others have their turns; requests wait for each other."""
    for number in range(6):
        large = {"enum": [f"{number} {'x' * 40} {at}" for at in range(1000)]}
        assert add(harness, large, compatibility=admin.NONE) == ("", number + 1, 1)
    compared = []
    monkeypatch.setattr(schema_requests, "incompatible", lambda *asked: compared.append(asked) or [])
    request = admin.CheckSchemaRequest(
        version=1, pattern=b"orders", kind=admin.JSON_SCHEMA, text=text({"enum": ["x" * 40_000]})
    )
    request.compatibility = admin.FULL
    for _ in range(3):
        harness.asks(f"{PREFIX}admin.check_schema", request, "replies")
    seen = []
    for _ in range(40):
        harness.turn()
        harness.now += 1
        seen.append(len(compared))
    assert max(now - before for before, now in pairwise(seen)) == 1
    assert len(compared) == 18
    assert len(harness.hear("replies")) == 3
