"""What is refused, with which text and in which order (STAN-SPEC 4.1, 5.1, 5.7, 16 B and C): on the core, in virtual time."""

import pytest
from stan_protocol.frames import Frame
from stan_protocol.proto import wire_pb2 as wire

from stan import limits
from stan.config import Config, RequestLimits

SUB = "_STAN.sub.test-cluster"
GOOD = {"client_id": b"me", "subject": b"foo", "inbox": b"in", "max_in_flight": 1, "ack_wait_s": 1, "start_position": 4}


def subscribe(harness, **changed):
    return harness.ask(SUB, wire.SubscriptionRequest(**GOOD | changed), wire.SubscriptionResponse).error.decode()


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
def test_subscription_request_with_one_fault_gets_its_text_and_makes_nothing(harness, wrong, error):
    assert subscribe(harness, **wrong) == error
    assert not harness.state.channels
    assert harness.state.clients.keys() == {b"me"}


def test_subscription_request_with_all_faults_gets_the_text_of_the_first(harness):
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
        texts.append(subscribe(harness, **bad))

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


def test_colon_is_refused_for_durable_groups_only_and_the_channel_is_made(harness):
    assert "can't contain" in subscribe(harness, queue_group=b"q", durable_name=b"dur:name")
    assert b"foo" in harness.state.channels
    assert subscribe(harness, durable_name=b"dur:name") == ""
    assert subscribe(harness, queue_group=b"dur:name") == ""


def test_groups_whose_names_look_alike_stay_apart(harness):
    """A group called `a:b`, and the durable group `b` of the name `a`."""
    harness.subscribe("foo", "one", queue="a:b")
    harness.subscribe("foo", "two", queue="b", durable="a")
    harness.publish("foo", b"1")

    assert harness.received("one") == harness.received("two") == [(1, 0)]


def test_durable_name_belongs_to_its_client_and_channel(harness):
    harness.connect("you")
    for client in ("me", "you"):
        for channel in ("foo", "bar"):
            assert not harness.subscribe(channel, f"{client}.{channel}", client_id=client, durable="d").error
    assert harness.subscribe("foo", client_id="you", durable="d").error == b"stan: duplicate durable registration"
    harness.publish("foo", b"1")

    assert harness.received("me.foo") == harness.received("you.foo") == [(1, 0)]
    assert harness.received("me.bar") == []


def test_durable_keys_that_would_be_one_when_joined_are_two(harness):
    """`a-b` + `foo` and `a` + `b-foo` (STAN-SPEC 5.4 joins them with dashes)."""
    harness.connect("a-b")
    harness.connect("a")
    assert not harness.subscribe("foo", client_id="a-b", durable="d").error
    assert not harness.subscribe("b-foo", client_id="a", durable="d").error


# --- too large -----------------------------------------------------------------------------------------------------------------


def test_message_that_could_not_be_delivered_is_refused_and_its_neighbours_are_taken(harness):
    """The MsgProto would be longer than its PubMsg was: protocol 0, short client id, short guid."""
    largest = (1 << 20) - 36  # and more: the heads of its fields
    sub = harness.subscribe("foo", "in")
    assert harness.publish("foo", b"a", b"x" * largest, b"b") == ["nats: maximum payload exceeded", "", ""]
    assert harness.publish("foo", b"x" * largest) == ["nats: maximum payload exceeded"]

    harness.ack(sub.ack_inbox, 1, 2)
    assert [s.message.data for s in harness.hear("in")] == [b"a", b"b"]
    harness.broker.step_payload_limit(2 << 20)  # of a nats-server of its own, for what is no message
    assert harness.publish("foo", b"x" * largest) == ["nats: maximum payload exceeded"]
    harness.broker.reconfigure(Config(requests=RequestLimits(payload_bytes=limits.NATS_PAYLOAD_BYTES_MAX)))
    assert harness.publish("foo", b"x" * largest) == [""]


@pytest.mark.parametrize("room", [0, 1, 20])
def test_largest_message_that_is_taken_is_within_the_limit_when_redelivered(harness, room):
    limit = 4096
    harness.broker.step_payload_limit(limit)
    harness.subscribe("foo", "in", wait=1)
    refused = [bool(*harness.publish("foo", b"x" * size)) for size in range(limit - 80, limit)]
    harness.pass_time(1.1)

    assert any(refused)
    assert not all(refused)
    assert max(len(s.payload) for s in harness.hear("in")) <= limit - room


def test_refusal_with_a_guid_as_long_as_a_message_is_not_sent(harness):
    harness.broker.step_payload_limit(4096)
    payload = wire.PubMsg(client_id=b"me", guid=b"g" * 4000, subject=b"*").SerializeToString()
    harness.broker.frames.step_malformed([Frame(1, b"_STAN.pub.test-cluster.*", b"answer", b"", payload)], 1)
    harness.turn()
    assert harness.hear("answer") == []


# --- leaving -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unsubscribe", [True, False])
def test_leave_is_refused_in_the_originals_order(harness, unsubscribe):
    harness.connect("you")
    sub = harness.subscribe("foo")

    def leave(channel="foo", inbox=sub.ack_inbox, client_id="me"):
        return harness.leave(channel, inbox, client_id=client_id, unsubscribe=unsubscribe).error

    assert leave("", b"", "") == leave("bar", b"x", "x") == b"stan: unknown channel"
    assert leave("foo", b"x", "x") == leave("foo", b"", "me") == b"stan: invalid subscription"
    assert leave(client_id="nobody") == leave(client_id="you") == leave(client_id="") == b"stan: unknown clientID"
    assert leave() == b""
    assert leave() == b"stan: invalid subscription"


def test_leave_by_message_inbox_removes_the_subscription(harness):
    harness.subscribe("foo", "my.inbox")
    harness.publish("foo", b"1")
    assert harness.received("my.inbox") == [(1, 0)]

    assert not harness.leave("foo", b"my.inbox").error
    harness.publish("foo", b"2")
    harness.pass_time(60)
    assert harness.received("my.inbox") == []
    assert not harness.state.subscriptions()


def test_leave_twice_in_one_read_is_an_invalid_subscription_the_second_time(harness):
    sub = harness.subscribe("foo")
    payload = wire.UnsubscribeRequest(client_id=b"me", subject=b"foo", inbox=sub.ack_inbox).SerializeToString()
    for reply in (b"one", b"two"):
        harness.broker.frames.step_frame(Frame(10, b"_STAN.unsub.test-cluster", reply, b"", payload))
    harness.turn()

    errors = {s.subject: wire.SubscriptionResponse.FromString(s.payload).error for s in harness.hear()}
    assert errors == {"one": b"", "two": b"stan: invalid subscription"}


def test_ack_sent_just_before_the_close_counts(harness):
    sub = harness.subscribe("foo", durable="d")
    harness.publish("foo", b"1", b"2")
    harness.received()
    harness.ack(sub.ack_inbox, 1, 2)
    harness.leave("foo", sub.ack_inbox)
    harness.restart()
    harness.connect("other")
    harness.subscribe("foo", "again", durable="d")
    harness.publish("foo", b"3")

    assert harness.received("again") == [(3, 0)]


# --- silence ------------------------------------------------------------------------------------------------------------------


def test_requests_without_a_reply_subject_are_carried_out_and_not_answered(harness):
    sub = harness.subscribe("foo", "in")
    harness.publish("foo", b"1")
    harness.hear()
    leave = wire.UnsubscribeRequest(client_id=b"me", subject=b"foo", inbox=sub.ack_inbox)
    for subject, request in (
        ("_STAN.discover.test-cluster", wire.ConnectRequest(client_id=b"you", heartbeat_inbox=b"hb.you")),
        ("_STAN.subclose.test-cluster", leave),
        ("_STAN.sub.test-cluster", wire.SubscriptionRequest(**GOOD | {"client_id": b"you", "start_position": 0})),
        ("_STAN.discover.test-cluster.pings", wire.Ping(conn_id=b"unknown")),
        ("_STAN.close.test-cluster", wire.CloseRequest(client_id=b"me")),
    ):
        harness.broker.frames.step_frame(Frame(10, subject.encode(), b"", b"", request.SerializeToString()))
        harness.turn()

    assert harness.hear() == []
    assert harness.state.clients.keys() == {b"you"}
    left = harness.state.subscription()
    assert left.client_id == b"you"


GARBAGE = [b"dummy", b"", b"\xff" * 30, b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x03\xff\xfe\xfd", b"\0"]


@pytest.mark.parametrize("payload", GARBAGE)
def test_garbage_on_every_subject_is_refused_and_changes_nothing(harness, payload):
    harness.subscribe("foo", "in")
    before = harness.state.subscriptions()
    for subject in harness.broker.frames.original:
        for reply in (b"", b"answer"):
            harness.broker.frames.step_frame(Frame(10, subject, reply, b"", payload))
            harness.turn()
    for sid, subject in ((1, b"_STAN.pub.test-cluster.foo"), (2, b"_INBOX.NUID.1.2"), (2, b"_INBOX.NUID.x")):
        harness.broker.frames.step_malformed([Frame(sid, subject, b"answer", b"", payload)], 1)
        harness.turn()

    assert harness.state.subscriptions() == before
    assert harness.state.clients.keys() == {b"me"}
    assert harness.publish("foo", b"1") == [""]
    assert harness.received("in") == [(1, 0)]


def test_control_message_of_an_old_server_on_the_publish_subject_is_ignored(harness):
    control = wire.CtrlMsg(msg_type=3, server_id=b"s").SerializeToString()
    harness.broker.frames.step_malformed([Frame(1, b"_STAN.pub.test-cluster.foo", b"answer", b"", control)], 1)
    harness.turn()

    assert harness.hear("answer") == []
    assert harness.broker.view.totals().in_messages == 0


def test_ack_for_an_unknown_group_or_subscription_is_ignored(harness):
    harness.subscribe("foo", "in", wait=1)
    harness.publish("foo", b"1")
    for inbox in (b"_INBOX.NUID.99.2", b"_INBOX.NUID.1.999", b"_INBOX.OTHER.2.2"):
        harness.ack(inbox, 1)
    harness.pass_time(1.1)

    assert harness.received("in") == [(1, 0), (1, 1)]


@pytest.mark.parametrize("in_flight", [1, 2**31 - 1])
def test_window_and_ack_wait_have_no_upper_bound(harness, in_flight):
    harness.subscribe("foo", "in", in_flight=in_flight, wait=2**31 - 1)
    harness.publish("foo", *[b"x"] * 5)

    assert len(harness.received("in")) == min(5, in_flight)


@pytest.mark.parametrize("seq", [0, 1, 2**63, 2**64 - 1])
@pytest.mark.parametrize("delta", [-(2**63), 0, 2**63 - 1])
def test_start_beyond_any_end_is_moved_there(harness, seq, delta):
    harness.publish("foo", b"1", b"2")
    assert not harness.subscribe("foo", "seq", start=3, seq=seq).error
    assert not harness.subscribe("foo", "time", start=2, delta=delta).error
    harness.pass_time(0.1)
    harness.publish("foo", b"3")

    assert harness.received("seq")[-1] == harness.received("time")[-1] == (3, 0)
