"""Histograms of durations: cheap enough to add every duration, from any thread."""

import threading
from bisect import bisect_left
from itertools import accumulate

from stan_protocol.scalars import MICROSECOND, MILLISECOND, SECOND

SYNC_BOUNDS = (
    *(bound * MICROSECOND for bound in (50, 100, 250, 500)),
    *(bound * MILLISECOND for bound in (1, 2, 5, 10, 25, 50, 100, 250, 500)),
    *(bound * SECOND for bound in (1, 2, 5)),
)
"""Upper bounds of the classes for the duration of a sync, ns."""


class Histogram:
    """A histogram of durations by class; the last class has no upper bound."""

    def __init__(self, bounds: tuple[int, ...]) -> None:
        self.bounds = bounds  # ascending, ns; a duration of exactly that belongs to the class
        self.sum = 0  # ns
        self._counts = [0] * (len(bounds) + 1)
        self._lock = threading.Lock()

    def add(self, duration: int) -> None:
        """Count one *duration*, ns."""
        with self._lock:
            self._counts[bisect_left(self.bounds, duration)] += 1
            self.sum += duration

    def cumulative(self) -> list[int]:
        """Return for each bound the number of durations up to it, then the number of all."""
        return list(accumulate(self._counts))
