"""Entries that are written but not committed, and the places of their record batches: commit() needs no second read.

Promises to hand out every entry once, in order, and to hold of each only its batches' places. Recovered entries are
read lazily, one segment's outlines at a time.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from stan_protocol.scalars import RaftIndex

from stan.log.types import BatchRow


class Placed(NamedTuple):
    """An entry's record batches and the segment they are in."""

    index: RaftIndex  # type: ignore[assignment] # hides tuple.index, which nobody calls here
    segment: int
    rows: list[BatchRow]


class UncommittedEntries:
    """Queue of uncommitted entries; *recovered* yields those that were in the log when it was opened."""

    def __init__(self, recovered: Iterator[Placed], recovered_last: RaftIndex) -> None:
        self.recovered: Iterator[Placed] | None = recovered  # None once all of them are handed out
        self._recovered_last = recovered_last  # newest recovered entry that was not truncated since
        self._peeked: Placed | None = None
        self.appended: deque[Placed] = deque()
        """Entries that were appended since the start, oldest first, all behind the recovered ones. commit() removes them."""
        self.add: Callable[[Placed], None] = self.appended.append
        """Add an entry that was appended after all others."""

    def take_recovered(self, index: RaftIndex) -> Iterator[Placed]:
        """Hand out the recovered entries up to *index*, which are committed, and forget them."""
        while (placed := self._peek()) is not None:
            if placed.index > index:
                return
            self._peeked = None
            yield placed
        self.recovered = self._peeked = None

    def truncate_after(self, index: RaftIndex) -> list[Placed]:
        """Forget the entries after *index*; returns those of them that were appended since the start."""
        removed = []
        while self.appended and self.appended[-1].index > index:
            removed.append(self.appended.pop())
        self._recovered_last = min(self._recovered_last, index)
        return removed

    def _peek(self) -> Placed | None:
        """The oldest recovered entry that is still there."""
        if self._peeked is None and self.recovered is not None:
            self._peeked = next(self.recovered, None)
        if self._peeked is not None and self._peeked.index > self._recovered_last:
            return None
        return self._peeked
