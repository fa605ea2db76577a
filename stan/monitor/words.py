"""Values as the pages of NATS Streaming Server write them: times, durations, JSON."""

import json
import time
from collections.abc import Iterable, Mapping

from stan.types import SECOND, WallNanos

INDENT = "  "
_HTML = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def moment(at: WallNanos) -> str:
    """RFC 3339, in UTC, with as many digits as it takes."""
    seconds, nanos = divmod(at, SECOND)
    fraction = f".{nanos:09}".rstrip("0") if nanos else ""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + fraction + "Z"


def uptime(nanos: int) -> str:
    """`1y2d3h4m5s`, without the units in front that are zero; a year has 365 days."""
    minutes, seconds = divmod(nanos // SECOND, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    years, days = divmod(days, 365)
    found = ""
    for count, unit in ((years, "y"), (days, "d"), (hours, "h"), (minutes, "m")):
        if count or found:
            found += f"{count}{unit}"
    return f"{found}{seconds}s"


def shown(raw: bytes) -> str:
    """Bytes of the wire as text that can be encoded."""
    return raw.decode("utf-8", "replace")


def pretty(value: object, depth: int = 0) -> str:
    """JSON as Go indents and escapes it, *depth* levels inside of other JSON; empty lists and objects as they are."""
    text = json.dumps(value, indent=INDENT, ensure_ascii=False).translate(_HTML)
    return text.replace("\n", "\n" + depth * INDENT) if depth else text


def page(head: Mapping[str, object], name: str, items: Iterable[str]) -> str:
    """An object with the fields of *head*, and at last a list of *items*, which are JSON of depth 2."""
    inside = f",\n{2 * INDENT}".join(items)
    listed = f"[\n{2 * INDENT}{inside}\n{INDENT}]" if inside else "[]"
    return pretty(head).removesuffix("\n}") + f',\n{INDENT}"{name}": {listed}\n}}'
