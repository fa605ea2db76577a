"""One heap for every deadline of the broker.

Time is an argument; nothing here looks at a clock. A timer cannot be cancelled: its callback checks if it is still needed.
"""

import heapq
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from stan.types import Nanos


class Timers:
    """Calls callbacks at their deadlines."""

    __slots__ = ("_heap", "_made", "next")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Callable[[Nanos], None]]] = []
        self._made = 0
        self.next: Nanos | None = None  # the earliest deadline; None: there is none

    def at(self, deadline: int, call: Callable[[Nanos], None]) -> None:
        """Call `call(now)` at the first `run` at or after *deadline*; equal deadlines in the order they were set."""
        self._made += 1
        heapq.heappush(self._heap, (deadline, self._made, call))
        self.next = Nanos(self._heap[0][0])

    def run(self, now: Nanos, fail: Callable[[Exception], None]) -> None:
        """Call everything that is due; timers that these calls add for *now* run, too. *fail* is called with the exception of a
        callback that raises."""
        while self._heap and self._heap[0][0] <= now:
            call = heapq.heappop(self._heap)[2]
            self.next = Nanos(self._heap[0][0]) if self._heap else None
            PartTimers(self, fail).call(call, now)

    def within(self, fail: Callable[[Exception], None]) -> "PartTimers":
        """The same timers for a part of the broker that may fail alone: *fail* is called with the exceptions of its callbacks."""
        return PartTimers(self, fail)


class PartTimers(NamedTuple):
    """Timers of one part of the broker: an exception in their callbacks is that part's fault, and other parts' timers run."""

    timers: Timers
    fail: Callable[[Exception], None]

    def at(self, deadline: int, call: Callable[[Nanos], None]) -> None:
        """See Timers.at."""
        self.timers.at(deadline, partial(self.call, call))

    def call(self, call: Callable[[Nanos], None], now: Nanos) -> None:
        """Call *call* now; `fail` is called with its exception."""
        try:
            call(now)
        except Exception as error:  # noqa: BLE001 - the border of the part
            self.fail(error)
