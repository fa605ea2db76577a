"""The line of the log for a change that somebody has made, or has tried to make, from the dashboard. Pure."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

from stan_protocol.refusals import go_quote

SHOWN_CHARS_MAX: Final = 200
_UNSHOWN: Final = frozenset({"text"})
"""Fields of which only the length is written: messages."""


def audit_line(who: str, address: str, name: str, fields: Mapping[str, Any], outcome: str) -> str:
    """Return the line.

    Args:
        who: the name of the person; "" without logins.
        address: where the request came from.
        name: of the action.
        fields: of the request, as they came.
        outcome: the sentence that the person reads.
    """
    told = " ".join(f"{_short(field)}={_value(field, value)}" for field, value in list(fields.items())[:12])
    change = f"{_short(name)} {told}".strip()
    return f"Audit: {go_quote(who) if who else 'somebody'} at {address}: {change}: {outcome}"


def _value(field: str, value: object) -> str:
    if field in _UNSHOWN:
        return f"({len(str(value)):,} characters)"
    return go_quote(_short(unquote(value, errors="replace"))) if isinstance(value, str) else _short(str(value))


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}…"
