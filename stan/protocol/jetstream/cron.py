"""Cron patterns of schedules, as JetStream has them: six fields, from seconds to days of the week, in UTC.

A field is a list of numbers, names, ranges and steps (`1,15`, `mon-fri`, `*/10`). Where both days of the month and days of the
week are given, a day of either kind matches.
"""

import calendar
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from stan_protocol.scalars import SECOND

_NAMED: Final = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}
PATTERN_CHARS_MAX: Final = 256
YEARS_MAX: Final = 5
"""A pattern that does not match within so many years is none."""
_REMEMBERED: Final = 1024
_EVERY_ONE: Final = ("*", "?")
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_YEAR_0, _LONGEST_YEAR = 1970, 366 * _DAY
_WEEKDAY_0 = 4
"""Of the first day of Unix time, a Thursday."""


class _Bounds(NamedTuple):
    """The numbers that a field may have."""

    first: int
    last: int
    names: tuple[str, ...] = ()  # of the numbers from the first on


_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: Final = (
    _Bounds(0, 59),
    _Bounds(0, 59),
    _Bounds(0, 23),
    _Bounds(1, 31),
    _Bounds(1, 12, _MONTHS),
    _Bounds(0, 6, _WEEKDAYS),
)


class Cron(NamedTuple):
    """A pattern, read: the matching numbers of each field, in increasing order."""

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]  # of the month
    months: tuple[int, ...]
    weekdays: tuple[int, ...]  # 0: Sunday
    both: bool  # a day has to match in both ways, as one of the two is left open


@lru_cache(_REMEMBERED)
def parse(pattern: str) -> Cron | None:
    """Return a pattern, read; None: it is none."""
    parts = _NAMED.get(pattern, pattern).split()
    if len(pattern) > PATTERN_CHARS_MAX or len(parts) != len(_FIELDS):
        return None
    try:
        found = [_field(part, bounds) for part, bounds in zip(parts, _FIELDS, strict=True)]
    except ValueError:
        return None
    seconds, minutes, hours, days, months, weekdays = (tuple(sorted(numbers)) for numbers, _ in found)
    return Cron(seconds, minutes, hours, days, months, weekdays, both=found[3][1] or found[5][1])


def _field(field: str, bounds: _Bounds) -> tuple[set[int], bool]:
    """The numbers of a field, and True if it leaves open which. Raises ValueError."""
    numbers: set[int] = set()
    is_open = False
    for piece in filter(None, field.split(",")):
        some, every_one = _range(piece, bounds)
        numbers.update(some)
        is_open |= every_one
    if not numbers:
        raise ValueError(field)
    return numbers, is_open


def _range(piece: str, bounds: _Bounds) -> tuple[range, bool]:
    """The numbers of a number or a range, with a step or without, and True if these are all. Raises ValueError."""
    whole, *steps = piece.split("/")
    begin, *ends = whole.split("-")
    every_one = begin in _EVERY_ONE
    first = bounds.first if every_one else _number(begin, bounds)
    last = bounds.last if every_one or (steps and not ends) else _number(ends[0], bounds) if ends else first
    step = _number(steps[0], _Bounds(1, 0)) if steps else 1
    fits = bounds.first <= first <= last <= bounds.last and step > 0
    if not fits or len(steps) > 1 or (len(ends) > 1 and not every_one):
        raise ValueError(piece)
    return range(first, last + 1, step), every_one and step == 1


def _number(text: str, bounds: _Bounds) -> int:
    if text.lower() in bounds.names:
        return bounds.names.index(text.lower()) + bounds.first
    if not (text.isascii() and text.isdigit()):
        raise ValueError(text)
    return int(text)


def next_after(cron: Cron, at: int) -> int | None:
    """The first time that matches after *at*, a whole second; None: there is none within YEARS_MAX. Both Unix ns."""
    begin = at // SECOND + 1
    for midnight in _matching_days(cron, begin):
        second = _time_of_day(cron, begin - midnight)
        if second is not None:
            return (midnight + second) * SECOND
    return None


def _matching_days(cron: Cron, begin: int) -> Iterator[int]:
    """The first second of each day that matches, from the day with the second *begin* on, all in Unix seconds."""
    this_year = _YEAR_0 + begin // _LONGEST_YEAR  # or one before
    while _first_second(this_year + 1, 1) <= begin:
        this_year += 1
    for year in range(this_year, this_year + YEARS_MAX + 1):
        for month in cron.months:
            first = _first_second(year, month)
            for day in range(1, calendar.monthrange(year, month)[1] + 1):
                midnight = first + (day - 1) * _DAY
                if midnight + _DAY > begin and _is_day(cron, day, (midnight // _DAY + _WEEKDAY_0) % 7):
                    yield midnight


def _first_second(year: int, month: int) -> int:
    """The first second of a month, in Unix seconds."""
    return calendar.timegm((year, month, 1, 0, 0, 0))


def _is_day(cron: Cron, day: int, weekday: int) -> bool:
    of_month, of_week = day in cron.days, weekday in cron.weekdays
    return (of_month and of_week) if cron.both else (of_month or of_week)


def _time_of_day(cron: Cron, begin: int) -> int | None:
    """The first matching second of a day from *begin* on; None: there is none."""
    for hour in cron.hours:
        if hour * _HOUR + _HOUR <= begin:
            continue
        for minute in cron.minutes:
            at = hour * _HOUR + minute * _MINUTE
            found = next((at + second for second in cron.seconds if at + second >= begin), None)
            if found is not None:
                return found
    return None
