"""The lag of durables and queue groups over a week, in steps of five minutes: of each step the largest lags. Pure.

Bounded: so many positions of each step, and so many steps. A position is known by a hash of its channel and id, so that the
file has no names in it. Times are Unix ns.
"""

import hashlib
import struct
import zlib
from collections import OrderedDict, deque
from collections.abc import Iterable
from heapq import nlargest
from typing import Final

from stan_protocol.admin_types import CursorStatus
from stan_protocol.scalars import SECOND

STEP: Final = 300 * SECOND
STEPS: Final = 2016
OF_A_STEP: Final = 16
"""Positions of a step, those with the largest lags."""
_MAGIC: Final = b"stanlag1"
_HEAD: Final = struct.Struct("<8sI")
_ROW: Final = struct.Struct("<I8sf")
LAG_FILE_BYTES_MAX: Final = _HEAD.size + STEPS * OF_A_STEP * _ROW.size

Steps = deque[tuple[int, float]]
"""Number of the step, and lag."""


class LagHistory:
    """The largest lags of each step."""

    def __init__(self) -> None:
        self._of: OrderedDict[bytes, Steps] = OrderedDict()  # positions, the one noted last at the end
        self._step = 0
        self._present: dict[bytes, float] = {}  # of the present step

    def note(self, rows: Iterable[CursorStatus], now: int) -> None:
        """Note the positions of the cluster, as they are at *now*."""
        step = now // STEP
        if step != self._step:
            self._end_step()
            self._drop(before=step - STEPS + 1, behind=step)
            self._step = step
        largest = nlargest(OF_A_STEP, (row for row in rows if row.waiting), key=lambda row: row.waiting)
        for row in largest:
            key = key_of_position(row)
            self._present[key] = max(self._present.get(key, 0), row.waiting)
        self._present = dict(nlargest(OF_A_STEP, self._present.items(), key=lambda item: item[1]))

    def points(self, row: CursorStatus) -> list[tuple[int, float]]:
        """Return time and lag, in messages, of a position, oldest first; a step in which it had no large lag is not there."""
        key = key_of_position(row)
        found = [(step * STEP, lag) for step, lag in self._of.get(key, ())]
        return [*found, (self._step * STEP, self._present[key])] if key in self._present else found

    def encoded(self) -> bytes:
        """Return everything as bytes, with a checksum."""
        rows = [_ROW.pack(step, key, lag) for key, steps in self._of.items() for step, lag in steps]
        rows += [_ROW.pack(self._step, key, lag) for key, lag in self._present.items()]
        body = b"".join(rows)
        return _HEAD.pack(_MAGIC, zlib.crc32(body)) + body

    def restore(self, data: bytes, now: int) -> None:
        """Take over the result of `encoded`, without steps that are too old, or in the future of *now*. Raises ValueError: it is
        nothing of the kind, or damaged."""
        if not _HEAD.size <= len(data) <= LAG_FILE_BYTES_MAX:
            raise ValueError("has a wrong size")
        magic, checksum = _HEAD.unpack_from(data)
        body = data[_HEAD.size :]
        if magic != _MAGIC or zlib.crc32(body) != checksum or len(body) % _ROW.size:
            raise ValueError("is damaged, or of another version")
        own, present = self._of, now // STEP
        self._of = OrderedDict()
        for step, key, lag in sorted(_ROW.iter_unpack(body)):
            if step < present:
                self._of.setdefault(key, deque(maxlen=STEPS)).append((step, lag))
            elif step == present and self._step in (0, present):
                self._step = present
                self._present[key] = max(self._present.get(key, 0), lag)
        for key, steps in own.items():
            self._of.setdefault(key, deque(maxlen=STEPS)).extend(steps)
        self._drop(before=present - STEPS + 1, behind=present)

    def _end_step(self) -> None:
        for key, lag in self._present.items():
            self._of.setdefault(key, deque(maxlen=STEPS)).append((self._step, lag))
            self._of.move_to_end(key)
        self._present = {}

    def _drop(self, *, before: int, behind: int) -> None:
        """Drop the steps *before* one, and those from *behind* on, which a clock that was put back has made."""
        for key, steps in list(self._of.items()):
            while steps and steps[0][0] < before:
                steps.popleft()
            while steps and steps[-1][0] >= behind:
                steps.pop()
            if not steps:
                del self._of[key]


def key_of_position(row: CursorStatus) -> bytes:
    """Return what a position is known by."""
    name = row.channel.encode("utf-8", "surrogateescape")
    return hashlib.blake2b(b"%d/%b" % (row.cursor_id, name), digest_size=8).digest()
