"""Durations, times and sizes as people write them, and as they are told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stan_protocol import units
from stan_protocol.scalars import SECOND

S = SECOND


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("15m", 900),
        ("15min", 900),
        ("1h30m", 5400),
        ("2d", 172800),
        ("45", 45),
        ("0.5s", 0.5),
        ("1w", 604800),
    ],
)
def test_durations(text, seconds):
    assert units.duration_ns(text) == seconds * S
    assert units.duration_ns("500", bare=S // 1000) == S // 2


@pytest.mark.parametrize("text", ["", "h", "1x", "1h x", "-1h", "1h-2m"])
def test_what_is_no_duration_is_refused_with_what_would_be(text):
    with pytest.raises(ValueError, match="90s, 15m"):
        units.duration_ns(text)


def test_times():
    now = 1_800_000_000 * S
    assert units.time_ns("@1700000000", now) == 1_700_000_000 * S
    assert units.time_ns("@1700000000.000000001", now) == 1_700_000_000 * S + 1
    assert units.time_ns("2026-11-22T10:00:00Z", now) == 1_795_341_600 * S
    assert units.time_ns("2026-11-22T11:00:00+01:00", now) == 1_795_341_600 * S
    assert units.time_ns("1h", now) == now - 3600 * S
    with pytest.raises(ValueError, match="is no time"):
        units.time_ns("yesterday", now)


@pytest.mark.parametrize(
    "text",
    ["9999999999h", "@99999999999999999999", "2999-01-01T00:00:00Z", "1960-01-01", "0001-01-01", "1", "1700000000"],
)
def test_times_that_no_request_can_tell_or_that_are_ambiguous_are_refused(text):
    with pytest.raises(ValueError, match=text):
        units.time_ns(text, 1_800_000_000 * S)


def test_numbers_that_no_request_can_tell_are_refused():
    assert units.number("1,000") == 1000
    assert units.number(str((1 << 63) - 1)) == (1 << 63) - 1
    for text in ("-1", str(1 << 63), "9" * 30, "x", ""):
        with pytest.raises(ValueError, match=r"below 0|too much|no whole number"):
            units.number(text)
    for parse, text in (
        (units.duration_ns, "10000000000d"),
        (units.duration_ns, "9" * 30),
        (units.size_bytes, "9" * 30),
    ):
        with pytest.raises(ValueError, match="too much"):
            parse(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [("4096", 4096), ("10MiB", 10 << 20), ("1.5 GB", 1_500_000_000), ("512K", 512 << 10), ("1kb", 1000)],
)
def test_sizes(text, size):
    assert units.size_bytes(text) == size


def test_what_is_no_size_is_refused():
    with pytest.raises(ValueError, match="10MiB"):
        units.size_bytes("10 potatoes")


def test_what_is_told():
    assert units.format_duration(0) == "0ms"
    assert units.format_duration(340_000_000) == "340ms"
    assert units.format_duration(3605 * S) == "1h"
    assert units.format_duration(90061 * S) == "1d 1h"
    assert units.format_size(999) == "999 B"
    assert units.format_size(1536) == "1.5 KiB"
    assert units.format_size(5 << 40) == "5 TiB"
    assert units.counted(1, "message") == "1 message"
    assert units.counted(1204, "message") == "1,204 messages"


@given(st.integers(min_value=0, max_value=1 << 62))
def test_a_told_duration_can_be_read_again_and_is_not_longer(length):
    told = units.format_duration(length).replace(" ", "")
    assert units.duration_ns(told) <= length
