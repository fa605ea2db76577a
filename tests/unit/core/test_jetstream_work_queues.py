"""Streams that are work queues, on one leader: messages go with their acks, and no message has two consumers."""

import json
from dataclasses import replace

import pytest
from stan_protocol.scalars import SECOND

from stan import limits
from tests.kit.consumers import consumer, got, info, pull, says, served
from tests.kit.jetstream import answer_to, api, asks, publish


def queue(count=4, subjects=("orders.*",), **config):
    h = served(subjects, retention="workqueue", **config)
    for number in range(count):
        publish(h, f"orders.{number % 2}", b"message %d" % (number + 1))
    return h


def left(h):
    """The sequences that the stream has."""
    last = api(h, "STREAM.INFO.ORDERS")["state"]["last_seq"]
    found = (api(h, "STREAM.MSG.GET.ORDERS", {"seq": at}) for at in range(1, last + 1))
    return [answer["message"]["seq"] for answer in found if "error" not in answer]


def sequences(found):
    return [one.sequence for one in found if not one.status]


def code(answer):
    return answer.get("error", {}).get("err_code")


def test_a_message_goes_when_it_is_acked():
    h = queue()
    consumer(h, "worker")
    one, two, three, four = pull(h, "worker", 4)
    says(h, three, b"+ACK")
    assert left(h) == [1, 2, 4]
    says(h, one, b"+ACK")
    says(h, two, b"+TERM")
    says(h, four, b"-NAK")
    assert left(h) == [4]
    state = api(h, "STREAM.INFO.ORDERS")["state"]
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (1, 4, 4)
    assert info(h, "worker")["num_ack_pending"] == 1


def test_an_answered_ack_and_the_removal_are_one():
    h = queue()
    consumer(h, "worker", ack_wait=60 * SECOND)
    for at in range(2):
        one = pull(h, "worker", 1)[0]
        assert one.sequence == at + 1
        says(h, one, b"+ACK", reply=f"synced.{at}")
        assert len(got(h, f"synced.{at}")) == 1
        h.restart()
        assert left(h) == list(range(at + 2, 5))
    assert sequences(pull(h, "worker", 4)) == [3, 4]


def test_what_nobody_has_acked_stays_for_the_next_consumer():
    h = queue()
    consumer(h, "worker")
    one, *_ = pull(h, "worker", 4)
    says(h, one, b"+ACK")
    assert api(h, "CONSUMER.DELETE.ORDERS.worker")["success"]
    assert left(h) == [2, 3, 4]
    consumer(h, "other")
    assert sequences(pull(h, "other", 4)) == [2, 3, 4]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_consumer_removes_what_it_has_got_and_nothing_else(restarted):
    h = queue()
    consumer(h, "even", filter_subject="orders.0")
    consumer(h, "odd", filter_subject="orders.1")
    one, three = pull(h, "even", 4)
    if restarted:
        h.restart()
    says(h, replace(one, ack=one.ack.replace(".1.1.", ".1.2.")), b"+ACK")
    assert left(h) == [1, 2, 3, 4], "2 is the other one's"
    says(h, three, b"+ACK")
    assert 2 in left(h)
    assert sequences(pull(h, "odd", 4)) == [2, 4]


def test_a_message_that_was_sent_too_often_stays():
    h = queue(1)
    consumer(h, "worker", max_deliver=1, ack_wait=SECOND)
    assert sequences(pull(h, "worker", 1)) == [1]
    h.pass_time(3)
    assert sequences(pull(h, "worker", 1, no_wait=True)) == []
    assert left(h) == [1]


def test_with_too_many_gaps_messages_are_settled_and_stay(monkeypatch):
    monkeypatch.setattr(limits, "DELETED_RUNS_MAX", 1)
    h = queue(6)
    consumer(h, "worker", ack_wait=60 * SECOND)
    found = pull(h, "worker", 6)
    for one in found[1::2]:
        says(h, one, b"+ACK", reply=f"synced.{one.sequence}")
        assert len(got(h, f"synced.{one.sequence}")) == 1
    assert left(h) == [1, 3, 4, 5, 6]
    assert info(h, "worker")["num_ack_pending"] == 3
    h.restart()
    assert info(h, "worker")["num_ack_pending"] == 3


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"ack_policy": "none"}, 10084),
        ({"ack_policy": "none", "deliver_subject": "there"}, 10098),
        ({"ack_policy": "all"}, 10098),
        ({"deliver_policy": "new"}, 10101),
        ({}, 10099),
        ({"filter_subject": "orders.*"}, 10100),
        ({"filter_subjects": ["orders.1", "orders.2"]}, None),
    ],
)
def test_consumers_of_a_work_queue_do_not_overlap(config, expected):
    h = queue(0)
    if expected in (10099, 10100, None):
        assert code(consumer(h, "first", filter_subject="orders.0")) is None
    assert code(consumer(h, "second", **config)) == expected
    assert code(consumer(h, "first", filter_subject="orders.0")) is None, "the same once more"
    assert code(consumer(h, "first", filter_subject="orders.9")) is not None


def test_two_consumers_that_are_made_at_once_do_not_overlap():
    h = queue(0)
    made = []
    for name in ("one", "two"):
        asked = {"stream_name": "ORDERS", "config": {"durable_name": name, "ack_policy": "explicit"}}
        made.append(asks(h, f"CONSUMER.DURABLE.CREATE.ORDERS.{name}", asked))
    h.turn()
    codes = [json.loads(answer_to(h, reply).payload).get("error", {}).get("err_code") for reply in made]
    assert codes == [None, 10008]


def test_a_stream_that_is_a_work_queue_stays_one():
    h = queue(0)
    assert api(h, "STREAM.INFO.ORDERS")["config"]["retention"] == "workqueue"
    assert code(api(h, "STREAM.UPDATE.ORDERS", {"name": "ORDERS", "subjects": ["orders.*"]})) == 10052
