"""The ledger of a group's rows: a checksum of each row, and the sum of all of them.

A row's checksum covers the table, the key and every column, so that no row can stand in for another; the sum (exclusive or) shows
that one is missing, or one too many. It is a hash of the group's whole state that costs a little per row that changes and never
a look at the others: equal on all replicas that have applied the same entries, however they came by their rows.
"""

from collections import deque
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

from stan_protocol.scalars import RaftIndex

from stan.limits import STATE_HASHES_KEPT

Row = tuple[Any, ...]


def checksum(table: str, row: Row) -> int:
    """Return the checksum of a row: 64 bits, signed as SQLite stores them."""
    return int.from_bytes(blake2b(repr((table, *row)).encode(), digest_size=8).digest(), "little", signed=True)


class Ledger:
    """The ledger of one group."""

    def __init__(self) -> None:
        self.sum = 0
        self._rows: dict[tuple[str, Row], int] = {}  # by table and key
        self._newest = (RaftIndex(0), 0)
        self._recent: deque[tuple[RaftIndex, int]] = deque(maxlen=STATE_HASHES_KEPT)

    def put(self, table: str, key: Row, mark: int) -> None:
        """Replace the row with the same key by one with the checksum *mark*."""
        self.sum ^= self._rows.get((table, key), 0) ^ mark
        self._rows[table, key] = mark

    def remove(self, table: str, key: Row) -> None:
        """Remove a row, if it is there."""
        self.sum ^= self._rows.pop((table, key), 0)

    def note(self, index: RaftIndex, mark: int) -> None:
        """Note the hash *mark* of the whole state as of *index*."""
        self._newest = (index, mark)

    def keep(self) -> None:
        """Remember the newest hash for a while, to be compared with those of the other nodes at this index."""
        self._recent.append(self._newest)

    def hashes(self) -> Iterator[tuple[RaftIndex, int]]:
        """Yield the remembered hashes of the state with their indexes, oldest first."""
        yield from self._recent
        if self._newest[0] and self._newest not in self._recent:
            yield self._newest
