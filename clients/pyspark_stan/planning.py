"""Which messages the next batch takes, and which task reads which of them. Pure.

Promises: the same offsets and options give the same partitions, so that a batch that is repeated is split as before; a limit is
never exceeded, but by the one message without which nothing would move.
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
    """Partitions for *ranges*.

    Args:
        ranges: none empty.
        at_least: as many partitions, shared out by size, if there are as many messages; 0: no wish.
        rows_max: sequences in one partition; 0: no limit.
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
    """*budget* shared out in proportion to what each one wants, one for each at least if it is enough for that; nobody gets more
    than he wants, all together never more than *budget*."""
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
    """As `share`, with a budget of bytes, as far as the average tells; one row at least if any is wanted."""
    size = sum(want * bytes_per_row[name] for name, want in wants.items())
    return share(wants, max(1, int(budget * sum(wants.values()) / size))) if wants else {}
