"""A set of sequences kept as runs, so that a window of a thousand messages costs a few tuples.

Every run carries the deadline and the number of redeliveries its sequences share. Runs are disjoint and sorted by
sequence. Never knows what a deadline means. Cost: O(runs) worst case, O(1) amortised for the usual case (new deliveries at
the end, acks from the beginning).
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from collections.abc import Sequence as Seq
from itertools import chain, pairwise, repeat
from typing import NamedTuple, TypeVar

from stan.invariant import invariant
from stan.protocol.kernel import server as kernel


class Run(NamedTuple):
    """The sequences [first, last]."""

    first: int
    last: int
    deadline: int = 0  # Nanos; 0 = none; or another number, as stan.core.leader.pending has it
    count: int = 0  # type: ignore[assignment]  # redeliveries so far

    @property
    def size(self) -> int:
        """Number of sequences."""
        return self.last - self.first + 1


_new = tuple.__new__
"""Makes a Run of a tuple with all four of its numbers, in half the time."""
_MANY = 64
"""One pass of the kernel over all runs takes as long as so many fewer searches."""


_Run = TypeVar("_Run", bound=tuple[int, ...])


class Runs:
    """Disjoint runs in increasing order; `len()` is the number of sequences, not of runs."""

    __slots__ = ("_runs", "size")

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        self._runs: list[Run] = []
        self.size = 0  # number of sequences, as `len()`, for readers in a hurry
        for run in runs:
            self.add(run)

    def __len__(self) -> int:
        return self.size

    def __bool__(self) -> bool:
        return self.size > 0

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    def __repr__(self) -> str:
        return "Runs(" + ", ".join(f"{r.first}-{r.last}" for r in self._runs) + ")"

    @property
    def pieces(self) -> int:
        """Number of runs."""
        return len(self._runs)

    @property
    def first(self) -> int:
        """Lowest sequence; 0 when empty."""
        return self._runs[0].first if self._runs else 0

    @property
    def last(self) -> int:
        """Highest sequence; 0 when empty."""
        return self._runs[-1].last if self._runs else 0

    @property
    def earliest(self) -> int:
        """Lowest deadline; 0 when empty."""
        return min((run.deadline for run in self._runs), default=0)

    def __contains__(self, sequence: int) -> bool:
        at = self._from(sequence)
        return at < len(self._runs) and self._runs[at].first <= sequence

    def add(self, run: Run) -> None:
        """Add *run*, none of whose sequences may be there yet."""
        runs = self._runs
        first, last, deadline, count = run
        if not 1 <= first <= last:
            invariant(condition=False, text="a run is not empty", run=run)
        self.size += last - first + 1
        if not runs:
            runs.append(run)
            return
        end = runs[-1]
        if end[1] < first:
            if end[1] + 1 == first and end[2] == deadline and end[3] == count:
                runs[-1] = _new(Run, (end[0], last, deadline, count))
            else:
                runs.append(run)
            return
        at = self._from(first)
        invariant(at == len(runs) or runs[at].first > run.last, "added twice", run=run)
        if at < len(runs) and run.last + 1 == runs[at].first and runs[at][2:] == run[2:]:
            run = Run(run.first, runs[at].last, run.deadline, run.count)
            del runs[at]
        if at > 0 and runs[at - 1].last + 1 == run.first and runs[at - 1][2:] == run[2:]:
            runs[at - 1] = Run(runs[at - 1].first, run.last, run.deadline, run.count)
        else:
            runs.insert(at, run)

    def merge(self, run: Run) -> None:
        """Add those sequences of *run* that are not there yet."""
        runs = self._runs
        if not runs or runs[-1][1] < run[0]:
            self.add(run)
            return
        for first, last in self.missing(run[0], run[1]):
            self.add(_new(Run, (first, last, run[2], run[3])))

    def missing(self, first: int, last: int) -> list[tuple[int, int]]:
        """The parts of [first, last] that are not in the set."""
        gaps = []
        at = self._from(first)
        runs = self._runs
        while first <= last and at < len(runs) and runs[at].first <= last:
            if runs[at].first > first:
                gaps.append((first, runs[at].first - 1))
            first = runs[at].last + 1
            at += 1
        if first <= last:
            gaps.append((first, last))
        return gaps

    def within(self, first: int, last: int) -> list[Run]:
        """The parts of [first, last] that are in the set, cut to that interval, in order; nothing is changed."""
        found = []
        at = self._from(first)
        runs = self._runs
        while at < len(runs) and runs[at].first <= last:
            run = runs[at]
            found.append(Run(max(run.first, first), min(run.last, last), run.deadline, run.count))
            at += 1
        return found

    def shared(self, others: Iterable[tuple[int, ...]]) -> list[tuple[int, int]]:
        """The parts of *others*, disjoint runs in increasing order, that are in the set, too: pairs (first, last), none over two
        runs."""
        runs, wanted = self._runs, others if isinstance(others, list) else list(others)
        if len(wanted) * _MANY > len(runs):
            return kernel.shared(runs, wanted)
        found = []
        for first, last, *_ in wanted:
            at = self._from(first)
            while at < len(runs) and runs[at][0] <= last:
                found.append((max(runs[at][0], first), min(runs[at][1], last)))
                at += 1
        return found

    def following(self, sequence: int) -> Run | None:
        """The lowest run that reaches *sequence* or lies above it."""
        at = self._from(sequence)
        return self._runs[at] if at < len(self._runs) else None

    def remove(self, first: int, last: int) -> list[Run]:
        """Take [first, last] out; returns the runs that were there, cut to that interval, in order."""
        runs = self._runs
        if not runs or last < runs[0][0] or first > runs[-1][1]:
            return []
        start = 0 if first <= runs[0][1] else self._from(first)
        removed: list[Run] = []
        kept: list[Run] = []
        at = start
        while at < len(runs) and runs[at][0] <= last:
            run = runs[at]
            begin, end, deadline, count = run
            if begin < first:
                kept.append(_new(Run, (begin, first - 1, deadline, count)))
                begin = first
            if end > last:
                kept.append(_new(Run, (last + 1, end, deadline, count)))
                end = last
            removed.append(_new(Run, (begin, end, deadline, count)) if kept else run)
            self.size -= end - begin + 1
            at += 1
        if at > start:
            runs[start:at] = kept
        return removed

    def take_each(self, parts: Seq[tuple[int, ...]]) -> list[Run]:
        """Take out all of *parts*, disjoint and in increasing order, which begin with first and last; returns the runs there, cut
        to them, in order."""
        runs = self._runs
        if not runs or not parts:
            return []
        if len(parts) * _MANY < len(runs):
            return [run for part in parts for run in self.remove(part[0], part[1])]
        start = bisect_left(runs, (parts[0][0],))
        start -= start > 0  # the one before may reach as far
        stop = bisect_left(runs, (parts[-1][1] + 1,))
        taken, runs[start:stop], size = kernel.take(runs[start:stop], parts)
        self.size -= size
        return taken

    def cut_each(self, parts: Seq[tuple[int, ...]]) -> list[Run]:
        """Return what `within` does, of many parts, disjoint and in increasing order."""
        if len(parts) * _MANY < len(self._runs):
            return [run for part in parts for run in self.within(part[0], part[1])]
        return kernel.take(self._runs, parts)[0]

    def add_each(self, firsts: list[int], lasts: list[int], deadline: int = 0, count: int = 0) -> None:
        """Add many runs, in increasing order, none of whose sequences may be there yet; neighbours are not joined."""
        runs = self._runs
        made = list(map(_new, repeat(Run), zip(firsts, lasts, repeat(deadline), repeat(count))))
        self.size += sum(lasts) - sum(firsts) + len(made)
        if not runs or runs[-1][1] < firsts[0]:
            runs += made
            return
        self._merge(made)

    def add_counted(self, flat: Seq[int], counts: Iterable[int]) -> None:
        """Add the runs whose `counted` form is given, none of whose sequences may be there yet."""
        firsts, lasts = flat[::2], flat[1::2]
        added = list(map(_new, repeat(Run), zip(firsts, lasts, repeat(0), chain(counts, repeat(0)), strict=False)))
        self.size += sum(lasts) - sum(firsts) + len(added)
        self._merge(sorted(added))

    def _merge(self, added: list[Run]) -> None:
        """Put runs in order in between those that are there."""
        merged = kernel.merged(self._runs, added)
        if merged is None:
            invariant(condition=False, text="added twice", first=added[0].first)
        else:
            self._runs = merged

    def remove_each(self, parts: list[tuple[int, int]]) -> bool:
        """Take out all of *parts*, (first, last) each, disjoint and in increasing order; returns False if nothing was there."""
        before = self.size
        self.take_each(parts)
        return self.size < before

    def peek(self, size: int) -> list[Run]:
        """The *size* lowest sequences, left in place."""
        seen = []
        for run in self._runs:
            if size <= 0:
                break
            last = min(run.last, run.first + size - 1)
            seen.append(Run(run.first, last, run.deadline, run.count))
            size -= last - run.first + 1
        return seen

    def due(self, now: int) -> list[Run]:
        """Runs whose deadline is at or before *now*, by (deadline, sequence); nothing is changed."""
        return sorted((run for run in self._runs if run.deadline <= now), key=lambda run: (run.deadline, run.first))

    def shift(self, delta: int) -> None:
        """Move every deadline by *delta*."""
        self._runs = [Run(r.first, r.last, r.deadline + delta, r.count) for r in self._runs]

    def clear(self) -> None:
        """Forget everything."""
        self._runs.clear()
        self.size = 0

    def flat(self) -> list[int]:
        """first, last, first, last, ... with neighbours joined: the form in entries and rows."""
        return kernel.flat(self._runs)

    def counted(self) -> tuple[list[int], list[int]]:
        """As `flat`, but only neighbours with the same count are joined, and the count of each run; no counts if all are 0."""
        if not any(run[3] for run in self._runs):
            return self.flat(), []
        return counted_of(self._runs)

    def _from(self, sequence: int) -> int:
        """Index of the first run whose last is >= *sequence*."""
        runs = self._runs
        at = bisect_left(runs, (sequence,))
        return at - 1 if at > 0 and runs[at - 1].last >= sequence else at


def flat_of(runs: Iterable[tuple[int, ...]]) -> list[int]:
    """first, last, first, last, ... of runs in increasing order, with neighbours joined: the form in entries and rows."""
    return kernel.flat(runs)


def counted_of(runs: Iterable[tuple[int, ...]]) -> tuple[list[int], list[int]]:
    """first, last, first, last, ... of runs in increasing order, with neighbours of the same count joined, and these counts. One
    below 0, of a message whose first delivery was taken back, is reported as 0."""
    out: list[int] = []
    counts: list[int] = []
    for first, last, _, count in runs:
        told = max(0, count)
        if out and out[-1] + 1 == first and counts[-1] == told:
            out[-1] = last
        else:
            out += (first, last)
            counts.append(told)
    return out, counts


def joined(parts: Iterable[tuple[int, ...]]) -> list[Run]:
    """Parts (first, last) in any order, which may overlap, as runs in increasing order; what touches is joined."""
    return [_new(Run, (first, last, 0, 0)) for first, last in kernel.joined(parts)]


def without(runs: list[_Run], others: Iterable[tuple[int, ...]]) -> list[_Run]:
    """The parts of *runs* that are not in *others*; both are disjoint, in increasing order, and begin with first and last."""
    return kernel.take(runs, list(others))[1]


def runs_of(sequences: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Sequences as runs (first, last), in increasing order."""
    found = sorted(set(sequences))
    breaks = [0, *(at for at, (one, other) in enumerate(pairwise(found), 1) if other != one + 1), len(found)]
    return tuple((found[begin], found[end - 1]) for begin, end in pairwise(breaks) if begin < end)


def size_of(runs: Iterable[tuple[int, int]]) -> int:
    """How many sequences the runs (first, last) have."""
    return sum(last - first + 1 for first, last in runs)


def pairs(flat: Iterable[int]) -> Iterator[tuple[int, int]]:
    """(first, last) pairs of the form that `flat` gives."""
    numbers = iter(flat)
    return zip(numbers, numbers, strict=True)


def counted_runs(flat: Iterable[int], counts: Collection[int]) -> Iterator[Run]:
    """The runs whose `counted` form is given; missing counts are 0."""
    every = chain(counts, repeat(0)) if counts else repeat(0)
    for (first, last), count in zip(pairs(flat), every, strict=False):
        yield _new(Run, (first, last, 0, count))


def from_flat(flat: Iterable[int], counts: Collection[int] = ()) -> Runs:
    """The set whose `flat` form is given, or the `counted` one."""
    return Runs(counted_runs(flat, counts))


def removed_runs(first_sequence: int, deleted: Iterable[int]) -> list[tuple[int, int]]:
    """The runs (first, last) of messages purged below *first_sequence*, and of *deleted*: first, last, first, last, ..."""
    return [(1, first_sequence - 1), *pairs(deleted)] if first_sequence > 1 else list(pairs(deleted))
