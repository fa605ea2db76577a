"""Lists, moments and names as the dashboard's sentences have them. Pure."""

from collections.abc import Sequence
from urllib.parse import quote, unquote_to_bytes

from stan.types import MILLISECOND


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
