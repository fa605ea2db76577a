"""Numbers, spans and names as the dashboard's sentences have them. Pure."""

from collections.abc import Sequence
from urllib.parse import quote, unquote_to_bytes

from stan.types import MILLISECOND, SECOND

_SPANS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def count(number: int, what: str) -> str:
    """`1 message`, `1,204 messages`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def span(nanos: int) -> str:
    """`3 s`, `2 min`, `5 h`, `9 d`: the one unit that tells enough."""
    whole = max(0, nanos) // SECOND
    for seconds, unit in _SPANS:
        if whole >= 2 * seconds or seconds == 1:
            return f"{whole // seconds} {unit}"
    raise AssertionError


def ago(moment: int, now: int) -> str:
    """`3 s ago`; both in Unix ns."""
    return f"{span(now - moment)} ago"


def size(number: float) -> str:
    """`3.1 GiB`."""
    for unit in _SIZES:
        if number < 1024 or unit == _SIZES[-1]:
            return f"{number:.1f} {unit}" if unit != "B" else f"{number:.0f} B"
        number /= 1024
    raise AssertionError


def listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def millis(nanos: int) -> int | None:
    """A moment as browsers count; None: there is none."""
    return nanos // MILLISECOND if nanos else None


def key_of(name: bytes) -> str:
    """A name of any bytes as ASCII, for addresses."""
    return quote(name, safe="")


def name_of_key(key: str) -> bytes:
    """The other way round."""
    return unquote_to_bytes(key.encode("utf-8", "replace"))
