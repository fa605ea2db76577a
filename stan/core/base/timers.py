"""One heap for every deadline of the broker.

Time is an argument; nothing here looks at a clock. A timer is not cancelled: what it calls checks whether it is still wanted.
"""

import heapq
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from stan.types import Nanos


class Timers:
    """Calls things when their time has come."""

    __slots__ = ("_heap", "_made")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Callable[[Nanos], None]]] = []
        self._made = 0

    def at(self, deadline: int, call: Callable[[Nanos], None]) -> None:
        """Call `call(now)` at the first `run` at or after *deadline*; equal deadlines in the order they were set."""
        self._made += 1
        heapq.heappush(self._heap, (deadline, self._made, call))

    def run(self, now: Nanos, fail: Callable[[Exception], None]) -> None:
        """Call everything that is due; what these calls add for *now* runs too. *fail* is told of what fails in one of them."""
        while self._heap and self._heap[0][0] <= now:
            PartTimers(self, fail).call(heapq.heappop(self._heap)[2], now)

    def within(self, fail: Callable[[Exception], None]) -> "PartTimers":
        """The same timers for a part that may fail alone: *fail* is told."""
        return PartTimers(self, fail)

    @property
    def next(self) -> Nanos | None:
        """The earliest deadline, None when there is none."""
        return Nanos(self._heap[0][0]) if self._heap else None


class PartTimers(NamedTuple):
    """Timers of a part of the broker: what fails in what they call is that part's fault, and the others' timers run."""

    timers: Timers
    fail: Callable[[Exception], None]

    def at(self, deadline: int, call: Callable[[Nanos], None]) -> None:
        """See Timers.at."""
        self.timers.at(deadline, partial(self.call, call))

    def call(self, call: Callable[[Nanos], None], now: Nanos) -> None:
        """Call it now; tell of its failure."""
        try:
            call(now)
        except Exception as error:  # noqa: BLE001 - the border of the part
            self.fail(error)
