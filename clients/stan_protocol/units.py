"""Durations, times and sizes, read and written: as people do, as Go does.

Pure. Parsers for people raise ValueError with the right form, those for Go with Go's text. Durations
are nanoseconds, times Unix nanoseconds, sizes bytes.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from stan_protocol.refusals import go_quote
from stan_protocol.scalars import MICROSECOND, MILLISECOND, SECOND

INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)
UNITS: Final = {
    "ns": 1,
    "us": MICROSECOND,
    "\N{MICRO SIGN}s": MICROSECOND,
    "\N{GREEK SMALL LETTER MU}s": MICROSECOND,
    "ms": MILLISECOND,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
}
"""Of durations, as Go has them."""
_UNITS_OF_PEOPLE: Final = UNITS | {"min": 60 * SECOND, "d": 86400 * SECOND, "w": 7 * 86400 * SECOND}
SIZES: Final[dict[str, int]] = {
    "": 1,
    "B": 1,
    **{f"{letter}B": 1000**power for power, letter in enumerate("KMGT", 1)},
    **{f"{letter}iB": 1024**power for power, letter in enumerate("KMGT", 1)},
    **{letter: 1024**power for power, letter in enumerate("KMGT", 1)},
}
NEVER: Final = "-"
END: Final = INT64_MAX + 1
"""Numbers of requests are below it."""

_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?([^0-9.]*)", re.ASCII)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")
_BARE = re.compile(r"\d+(?:\.\d+)?")


def duration_ns(text: str, bare: int = SECOND) -> int:
    """`1h30m`, `45s`, `2d`; a bare number is in units of *bare* nanoseconds.

    Raises:
        ValueError: anything else.
    """
    if _BARE.fullmatch(text):
        return _small(text, round(float(text) * bare))
    length, problem = _added_up(text, _UNITS_OF_PEOPLE)
    if problem:
        raise ValueError(f"{text!r} is no duration; write it as 90s, 15m, 1h30m or 2d")
    return _small(text, length)


def _added_up(text: str, units: Mapping[str, int]) -> tuple[int, str]:
    """Return the sum of the parts of a duration, and "" or in Go's words why it is none."""
    *parts, _ = _PART.findall(text)  # the last one is empty
    length = 0
    for whole, fraction, unit in parts:
        if not whole + fraction:
            return 0, "invalid"
        if unit not in units:
            return 0, f"unknown unit {go_quote(unit)} in" if unit else "missing unit in"
        length += int(whole or 0) * units[unit] + int(fraction or 0) * units[unit] // 10 ** len(fraction)
    return length, "" if parts else "invalid"


def _small(text: str, value: int) -> int:
    if value >= END:
        raise ValueError(f"{text!r} is too much")
    return value


def time_ns(text: str, now_ns: int) -> int:
    """A time as Unix ns: ISO 8601 (without a zone: local time), `@1795300000` (Unix seconds), or how long ago, as `1h`.

    Raises:
        ValueError: anything else.
    """
    if text.startswith("@") and _BARE.fullmatch(text[1:]):
        seconds, _, fraction = text[1:].partition(".")
        return _known(text, int(seconds) * SECOND + int((fraction + "0" * 9)[:9]))
    if _BARE.fullmatch(text):
        raise ValueError(f"{text!r} is no time; write {text}s (ago) or @{text} (Unix seconds)")
    ago_ns, problem = _added_up(text, _UNITS_OF_PEOPLE)
    if not problem:
        return _known(text, now_ns - ago_ns)
    try:
        moment = datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text!r} is no time; write it as 2026-11-22T10:00:00Z, @1795300000 (Unix seconds) or 1h (ago)"
        ) from None
    since = moment - datetime.fromtimestamp(0, UTC)
    return _known(text, (since.days * 86400 + since.seconds) * SECOND + since.microseconds * 1000)


def _known(text: str, at_ns: int) -> int:
    if not 0 <= at_ns < END:
        raise ValueError(f"{text!r} is before 1970, or after 2262")
    return at_ns


def size_bytes(text: str) -> int:
    """`10MiB`, `1.5GB`, `512K` (binary), `4096`.

    Raises:
        ValueError: anything else.
    """
    match = _SIZE.fullmatch(text.strip())
    units = {unit.lower(): factor for unit, factor in SIZES.items()}
    if match is None or match[2].lower() not in units:
        raise ValueError(f"{text!r} is no size; write it as 4096, 512KiB, 10MiB or 2GB")
    return _small(text, round(float(match[1]) * units[match[2].lower()]))


def number(text: str) -> int:
    """A whole number, 0 or more, with `_` or `,` between its digits if one likes.

    Raises:
        ValueError: anything else.
    """
    try:
        value = int(text.replace(",", ""))
    except ValueError:
        raise ValueError(f"{text!r} is no whole number") from None
    if value < 0:
        raise ValueError(f"{text!r} is below 0")
    return _small(text, value)


# --- for people -----------------------------------------------------------------------------------------------------------


def format_duration(length_ns: int) -> str:
    """Two units at most: `3d 4h`, `12m 5s`, `340ms`."""
    if length_ns < 0:
        return f"-{format_duration(-length_ns)}"
    if length_ns < SECOND:
        return f"{length_ns // MILLISECOND}ms"
    seconds = length_ns // SECOND
    days, rest = divmod(seconds, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, seconds = divmod(rest, 60)
    parts = [(days, "d"), (hours, "h"), (minutes, "m"), (seconds, "s")]
    while not parts[0][0]:
        parts.pop(0)
    return " ".join(f"{amount}{unit}" for amount, unit in parts[:2] if amount)


def format_age(at_ns: int, now_ns: int) -> str:
    """Format how long ago *at_ns* was; `-` for never."""
    return format_duration(max(0, now_ns - at_ns)) if at_ns else NEVER


def format_time(at_ns: int) -> str:
    """Return a time in the local zone, to the second, with the zone's offset; `-` for never."""
    return datetime.fromtimestamp(at_ns // SECOND, UTC).astimezone().isoformat(" ", "seconds") if at_ns else NEVER


_RFC3339: Final = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?(Z|[+-]\d\d:\d\d)", re.ASCII | re.IGNORECASE
)


_SECONDS_END: Final = int(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()) + 1
"""Unix seconds: the first moment that has five digits in its year."""


def rfc3339(at_ns: int) -> str:
    """Return a time in UTC as RFC 3339 has it, to the nanosecond, for programs."""
    seconds, nanos = divmod(at_ns, SECOND)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{nanos:09d}Z"


def parse_rfc3339(text: str) -> int | None:
    """Return the time of a text in the form of RFC 3339, Unix ns; 0 for one before 1970, None if it is none, or so late that
    this form has no text for it in UTC."""
    found = _RFC3339.fullmatch(text)
    if found is None:
        return None
    try:
        seconds = int(datetime.fromisoformat(found[1] + found[3].upper().replace("Z", "+00:00")).timestamp())
    except (ValueError, OverflowError):
        return None
    if seconds >= _SECONDS_END:
        return None
    return max(0, seconds * SECOND + int((found[2] or "0").ljust(9, "0")))


def format_size(size: int) -> str:
    """`17 B`, `1.5 KiB`, `230 MiB`."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1000:
            return f"{size} B" if unit == "B" else f"{amount:.3g} {unit}"
        amount /= 1024
    return f"{amount:,.3g} TiB" if amount < 1000 else f"{amount:,.0f} TiB"


def format_rate(rate: float) -> str:
    """Something a second."""
    return f"{rate:,.0f}" if rate >= 10 or not rate else f"{rate:.1f}"


def counted(amount: int, noun: str, plural: str = "") -> str:
    """`1 message`, `2 messages`, `1,204 messages`."""
    return f"{amount:,} {noun if amount == 1 else plural or noun + 's'}"


# --- as Go does --------------------------------------------------------------------------------------------------------------


def parse_duration(text: str) -> int:
    """Parse a duration as Go's time.ParseDuration, in nanoseconds: `1h30m`, `1.5s`, `-2ms`, `0`.

    Raises:
        ValueError: with Go's text.
    """
    rest = text[1:] if text[:1] in {"+", "-"} else text
    if rest == "0":
        return 0
    length, problem = _added_up(rest, UNITS)
    if problem or length > INT64_MAX:
        raise ValueError(f"time: {problem or 'invalid'} duration {go_quote(text)}")
    return -length if text.startswith("-") else length


_GO_SIZE = re.compile(r"([+-]?[0-9]+)(?:([kmgtpe])(b|i|ib)?)?", re.ASCII | re.IGNORECASE)


def parse_size(text: str) -> int:
    """Bytes of a size: `k` is 1000, `kb`, `ki` and `kib` are 1024, likewise m, g, t, p, e; ValueError otherwise."""
    parts = _GO_SIZE.fullmatch(text)
    if parts is None:
        raise ValueError("parse error")
    power = "kmgtpe".index(parts[2].lower()) + 1 if parts[2] else 0
    unit: int = (1024 if parts[3] else 1000) ** power
    value = int(parts[1]) * unit
    if not INT64_MIN <= value <= INT64_MAX:
        raise ValueError("value out of range")
    return value


def go_duration(nanos: int) -> str:
    """Format a duration as Go prints a time.Duration: `1h30m0s`, `1.5s`, `250ms`, `0s`."""
    sign, nanos = ("-", -nanos) if nanos < 0 else ("", nanos)
    if nanos < SECOND:
        for unit, name in ((MILLISECOND, "ms"), (MICROSECOND, "µs"), (1, "ns")):
            if nanos >= unit:
                return f"{sign}{_decimal(nanos, unit)}{name}"
        return "0s"
    minutes, nanos = divmod(nanos, 60 * SECOND)
    hours, minutes = divmod(minutes, 60)
    before = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{sign}{before}{_decimal(nanos, SECOND)}s"


def _decimal(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    digits = str(rest).zfill(len(str(unit)) - 1).rstrip("0") if rest else ""
    return f"{whole}.{digits}" if digits else str(whole)
