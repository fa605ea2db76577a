"""Advisories on the core: they leave once the entry with the news is committed, and are bounded."""

import json

from stan_protocol.scalars import SECOND

from stan import limits
from stan.policies import PolicyRule
from tests.kit import jetstream as js
from tests.kit.consumers import consumer, listens, pull, says, served

PREFIX = "$JS.EVENT.ADVISORY."
SPENT, TERMINATED = f"{PREFIX}CONSUMER.MAX_DELIVERIES.ORDERS.w", f"{PREFIX}CONSUMER.MSG_TERMINATED.ORDERS.w"


def heard(h, subject):
    return [json.loads(said.payload) for said in h.hear(subject)]


def filled(count, h=None, **config):
    h = h or served()
    for number in range(count):
        js.publish(h, "orders.x", b"%d" % number)
    consumer(h, "w", ack_wait=SECOND, **config)
    return h


def test_a_rejected_message_is_told_once_and_behind_its_entry():
    h = filled(1)
    (message,) = pull(h, "w")
    h.hold = True
    says(h, message, b"+TERM too odd")
    assert heard(h, TERMINATED) == []
    h.hold = False
    h.commit()
    h.turn()
    (told,) = heard(h, TERMINATED)
    assert (told["stream_seq"], told["consumer_seq"], told["deliveries"], told["reason"]) == (1, 1, 1, "too odd")
    says(h, message, b"+TERM")
    assert heard(h, TERMINATED) == []


def test_messages_that_were_delivered_often_enough_are_told_each():
    h = filled(3, max_deliver=1)
    pull(h, "w", 3)
    h.pass_time(1.1)
    pull(h, "w", no_wait=True)
    told = heard(h, SPENT)
    assert [(one["stream_seq"], one["deliveries"]) for one in told] == [(1, 1), (2, 1), (3, 1)]
    assert {one["type"] for one in told} == {"io.nats.jetstream.advisory.v1.max_deliver"}


def test_they_are_told_where_dead_letters_are_kept_too():
    h = js.harness(policies=(PolicyRule(pattern="ORDERS", dead_letter="dead"),))
    listens(h)
    js.api(h, "STREAM.CREATE.ORDERS", {"name": "ORDERS", "subjects": ["orders.*"]})
    filled(2, h, max_deliver=1)
    first, _ = pull(h, "w", 2)
    says(h, first, b"+TERM")
    h.pass_time(1.1)
    pull(h, "w", no_wait=True)
    assert [one["stream_seq"] for one in heard(h, TERMINATED)] == [1]
    assert [one["stream_seq"] for one in heard(h, SPENT)] == [2]


def test_too_many_at_once_are_left_out_and_the_log_says_so(monkeypatch):
    monkeypatch.setattr(limits, "ADVISORIES_WAITING_MAX", 2)
    h = filled(3, max_deliver=1)
    pull(h, "w", 3)
    h.pass_time(1.1)
    pull(h, "w", no_wait=True)
    assert len(heard(h, SPENT)) == 2
    assert any("advisories of consumer w of stream ORDERS are left out" in text for _, text in h.notes)


def test_a_stream_and_its_consumers_are_told_as_they_come_and_go():
    h = filled(0)
    consumer(h, "w", description="changed")
    js.api(h, "STREAM.DELETE.ORDERS")
    for subject, actions in (
        ("STREAM.CREATED.ORDERS", ["create"]),
        ("STREAM.UPDATED.ORDERS", []),
        ("CONSUMER.CREATED.ORDERS.w", ["create"]),
        ("CONSUMER.DELETED.ORDERS.w", ["delete"]),
        ("STREAM.DELETED.ORDERS", ["delete"]),
    ):
        assert [one["action"] for one in heard(h, PREFIX + subject)] == actions
