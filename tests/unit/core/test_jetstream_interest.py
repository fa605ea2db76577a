"""Streams that keep messages as long as consumers are interested, on one leader: what all have passed goes."""

import pytest
from stan_protocol.scalars import SECOND

from tests.kit.consumers import consumer, info, pull, says, served
from tests.kit.jetstream import api, publish

A_LOOK_S = 1


def interest(**config):
    return served(retention="interest", **config)


def stored(h, count):
    return [publish(h, f"orders.{number % 2}", b"")[0]["seq"] for number in range(count)]


def state(h):
    """How many messages the stream has, and the sequence of the last one."""
    h.pass_time(A_LOOK_S)
    told = api(h, "STREAM.INFO.ORDERS")["state"]
    return told["messages"], told["last_seq"]


def sequences(found):
    return [one.sequence for one in found if not one.status]


def ack(h, messages):
    for one in messages:
        says(h, one, b"+ACK")


def test_without_a_consumer_nothing_stays():
    h = interest()
    assert stored(h, 3) == [1, 2, 3]
    assert state(h) == (0, 3)


def test_a_first_consumer_gets_nothing_of_before():
    h = interest()
    stored(h, 3)
    assert consumer(h, "one", deliver_policy="all")["num_pending"] == 0
    stored(h, 1)
    assert sequences(pull(h, "one", 9)) == [4]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_message_goes_once_all_consumers_have_acked_it(restarted):
    h = interest()
    consumer(h, "one", ack_wait=60 * SECOND)
    consumer(h, "two", ack_wait=60 * SECOND)
    stored(h, 4)
    first, second = pull(h, "one", 4), pull(h, "two", 4)
    ack(h, first)
    ack(h, second[1:3])
    if restarted:
        h.restart()
    assert state(h) == (4, 4)
    ack(h, second[:1])
    assert state(h) == (1, 4)
    ack(h, second[3:])
    assert state(h) == (0, 4)
    assert info(h, "two")["num_ack_pending"] == 0


def test_a_consumer_that_is_deleted_keeps_nothing():
    h = interest()
    consumer(h, "one")
    consumer(h, "two")
    stored(h, 4)
    ack(h, pull(h, "one", 4))
    assert state(h) == (4, 4)
    assert api(h, "CONSUMER.DELETE.ORDERS.two")["success"]
    assert state(h) == (0, 4)
    stored(h, 1)
    assert state(h) == (1, 5)
    assert api(h, "CONSUMER.DELETE.ORDERS.one")["success"]
    assert state(h) == (0, 5)


def test_a_later_consumer_gets_what_others_have_not_acked():
    h = interest()
    consumer(h, "one", ack_wait=60 * SECOND)
    stored(h, 4)
    ack(h, pull(h, "one", 2))
    assert state(h) == (2, 4)
    consumer(h, "two")
    assert sequences(pull(h, "two", 9)) == [3, 4]


def test_a_message_that_another_consumer_does_not_want_goes_when_it_has_passed_it():
    h = interest()
    consumer(h, "even", filter_subject="orders.0", ack_wait=60 * SECOND)
    consumer(h, "odd", filter_subject="orders.1", ack_wait=60 * SECOND)
    stored(h, 4)
    ack(h, pull(h, "even", 4, expires=60 * SECOND))
    assert state(h)[0] > 0
    ack(h, pull(h, "odd", 4, expires=60 * SECOND))
    assert state(h) == (0, 4)


def test_limits_and_interest_take_each_others_place():
    h = interest()
    stored(h, 2)
    asked = {"name": "ORDERS", "subjects": ["orders.*"]}
    assert "error" not in api(h, "STREAM.UPDATE.ORDERS", asked)
    stored(h, 2)
    assert state(h)[1] == 4
    assert "error" not in api(h, "STREAM.UPDATE.ORDERS", asked | {"retention": "interest"})
    assert state(h) == (0, 4)
    assert api(h, "STREAM.UPDATE.ORDERS", asked | {"retention": "workqueue"})["error"]["err_code"] == 10052
