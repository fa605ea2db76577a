"""Format strings for messages: `--format '%s %t %k %d'`, as `stan sub`, `stan channel get` and `stan find` take them."""

import base64
import re
from collections.abc import Callable
from typing import Final

import stan_client
from stan_protocol.units import rfc3339

from stan.cli.support.common import EXIT_USAGE, CliError

FIELDS: Final[dict[str, Callable[[stan_client.Message], bytes]]] = {
    "s": lambda message: b"%d" % message.sequence,
    "t": lambda message: rfc3339(message.timestamp_ns).encode(),
    "T": lambda message: b"%d" % message.timestamp_ns,
    "c": lambda message: message.channel.encode("utf-8", "surrogateescape"),
    "k": lambda message: message.key,
    "d": lambda message: message.data,
    "D": lambda message: base64.b64encode(message.data),
    "l": lambda message: b"%d" % len(message.data),
    "h": lambda message: b",".join(_header(name, value) for name, value in message.headers.items()),
    "r": lambda message: message.reply.encode("utf-8", "surrogateescape"),
    "n": lambda message: b"%d" % message.redelivery_count,
    "%": lambda _message: b"%",
}
FORMAT_HELP: Final = (
    "Each message in this form: %s sequence, %t time, %T Unix ns, %c channel, %k key, %d data, %D data in base64, %l bytes of "
    "data, %h headers, %r reply, %n redeliveries; \\n, \\t, %%."
)
ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_TOKEN: Final = re.compile(r"%(.?)|\\(.?)|[^%\\]+", re.DOTALL)

FormatPart = bytes | Callable[[stan_client.Message], bytes]


class MessageFormat:
    """A format string, taken apart."""

    def __init__(self, text: str) -> None:
        """Read *text*. Raises CliError with all that is no field and no escape."""
        self._parts: list[FormatPart] = []
        complaints = []
        for token in _TOKEN.finditer(text):
            field, escape = token.groups()
            known = FIELDS.get(field) if field is not None else ESCAPES.get(escape) if escape is not None else None
            if known is None and (field is not None or escape is not None):
                complaints.append(f"--format: {token[0]!r} is none of {_names()}.")
            self._parts.append(known if known is not None else token[0].encode("utf-8", "surrogateescape"))
        if complaints:
            raise CliError("\n".join(complaints), EXIT_USAGE)

    def line(self, message: stan_client.Message) -> bytes:
        """Return the message in this form, ended by a newline."""
        return b"".join(part if isinstance(part, bytes) else part(message) for part in self._parts) + b"\n"


def parsed_format(text: str, *, as_json: bool) -> MessageFormat | None:
    """The option --format; None if it is not given. Raises CliError: it is wrong, or --json (*as_json*) is given, too."""
    if text and as_json:
        raise CliError("--json and --format exclude each other.", EXIT_USAGE)
    return MessageFormat(text) if text else None


def _names() -> str:
    return " ".join([*(f"%{name}" for name in FIELDS), *(f"\\{name}" for name in ESCAPES)])


def _header(name: str, value: bytes) -> bytes:
    return name.encode("utf-8", "surrogateescape") + b"=" + value
