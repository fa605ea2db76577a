"""One heap for every deadline of the broker.

Time is an argument; nothing here looks at a clock. A timer cannot be cancelled: its callback checks if it is still needed.
"""

import heapq
from collections.abc import Callable
from typing import Final, NamedTuple

from stan_protocol.scalars import GroupId, Nanos

Call = Callable[[Nanos], None]
"""The callback of a timer; its argument is the time of the turn."""


NEVER: Final = 1 << 63
"""Unix ns: nothing is due by the wall clock."""


class Timers:
    """Calls callbacks at their deadlines, each on behalf of one group: an exception is a fault of that group alone."""

    __slots__ = ("_heap", "_made", "next", "wall_next")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, GroupId, Call]] = []
        self._made = 0
        self.next: Nanos | None = None  # the earliest deadline; None: there is none
        self.wall_next: int = NEVER  # Unix ns: when something is due by the wall clock, or may be

    def at(self, deadline: int, call: Call, group: GroupId) -> None:
        """Call `call(now)` for *group* at the first `run` at or after *deadline*; equal deadlines in the order they were set."""
        self._made += 1
        heapq.heappush(self._heap, (deadline, self._made, group, call))
        self.next = Nanos(self._heap[0][0])

    def wake_at(self, deadline: int, group: GroupId) -> None:
        """Have a turn run at *deadline*, as *group* has something to do then."""
        self.at(deadline, _nothing, group)

    def run(self, now: Nanos, fail: Callable[[GroupId, Exception], None]) -> None:
        """Call everything that is due; timers that these calls add for *now* run, too. *fail* is called with the group and the
        exception of a callback that raises."""
        while self._heap and self._heap[0][0] <= now:
            _, _, group, call = heapq.heappop(self._heap)
            self.next = Nanos(self._heap[0][0]) if self._heap else None
            try:
                call(now)
            except Exception as error:  # noqa: BLE001 - the border of the group
                fail(group, error)

    def of(self, group: GroupId) -> "GroupTimers":
        """The same timers for the callbacks of one group."""
        return GroupTimers(self, group)


class GroupTimers(NamedTuple):
    """Timers of one group."""

    timers: Timers
    group: GroupId

    def at(self, deadline: int, call: Call) -> None:
        """See Timers.at."""
        self.timers.at(deadline, call, self.group)


def _nothing(_now: Nanos) -> None:
    """Only the turn is wanted."""
