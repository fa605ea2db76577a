"""The only way to stdout and stderr: data from the network reaches a terminal as text alone, never as a command.

Promises: on a terminal everything that is not printable is escaped, but for line ends and the few attributes that the commands
themselves use; JSON is ASCII. A line of a payload is indented, so that it does not pass for a line of the command. In a pipe
everything is written as it is.
"""

import json
import re
import sys
from collections.abc import Iterable
from typing import Any, Final

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

INDENT: Final = "    "
"""Stands before the lines of a payload."""
_OWN: Final = re.compile("(\x1b\\[[012]m)")
"""Attributes that commands use: bold, dim, and the end of both."""


def clean(text: str) -> str:
    """Return *text* for a terminal: unprintable characters are escaped."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is no UTF-8
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def clean_lines(text: str) -> str:
    """*text* of several lines for a terminal."""
    return text if text.isprintable() else "\n".join(map(clean, text.split("\n")))


def indented(text: str) -> list[str]:
    """The lines of a payload for a terminal."""
    return [f"{INDENT}{clean(line)}" for line in text.split("\n")]


class TextConsole(Console):
    """A console of rich that writes text of others as text alone."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Escape unprintable characters in all text; rich's own control codes stay."""
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else clean_lines(segment.text)
            yield segment if text is segment.text else Segment(text, segment.style)


out = TextConsole()
err = TextConsole(stderr=True)


def write(lines: Iterable[str]) -> None:
    """Lines to stdout, in one piece."""
    text = "".join(f"{line}\n" for line in lines)
    if out.is_terminal:
        text = "".join(part if _OWN.fullmatch(part) else clean_lines(part) for part in _OWN.split(text))
    sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
    sys.stdout.buffer.flush()


def write_json(document: object, indent: int | None = None) -> None:
    """A JSON document to stdout."""
    write([json_text(document, indent)])


def json_text(document: Any, indent: int | None = None) -> str:
    """*document* as JSON, in ASCII for a terminal."""
    return json.dumps(document, indent=indent, ensure_ascii=out.is_terminal)


class CleanStdout:
    """A binary file that is stdout."""

    def write(self, data: bytes) -> int:
        """Bytes of others, as they are in a pipe."""
        shown = clean_lines(data.decode("utf-8", "surrogateescape")).encode() if out.is_terminal else data
        sys.stdout.buffer.write(shown)
        return len(data)

    def flush(self) -> None:
        """Flush stdout."""
        sys.stdout.buffer.flush()


STDOUT: Final = CleanStdout()
