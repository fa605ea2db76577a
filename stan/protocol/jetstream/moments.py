"""Moments as JetStream's JSON has them: RFC 3339 with nanoseconds, in UTC."""

import re
from datetime import datetime
from typing import Final

from stan_protocol.scalars import SECOND
from stan_protocol.units import rfc3339

NEVER: Final = "0001-01-01T00:00:00Z"
_FORM: Final = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?(Z|[+-]\d\d:\d\d)", re.ASCII | re.IGNORECASE
)


def shown_moment(wall: int) -> str:
    """A moment, Unix ns, as text; 0: none."""
    whole, _, rest = rfc3339(wall).rstrip("Z").partition(".")
    rest = rest.rstrip("0")
    return f"{whole}.{rest}Z" if rest and wall else f"{whole}Z" if wall else NEVER


def read_moment(text: str) -> int | None:
    """The moment of a text, Unix ns; 0: none, or before 1970. None: it is no moment."""
    found = _FORM.fullmatch(text)
    if found is None:
        return None
    try:
        whole = datetime.fromisoformat(found[1] + found[3].upper().replace("Z", "+00:00"))
        seconds = int(whole.timestamp())
    except (ValueError, OverflowError):
        return None
    return max(0, seconds * SECOND + int((found[2] or "0").ljust(9, "0")))
