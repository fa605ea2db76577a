"""Splits a batch into partitions, and shares the limits of a batch among channels. Pure.

Promises: the same offsets and options give the same partitions, so that a repeated batch is split as before; a limit is exceeded
only by a single message without which the stream would not advance.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pyspark.sql.datasource import InputPartition

from pyspark_stan.offsets import Range


@dataclass(frozen=True)
class StanPartition(InputPartition):
    """Messages [first, last] of a channel, for one task."""

    channel: str
    uid: int  # 0: not known
    first: int
    last: int

    def __reduce__(self) -> tuple[type["StanPartition"], tuple[str, int, int, int]]:
        return StanPartition, (self.channel, self.uid, self.first, self.last)


def plan(ranges: Sequence[Range], at_least: int = 0, rows_max: int = 0) -> list[StanPartition]:
    """Return the partitions of *ranges*.

    Args:
        ranges: ranges that are not empty.
        at_least: smallest number of partitions, shared among the ranges by size, if there are enough messages; 0: any number.
        rows_max: largest number of sequences in one partition; 0: no limit.
    """
    total = sum(found.end - found.first for found in ranges)
    partitions = []
    for channel, uid, first, end in ranges:
        size = end - first
        by_limit = -(-size // rows_max) if rows_max else 1
        by_wish = -(-size * at_least // total) if at_least > len(ranges) else 1
        pieces = min(max(by_limit, by_wish, 1), size)
        bounds = [first + size * piece // pieces for piece in range(pieces + 1)]
        partitions += [StanPartition(channel, uid, begin, stop - 1) for begin, stop in pairwise(bounds)]
    return partitions


def share(wants: Mapping[str, int], budget: int) -> dict[str, int]:
    """Share *budget* in proportion to *wants*. No share is larger than its want, and each is at least 1 if the budget is large
    enough for that; the sum is never larger than *budget*."""
    total = sum(wants.values())
    if total <= budget:
        return dict(wants)
    sure = 1 if budget >= len(wants) else 0
    total -= sure * len(wants)
    budget -= sure * len(wants)
    shares = {name: sure + (want - sure) * budget // total for name, want in wants.items()}
    left = budget - sum(shares.values()) + sure * len(wants)
    for name in sorted(wants, key=lambda name: (-((wants[name] - sure) * budget % total), -wants[name], name))[:left]:
        shares[name] += 1
    return shares


def rows_for_bytes(wants: Mapping[str, int], bytes_per_row: Mapping[str, float], budget: int) -> dict[str, int]:
    """As `share`, with a *budget* in bytes that is converted with the average size of a row; at least one row if any is
    wanted."""
    size = sum(want * bytes_per_row[name] for name, want in wants.items())
    return share(wants, max(1, int(budget * sum(wants.values()) / size))) if wants else {}
