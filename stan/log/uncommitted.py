"""Entries that are written but not committed, and where their record batches lie: what commit() needs, without reading again.

Promises to hand out every entry once, in order, and to keep of each only its batches' places. What recovery found is
read lazily, one segment's outlines at a time.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from stan.log.types import BatchRow
from stan.types import RaftIndex


class Placed(NamedTuple):
    """An entry's record batches and the segment they are in."""

    index: RaftIndex  # type: ignore[assignment] # hides tuple.index, which nobody calls here
    segment: int
    rows: list[BatchRow]


class UncommittedEntries:
    """Queue of uncommitted entries; *recovered* yields those that were in the log when it was opened."""

    def __init__(self, recovered: Iterator[Placed], recovered_last: RaftIndex) -> None:
        self._recovered = recovered
        self._recovered_last = recovered_last  # newest recovered entry that was not truncated since
        self._peeked: Placed | None = None
        self._appended: deque[Placed] = deque()

    def add(self, placed: Placed) -> None:
        """An entry was appended behind all others."""
        self._appended.append(placed)

    def take(self, index: RaftIndex) -> Iterator[Placed]:
        """Hand out the entries up to *index*, which are committed, and forget them."""
        while (placed := self._peek()) is not None:
            if placed.index > index:
                return
            self._peeked = None
            yield placed
        while self._appended and self._appended[0].index <= index:
            yield self._appended.popleft()

    def truncate_after(self, index: RaftIndex) -> list[Placed]:
        """Forget the entries after *index*; returns those of them that were appended since the start."""
        removed = []
        while self._appended and self._appended[-1].index > index:
            removed.append(self._appended.pop())
        self._recovered_last = min(self._recovered_last, index)
        return removed

    def _peek(self) -> Placed | None:
        """The oldest recovered entry that is still there."""
        if self._peeked is None:
            self._peeked = next(self._recovered, None)
        if self._peeked is not None and self._peeked.index > self._recovered_last:
            return None
        return self._peeked
