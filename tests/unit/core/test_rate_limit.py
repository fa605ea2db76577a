"""Limits of what clients may ask for: how many there are, how large a message is, how many requests a second."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.proto import extension_pb2 as ext
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import SECOND

from stan import limits
from stan.config import Config, RequestLimits
from stan.core.base.rate_limit import RateLimiter
from stan.settings.settings import parse
from tests.kit.core_harness import CoreHarness
from tests.unit.settings.test_stream_conf import serve

TOO_MANY = b"stan: too many requests, try again later"


def limited(**settings: int) -> CoreHarness:
    return CoreHarness(Config(requests=RequestLimits(**settings)))


# --- clients -------------------------------------------------------------------------------------------------------------


def test_no_more_clients_than_the_limit_until_one_has_gone():
    harness = limited(clients=2)
    assert [harness.connect(name).error for name in ("a", "b", "c")] == [
        b"",
        b"",
        b"stan: maximum number of clients reached",
    ]
    harness.close("a")
    assert harness.connect("c").error == b""


def test_client_that_comes_back_takes_its_own_place():
    harness = limited(clients=1)
    harness.connect("a", alive=False)
    assert harness.connect("a") is None  # the old one is asked first
    harness.pass_time(1)
    assert len(harness.state.clients) == 1


def test_clients_on_their_way_count():
    harness = limited(clients=1)
    harness.hold = True
    harness.connect("a")
    harness.hold = False
    assert harness.connect("b").error == b"stan: maximum number of clients reached"


# --- messages ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 10, 127, 128, 1000, 100_000])
def test_message_of_the_limit_is_taken_and_a_larger_one_is_not(most):
    harness = limited(message_bytes=most)
    harness.connect()
    assert harness.publish("foo", b"x" * most, b"x" * (most + 1), b"x") == ["nats: maximum payload exceeded", "", ""]


def test_rows_of_batches_are_limited_like_messages():
    harness = limited(message_bytes=10)
    row = wire.MsgProto(data=b"x" * 11).SerializeToString()
    batch = ext.BatchRequest(channel=b"foo", rows=struct.pack("<I", len(row)) + row, count=1)
    answer = harness.ask("_STAN.x.test-cluster.batch", batch, ext.BatchResponse)
    assert answer.error == b"stan: row 0 is larger than a message may be"


# --- requests ------------------------------------------------------------------------------------------------------------


def test_each_client_has_a_rate_of_its_own():
    harness = limited(client_rate=3)
    harness.connect("a")
    harness.connect("b")
    errors = [harness.subscribe("foo", f"i{number}", client_id="a").error for number in range(4)]
    assert errors == [b"", b"", TOO_MANY, TOO_MANY]
    assert harness.subscribe("foo", client_id="b").error == b""
    harness.pass_time(0.4)
    assert harness.subscribe("foo", "later", client_id="a").error == b""


def test_everybody_together_has_a_rate_and_publishing_has_none():
    harness = limited(rate=3)
    harness.connect()
    assert harness.publish("foo", *[b"x"] * 100) == [""] * 100
    request = admin.ChannelsRequest()
    answers = [harness.ask("_STAN.x.test-cluster.admin.channels", request, admin.ChannelsResponse) for _ in range(3)]
    assert [(answer.error, answer.retry) for answer in answers] == [(b"", False), (b"", False), (TOO_MANY, True)]
    assert harness.connect("other").error == TOO_MANY
    harness.pass_time(1)
    purge = harness.ask(
        "_STAN.x.test-cluster.admin.purge", admin.PurgeRequest(channel=b"foo", keep=1), admin.ChangeResponse
    )
    assert purge.error == b""


def test_leaving_is_never_refused():
    harness = limited(rate=2)
    harness.connect()
    inbox = harness.subscribe("foo").ack_inbox
    assert harness.leave("foo", inbox).error == b""
    assert harness.close().error == b""


@pytest.mark.parametrize("subject", ["_STAN.discover.test-cluster", "_STAN.sub.test-cluster"])
def test_oversized_request_is_refused_and_nothing_of_it_kept(harness, subject):
    long = b"x" * limits.REQUEST_BYTES_MAX
    if "discover" in subject:
        answer = harness.ask(subject, wire.ConnectRequest(client_id=long, heartbeat_inbox=b"hb"), wire.ConnectResponse)
        assert answer.error == b"stan: invalid connection request: client_id is longer than 1024 bytes"
    else:
        request = wire.SubscriptionRequest(
            client_id=b"me", subject=b"foo", inbox=b"i", durable_name=long, max_in_flight=1, ack_wait_s=1
        )
        answer = harness.ask(subject, request, wire.SubscriptionResponse)
        assert answer.error == b"stan: invalid subscription request: durable_name is longer than 1024 bytes"
    assert set(harness.state.clients) == {b"me"}


def test_rates_follow_a_reload():
    harness = limited(rate=1)
    harness.connect("a")
    assert harness.connect("b").error == TOO_MANY
    harness.broker.reconfigure(Config())
    assert harness.connect("b").error == b""


# --- the buckets ---------------------------------------------------------------------------------------------------------


@given(
    rate=st.integers(1, 50),
    steps=st.lists(st.integers(0, SECOND), max_size=200),
)
def test_no_second_sees_more_than_twice_the_rate(rate, steps):
    rates, now, taken = RateLimiter(RequestLimits(rate=rate)), SECOND, []
    for step in steps:
        now += step
        if rates.admit(now):
            taken.append(now)
    for at in taken:
        assert sum(at <= other <= at + SECOND for other in taken) <= 2 * rate


def test_clients_remembered_are_bounded(monkeypatch):
    monkeypatch.setattr(limits, "RATED_CLIENTS_MAX", 3)
    rates = RateLimiter(RequestLimits(client_rate=1))
    for client_id in (b"a", b"b", b"c", b"d"):
        assert rates.admit(SECOND, client_id)
    assert not rates.admit(SECOND, b"b")
    assert rates.admit(SECOND, b"a")  # forgotten
    assert len(rates._clients) == 3


# --- the options ---------------------------------------------------------------------------------------------------------


def test_limits_come_from_flags_and_file():
    expected = RequestLimits(clients=1, message_bytes=2048, rate=3, client_rate=4)
    argv = "-max_clients 1 -max_msg_bytes 2KB -max_request_rate 3 -max_client_request_rate 4"
    assert parse(argv.split()).config.requests == expected
    file = "limits { max_clients: 1, max_msg_bytes: 2KB, max_request_rate: 3, max_client_request_rate: 4 }"
    assert serve(file).requests == expected


def test_negative_limits_are_refused():
    complaints = Config(requests=RequestLimits(clients=-1, message_bytes=-1, rate=-1, client_rate=-1)).validate()
    assert complaints[0] == "max clients limit cannot be negative (-1)"
    assert len(complaints) == 4
