"""Figures of the whole cluster over time, in two tiers: an hour in steps of two seconds, and a week in steps of five minutes.

Bounded: each tier has so many points, whatever is noted. Pure; times are Unix ns, and a clock that was put back drops the points
that lie in its future.
"""

import math
import struct
import zlib
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from stan_protocol.scalars import SECOND

COLUMNS: Final = (
    "messages_in",
    "messages_out",
    "bytes_in",
    "bytes_out",
    "lag",
    "worst_lag",
    "clients",
    "memory",
    "disk_used",
    "pending",
    "stuck",
    "silent",
    "behind",
)
"""The figures of a point: messages and bytes a second; the lag of all durables and others together and the largest one, in
messages; registered clients; bytes of memory of all servers; the share of the fullest disk; messages that wait for acks; stuck
positions; servers that do not answer; log entries that the slowest follower lacks. Not a number: not known."""
MEANS: Final = 4
"""So many columns of a step are the mean of what was noted; of the others it is the largest."""
SPANS: Final = {"hour": (2 * SECOND, 1800), "week": (300 * SECOND, 2016)}
"""Of each tier the step in ns, and the number of points."""
_MAGIC: Final = b"stanhis2"
_HEAD: Final = struct.Struct("<8sI")
_COUNT: Final = struct.Struct("<I")
_ROW: Final = struct.Struct(f"<q{len(COLUMNS)}f")
FILE_BYTES_MAX: Final = _HEAD.size + sum(_COUNT.size + count * _ROW.size for _, count in SPANS.values())


class Point(NamedTuple):
    """The figures of one step; *at*: when it began."""

    at: int
    values: tuple[float, ...]  # as COLUMNS


class HistoryTier:
    """Points in equal steps. The newest one is of the present step, and may change."""

    def __init__(self, step: int, count: int) -> None:
        """*step*: ns; *count*: points at most."""
        self.step = step
        self.points: deque[Point] = deque(maxlen=count)
        self._noted = [0] * len(COLUMNS)  # how often each figure was noted in the present step

    def note(self, at: int, figures: Mapping[str, float]) -> None:
        """Note figures of the moment *at*; those of one step may come one after the other."""
        begin = at // self.step * self.step
        while self.points and self.points[-1].at > begin:
            self.points.pop()
        if not self.points or self.points[-1].at < begin:
            self.points.append(Point(begin, (math.nan,) * len(COLUMNS)))
            self._noted = [0] * len(COLUMNS)
        values = list(self.points[-1].values)
        for place, name in enumerate(COLUMNS):
            if name in figures:
                values[place] = _joined(place, values[place], self._noted[place], figures[name])
                self._noted[place] += 1
        self.points[-1] = Point(begin, tuple(values))

    def since(self, begin: int, most: int) -> list[Point]:
        """Return the points from *begin* on, neighbours joined so that there are *most* at most."""
        found = [point for point in self.points if point.at >= begin]
        size = -(-len(found) // most) if most else 1
        return [_of(found[at : at + size]) for at in range(0, len(found), size)] if size > 1 else found

    def fill(self, points: Iterable[Point], now: int) -> None:
        """Put points from before in front, but those in the future of *now*, and those older than the tier holds. One of a step
        that has a point already is joined with it."""
        oldest, own = now - self.step * (self.points.maxlen or 0), list(self.points)
        points = list(points)
        if own and (same := [point for point in points if point.at == own[0].at]):
            own[0] = _of([*same, own[0]])
        newest = own[0].at if own else now + 1
        before = [point for point in points if oldest <= point.at < newest]
        self.points.clear()
        self.points.extend([*before, *own])


class MeasuredHistory:
    """All tiers."""

    def __init__(self) -> None:
        self.tiers = {name: HistoryTier(step, count) for name, (step, count) in SPANS.items()}

    def note(self, at: int, figures: Mapping[str, float]) -> None:
        """Note figures of the moment *at*."""
        for tier in self.tiers.values():
            tier.note(at, figures)

    def encoded(self) -> bytes:
        """Return everything as bytes, with a checksum."""
        body = b"".join(
            _COUNT.pack(len(tier.points)) + b"".join(_ROW.pack(at, *values) for at, values in tier.points)
            for tier in self.tiers.values()
        )
        return _HEAD.pack(_MAGIC, zlib.crc32(body)) + body

    def restore(self, data: bytes, now: int) -> None:
        """Take over the points of `encoded`. Raises ValueError: it is nothing of the kind, or damaged."""
        if len(data) < _HEAD.size or len(data) > FILE_BYTES_MAX:
            raise ValueError("has a wrong size")
        magic, checksum = _HEAD.unpack_from(data)
        body = data[_HEAD.size :]
        if magic != _MAGIC or zlib.crc32(body) != checksum:
            raise ValueError("is damaged, or of another version")
        at = 0
        for tier in self.tiers.values():
            (count,) = _COUNT.unpack_from(body, at)
            end = at + _COUNT.size + count * _ROW.size
            tier.fill((Point(row[0], row[1:]) for row in _ROW.iter_unpack(body[at + _COUNT.size : end])), now)
            at = end


def _joined(place: int, before: float, noted: int, value: float) -> float:
    if math.isnan(before):
        return value
    # A point from before a restart counts as noted once.
    return (before * max(noted, 1) + value) / (max(noted, 1) + 1) if place < MEANS else max(before, value)


def _of(points: list[Point]) -> Point:
    """Return neighbouring points as one."""
    values = []
    for place in range(len(COLUMNS)):
        known = [value for point in points if not math.isnan(value := point.values[place])]
        values.append(math.nan if not known else sum(known) / len(known) if place < MEANS else max(known))
    return Point(points[0].at, tuple(values))
