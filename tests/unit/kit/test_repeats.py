"""The checker of repeats: each explanation is accepted, and a repeat without one is caught."""

import pytest

from tests.chaos.repeats import AROUND_FAULT_S, late_ones_flagged, unexplained
from tests.kit.history import SHOWN_MAX, Reader

ACK_WAIT_S = 2.0


class Clock:
    """Moved by hand."""

    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def reader(clock):
    return Reader("durable", 10, clock=clock)


def comes(reader, clock, at, *, acked_after=None, again=False):
    clock.now = at
    reader.delivered(0, 1, b"a-1", redelivered=again)
    if acked_after is not None:
        clock.now = at + acked_after
        reader.acked(0, 1)


def test_message_that_comes_once_needs_no_explanation(reader, clock):
    comes(reader, clock, 100, acked_after=0)
    assert not list(unexplained(reader, [], ACK_WAIT_S))


def test_acked_message_that_comes_again_is_caught(reader, clock):
    comes(reader, clock, 100, acked_after=0.1)
    comes(reader, clock, 103, again=True)
    assert list(unexplained(reader, [], ACK_WAIT_S)) == [
        "durable: 1 came again 3.00 s after it came, acked within 0.10 s, far from any fault"
    ]


def test_message_without_ack_comes_again_after_the_ack_wait(reader, clock):
    comes(reader, clock, 100)
    comes(reader, clock, 102, again=True)
    assert not list(unexplained(reader, [], ACK_WAIT_S))


def test_message_without_ack_that_comes_again_at_once_is_caught(reader, clock):
    comes(reader, clock, 100)
    comes(reader, clock, 100.1, again=True)
    assert list(unexplained(reader, [], ACK_WAIT_S)) == [
        "durable: 1 came again 0.10 s after it came, not acked within 0.10 s, far from any fault"
    ]


def test_late_ack_explains_a_repeat(reader, clock):
    comes(reader, clock, 100, acked_after=1.9)
    comes(reader, clock, 102, again=True)
    assert not list(unexplained(reader, [], ACK_WAIT_S))


@pytest.mark.parametrize("fault", [(99, 99.5), (100.05, 100.1), (101, 110), (90, 120)])
def test_fault_around_the_ack_explains_a_repeat(reader, clock, fault):
    comes(reader, clock, 100, acked_after=0.1)
    comes(reader, clock, 111, again=True)
    assert not list(unexplained(reader, [fault], ACK_WAIT_S))


@pytest.mark.parametrize("fault", [(90, 99 - AROUND_FAULT_S), (101 + AROUND_FAULT_S, 105)])
def test_fault_far_from_the_ack_explains_nothing(reader, clock, fault):
    comes(reader, clock, 100, acked_after=0.1)
    comes(reader, clock, 111, again=True)
    assert list(unexplained(reader, [fault], ACK_WAIT_S))


def test_second_repeat_is_judged_by_the_first(reader, clock):
    comes(reader, clock, 100, acked_after=0.1)
    comes(reader, clock, 101, again=True)
    comes(reader, clock, 103, again=True)
    assert list(unexplained(reader, [(98, 99)], ACK_WAIT_S)) == []


def flags(reader):
    return [event.redelivered for event in reader.deliveries()]


@pytest.mark.parametrize(("at", "flagged"), [(1.9, False), (2, True), (4, True), (4.1, False)])
def test_first_copy_that_comes_late_counts_as_flagged(reader, clock, at, flagged):
    """The old leader's copy overtaken by the new one's, which is flagged."""
    comes(reader, clock, 0, again=True)
    comes(reader, clock, at)
    assert flags(late_ones_flagged(reader, [(2, 4)])) == [True, flagged]
    assert flags(reader) == [True, False]


def test_second_copy_without_a_flag_stays_one(reader, clock):
    comes(reader, clock, 1)
    comes(reader, clock, 3)
    assert flags(late_ones_flagged(reader, [(2, 4)])) == [False, False]


def test_message_that_comes_late_may_come_behind_later_ones(reader, clock):
    clock.now = 1
    reader.delivered(0, 2, b"a-2", redelivered=False)
    comes(reader, clock, 3)
    assert flags(late_ones_flagged(reader, [(2, 4)])) == [False, True]


def test_message_in_order_is_not_late(reader, clock):
    comes(reader, clock, 3)
    assert flags(late_ones_flagged(reader, [(2, 4)])) == [False]


def test_many_repeats_are_cut_short(reader, clock):
    for at in range(100, 120):
        comes(reader, clock, at, acked_after=0)
    lines = list(unexplained(reader, [], ACK_WAIT_S))
    assert len(lines) == SHOWN_MAX + 1
    assert lines[-1] == "durable: ... and 14 more unexplained repeats"
