"""What is refused, with which text and in which order (STAN-SPEC 4.1, 5.1, 5.7, 16 B and C): on the core, in virtual time."""

import pytest

from stan.protocol.frames import Frame
from stan.protocol.proto import wire_pb2 as wire
from tests.kit.desk import Desk

SUB = "_STAN.sub.test-cluster"
GOOD = {"client_id": b"me", "subject": b"foo", "inbox": b"in", "max_in_flight": 1, "ack_wait_s": 1, "start_position": 4}


@pytest.fixture
def desk():
    desk = Desk()
    desk.connect()
    return desk


def subscribe(desk, **changed):
    return desk.ask(SUB, wire.SubscriptionRequest(**GOOD | changed), wire.SubscriptionResponse).error.decode()


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"client_id": b""}, "stan: clientID missing"),
        ({"ack_wait_s": 0}, "stan: invalid ack wait time, should be >= 1s"),
        ({"ack_wait_s": -1}, "stan: invalid ack wait time, should be >= 1s"),
        ({"max_in_flight": 0}, "stan: invalid MaxInflight, should be >= 1"),
        ({"max_in_flight": -1}, "stan: invalid MaxInflight, should be >= 1"),
        ({"start_position": -1}, "stan: invalid start position"),
        ({"start_position": 5}, "stan: invalid start position"),
        *(({"subject": subject}, "stan: invalid subject") for subject in (
            b"", b"foo*.bar", b"foo.bar*", b"foo.>.*", b"foo.*", b">", b".foo", b"foo.", b"foo..bar", b"foo/bar", b"a b",
            b"x" * 4097,
        )),
        ({"client_id": b"nobody"}, "stan: unknown clientID"),
        ({"client_id": b"nobody", "durable_name": b"d"}, "stan: unknown clientID"),
        *(({"inbox": inbox}, "stan: invalid subscription request") for inbox in (
            b"", b"a b", b"a\r\nPUB x 0\r\n", b"x" * 1025, b"\0",
        )),
    ],
)  # fmt: skip
def test_subscription_request_with_one_fault_gets_its_text_and_makes_nothing(desk, wrong, error):
    assert subscribe(desk, **wrong) == error
    assert not desk.broker.context.meta.channels
    assert desk.broker.context.meta.clients.keys() == {b"me"}


def test_subscription_request_with_all_faults_gets_the_text_of_the_first(desk):
    """Each fault mended brings the next text, in the original's order."""
    bad = {"client_id": b"", "ack_wait_s": 0, "max_in_flight": 0, "start_position": 9, "subject": b"*", "inbox": b""}
    bad |= {"queue_group": b"q", "durable_name": b"a:b"}
    texts = []
    mends = (
        {"client_id": b"nobody"},
        {"ack_wait_s": 1},
        {"max_in_flight": 1},
        {"start_position": 0},
        {"subject": b"foo"},
    )
    for mended in ({}, *mends, {"client_id": b"me"}, {"inbox": b"in"}, {"durable_name": b""}):
        bad |= mended
        texts.append(subscribe(desk, **bad))

    assert texts == [
        "stan: clientID missing",
        "stan: invalid ack wait time, should be >= 1s",
        "stan: invalid MaxInflight, should be >= 1",
        "stan: invalid start position",
        "stan: invalid subject",
        "stan: unknown clientID",
        "stan: invalid subscription request",
        "stan: durable name of a durable queue subscriber can't contain the character ':'",
        "",
    ]


def test_colon_is_refused_for_durable_groups_only_and_the_channel_is_made(desk):
    assert "can't contain" in subscribe(desk, queue_group=b"q", durable_name=b"dur:name")
    assert b"foo" in desk.broker.context.meta.channels
    assert subscribe(desk, durable_name=b"dur:name") == ""
    assert subscribe(desk, queue_group=b"dur:name") == ""


def test_groups_whose_names_look_alike_stay_apart(desk):
    """A group called `a:b`, and the durable group `b` of the name `a`."""
    desk.subscribe("foo", "one", queue="a:b")
    desk.subscribe("foo", "two", queue="b", durable="a")
    desk.publish("foo", b"1")

    assert desk.received("one") == desk.received("two") == [(1, 0)]


def test_durable_name_belongs_to_its_client_and_channel(desk):
    desk.connect("you")
    for client in ("me", "you"):
        for channel in ("foo", "bar"):
            assert not desk.subscribe(channel, f"{client}.{channel}", client_id=client, durable="d").error
    assert desk.subscribe("foo", client_id="you", durable="d").error == b"stan: duplicate durable registration"
    desk.publish("foo", b"1")

    assert desk.received("me.foo") == desk.received("you.foo") == [(1, 0)]
    assert desk.received("me.bar") == []


def test_durable_keys_that_would_be_one_when_joined_are_two(desk):
    """`a-b` + `foo` and `a` + `b-foo` (STAN-SPEC 5.4 joins them with dashes)."""
    desk.connect("a-b")
    desk.connect("a")
    assert not desk.subscribe("foo", client_id="a-b", durable="d").error
    assert not desk.subscribe("b-foo", client_id="a", durable="d").error


# --- too large -----------------------------------------------------------------------------------------------------------------


def test_message_that_could_not_be_delivered_is_refused_and_its_neighbours_are_taken(desk):
    """The MsgProto would be longer than its PubMsg was: protocol 0, short client id, short guid."""
    largest = (1 << 20) - 36  # and more: the heads of its fields
    sub = desk.subscribe("foo", "in")
    assert desk.publish("foo", b"a", b"x" * largest, b"b") == ["nats: maximum payload exceeded", "", ""]
    assert desk.publish("foo", b"x" * largest) == ["nats: maximum payload exceeded"]

    desk.ack(sub.ack_inbox, 1, 2)
    assert [s.message.data for s in desk.hear("in")] == [b"a", b"b"]
    desk.broker.context.payload_bytes_max = 2 << 20
    assert desk.publish("foo", b"x" * largest) == [""]


@pytest.mark.parametrize("room", [0, 1, 20])
def test_largest_message_that_is_taken_is_within_the_limit_when_redelivered(desk, room):
    desk.broker.context.payload_bytes_max = limit = 4096
    desk.subscribe("foo", "in", wait=1)
    refused = [bool(*desk.publish("foo", b"x" * size)) for size in range(limit - 80, limit)]
    desk.pass_time(1.1)

    assert any(refused)
    assert not all(refused)
    assert max(len(s.payload) for s in desk.hear("in")) <= limit - room


def test_refusal_with_a_guid_as_long_as_a_message_is_not_sent(desk):
    desk.broker.context.payload_bytes_max = 4096
    payload = wire.PubMsg(client_id=b"me", guid=b"g" * 4000, subject=b"*").SerializeToString()
    desk.broker.step_malformed([Frame(1, b"_STAN.pub.test-cluster.*", b"answer", b"", payload)], 1)
    desk.turn()
    assert desk.hear("answer") == []


# --- leaving -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unsubscribe", [True, False])
def test_leave_is_refused_in_the_originals_order(desk, unsubscribe):
    desk.connect("you")
    sub = desk.subscribe("foo")

    def leave(channel="foo", inbox=sub.ack_inbox, client_id="me"):
        return desk.leave(channel, inbox, client_id=client_id, unsubscribe=unsubscribe).error

    assert leave("", b"", "") == leave("bar", b"x", "x") == b"stan: unknown channel"
    assert leave("foo", b"x", "x") == leave("foo", b"", "me") == b"stan: invalid subscription"
    assert leave(client_id="nobody") == leave(client_id="you") == leave(client_id="") == b"stan: unknown clientID"
    assert leave() == b""
    assert leave() == b"stan: invalid subscription"


def test_leave_by_message_inbox_removes_the_subscription(desk):
    desk.subscribe("foo", "my.inbox")
    desk.publish("foo", b"1")
    assert desk.received("my.inbox") == [(1, 0)]

    assert not desk.leave("foo", b"my.inbox").error
    desk.publish("foo", b"2")
    desk.pass_time(60)
    assert desk.received("my.inbox") == []
    assert not desk.broker.context.groups[1].machine.subscriptions


def test_leave_twice_in_one_read_is_an_invalid_subscription_the_second_time(desk):
    sub = desk.subscribe("foo")
    payload = wire.UnsubscribeRequest(client_id=b"me", subject=b"foo", inbox=sub.ack_inbox).SerializeToString()
    for reply in (b"one", b"two"):
        desk.broker.step_frame(Frame(10, b"_STAN.unsub.test-cluster", reply, b"", payload))
    desk.turn()

    errors = {s.subject: wire.SubscriptionResponse.FromString(s.payload).error for s in desk.hear()}
    assert errors == {"one": b"", "two": b"stan: invalid subscription"}


def test_ack_sent_just_before_the_close_counts(desk):
    sub = desk.subscribe("foo", durable="d")
    desk.publish("foo", b"1", b"2")
    desk.received()
    desk.ack(sub.ack_inbox, 1, 2)
    desk.leave("foo", sub.ack_inbox)
    desk.restart()
    desk.connect("other")
    desk.subscribe("foo", "again", durable="d")
    desk.publish("foo", b"3")

    assert desk.received("again") == [(3, 0)]


# --- silence ------------------------------------------------------------------------------------------------------------------


def test_requests_without_a_reply_subject_are_carried_out_and_not_answered(desk):
    sub = desk.subscribe("foo", "in")
    desk.publish("foo", b"1")
    desk.hear()
    leave = wire.UnsubscribeRequest(client_id=b"me", subject=b"foo", inbox=sub.ack_inbox)
    for subject, request in (
        ("_STAN.discover.test-cluster", wire.ConnectRequest(client_id=b"you", heartbeat_inbox=b"hb.you")),
        ("_STAN.subclose.test-cluster", leave),
        ("_STAN.sub.test-cluster", wire.SubscriptionRequest(**GOOD | {"client_id": b"you", "start_position": 0})),
        ("_STAN.discover.test-cluster.pings", wire.Ping(conn_id=b"unknown")),
        ("_STAN.close.test-cluster", wire.CloseRequest(client_id=b"me")),
    ):
        desk.broker.step_frame(Frame(10, subject.encode(), b"", b"", request.SerializeToString()))
        desk.turn()

    assert desk.hear() == []
    assert desk.broker.context.meta.clients.keys() == {b"you"}
    (left,) = desk.broker.context.groups[1].machine.subscriptions.values()
    assert left.client_id == b"you"


GARBAGE = [b"dummy", b"", b"\xff" * 30, b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x03\xff\xfe\xfd", b"\0"]


@pytest.mark.parametrize("payload", GARBAGE)
def test_garbage_on_every_subject_is_refused_and_changes_nothing(desk, payload):
    desk.subscribe("foo", "in")
    before = desk.broker.context.groups[1].machine.subscriptions.copy()
    for subject in desk.broker.requests:
        for reply in (b"", b"answer"):
            desk.broker.step_frame(Frame(10, subject, reply, b"", payload))
            desk.turn()
    for sid, subject in ((1, b"_STAN.pub.test-cluster.foo"), (2, b"_INBOX.NUID.1.2"), (2, b"_INBOX.NUID.x")):
        desk.broker.step_malformed([Frame(sid, subject, b"answer", b"", payload)], 1)
        desk.turn()

    assert desk.broker.context.groups[1].machine.subscriptions == before
    assert desk.broker.context.meta.clients.keys() == {b"me"}
    assert desk.publish("foo", b"1") == [""]
    assert desk.received("in") == [(1, 0)]


def test_control_message_of_an_old_server_on_the_publish_subject_is_ignored(desk):
    control = wire.CtrlMsg(msg_type=3, server_id=b"s").SerializeToString()
    desk.broker.step_malformed([Frame(1, b"_STAN.pub.test-cluster.foo", b"answer", b"", control)], 1)
    desk.turn()

    assert desk.hear("answer") == []
    assert desk.broker.context.totals.in_messages == 0


def test_ack_for_an_unknown_group_or_subscription_is_ignored(desk):
    desk.subscribe("foo", "in", wait=1)
    desk.publish("foo", b"1")
    for inbox in (b"_INBOX.NUID.99.2", b"_INBOX.NUID.1.999", b"_INBOX.OTHER.2.2"):
        desk.ack(inbox, 1)
    desk.pass_time(1.1)

    assert desk.received("in") == [(1, 0), (1, 1)]


@pytest.mark.parametrize("in_flight", [1, 2**31 - 1])
def test_window_and_ack_wait_have_no_upper_bound(desk, in_flight):
    desk.subscribe("foo", "in", in_flight=in_flight, wait=2**31 - 1)
    desk.publish("foo", *[b"x"] * 5)

    assert len(desk.received("in")) == min(5, in_flight)


@pytest.mark.parametrize("seq", [0, 1, 2**63, 2**64 - 1])
@pytest.mark.parametrize("delta", [-(2**63), 0, 2**63 - 1])
def test_start_beyond_any_end_is_moved_there(desk, seq, delta):
    desk.publish("foo", b"1", b"2")
    assert not desk.subscribe("foo", "seq", start=3, seq=seq).error
    assert not desk.subscribe("foo", "time", start=2, delta=delta).error
    desk.pass_time(0.1)
    desk.publish("foo", b"3")

    assert desk.received("seq")[-1] == desk.received("time")[-1] == (3, 0)
