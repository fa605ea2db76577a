"""Values as the pages of NATS Streaming Server write them: times, durations, JSON."""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from stan_protocol.scalars import SECOND, WallNanos

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
    text = ""
    for count, unit in ((years, "y"), (days, "d"), (hours, "h"), (minutes, "m")):
        if count or text:
            text += f"{count}{unit}"
    return f"{text}{seconds}s"


def shown(raw: bytes) -> str:
    """Bytes of the wire as text that can be encoded."""
    return raw.decode("utf-8", "replace")


def pretty(value: object, depth: int = 0) -> str:
    """JSON as Go indents and escapes it, *depth* levels inside of other JSON; empty lists and objects as they are."""
    text = json.dumps(value, indent=INDENT, ensure_ascii=False).translate(_HTML)
    return text.replace("\n", "\n" + depth * INDENT) if depth else text


def flat(value: Mapping[str, object], depth: int = 0) -> str:
    """The same of an object without lists and objects in it, and with something in it; faster."""
    text = _encoder(depth)(value).translate(_HTML)
    return f"{{\n{(depth + 1) * INDENT}{text[1:-1]}\n{depth * INDENT}}}"


def quoted(text: str) -> str:
    """The same of a string; faster."""
    return _encoder(0)(text).translate(_HTML)


@lru_cache
def _encoder(depth: int) -> Callable[[object], str]:
    between = f",\n{(depth + 1) * INDENT}"
    return json.JSONEncoder(ensure_ascii=False, separators=(between, ": ")).encode


def array(items: Iterable[str], depth: int = 0) -> str:
    """A list of JSON that is one level deeper."""
    inside = f",\n{(depth + 1) * INDENT}".join(items)
    return f"[\n{(depth + 1) * INDENT}{inside}\n{depth * INDENT}]" if inside else "[]"


def extended(text: str, fields: Mapping[str, str], depth: int = 0) -> str:
    """An object, and behind its fields others, which are JSON of one level more."""
    start, end = (depth + 1) * INDENT, f"\n{depth * INDENT}}}"
    added = "".join(f",\n{start}{quoted(name)}: {value}" for name, value in fields.items())
    return text.removesuffix(end) + added + end if text != "{}" else f"{{{added[1:]}{end}"
