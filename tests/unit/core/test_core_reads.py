"""Reads of the log that fail or find a hole (STAN-SPEC 6.2, 16 G 129, 134)."""

import pytest

from stan.core.publishing.stored_reads import StoredReads
from tests.kit.core_harness import Node


@pytest.fixture
def harness(harness):
    for word in (b"1", b"2", b"3", b"4"):
        harness.publish("foo", word)
    return harness


def failing(harness):
    """Let reads fail from now on; returns what ends that."""
    reads = harness.broker.reads
    answer = reads.step_fetched
    reads.step_fetched = lambda fetch, _found: reads.step_fetch_failed(fetch, "disk on fire")
    return lambda: setattr(reads, "step_fetched", answer)


def test_failed_read_of_new_messages_is_told_and_tried_again(harness):
    heal = failing(harness)
    harness.subscribe("foo")
    harness.pass_time(3)
    assert harness.received() == []
    assert ("ERR", "Error looking up message foo:1 (disk on fire)") in harness.notes
    heal()
    harness.pass_time(1.1)

    assert harness.received() == [(1, 0), (2, 0), (3, 0), (4, 0)]


def test_failed_read_of_a_redelivery_keeps_it_pending_and_is_tried_again(harness):
    sub = harness.subscribe("foo", wait=1)
    harness.received()
    harness.ack(sub.ack_inbox, 1, 2, 4)
    heal = failing(harness)
    harness.pass_time(5)
    assert harness.received() == []
    heal()
    harness.pass_time(1.1)

    assert harness.received()[0] == (3, 1)


def test_hole_in_the_log_is_skipped_and_what_was_pending_in_it_counts_as_acked(harness):
    pending = harness.subscribe("foo", "pending", wait=1)
    assert harness.received("pending") == [(1, 0), (2, 0), (3, 0), (4, 0)]
    harness.ack(pending.ack_inbox, 1, 4)
    batches = harness.indexes[1, 1].batches
    del batches[1:3]
    harness.subscribe("foo", "new")
    harness.pass_time(3)

    assert harness.received("new") == [(1, 0), (4, 0)]
    assert harness.received("pending") == []
    harness.publish("foo", b"5")
    assert harness.received("new") == harness.received("pending") == [(5, 0)]


def test_an_answer_to_a_read_of_an_earlier_leadership_is_not_taken_for_one_of_this():
    """Numbers of reads once began anew with each leadership: rows of one channel could be stored in another one."""
    node = Node()
    node.feed_client()
    node.feed_channel("foo")
    node.slow = True
    heard = []
    for name in ("earlier", "this"):
        node.lead(1)
        node.leader_part(StoredReads).ask(1, ((1, 1),), lambda _batches, _error, name=name: heard.append(name))
        node.turn()
        if name == "earlier":
            node.follow(1)
    earlier, this = node.reads
    node.broker.reads.step_fetched(earlier, [])
    assert heard == []
    node.broker.reads.step_fetched(this, [])
    assert heard == ["this"]
