"""Splits a batch into partitions, and shares the limits of a batch among channels. Pure, but for `tasks_of`.

Promises: the same offsets and options give the same partitions, so that a repeated batch is split as before; a limit is exceeded
only by a single message without which the stream would not advance.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Final

from pyspark.sql.datasource import InputPartition

from pyspark_stan.reading.offsets import Range

CHANNEL_ROWS: Final = 1000
"""Cost of one more channel for a task beside its messages, in messages: the requests for it."""
TASK_ROWS: Final = 50_000
"""Work for a task at least, where there are several ranges, in messages: Spark's cost of one more task is about as much."""

ROWS_MIN: Final = 500_000
"""Of a partition of a large range, if no option says so: half a second's work, beside which a task's fixed cost is small."""
ROWS_MAX: Final = 2_000_000
"""A larger partition would spare nothing any more, and a lost task starts over."""


@dataclass(frozen=True)
class StanPartition(InputPartition):
    """The work of one task: ranges of channels, one after the other."""

    ranges: tuple[Range, ...]

    def __reduce__(self) -> tuple[type["StanPartition"], tuple[tuple[Range, ...]]]:
        return StanPartition, (self.ranges,)


def tasks_of(parallelism: int) -> int:
    """Return the number of tasks for which a batch is planned. Spark does not tell its cores there: those of the driver count,
    which are all in local mode, unless the option *parallelism* names a number."""
    from pyspark_stan.reading.cpus import usable_cpus  # noqa: PLC0415 - of the driver only

    return parallelism or usable_cpus()


def rows_of_partition(ranges: Sequence[Range], tasks: int) -> int:
    """Return the largest number of sequences in a partition, if no option names it: of the fewest partitions that give each of
    *tasks* cores the same number."""
    total = sum(each.end - each.first for each in ranges)
    partitions = tasks * max(1, -(-total // (tasks * ROWS_MAX)))
    return max(ROWS_MIN, -(-total // partitions))


def plan(ranges: Sequence[Range], tasks: int, at_least: int = 0, rows_max: int = 0) -> list[StanPartition]:
    """Return the partitions of *ranges*.

    Args:
        ranges: ranges that are not empty.
        tasks: small ranges are read together, so that there are about so many partitions, or fewer where there is little to read.
        at_least: smallest number of partitions, shared among the ranges by size, if there are enough messages; 0: any number.
        rows_max: largest number of sequences in one partition; 0: no limit.
    """
    pieces = _pieces(ranges, at_least, rows_max)
    work = sum(piece.end - piece.first + CHANNEL_ROWS for piece in pieces)
    number = max(min(tasks, -(-work // TASK_ROWS)), at_least)
    if len(pieces) <= number:
        return [StanPartition((piece,)) for piece in pieces]
    return _bundles(pieces, number, rows_max)


def _bundles(pieces: Sequence[Range], number: int, rows_max: int) -> list[StanPartition]:
    """Put neighbours together, into *number* partitions that cost about the same, or more where they would exceed *rows_max*."""
    costs = [piece.end - piece.first + CHANNEL_ROWS for piece in pieces]
    total, before = sum(costs), 0
    places = []
    for cost in costs:
        places.append((2 * before + cost) * number // (2 * total))  # by the middle of the piece
        before += cost
    partitions: list[StanPartition] = []
    for _, members in groupby(zip(places, pieces, strict=True), key=lambda pair: pair[0]):
        bundle: list[Range] = []
        rows = 0
        for _, piece in members:
            size = piece.end - piece.first
            if bundle and rows_max and rows + size > rows_max:
                partitions.append(StanPartition(tuple(bundle)))
                bundle, rows = [], 0
            bundle.append(piece)
            rows += size
        partitions.append(StanPartition(tuple(bundle)))
    return partitions


def _pieces(ranges: Sequence[Range], at_least: int, rows_max: int) -> list[Range]:
    total = sum(each.end - each.first for each in ranges)
    pieces_of_all = []
    for each in ranges:
        size = each.end - each.first
        by_limit = -(-size // rows_max) if rows_max else 1
        by_wish = -(-size * at_least // total) if at_least > len(ranges) else 1
        pieces = min(max(by_limit, by_wish, 1), size)
        bounds = [each.first + size * piece // pieces for piece in range(pieces + 1)]
        pieces_of_all += [each._replace(first=begin, end=stop) for begin, stop in pairwise(bounds)]
    return pieces_of_all


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
    """Divide a *budget* in bytes as `share` does, by the average size of a row; at least one row if any is requested."""
    size = sum(want * bytes_per_row[name] for name, want in wants.items())
    return share(wants, max(1, int(budget * sum(wants.values()) / size))) if wants else {}
