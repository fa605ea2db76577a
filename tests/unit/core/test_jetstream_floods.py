"""What clients of JetStream send in great numbers costs the broker little for each, and keeps nobody else waiting."""

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stan_protocol.patterns import literal, matches
from stan_protocol.scalars import SECOND

from stan import limits
from stan.core.features.jetstream.streams.subjects import SubjectIndex
from stan.core.metadata.streams import Stream
from stan.protocol.jetstream.streams import is_subject, requested
from tests.kit.consumers import asks, consumer, info, listens, pull, served
from tests.kit.jetstream import answer_to, api, harness, hears, publish
from tests.kit.jetstream import asks as asks_api


def calls_of(work):
    """How many functions a piece of work calls."""
    count = 0

    def note(_frame, event, _argument):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def waiting(h, name, number):
    """So many requests of one client wait."""
    listens(h, "_INBOX.many.>")
    for at in range(number):
        asked = b'{"batch": 1, "expires": %d}' % (1000 * SECOND - at)
        hears(h, f"$JS.API.CONSUMER.MSG.NEXT.ORDERS.{name}", asked, f"_INBOX.many.{at}")
    h.turn()


# --- requests for messages ------------------------------------------------------------------------------------------------


def cost_of_a_pull(number):
    """Calls for a request, and for one that is refused, where so many wait already."""
    h = served()
    consumer(h, "worker", max_waiting=number + 1)
    waiting(h, "worker", number)
    taken = calls_of(lambda: asks(h, "worker", "_INBOX.many.x", batch=1, expires=SECOND))
    assert info(h, "worker")["num_waiting"] == number + 1
    return taken, calls_of(lambda: asks(h, "worker", "_INBOX.many.y", batch=1, expires=SECOND))


def test_a_request_for_messages_costs_the_same_however_many_wait():
    few, few_refused = cost_of_a_pull(10)
    many, many_refused = cost_of_a_pull(2000)

    assert many < few + 100
    assert many_refused < few_refused + 100


def test_a_client_that_leaves_amid_many_requests_costs_little():
    h = served()
    consumer(h, "worker", max_waiting=2000)
    waiting(h, "worker", 1000)
    listens(h, gone=("foo.1",))  # looks at all requests
    cost = calls_of(lambda: [listens(h, gone=(f"foo.{at}",)) for at in range(20)])

    assert cost < 20 * 1000
    listens(h, gone=("_INBOX.many.>",))
    h.pass_time(0.5)
    assert info(h, "worker")["num_waiting"] == 0


def test_requests_that_end_ever_sooner_leave_no_timers_behind():
    h = served()
    consumer(h, "worker", max_waiting=4000)
    before = h.state.timers
    waiting(h, "worker", 2000)

    assert h.state.timers < before + 20


def test_heartbeats_that_are_too_fast_are_refused():
    h = served()
    consumer(h, "worker")
    (refused,) = pull(h, "worker", 1, expires=SECOND, idle_heartbeat=1)

    assert refused.status == "400 Bad Request - heartbeat value too small"
    assert pull(h, "worker", 1, expires=SECOND, idle_heartbeat=limits.PULL_BEAT_MIN) == []


def test_requests_for_messages_of_all_consumers_have_a_bound(monkeypatch):
    monkeypatch.setattr(limits, "PULLS_MAX", 3)
    h = served()
    for name in ("one", "two"):
        consumer(h, name)
    for at in range(3):
        assert pull(h, "one", 1, inbox=f"_INBOX.one.{at}", expires=SECOND) == []

    assert [one.status for one in pull(h, "two")] == ["409 Exceeded MaxWaiting"]
    h.pass_time(1.1)
    assert pull(h, "two") == []


# --- answers to flow control ------------------------------------------------------------------------------------------------


def cost_of_an_answer(number):
    """Calls for a forged answer to flow control where there are so many consumers."""
    h = served()
    for at in range(number):
        consumer(h, f"c{at}")
    return calls_of(lambda: hears(h, "$JS.FC.ORDERS.c1.7"))


def test_a_forged_answer_to_flow_control_costs_the_same_however_many_consumers_there_are():
    assert cost_of_an_answer(200) < cost_of_an_answer(5) + 20


# --- headers ----------------------------------------------------------------------------------------------------------------


def cost_of_headers(subject, block):
    """Calls for a message, or a request, with these headers; and the answer."""
    h = harness()
    api(h, "STREAM.CREATE.S", {"name": "S", "subjects": ["a.*"]})
    cost = calls_of(lambda: [hears(h, subject, b"", "reply.headers", block), h.turn()])
    return cost, json.loads(answer_to(h, "reply.headers").payload)


@pytest.mark.parametrize(
    ("subject", "line", "code"),
    [("a.b", b"a:\r\n", 10097), ("$JS.API.INFO", b"Nats-Required-Api-Level: 1\r\n", 10185)],
)
def test_a_header_block_that_is_too_large_is_not_read(subject, line, code):
    few, _ = cost_of_headers(subject, b"NATS/1.0\r\n%b\r\n" % line)
    many, refused = cost_of_headers(subject, b"NATS/1.0\r\n%b\r\n" % (line * 20_000))

    assert refused["error"]["err_code"] == code
    assert many < few + 50


def test_a_header_block_of_64_kib_is_stored():
    _, stored = cost_of_headers("a.b", b"NATS/1.0\r\na: %b\r\n\r\n" % (b"b" * 65_000))
    assert stored["seq"] == 1


# --- subjects with wildcards ------------------------------------------------------------------------------------------------


def bucket(monkeypatch, keys=40):
    """A bucket with so many keys, of which a turn looks at ten."""
    monkeypatch.setattr(limits, "STREAM_SLICE", 10)
    monkeypatch.setattr(limits, "STREAM_COMPARED_MAX", 2 * keys)
    h = harness()
    api(h, "STREAM.CREATE.S", {"name": "S", "subjects": ["a.*"], "max_msgs_per_subject": 1, "allow_direct": True})
    for at in range(keys):
        publish(h, f"a.{at}", b"%d" % at)
    api(h, "STREAM.MSG.GET.S", {"last_by_subj": "a.1"})  # makes the index
    h.pass_time(0.1)
    return h


@pytest.mark.parametrize(
    ("request_", "asked"),
    [
        ("STREAM.MSG.GET.S", {"last_by_subj": "a.*"}),
        ("DIRECT.GET.S.a.*", None),
        ("STREAM.INFO.S", {"subjects_filter": ">"}),
    ],
)
def test_a_request_with_wildcards_looks_at_some_subjects_in_a_turn(monkeypatch, request_, asked):
    h = bucket(monkeypatch)
    replies = [asks_api(h, request_, asked) for _ in range(2)]
    h.turn()
    assert [answer_to(h, reply) for reply in replies] == [None, None]
    h.pass_time(0.1)

    first, second = (answer_to(h, reply) for reply in replies)
    assert first is not None
    assert second is not None
    if "INFO" in request_:
        state = json.loads(first.payload)["state"]
        assert state["subjects"] == {f"a.{at}": 1 for at in range(40)}
        assert (state["num_subjects"], state["messages"], state["first_seq"]) == (40, 40, 1)


def test_requests_that_read_much_keep_nobody_from_a_single_message(monkeypatch):
    monkeypatch.setattr(limits, "API_SCANS_MAX", 2)
    h = bucket(monkeypatch)
    replies = [asks_api(h, "STREAM.MSG.GET.S", {"last_by_subj": "a.*"}) for _ in range(3)]
    single = asks_api(h, "STREAM.MSG.GET.S", {"last_by_subj": "a.7"})
    h.turn()

    assert json.loads(answer_to(h, single).payload)["message"]["seq"] == 8
    assert json.loads(answer_to(h, replies[2]).payload)["error"]["err_code"] == 10023
    h.pass_time(0.1)
    assert json.loads(answer_to(h, replies[0]).payload)["message"]["seq"] == 40
    assert json.loads(answer_to(h, asks_then(h, "a.*")).payload)["message"]["seq"] == 40


def asks_then(h, pattern):
    """Ask for the newest message of a pattern, and wait; returns where the answer is."""
    reply = asks_api(h, "STREAM.MSG.GET.S", {"last_by_subj": pattern})
    h.pass_time(0.1)
    return reply


def test_expectations_with_wildcards_are_compared_with_a_bounded_number_of_subjects(monkeypatch):
    h = bucket(monkeypatch)
    expects = [("Nats-Expected-Last-Subject-Sequence", "40"), ("Nats-Expected-Last-Subject-Sequence-Subject", "a.*")]
    wrong = [("Nats-Expected-Last-Subject-Sequence", "7"), expects[1]]
    codes = [one["error"]["err_code"] for one in publish(h, "a.x", b"", b"", b"", fields=wrong)]

    assert codes == [10071, 10071, 10163]
    assert publish(h, "a.x", b"", fields=expects)[0]["seq"] == 41


@given(st.text("ab.*>", max_size=6).filter(is_subject), st.lists(st.text("ab.*", max_size=6), max_size=6))
def test_subjects_are_found_as_patterns_cover_them(pattern, subjects):
    config = requested({"name": "S", "subjects": ["a.*"]}, "S", 1)
    index = SubjectIndex(Stream("S", config, uid=1, channel=b"S", changed=0, created=0, adopted=False))
    for sequence, subject in enumerate(subjects, 1):
        index.newest[subject.encode()] = sequence
    found = {subject.decode() for subject, _ in index.matching(pattern)}

    wanted = {
        subject for subject in subjects if (subject == pattern if literal(pattern) else matches(pattern, subject))
    }
    assert found == wanted
    assert {one.decode() for some, _ in index.in_slices(pattern) for one in some} == wanted
