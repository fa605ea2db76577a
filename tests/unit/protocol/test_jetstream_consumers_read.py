"""Configurations of consumers, requests for messages and acks are read as JetStream's clients write them, within bounds."""

import json
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import SECOND

from stan import limits
from stan.protocol.jetstream.consumers import ConsumerConfig, decode, is_consumer_name, read_config, update_refusal
from stan.protocol.jetstream.errors import RequestError
from stan.protocol.jetstream.moments import NEVER, read_moment, shown_moment
from stan.protocol.jetstream.pulls import PullRequest, Said, pull_refusal, read_ack, read_ack_subject, read_pull

names = st.text("abcXYZ019_-", min_size=1, max_size=8)
subjects = st.lists(names, min_size=1, max_size=3).map(".".join)
durations = st.sampled_from([0, SECOND, 30 * SECOND])
documents = st.fixed_dictionaries(
    {"ack_policy": st.sampled_from(["none", "all", "explicit"])},
    optional={
        "durable_name": names,
        "name": names,
        "description": st.text(max_size=5),
        "ack_wait": durations,
        "max_deliver": st.integers(-1, 9),
        "backoff": st.lists(durations, max_size=3),
        "filter_subjects": st.lists(subjects, max_size=3),
        "max_ack_pending": st.integers(-2, 2000),
        "headers_only": st.booleans(),
        "inactive_threshold": durations,
        "pause_until": st.just("2030-01-01T00:00:00.5Z"),
        "metadata": st.dictionaries(names, names, max_size=2),
        "deliver_subject": subjects,
        "deliver_group": names,
    },
)


@given(documents, names, st.integers(0, 9))
def test_a_configuration_comes_out_of_the_log_as_it_went_in(document, name, newest_until):
    try:
        config = read_config(document, name)
    except RequestError:
        return
    known = replace(config, newest_until=newest_until)
    assert decode(known.encoded()) == known
    assert "newest_until" not in known.document()
    assert read_config(config.document(), name) == config
    assert update_refusal(config, config) is None


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=3), st.lists, max_leaves=4))
def test_a_field_of_another_type_is_refused(value):
    for name in ("ack_policy", "ack_wait", "backoff", "filter_subjects", "headers_only", "metadata", "pause_until"):
        with suppress(RequestError):
            assert read_config({"ack_policy": "explicit", name: value}, "one")


@pytest.mark.parametrize("name", ["", "a.b", "a b", "*", ">", "a/b", "a\\b", "a\nb", "x" * 256])
def test_names_that_no_subject_or_file_could_have_are_refused(name):
    assert not is_consumer_name(name)


@pytest.mark.parametrize(
    ("payload", "request_"),
    [
        (b"", PullRequest()),
        (b"7", PullRequest(7)),
        (b'{"batch": 3, "no_wait": true}', PullRequest(3, no_wait=True)),
        (b'{"batch": -3, "expires": 5}', PullRequest(1, expires=5)),
        (b'{"batch": 99999999}', PullRequest(limits.STREAM_CONSUMER_BATCH_MAX)),
        (b'{"max_bytes": 9, "idle_heartbeat": 8}', PullRequest(max_bytes=9, heartbeat=8)),
    ],
)
def test_requests_for_messages_are_read(payload, request_):
    assert read_pull(payload) == request_


@given(st.binary(max_size=20))
def test_any_payload_is_a_request_or_refused(payload):
    with suppress(RequestError):
        assert 0 < read_pull(payload).batch <= limits.STREAM_CONSUMER_BATCH_MAX


def test_a_heartbeat_needs_a_request_that_lasts_twice_as_long():
    config = ConsumerConfig(name="one")
    assert pull_refusal(PullRequest(expires=10 * SECOND, heartbeat=5 * SECOND), config) == b""
    assert b"heartbeat" in pull_refusal(PullRequest(expires=10 * SECOND, heartbeat=6 * SECOND), config)
    assert b"heartbeat" in pull_refusal(PullRequest(heartbeat=6 * SECOND), config)


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"", Said(wire.ACK)),
        (b"+ACK", Said(wire.ACK)),
        (b"-NAK", Said(wire.NAK)),
        (b'-NAK {"delay": 5}', Said(wire.NAK, delay=5)),
        (b"-NAK soon", Said(wire.NAK)),
        (b"+WPI", Said(wire.WORKING)),
        (b"+TERM", Said(wire.REJECT)),
        (b"+TERM it is broken", Said(wire.REJECT, reason=b"it is broken")),
        (b"+NXT 5", Said(wire.ACK, next=b"5")),
        (b"hello", None),
    ],
)
def test_acks_are_read(payload, said):
    assert read_ack(payload) == said


def test_an_ack_subject_names_stream_consumer_and_message():
    assert read_ack_subject(b"$JS.ACK.S.C.1.7.9.1700000000000000000.0") == (b"S", b"C", 7)
    for other in (b"$JS.ACK.S.C.1.7.9.17", b"$JS.ACK.S.C.1.x.9.17.0", b"$JS.ACK.S.C.1." + b"9" * 20 + b".9.17.0"):
        assert read_ack_subject(other) is None


@given(st.integers(1, (1 << 62)))
def test_moments_are_read_as_they_are_shown(wall):
    assert read_moment(shown_moment(wall)) == wall


def test_moments_have_no_needless_zeros():
    assert shown_moment(0) == NEVER
    assert shown_moment(1_893_456_000 * SECOND) == "2030-01-01T00:00:00Z"
    assert read_moment("2030-01-01T01:00:00.25+01:00") == 1_893_456_000 * SECOND + SECOND // 4
    assert read_moment("soon") is None
    assert read_moment(NEVER) == 0


def test_json_of_the_log_is_text():
    assert json.loads(ConsumerConfig(name="über").encoded())["name"] == "über"
