"""ProducerDedup, redelivery, start positions: the broker's core on a harness, in virtual time."""

import random

import pytest
from stan_protocol.scalars import SECOND

from stan.config import ChannelLimits, Config, StoreLimits
from stan.core.base.ready import Delivery
from stan.core.base.runs import Run, Runs
from stan.protocol.entries import Kind
from stan.protocol.proto import entries_pb2 as pb
from tests.kit.core_harness import CoreHarness


def test_first_delivery_is_in_order_and_not_flagged(harness):
    harness.publish("foo", b"a", b"b")
    harness.subscribe("foo")
    harness.publish("foo", b"c")

    assert harness.received() == [(1, 0), (2, 0), (3, 0)]


def test_window_full_stops_delivery_until_an_ack(harness):
    sub = harness.subscribe("foo", in_flight=2)
    harness.publish("foo", *[b"%d" % n for n in range(5)])
    assert harness.received() == [(1, 0), (2, 0)]

    harness.ack(sub.ack_inbox, 2)

    assert harness.received() == [(3, 0)]


def test_ack_of_an_unknown_sequence_changes_nothing(harness):
    sub = harness.subscribe("foo", in_flight=1)
    harness.publish("foo", b"a", b"b")
    harness.ack(sub.ack_inbox, 7, 2)

    assert harness.received() == [(1, 0)]


def test_ack_wait_over_redelivers_flagged_and_counts(harness):
    sub = harness.subscribe("foo", wait=2)
    harness.publish("foo", b"a")
    first = harness.hear("inbox")[0].message
    harness.pass_time(2.1)
    second = harness.hear("inbox")[0].message
    harness.pass_time(2.1)

    assert (second.redelivered, second.redelivery_count, second.data) == (True, 1, b"a")
    assert second.timestamp == first.timestamp
    assert harness.received() == [(1, 2)]
    harness.ack(sub.ack_inbox, 1)
    harness.pass_time(10)
    assert harness.received() == []


def test_each_message_is_redelivered_at_its_own_time(harness):
    harness.subscribe("foo", wait=2)
    harness.publish("foo", b"a")
    harness.pass_time(1)
    harness.publish("foo", b"b")
    harness.received()

    harness.pass_time(1.1)
    assert harness.received() == [(1, 1)]
    harness.pass_time(1)
    assert harness.received() == [(2, 1)]


def test_redelivery_stays_inside_the_window(harness):
    """An expired message keeps its place in the budget: nothing new is sent instead of it (FIELD 1a #6)."""
    harness.subscribe("foo", in_flight=2, wait=1)
    harness.publish("foo", *[b"%d" % n for n in range(6)])
    harness.received()
    harness.pass_time(1.1)

    assert harness.received() == [(1, 1), (2, 1)]


def test_stalled_subscription_is_redelivered_and_its_ack_opens_the_window(harness):
    sub = harness.subscribe("foo", in_flight=1, wait=1)
    harness.publish("foo", b"a", b"b")
    harness.pass_time(1.1)
    assert harness.received() == [(1, 0), (1, 1)]

    harness.ack(sub.ack_inbox, 1)

    assert harness.received() == [(2, 0)]


def test_outage_of_nats_stops_ack_waits_and_causes_no_storm(harness):
    harness.subscribe("foo", wait=5)
    harness.publish("foo", b"a", b"b")
    harness.received()
    harness.pass_time(1)
    harness.broker.step_disconnected()
    harness.pass_time(60)
    assert harness.received() == []

    harness.broker.step_reconnected(60 * SECOND)
    harness.pass_time(3.9)
    assert harness.received() == []
    harness.pass_time(0.2)
    assert harness.received() == [(1, 1), (2, 1)]


@pytest.mark.parametrize("seed", range(20))
def test_what_was_written_before_nats_was_lost_is_flagged_when_it_is_written_again(harness, seed):
    """Nobody knows how much of it has left the process, so all of it counts as sent: to a queue group without a durable, too."""
    draw = random.Random(seed)
    acks = [harness.subscribe("foo", f"in.{member}", queue="q", in_flight=4, wait=1).ack_inbox for member in range(3)]
    written: list[tuple[int, int]] = []  # sequence, times that it was sent again; in the order of the bytes
    for _ in range(60):
        harness.publish("foo", *[b"x"] * draw.randrange(8))
        if draw.random() < 0.5:  # the last bytes may be lost: they are neither acked nor known to be
            harness.broker.step_disconnected()
            harness.pass_time(draw.random() * 3)
            harness.broker.step_reconnected(draw.randrange(3 * SECOND))
        harness.pass_time(draw.random())
        for said in harness.hear():
            if said.subject.startswith("in."):
                written.append((said.message.sequence, said.message.redelivery_count))
                if draw.random() < 0.5:
                    harness.ack(acks[int(said.subject[3:])], said.message.sequence)
    first = set()
    for sequence, again in written:
        assert (again > 0) == (sequence in first), (sequence, again)
        first.add(sequence)
    assert len(first) > 50
    assert len(written) > len(first)


@pytest.mark.parametrize(
    ("start", "seq", "expected"),
    [(0, 0, []), (1, 0, [20]), (3, 1, [11]), (3, 14, [14]), (3, 21, []), (3, 99, []), (3, 0, [11]), (4, 0, [11])],
)
def test_start_positions_are_clamped_to_what_is_there(start, seq, expected):
    harness = CoreHarness(Config(limits=StoreLimits(default=ChannelLimits(msgs=10))))
    harness.connect()
    harness.publish("foo", *[b"x"] * 20)
    harness.subscribe("foo", start=start, seq=seq, in_flight=1)

    assert [sequence for sequence, _ in harness.received()] == expected
    sub = harness.subscribe("foo", "other", start=start, seq=seq, in_flight=100)
    assert not sub.error
    harness.received("other")
    harness.publish("foo", b"new")
    assert harness.received("other") == [(21, 0)]


def test_time_delta_starts_at_the_first_message_that_recent(harness):
    harness.publish("foo", b"old")
    harness.pass_time(1.5)
    harness.publish("foo", b"new")
    harness.pass_time(0.5)
    for inbox, seconds, expected in (("a", 10, [1, 2]), ("b", 1, [2]), ("c", 0.1, []), ("d", -5, [])):
        harness.subscribe("foo", inbox, start=2, delta=int(seconds * SECOND))
        assert [sequence for sequence, _ in harness.received(inbox)] == expected


def test_new_only_leaves_out_what_was_received_before_and_not_yet_committed(harness):
    harness.publish("foo", b"a")
    harness.hold = True
    harness.publish("foo", b"b")
    harness.subscribe("foo", start=0)
    harness.hold = False
    harness.turn()
    harness.publish("foo", b"c")

    assert [sequence for sequence, _ in harness.received()] == [3]


def test_messages_removed_while_pending_are_settled_not_redelivered():
    harness = CoreHarness(Config(limits=StoreLimits(default=ChannelLimits(msgs=3))))
    harness.connect()
    sub = harness.subscribe("foo", wait=1, in_flight=3)
    harness.publish("foo", b"1", b"2", b"3")
    harness.received()
    harness.publish("foo", b"4", b"5")
    harness.pass_time(1.1)

    assert harness.received() == [(3, 1), (4, 0), (5, 0)]
    harness.ack(sub.ack_inbox, 3, 4, 5)
    assert not harness.state.subscription().pending


def test_failed_write_is_told_and_costs_no_sequence(harness):
    harness.publish("foo", b"a")
    harness.full = True
    assert harness.publish("foo", b"lost") == ["disk full"]
    harness.full = False
    harness.publish("foo", b"b")
    harness.subscribe("foo")

    assert [(m.sequence, m.data) for m in (s.message for s in harness.hear("inbox"))] == [(1, b"a"), (2, b"b")]


def test_write_in_doubt_is_answered_neither_way(harness):
    harness.publish("foo", b"a")
    harness.in_doubt = True

    assert harness.publish("foo", b"perhaps") == []
    assert harness.subscribe("foo") is None
    assert not harness.state.waiting().proposals


def test_failed_write_of_progress_is_told_again_later(harness):
    sub = harness.subscribe("foo", in_flight=5)
    harness.publish("foo", b"a", b"b")
    harness.full = True
    harness.ack(sub.ack_inbox, 1)
    harness.full = False
    harness.pass_time(0.2)
    harness.publish("foo", b"c")
    harness.restart()
    harness.said.clear()
    harness.pass_time(31)

    assert harness.received() == [(2, 1), (3, 1)]


def progress_of(harness):
    """(last sent, runs that were acked) of each progress entry."""
    changes = [pb.GroupChange.FromString(body) for _, kind, body in harness.logs[1] if kind == Kind.CHANGE]
    return [(told.last_sent, list(told.acked)) for change in changes for told in change.progress]


def test_acks_that_come_together_with_messages_are_told_with_the_delivery_of_these(harness):
    sub = harness.subscribe("foo", in_flight=5)
    harness.publish("foo", b"a", b"b")
    harness.read_acks(sub.ack_inbox, 1, 2)
    harness.publish("foo", b"c")
    assert progress_of(harness) == [(2, []), (3, [1, 2])]

    harness.ack(sub.ack_inbox, 3)
    assert progress_of(harness)[2:] == [(3, [3, 3])]


def test_acks_that_come_together_with_messages_that_nobody_gets_are_told_in_the_same_turn(harness):
    sub = harness.subscribe("foo", in_flight=5)
    harness.publish("foo", b"a")
    harness.read_acks(sub.ack_inbox, 1)
    harness.publish("bar", b"b")
    assert progress_of(harness) == [(1, []), (1, [1, 1])]


def test_acks_that_come_together_with_messages_that_are_refused_are_told_soon(harness):
    sub = harness.subscribe("foo", in_flight=5)
    harness.publish("foo", b"a")
    harness.full = True
    harness.read_acks(sub.ack_inbox, 1)
    assert harness.publish("foo", b"b") == ["disk full"]
    harness.full = False
    harness.pass_time(0.2)
    assert progress_of(harness) == [(1, []), (1, [1, 1])]


def test_nothing_is_sent_while_the_disk_has_no_room_for_what_was_sent(harness):
    sub = harness.subscribe("foo", durable="dur", in_flight=3)
    harness.publish("foo", *(b"%d" % number for number in range(1, 8)))
    assert harness.received() == [(1, 0), (2, 0), (3, 0)]
    harness.full = True
    harness.ack(sub.ack_inbox, 1, 2, 3)
    harness.pass_time(5)
    assert harness.received() == []

    harness.full = False
    harness.pass_time(0.2)
    assert harness.received() == [(4, 0), (5, 0), (6, 0)]
    harness.ack(sub.ack_inbox, 4)
    assert harness.received() == [(7, 0)]


def test_what_did_not_leave_for_one_subscription_is_not_taken_from_another_with_the_same_inbox(harness):
    harness.subscribe("foo", "shared", wait=5)
    harness.publish("foo", b"a", b"b")
    harness.subscribe("bar", "shared", wait=5)
    harness.received("shared")
    ready, not_sent = harness.broker.ready, harness.broker.not_sent

    def lost(*arguments):
        said = ready(*arguments)
        deliveries = [send for send in said.sends if isinstance(send, Delivery)]
        said.sends = [send for send in said.sends if not isinstance(send, Delivery)]
        if deliveries:
            harness.broker.ready = ready
            not_sent(deliveries)
        return said

    harness.broker.ready = lost
    harness.publish("bar", b"c", b"d")
    assert sorted(harness.received("shared")) == [(1, 0), (2, 0)], "those of bar"
    harness.pass_time(6)
    assert sorted(harness.received("shared")) == [(1, 1), (1, 1), (2, 1), (2, 1)]


def test_a_life_that_ends_on_a_full_disk_leaves_nothing_to_come_again_unflagged(harness):
    sub = harness.subscribe("foo", durable="dur", in_flight=3)
    harness.publish("foo", *(b"%d" % number for number in range(1, 8)))
    harness.full = True
    harness.ack(sub.ack_inbox, 1, 2, 3)
    first = harness.received()
    harness.full = False
    harness.restart()
    harness.pass_time(31)
    harness.ack(sub.ack_inbox, 1, 2, 3)

    assert first == [(1, 0), (2, 0), (3, 0)]
    assert harness.received() == [(1, 1), (2, 1), (3, 1), (4, 0), (5, 0), (6, 0)]


def test_doubt_that_found_no_room_is_told_before_its_durable_goes_offline(harness):
    harness.subscribe("foo", durable="dur", in_flight=1)
    harness.publish("foo", b"a", b"b")
    harness.forget_progress(1)
    harness.power_lost = harness.full = True
    harness.restart()
    assert harness.received() == [(1, 0)]  # of the life before
    harness.full = harness.power_lost = False
    harness.close()
    harness.connect()
    harness.subscribe("foo", durable="dur", in_flight=2)

    assert harness.received() == [(1, 1), (2, 1)]


def test_restart_keeps_pending_redelivers_flagged_and_counts_anew(harness):
    sub = harness.subscribe("foo", wait=2, in_flight=2)
    harness.publish("foo", b"a", b"b", b"c")
    harness.pass_time(2.1)
    harness.received()
    harness.ack(sub.ack_inbox, 1)
    harness.received()
    harness.restart()
    assert harness.received() == [(2, 1), (3, 1)]  # their ack wait counts from their timestamps

    harness.pass_time(2.1)
    assert harness.received() == [(2, 2), (3, 2)]


def test_doubt_after_power_loss_flags_what_may_have_been_sent(harness):
    sub = harness.subscribe("foo", durable="dur", in_flight=1)
    harness.publish("foo", b"a", b"b")
    harness.ack(sub.ack_inbox, 1)
    harness.received()
    harness.forget_progress(1)
    harness.power_lost = True
    harness.restart()
    harness.power_lost = False
    harness.publish("foo", b"c")
    assert harness.received() == [(1, 1)]

    harness.close()
    harness.restart()
    harness.connect()
    again = harness.subscribe("foo", durable="dur", in_flight=1)
    for sequence in (1, 2):
        harness.ack(again.ack_inbox, sequence)
    assert harness.received() == [(1, 1), (2, 1), (3, 0)]


def test_runs_keep_their_size_and_order():
    runs = Runs([Run(5, 9), Run(1, 2)])
    runs.merge(Run(2, 5))

    assert list(runs) == [Run(1, 9)]
    assert runs.remove(3, 4) == [Run(3, 4)]
    assert (len(runs), runs.flat(), 4 in runs, 5 in runs) == (7, [1, 2, 5, 9], False, True)
