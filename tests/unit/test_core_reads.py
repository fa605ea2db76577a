"""Reads of the log that fail or find a hole (STAN-SPEC 6.2, 16 G 129, 134)."""

import pytest

from tests.kit.desk import Desk


@pytest.fixture
def desk():
    desk = Desk()
    desk.connect()
    for word in (b"1", b"2", b"3", b"4"):
        desk.publish("foo", word)
    return desk


def failing(desk):
    """Let reads fail from now on; returns what ends that."""
    broker = desk.broker
    answer = broker.step_fetched
    broker.step_fetched = lambda fetch, _found: broker.step_fetch_failed(fetch, "disk on fire")
    return lambda: setattr(broker, "step_fetched", answer)


def test_failed_read_of_new_messages_is_told_and_tried_again(desk):
    heal = failing(desk)
    desk.subscribe("foo")
    desk.pass_time(3)
    assert desk.received() == []
    assert ("ERR", "Error looking up message foo:1 (disk on fire)") in desk.notes
    heal()
    desk.pass_time(1.1)

    assert desk.received() == [(1, 0), (2, 0), (3, 0), (4, 0)]


def test_failed_read_of_a_redelivery_keeps_it_pending_and_is_tried_again(desk):
    sub = desk.subscribe("foo", wait=1)
    desk.received()
    desk.ack(sub.ack_inbox, 1, 2, 4)
    heal = failing(desk)
    desk.pass_time(5)
    assert desk.received() == []
    heal()
    desk.pass_time(1.1)

    assert desk.received()[0] == (3, 1)


def test_hole_in_the_log_is_skipped_and_what_was_pending_in_it_counts_as_acked(desk):
    pending = desk.subscribe("foo", "pending", wait=1)
    assert desk.received("pending") == [(1, 0), (2, 0), (3, 0), (4, 0)]
    desk.ack(pending.ack_inbox, 1, 4)
    batches = desk.indexes[1, 1].batches
    del batches[1:3]
    desk.subscribe("foo", "new")
    desk.pass_time(3)

    assert desk.received("new") == [(1, 0), (4, 0)]
    assert desk.received("pending") == []
    desk.publish("foo", b"5")
    assert desk.received("new") == desk.received("pending") == [(5, 0)]
