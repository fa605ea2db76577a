"""ProducerDedup, redelivery, start positions: the broker's core on a desk, in virtual time."""

import random

import pytest

from stan.config import ChannelLimits, Config, StoreLimits
from stan.core.base.runs import Run, Runs
from stan.types import SECOND
from tests.kit.desk import Desk


@pytest.fixture
def desk():
    desk = Desk()
    desk.connect()
    return desk


def test_first_delivery_is_in_order_and_not_flagged(desk):
    desk.publish("foo", b"a", b"b")
    desk.subscribe("foo")
    desk.publish("foo", b"c")

    assert desk.received() == [(1, 0), (2, 0), (3, 0)]


def test_window_full_stops_delivery_until_an_ack(desk):
    sub = desk.subscribe("foo", in_flight=2)
    desk.publish("foo", *[b"%d" % n for n in range(5)])
    assert desk.received() == [(1, 0), (2, 0)]

    desk.ack(sub.ack_inbox, 2)

    assert desk.received() == [(3, 0)]


def test_ack_of_an_unknown_sequence_changes_nothing(desk):
    sub = desk.subscribe("foo", in_flight=1)
    desk.publish("foo", b"a", b"b")
    desk.ack(sub.ack_inbox, 7, 2)

    assert desk.received() == [(1, 0)]


def test_ack_wait_over_redelivers_flagged_and_counts(desk):
    sub = desk.subscribe("foo", wait=2)
    desk.publish("foo", b"a")
    first = desk.hear("inbox")[0].message
    desk.pass_time(2.1)
    second = desk.hear("inbox")[0].message
    desk.pass_time(2.1)

    assert (second.redelivered, second.redelivery_count, second.data) == (True, 1, b"a")
    assert second.timestamp == first.timestamp
    assert desk.received() == [(1, 2)]
    desk.ack(sub.ack_inbox, 1)
    desk.pass_time(10)
    assert desk.received() == []


def test_each_message_is_redelivered_at_its_own_time(desk):
    desk.subscribe("foo", wait=2)
    desk.publish("foo", b"a")
    desk.pass_time(1)
    desk.publish("foo", b"b")
    desk.received()

    desk.pass_time(1.1)
    assert desk.received() == [(1, 1)]
    desk.pass_time(1)
    assert desk.received() == [(2, 1)]


def test_redelivery_stays_inside_the_window(desk):
    """An expired message keeps its place in the budget: nothing new is sent instead of it (FIELD 1a #6)."""
    desk.subscribe("foo", in_flight=2, wait=1)
    desk.publish("foo", *[b"%d" % n for n in range(6)])
    desk.received()
    desk.pass_time(1.1)

    assert desk.received() == [(1, 1), (2, 1)]


def test_stalled_subscription_is_redelivered_and_its_ack_opens_the_window(desk):
    sub = desk.subscribe("foo", in_flight=1, wait=1)
    desk.publish("foo", b"a", b"b")
    desk.pass_time(1.1)
    assert desk.received() == [(1, 0), (1, 1)]

    desk.ack(sub.ack_inbox, 1)

    assert desk.received() == [(2, 0)]


def test_outage_of_nats_stops_ack_waits_and_causes_no_storm(desk):
    desk.subscribe("foo", wait=5)
    desk.publish("foo", b"a", b"b")
    desk.received()
    desk.pass_time(1)
    desk.broker.step_disconnected()
    desk.pass_time(60)
    assert desk.received() == []

    desk.broker.step_reconnected(60 * SECOND)
    desk.pass_time(3.9)
    assert desk.received() == []
    desk.pass_time(0.2)
    assert desk.received() == [(1, 1), (2, 1)]


@pytest.mark.parametrize("seed", range(20))
def test_what_was_written_before_nats_was_lost_is_flagged_when_it_is_written_again(desk, seed):
    """Nobody knows how much of it has left the process, so all of it counts as sent: to a queue group without a durable, too."""
    draw = random.Random(seed)
    acks = [desk.subscribe("foo", f"in.{member}", queue="q", in_flight=4, wait=1).ack_inbox for member in range(3)]
    written: list[tuple[int, int]] = []  # sequence, times that it was sent again; in the order of the bytes
    for _ in range(60):
        desk.publish("foo", *[b"x"] * draw.randrange(8))
        if draw.random() < 0.5:  # the last bytes may be lost: they are neither acked nor known to be
            desk.broker.step_disconnected()
            desk.pass_time(draw.random() * 3)
            desk.broker.step_reconnected(draw.randrange(3 * SECOND))
        desk.pass_time(draw.random())
        for said in desk.hear():
            if said.subject.startswith("in."):
                written.append((said.message.sequence, said.message.redelivery_count))
                if draw.random() < 0.5:
                    desk.ack(acks[int(said.subject[3:])], said.message.sequence)
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
    desk = Desk(Config(limits=StoreLimits(default=ChannelLimits(msgs=10))))
    desk.connect()
    desk.publish("foo", *[b"x"] * 20)
    desk.subscribe("foo", start=start, seq=seq, in_flight=1)

    assert [sequence for sequence, _ in desk.received()] == expected
    sub = desk.subscribe("foo", "other", start=start, seq=seq, in_flight=100)
    assert not sub.error
    desk.received("other")
    desk.publish("foo", b"new")
    assert desk.received("other") == [(21, 0)]


def test_time_delta_starts_at_the_first_message_that_recent(desk):
    desk.publish("foo", b"old")
    desk.pass_time(1.5)
    desk.publish("foo", b"new")
    desk.pass_time(0.5)
    for inbox, seconds, expected in (("a", 10, [1, 2]), ("b", 1, [2]), ("c", 0.1, []), ("d", -5, [])):
        desk.subscribe("foo", inbox, start=2, delta=int(seconds * SECOND))
        assert [sequence for sequence, _ in desk.received(inbox)] == expected


def test_new_only_leaves_out_what_was_received_before_and_not_yet_committed(desk):
    desk.publish("foo", b"a")
    desk.hold = True
    desk.publish("foo", b"b")
    desk.subscribe("foo", start=0)
    desk.hold = False
    desk.turn()
    desk.publish("foo", b"c")

    assert [sequence for sequence, _ in desk.received()] == [3]


def test_messages_removed_while_pending_are_settled_not_redelivered():
    desk = Desk(Config(limits=StoreLimits(default=ChannelLimits(msgs=3))))
    desk.connect()
    sub = desk.subscribe("foo", wait=1, in_flight=3)
    desk.publish("foo", b"1", b"2", b"3")
    desk.received()
    desk.publish("foo", b"4", b"5")
    desk.pass_time(1.1)

    assert desk.received() == [(3, 1), (4, 0), (5, 0)]
    desk.ack(sub.ack_inbox, 3, 4, 5)
    assert not desk.broker.context.groups[1].machine.subscriptions[2].pending


def test_failed_write_is_told_and_costs_no_sequence(desk):
    desk.publish("foo", b"a")
    desk.full = True
    assert desk.publish("foo", b"lost") == ["disk full"]
    desk.full = False
    desk.publish("foo", b"b")
    desk.subscribe("foo")

    assert [(m.sequence, m.data) for m in (s.message for s in desk.hear("inbox"))] == [(1, b"a"), (2, b"b")]


def test_write_in_doubt_is_answered_neither_way(desk):
    desk.publish("foo", b"a")
    desk.in_doubt = True

    assert desk.publish("foo", b"perhaps") == []
    assert desk.subscribe("foo") is None
    assert not desk.broker.context.waiting


def test_failed_write_of_progress_is_told_again_later(desk):
    sub = desk.subscribe("foo", in_flight=5)
    desk.publish("foo", b"a", b"b")
    desk.full = True
    desk.ack(sub.ack_inbox, 1)
    desk.full = False
    desk.pass_time(0.2)
    desk.publish("foo", b"c")
    desk.restart()
    desk.said.clear()
    desk.pass_time(31)

    assert desk.received() == [(2, 1), (3, 1)]


def test_nothing_is_sent_while_the_disk_has_no_room_for_what_was_sent(desk):
    sub = desk.subscribe("foo", durable="dur", in_flight=3)
    desk.publish("foo", *(b"%d" % number for number in range(1, 8)))
    assert desk.received() == [(1, 0), (2, 0), (3, 0)]
    desk.full = True
    desk.ack(sub.ack_inbox, 1, 2, 3)
    desk.pass_time(5)
    assert desk.received() == []

    desk.full = False
    desk.pass_time(0.2)
    assert desk.received() == [(4, 0), (5, 0), (6, 0)]
    desk.ack(sub.ack_inbox, 4)
    assert desk.received() == [(7, 0)]


def test_a_life_that_ends_on_a_full_disk_leaves_nothing_to_come_again_unflagged(desk):
    sub = desk.subscribe("foo", durable="dur", in_flight=3)
    desk.publish("foo", *(b"%d" % number for number in range(1, 8)))
    desk.full = True
    desk.ack(sub.ack_inbox, 1, 2, 3)
    first = desk.received()
    desk.full = False
    desk.restart()
    desk.pass_time(31)
    desk.ack(sub.ack_inbox, 1, 2, 3)

    assert first == [(1, 0), (2, 0), (3, 0)]
    assert desk.received() == [(1, 1), (2, 1), (3, 1), (4, 0), (5, 0), (6, 0)]


def test_doubt_that_found_no_room_is_told_before_its_durable_goes_offline(desk):
    desk.subscribe("foo", durable="dur", in_flight=1)
    desk.publish("foo", b"a", b"b")
    desk.forget_progress(1)
    desk.power_lost = desk.full = True
    desk.restart()
    assert desk.received() == [(1, 0)]  # of the life before
    desk.full = desk.power_lost = False
    desk.close()
    desk.connect()
    desk.subscribe("foo", durable="dur", in_flight=2)

    assert desk.received() == [(1, 1), (2, 1)]


def test_restart_keeps_pending_redelivers_flagged_and_counts_anew(desk):
    sub = desk.subscribe("foo", wait=2, in_flight=2)
    desk.publish("foo", b"a", b"b", b"c")
    desk.pass_time(2.1)
    desk.received()
    desk.ack(sub.ack_inbox, 1)
    desk.received()
    desk.restart()
    assert desk.received() == [(2, 1), (3, 1)]  # their ack wait counts from their timestamps

    desk.pass_time(2.1)
    assert desk.received() == [(2, 2), (3, 2)]


def test_doubt_after_power_loss_flags_what_may_have_been_sent(desk):
    sub = desk.subscribe("foo", durable="dur", in_flight=1)
    desk.publish("foo", b"a", b"b")
    desk.ack(sub.ack_inbox, 1)
    desk.received()
    desk.forget_progress(1)
    desk.power_lost = True
    desk.restart()
    desk.power_lost = False
    desk.publish("foo", b"c")
    assert desk.received() == [(1, 1)]

    desk.close()
    desk.restart()
    desk.connect()
    again = desk.subscribe("foo", durable="dur", in_flight=1)
    for sequence in (1, 2):
        desk.ack(again.ack_inbox, sequence)
    assert desk.received() == [(1, 1), (2, 1), (3, 0)]


def test_runs_keep_their_size_and_order():
    runs = Runs([Run(5, 9), Run(1, 2)])
    runs.merge(Run(2, 5))

    assert list(runs) == [Run(1, 9)]
    assert runs.remove(3, 4) == [Run(3, 4)]
    assert (len(runs), runs.flat(), 4 in runs, 5 in runs) == (7, [1, 2, 5, 9], False, True)
