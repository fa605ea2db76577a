"""Line numbers of the keys of a TOML file; pure.

tomllib returns values without their places. This module finds headers and keys at the beginnings of lines and skips texts over
several lines. Promises a line for every key: at worst that of the nearest table.
"""

import re
from typing import Final

_HEADER: Final = re.compile(r"\s*\[\[?\s*(?P<key>[^\[\]]+?)\s*\]\]?\s*(#.*)?$")
_KEY: Final = re.compile(r"""\s*(?P<key>(?:[A-Za-z0-9_\-.]|"[^"]*"|'[^']*')+)\s*=""")
_PART: Final = re.compile(r""""([^"]*)"|'([^']*)'|([A-Za-z0-9_\-]+)""")
_FENCE: Final = re.compile(r"\"\"\"|'''")


def parts_of(key: str) -> tuple[str, ...]:
    """Split a dotted key: `a."b.c".d` -> a, b.c, d."""
    return tuple(double or single or bare for double, single, bare in _PART.findall(key))


class KeyLines:
    """The line numbers of the keys and tables of one file."""

    def __init__(self, text: str) -> None:
        self._lines: dict[tuple[str, ...], int] = {}
        table: tuple[str, ...] = ()
        fence = ""
        for number, line in enumerate(text.splitlines(), 1):
            if not fence and not line.lstrip().startswith("#"):
                if header := _HEADER.match(line):
                    table = parts_of(header["key"])
                    self._lines.setdefault(table, number)
                elif key := _KEY.match(line):
                    self._note((*table, *parts_of(key["key"])), number)
            fence = _fence_after(line, fence)

    def line_of(self, key: tuple[str, ...]) -> int:
        """Return the line of *key*, or of the table around it; 1 if the file has neither."""
        while key:
            if key in self._lines:
                return self._lines[key]
            key = key[:-1]
        return 1

    def _note(self, key: tuple[str, ...], number: int) -> None:
        for length in range(1, len(key) + 1):
            self._lines.setdefault(key[:length], number)


def _fence_after(line: str, fence: str) -> str:
    """Return the quotes of the text over several lines that is open after *line*, "" for none; *fence*: the same before it."""
    if not fence and line.lstrip().startswith("#"):
        return ""
    for mark in _FENCE.findall(line):
        if not fence:
            fence = mark
        elif mark == fence:
            fence = ""
    return fence
