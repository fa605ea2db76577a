"""Moments as JetStream's JSON has them: RFC 3339 with nanoseconds, in UTC."""

from typing import Final

from stan_protocol.units import parse_rfc3339, rfc3339

NEVER: Final = "0001-01-01T00:00:00Z"


def shown_moment(wall: int) -> str:
    """A moment, Unix ns, as text without needless zeros; 0: none."""
    whole, _, rest = rfc3339(wall).rstrip("Z").partition(".")
    rest = rest.rstrip("0")
    if not wall:
        return NEVER
    return f"{whole}.{rest}Z" if rest else f"{whole}Z"


def read_moment(text: str) -> int | None:
    """The moment of a text, Unix ns; 0: none, or before 1970. None: it is no moment."""
    return parse_rfc3339(text)
