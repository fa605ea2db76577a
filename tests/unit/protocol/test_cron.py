"""Cron patterns of schedules: which there are, and when they are due next; and against a search second by second."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stan_protocol.scalars import SECOND

from stan.protocol.jetstream import cron


def moment(text):
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * SECOND


def due(pattern, at):
    """The next time of a pattern, as text."""
    found = cron.next_after(cron.parse(pattern), moment(at))
    return None if found is None else datetime.fromtimestamp(found // SECOND, UTC).strftime("%Y-%m-%d %H:%M:%S")


@pytest.mark.parametrize(
    ("pattern", "at", "expected"),
    [
        ("* * * * * *", "2026-12-01 00:00:00", "2026-12-01 00:00:01"),
        ("*/10 * * * * *", "2026-12-01 00:00:55", "2026-12-01 00:01:00"),
        ("5/20 * * * * *", "2026-12-01 00:00:26", "2026-12-01 00:00:45"),
        ("0 30 9-17 * * mon-fri", "2026-12-04 17:30:00", "2026-12-07 09:30:00"),
        ("0 0 0 1 JAN *", "2026-12-01 00:00:00", "2027-01-01 00:00:00"),
        ("0 0 0 29 2 ?", "2026-12-01 00:00:00", "2028-02-29 00:00:00"),
        ("0 0 12 13 * fri", "2026-11-13 12:00:00", "2026-11-20 12:00:00"),
        ("0 0 12 */1 * fri", "2026-11-13 12:00:00", "2026-11-20 12:00:00"),
        ("0 0 12 31 * *", "2026-11-01 00:00:00", "2026-12-31 12:00:00"),
        ("@yearly", "2026-01-01 00:00:00", "2027-01-01 00:00:00"),
        ("@annually", "2026-01-01 00:00:00", "2027-01-01 00:00:00"),
        ("@monthly", "2026-12-31 23:59:59", "2027-01-01 00:00:00"),
        ("@weekly", "2026-12-01 00:00:00", "2026-12-06 00:00:00"),
        ("@daily", "2026-12-01 12:00:00", "2026-12-02 00:00:00"),
        ("@midnight", "2026-12-01 12:00:00", "2026-12-02 00:00:00"),
        ("@hourly", "2026-12-01 12:59:59", "2026-12-01 13:00:00"),
        ("0 0 0 30 2 *", "2026-12-01 00:00:00", None),
    ],
)
def test_the_next_time_of_a_pattern(pattern, at, expected):
    assert due(pattern, at) == expected


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        ", * * * * *",
        "* * * * *",
        "* * * * * * *",
        "60 * * * * *",
        "* * 24 * * *",
        "* * * 0 * *",
        "* * * * 13 *",
        "* * * * * 7",
        "5-1 * * * * *",
        "1-2-3 * * * * *",
        "1/2/3 * * * * *",
        "*/0 * * * * *",
        "-1 * * * * *",
        "x * * * * *",
        "mon * * * * *",
        "* * * * monday *",
        "@Daily",
        " ".join(["0," * 50 + "0"] * 6),
    ],
)
def test_what_is_no_pattern(pattern):
    assert cron.parse(pattern) is None


FIELDS = [
    ("*", "*/7", "0", "15,45", "50-59"),
    ("*", "*/20", "0", "7,30"),
    ("*", "0", "*/5", "22-23"),
    ("*", "1", "10/9", "28-31"),
]


@given(
    st.tuples(*map(st.sampled_from, FIELDS)),
    st.sampled_from(["*", "1-6/5", "jan,feb,dec"]),
    st.sampled_from(["*", "sun", "mon-fri", "?"]),
    st.integers(0, 40 * 86_400),
)
def test_it_is_the_first_second_that_matches(times, months, weekdays, after):
    pattern = cron.parse(" ".join([*times, months, weekdays]))
    begin = datetime(2027, 12, 20, tzinfo=UTC) + timedelta(seconds=after)
    found = cron.next_after(pattern, int(begin.timestamp()) * SECOND)
    assert found is not None
    told = datetime.fromtimestamp(found // SECOND, UTC)
    assert told > begin
    assert matches(pattern, told)
    between = begin + timedelta(seconds=1)
    for _ in range(2_000):
        assert between >= told or not matches(pattern, between)
        between += timedelta(seconds=1)


def matches(pattern, at):
    of_month, of_week = at.day in pattern.days, (at.weekday() + 1) % 7 in pattern.weekdays
    day = (of_month and of_week) if pattern.both else (of_month or of_week)
    of_time = at.second in pattern.seconds and at.minute in pattern.minutes and at.hour in pattern.hours
    return day and of_time and at.month in pattern.months
