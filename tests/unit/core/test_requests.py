"""Requests with names that are too long: refused before they are judged, told or kept."""

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
from stan_protocol import refusals
from stan_protocol.frames import Frame
from stan_protocol.proto import admin_pb2, extension_pb2, wire_pb2

from stan import limits
from stan.permissions import NatsUser, Permissions, Right, Rule
from stan.protocol.requests import TooLong, TooMany, because, decode
from tests.kit.core_harness import CoreHarness

CARRIED = {"text", "rows", "compressed_rows", "ids", "data", "sha256"}
INBOXES = {"inbox": limits.INBOX_BYTES_MAX, "heartbeat_inbox": limits.INBOX_BYTES_MAX}
SHORT = dict.fromkeys(("client_id", "conn_id", "durable_name", "queue_group", "replica"), limits.NAME_BYTES_MAX)
KINDS = [
    kind
    for module in (wire_pb2, extension_pb2, admin_pb2)
    for name, kind in vars(module).items()
    if name.endswith("Request") or name == "Ping"
]


def names(kind):
    """Ways to a text in messages of a kind."""
    for field in kind.DESCRIPTOR.fields:
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            yield from ((field.name, *way) for way in names(type_of(field)))
        elif field.type in (FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_STRING):
            yield (field.name,)


def type_of(field):
    module = {"wire": wire_pb2, "extension": extension_pb2, "admin": admin_pb2}[
        field.message_type.file.name.rpartition("/")[2][:-6]
    ]
    return getattr(module, field.message_type.name)


def fill(message, way, size):
    name, *rest = way
    value = getattr(message, name)
    if rest:
        fill(value.add() if hasattr(value, "add") else value, rest, size)
    elif hasattr(value, "append"):
        value.append(b"x" * size)
    else:
        setattr(message, name, type(value)(b"x" * size) if isinstance(value, bytes) else "x" * size)


@pytest.mark.parametrize(
    ("kind", "way"),
    [pytest.param(kind, way, id=f"{kind.DESCRIPTOR.name}-{'.'.join(way)}") for kind in KINDS for way in names(kind)],
)
def test_each_name_of_each_request_has_a_bound(kind, way):
    most = (INBOXES | SHORT).get(way[-1], limits.CHANNEL_NAME_BYTES_MAX)
    request = kind()
    fill(request, way, most)
    assert decode(kind, request.SerializeToString()) == request
    request = kind()
    fill(request, way, most + 1)
    if way[-1] in CARRIED:
        assert decode(kind, request.SerializeToString()) == request
        return
    with pytest.raises(TooLong) as problem:
        decode(kind, request.SerializeToString())
    told = "" if way[-1] in INBOXES else f": {way[-1]} is longer than {most} bytes"
    assert because("stan: no", problem.value) == f"stan: no{told}"


def test_what_is_no_request_is_refused_in_the_original_s_words():
    with pytest.raises(DecodeError) as problem:
        decode(wire_pb2.ConnectRequest, b"\xff")
    assert because(refusals.INVALID_CONNECT, problem.value) == refusals.INVALID_CONNECT


# --- what the broker says and keeps ---------------------------------------------------------------------------------------

HUGE = b"x" * 900_000
LONG = b"x" * (limits.NAME_BYTES_MAX + 1)
SUBSCRIBE = {"client_id": b"me", "subject": b"foo", "inbox": b"in", "max_in_flight": 1, "ack_wait_s": 1}


@pytest.fixture(params=["without", "with"])
def harness(request):
    """With permissions and without."""
    made = CoreHarness()
    if request.param == "with":
        rights = dict.fromkeys(Right, ("nothing",))
        made = Guarded(
            config=made.config.__class__(permissions=Permissions([Rule(rights=rights)], [NatsUser(name="u")]))
        )
    made.connect()
    made.notes.clear()
    return made


class Guarded(CoreHarness):
    """A harness at which the user `u` asks, whom NATS has let in."""

    def ask(self, subject, payload, answer):
        self.inboxes += 1
        reply = f"reply.{self.inboxes}"
        self.asks(subject, payload, reply)
        self.turn()
        heard = self.hear(f"_STAN.to.u.{reply}")
        return answer.FromString(heard[0].payload) if heard else None

    def asks(self, subject, payload, reply):
        told = f"_STAN.from.u.{subject}".encode()
        frame = self.broker.view.authorizer.admit(Frame(10, told, reply.encode(), b"", payload.SerializeToString()))
        if frame is not None:
            self.broker.frames.routes.get(frame.subject.decode(), self.broker.frames.step_frame)(frame)


EXTENSIONS = [
    ("info", extension_pb2.InfoRequest(channels=[HUGE])),
    ("info", extension_pb2.InfoRequest(pattern=b"*." * 400_000 + b">")),
    ("info", extension_pb2.InfoRequest(newer_than=[extension_pb2.Position(channel=HUGE)])),
    ("seq_at_time", extension_pb2.SeqAtTimeRequest(channel=HUGE)),
    ("cursor_set", extension_pb2.CursorSetRequest(channel=b"foo", name=HUGE)),
    ("cursors", extension_pb2.CursorsRequest(name=HUGE)),
    ("batch", extension_pb2.BatchRequest(channel=HUGE, count=1)),
    ("stage", extension_pb2.StageRequest(channel=HUGE)),
    ("stage", extension_pb2.StageRequest(channel=b"foo", app=HUGE)),
    ("commit", extension_pb2.CommitRequest(channel=HUGE)),
    ("abort", extension_pb2.AbortRequest(channel=HUGE)),
    ("finish", extension_pb2.FinishRequest(app=HUGE)),
    ("last_committed", extension_pb2.LastCommittedRequest(app=HUGE)),
    ("admin.channels", admin_pb2.ChannelsRequest(pattern=b"*." * 400_000 + b">")),
    ("admin.subscriptions", admin_pb2.SubscriptionsRequest(name=HUGE)),
    ("admin.purge", admin_pb2.PurgeRequest(channel=HUGE)),
    ("admin.move", admin_pb2.MoveRequest(which=admin_pb2.Which(channel=HUGE))),
    ("admin.evict_client", admin_pb2.EvictClientRequest(client_id=HUGE)),
]


@pytest.mark.parametrize(
    ("kind", "request_"), EXTENSIONS, ids=[f"{at} {kind}" for at, (kind, _) in enumerate(EXTENSIONS)]
)
def test_huge_names_in_requests_are_neither_judged_nor_told_nor_kept(harness, kind, request_):
    answer = harness.ask(f"_STAN.x.test-cluster.{kind}", request_, admin_pb2.ChangeResponse)
    assert answer.error.startswith(b"stan: invalid ")
    assert answer.error.endswith((b"is longer than 4096 bytes", b"is longer than 1024 bytes"))
    assert not harness.notes
    authorizer = harness.broker.view.authorizer
    assert authorizer is None or all(len(channel) < 100 for _, _, _, channel in authorizer.permissions._known)


def test_all_requests_of_operators_are_among_the_kinds(harness):
    known = {name.removesuffix("Request").lower() for kind in KINDS for name in [kind.DESCRIPTOR.name]}
    prefix = "_STAN.x.test-cluster.admin."
    asked = {name.removeprefix(prefix) for name in harness.broker.frames.routes if name.startswith(prefix)}
    assert len(asked) > 15
    kinds = {kind.replace("_", "") for kind in asked} - {"addnode", "removenode"}
    assert {kind.removesuffix("member") for kind in kinds} <= known | {"evict"}


@pytest.mark.parametrize("field", ["client_id", "conn_id"])
def test_connects_with_long_names_are_refused_and_leave_nothing(harness, field):
    """A client id is one of letters, digits, dashes and underscores all the same."""
    asked = {"client_id": b"you", "conn_id": b"c", "heartbeat_inbox": b"hb"} | {field: LONG}
    answer = harness.ask("_STAN.discover.test-cluster", wire_pb2.ConnectRequest(**asked), wire_pb2.ConnectResponse)
    assert answer.error.decode() == f"stan: invalid connection request: {field} is longer than 1024 bytes"
    assert harness.state.clients.keys() <= {b"me"}
    assert not harness.state.connects_under_way
    assert not harness.notes


@pytest.mark.parametrize("field", ["client_id", "durable_name", "queue_group"])
def test_subscriptions_with_long_names_are_refused(harness, field):
    request = wire_pb2.SubscriptionRequest(**SUBSCRIBE | {field: LONG})
    answer = harness.ask("_STAN.sub.test-cluster", request, wire_pb2.SubscriptionResponse)
    assert answer.error.decode() == f"stan: invalid subscription request: {field} is longer than 1024 bytes"
    assert not harness.state.channels
    assert not harness.notes


def test_names_of_the_longest_length_serve():
    harness, name = CoreHarness(), "n" * limits.NAME_BYTES_MAX
    connect = wire_pb2.ConnectRequest(client_id=name.encode(), conn_id=name.encode(), heartbeat_inbox=name.encode())
    assert harness.ask("_STAN.discover.test-cluster", connect, wire_pb2.ConnectResponse).error == b""
    assert harness.subscribe("foo", client_id=name, durable=name, queue=name).error == b""


def test_publishes_of_long_names_are_refused_at_once():
    """Nobody can be registered by such a name, so nobody waits to see whether somebody is."""
    harness = CoreHarness()
    harness.connect()
    assert harness.publish("foo", b"1", client_id=LONG.decode()) == [refusals.INVALID_PUBLISH]
    assert not harness.broker.parts.filters.waiting.for_metadata
    assert harness.publish("x" * 5000, b"1") == [refusals.INVALID_PUBLISH]


def lists(kind, way=()):
    """Ways to a list in messages of a kind, each with an element of it."""
    for field in kind.DESCRIPTOR.fields:
        if field.is_repeated:
            yield (*way, field.name), None
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            yield from lists(type_of(field), (*way, field.name))


def filled(kind, way, count):
    """A request with *count* elements in the list at *way*."""
    request = target = kind()
    for name in way[:-1]:
        each = getattr(target, name)
        target = each.add() if hasattr(each, "add") else each
        target.SetInParent()
    several = getattr(target, way[-1])
    if hasattr(several, "add"):
        for _ in range(count):
            several.add()
    else:
        text = way[-1] in ("channels", "txns")
        several.extend([b""] * count if text else [1] * count)
    return request.SerializeToString()


LISTS = [(kind, way) for kind in KINDS for way, _ in lists(kind)]


@pytest.mark.parametrize(("kind", "way"), LISTS, ids=lambda part: part if isinstance(part, str) else "")
def test_a_request_of_too_many_parts_is_refused(kind, way):
    """They are counted in its bytes: at most as many as it may have, however many there are."""
    restores = kind in (admin_pb2.RestoreRowsRequest, admin_pb2.RestoreDelayedRequest)
    most = limits.RESTORE_PARTS_MAX if restores else limits.REQUEST_PARTS_MAX
    is_numbers = b"\x01" * 9 in filled(kind, way, 9)
    count = most * (8 if is_numbers else 1)
    with pytest.raises(TooMany, match=f"more than {most} parts"):
        decode(kind, filled(kind, way, count + 8))
    decode(kind, filled(kind, way, count // 2))


def test_a_request_of_too_many_parts_is_answered():
    harness = CoreHarness()
    request = extension_pb2.InfoRequest(channels=[b"a"] * 30_000)
    answer = harness.ask("_STAN.x.test-cluster.info", request, extension_pb2.InfoResponse)
    assert answer.error.decode() == f"{refusals.INVALID_QUERY}: it has more than {limits.REQUEST_PARTS_MAX} parts"
