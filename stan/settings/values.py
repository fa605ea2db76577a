"""Durations, times and sizes as people write and read them: `1h30m`, `2026-11-22T10:00:00Z`, `@1795300000`, `10MiB`.

Pure. Everything that is parsed raises ValueError with what would have been right; times are Unix nanoseconds.
"""

import re
from datetime import UTC, datetime
from typing import Final

SECOND_NS: Final = 1_000_000_000
UNITS_NS: Final = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": SECOND_NS,
    "m": 60 * SECOND_NS,
    "h": 3600 * SECOND_NS,
    "d": 86400 * SECOND_NS,
    "w": 7 * 86400 * SECOND_NS,
}
SIZES: Final[dict[str, int]] = {
    "": 1,
    "B": 1,
    **{f"{letter}B": 1000**power for power, letter in enumerate("KMGT", 1)},
    **{f"{letter}iB": 1024**power for power, letter in enumerate("KMGT", 1)},
    **{letter: 1024**power for power, letter in enumerate("KMGT", 1)},
}
NEVER: Final = "-"
END: Final = 1 << 63
"""Numbers of requests are below it."""

_PART = re.compile(r"(\d+(?:\.\d+)?)(ns|us|ms|s|m|h|d|w)")
_AGO = re.compile(rf"(?:{_PART.pattern})+")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")
_BARE = re.compile(r"\d+(?:\.\d+)?")


def duration_ns(text: str) -> int:
    """`1h30m`, `45s`, `2d`; a bare number is seconds.

    Raises:
        ValueError: anything else.
    """
    if _BARE.fullmatch(text):
        return _small(text, round(float(text) * SECOND_NS))
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is no duration; write it as 90s, 15m, 1h30m or 2d")
    return _small(text, sum(round(float(number) * UNITS_NS[unit]) for number, unit in parts))


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
        return _known(text, int(seconds) * SECOND_NS + int((fraction + "0" * 9)[:9]))
    if _BARE.fullmatch(text):
        raise ValueError(f"{text!r} is no time; write {text}s (ago) or @{text} (Unix seconds)")
    if _AGO.fullmatch(text):
        return _known(text, now_ns - duration_ns(text))
    try:
        moment = datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text!r} is no time; write it as 2026-11-22T10:00:00Z, @1795300000 (Unix seconds) or 1h (ago)"
        ) from None
    since = moment - datetime.fromtimestamp(0, UTC)
    return _known(text, (since.days * 86400 + since.seconds) * SECOND_NS + since.microseconds * 1000)


def _known(text: str, at_ns: int) -> int:
    if not 0 <= at_ns < END:
        raise ValueError(f"{text!r} is before 1970, or after 2262")
    return at_ns


def size_bytes(text: str) -> int:
    """`10MiB`, `1.5GB`, `512K` (binary), `4096`.

    Raises:
        ValueError: anything else.
    """
    found = _SIZE.fullmatch(text.strip())
    units = {unit.lower(): factor for unit, factor in SIZES.items()}
    if found is None or found[2].lower() not in units:
        raise ValueError(f"{text!r} is no size; write it as 4096, 512KiB, 10MiB or 2GB")
    return _small(text, round(float(found[1]) * units[found[2].lower()]))


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


def told_duration(length_ns: int) -> str:
    """Two units at most: `3d 4h`, `12m 5s`, `340ms`."""
    if length_ns < 0:
        return f"-{told_duration(-length_ns)}"
    if length_ns < SECOND_NS:
        return f"{length_ns // UNITS_NS['ms']}ms"
    seconds = length_ns // SECOND_NS
    days, rest = divmod(seconds, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, seconds = divmod(rest, 60)
    parts = [(days, "d"), (hours, "h"), (minutes, "m"), (seconds, "s")]
    while not parts[0][0]:
        parts.pop(0)
    return " ".join(f"{amount}{unit}" for amount, unit in parts[:2] if amount)


def told_age(at_ns: int, now_ns: int) -> str:
    """How long ago; `-` for never."""
    return told_duration(max(0, now_ns - at_ns)) if at_ns else NEVER


def told_time(at_ns: int) -> str:
    """In the local zone, to the second, with the zone's offset; `-` for never."""
    return datetime.fromtimestamp(at_ns // SECOND_NS, UTC).astimezone().isoformat(" ", "seconds") if at_ns else NEVER


def told_size(size: int) -> str:
    """`17 B`, `1.5 KiB`, `230 MiB`."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1000:
            return f"{size} B" if unit == "B" else f"{amount:.3g} {unit}"
        amount /= 1024
    return f"{amount:,.3g} TiB" if amount < 1000 else f"{amount:,.0f} TiB"


def told_rate(rate: float) -> str:
    """Something a second."""
    return f"{rate:,.0f}" if rate >= 10 or not rate else f"{rate:.1f}"


def counted(amount: int, noun: str, plural: str = "") -> str:
    """`1 message`, `2 messages`, `1,204 messages`."""
    return f"{amount:,} {noun if amount == 1 else plural or noun + 's'}"
