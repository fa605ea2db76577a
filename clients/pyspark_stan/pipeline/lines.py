"""On which line of a TOML file a key stands; pure.

Python's own reader tells what a file says, not where. This one finds headers and keys at the beginnings of lines and skips texts
over several lines. Promises a line for every key that it is asked for: at worst that of the nearest table that it knows.
"""

import re
from typing import Final

_HEADER: Final = re.compile(r"\s*\[\[?\s*(?P<key>[^\[\]]+?)\s*\]\]?\s*(#.*)?$")
_KEY: Final = re.compile(r"""\s*(?P<key>(?:[A-Za-z0-9_\-.]|"[^"]*"|'[^']*')+)\s*=""")
_PART: Final = re.compile(r""""([^"]*)"|'([^']*)'|([A-Za-z0-9_\-]+)""")
_FENCE: Final = re.compile(r"\"\"\"|'''")


def parts_of(key: str) -> tuple[str, ...]:
    """`a."b.c".d` -> a, b.c, d."""
    return tuple(double or single or bare for double, single, bare in _PART.findall(key))


class KeyLines:
    """Where the keys of one file are."""

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
        """The line of *key*, or of the table around it; 1 if nothing of it is in the file."""
        while key:
            if key in self._lines:
                return self._lines[key]
            key = key[:-1]
        return 1

    def _note(self, key: tuple[str, ...], number: int) -> None:
        for length in range(1, len(key) + 1):
            self._lines.setdefault(key[:length], number)


def _fence_after(line: str, fence: str) -> str:
    """Which kind of long text is open behind *line*, if *fence* was before it."""
    if not fence and line.lstrip().startswith("#"):
        return ""
    for mark in _FENCE.findall(line):
        if not fence:
            fence = mark
        elif mark == fence:
            fence = ""
    return fence
