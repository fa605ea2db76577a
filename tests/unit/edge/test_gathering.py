"""A server alone lets a bulk gather for a moment; what comes alone has a turn at once."""

import pytest

from stan.edge.nats.gathering import GATHER_BYTES_MIN, GATHER_WAIT
from stan.edge.nats.read_buffer import ReadBuffer

BULK = 32 * GATHER_BYTES_MIN
PART = BULK // 4


class Timer:
    """A timer that rings when the test says so."""

    def __init__(self, seconds, call):
        self.seconds, self.call, self.cancelled = seconds, call, False

    def cancel(self):
        self.cancelled = True


class Bulks:
    """A buffer, its gathering, the turns that were asked for and the timers that were set."""

    def __init__(self):
        self.buffer = ReadBuffer()
        self.turns = 0
        self.timers = []
        self.buffer.gather(self._look, self._later)

    def _look(self):
        self.turns += 1

    def _later(self, seconds, call):
        self.timers.append(Timer(seconds, call))
        return self.timers[-1]

    def arrive(self, size):
        """Returns how many turns were asked for by these bytes."""
        before = self.turns
        self.buffer.on_data(bytes(size))
        return self.turns - before


@pytest.fixture
def bulks():
    """A server that has had a bulk."""
    bulks = Bulks()
    assert bulks.arrive(BULK) == 1
    assert len(bulks.buffer.pop()) == BULK
    return bulks


def test_few_bytes_never_wait(bulks):
    assert bulks.arrive(GATHER_BYTES_MIN - 1) == 1
    assert not bulks.timers


def test_a_part_of_a_bulk_waits_for_a_third_of_it(bulks):
    assert bulks.arrive(PART) == 0
    (timer,) = bulks.timers
    assert timer.seconds == GATHER_WAIT / 1e9
    assert bulks.arrive(PART) == 1
    assert timer.cancelled
    assert len(bulks.buffer.pop()) == 2 * PART


def test_a_part_waits_no_longer_than_the_timer(bulks):
    assert bulks.arrive(PART) == 0
    assert bulks.arrive(1) == 0
    (timer,) = bulks.timers  # one, however many parts come
    timer.call()
    assert bulks.turns == 2
    assert bulks.arrive(2 * PART) == 1


def test_a_timer_after_another_turn_asks_for_none(bulks):
    """As one that follows the end of a sync, and has taken the part in."""
    bulks.arrive(PART)
    bulks.buffer.pop()
    bulks.timers[0].call()
    assert bulks.turns == 1


def test_the_first_bulk_does_not_wait():
    bulks = Bulks()
    assert bulks.arrive(PART) == 1
    assert not bulks.timers


def test_a_bulk_is_forgotten_when_only_parts_come(bulks):
    waited = 0
    while bulks.arrive(PART) == 0:
        waited += 1
        bulks.timers[-1].call()
        bulks.buffer.pop()
    assert 5 < waited < 30
    assert bulks.buffer.unread.bulk <= 3 * PART


def test_a_lost_connection_has_a_turn_within_the_wait(bulks):
    bulks.arrive(PART)
    bulks.buffer.on_down()
    bulks.timers[0].call()
    assert bulks.turns == 2
