"""The lag and the window of durables and queue groups over time, for charts and for the time until a cursor has caught up.
Bounded: the cursors that were seen last stay.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Final

from stan_protocol.admin_types import CursorStatus
from stan_protocol.scalars import SECOND

from stan import limits
from stan.monitor.dashboard.lag_history import LagHistory
from stan.status.positions import window_now

LOOK_BACK: Final = 30 * SECOND
"""The rate at which a lag shrinks is computed from points at most this old."""

Key = tuple[str, int]
Points = deque[tuple[int, int, int]]
"""Time, lag, and window now."""


class LagTrends:
    """The lag and the window of each cursor over time, newest points only. Times are Unix ns."""

    def __init__(self) -> None:
        self.history = LagHistory()
        self._points: OrderedDict[Key, Points] = OrderedDict()

    def note(self, rows: Iterable[CursorStatus], now: int) -> None:
        """Add one point for each cursor of *rows*, seen at *now*."""
        for row in rows:
            key = (row.channel, row.cursor_id)
            points = self._points.get(key)
            if points is None:
                points = self._points[key] = deque(maxlen=limits.DASHBOARD_SAMPLES_MAX)
            self._points.move_to_end(key)
            points.append((now, int(row.waiting), window_now(row)))
            if len(self._points) > limits.DASHBOARD_LAG_TRENDS_MAX:
                self._points.popitem(last=False)

    def points(self, row: CursorStatus) -> list[tuple[int, int]]:
        """Return the points of a cursor: time and lag in messages, oldest first."""
        return [(at, lag) for at, lag, _ in self._points.get((row.channel, row.cursor_id), ())]

    def windows(self, row: CursorStatus) -> list[tuple[int, int]]:
        """Return how many messages the members of a cursor might have in flight: time and messages, oldest first."""
        return [(at, window) for at, _, window in self._points.get((row.channel, row.cursor_id), ())]

    def left_s(self, row: CursorStatus) -> float | None:
        """Return the seconds until the cursor has caught up at its present rate; None if its lag does not shrink or is not
        known."""
        points = self.points(row)
        if not points or not row.waiting:
            return None
        newest = points[-1][0]
        at, lag = next(point for point in points if point[0] >= newest - LOOK_BACK)
        shrunk = lag - int(row.waiting)
        if shrunk <= 0 or newest == at:
            return None
        return int(row.waiting) * (newest - at) / SECOND / shrunk
