"""The fenced blocks of the pages for people: what stands in them, in which page and line, and the commands in them.

Reads text only. A block's language says what is done with it: `bash` and `python` are run, `conf`, `toml` and `sql` are read by
whoever they are for, `text` (or none) is a picture and holds no command.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / "README.md", ROOT / "deploy/README.md"),
    *(page for folder in ("docs", "docs/features") for page in sorted((ROOT / folder).glob("*.md"))),
]

_FENCE = re.compile(r"( *)```(\S*) *$")
_SPAN = re.compile(r"`([^`\n]+)`")
_ENTRY = re.compile(r"(?:[A-Z_]+=\S+ )*(?:\.venv/bin/)?(?:stan|stan-server) ")


class Block(NamedTuple):
    """A fenced block of a page."""

    page: str  # relative to the root of the repository
    line: int  # of its first line, from 1 on
    heading: str  # the one above it
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    def commands(self) -> list[str]:
        """Its command lines, continued lines joined, without comments and empty lines."""
        joined = re.sub(r"\\\n\s*", "", self.text)
        return [line for line in (_uncommented(line) for line in joined.splitlines()) if line]


def _uncommented(line: str) -> str:
    """A line without its comment; a `#` inside quotes is none here, as the pages have no such."""
    return re.sub(r"(?:^|\s)#.*$", "", line).strip()


def blocks_of(page: str, text: str) -> Iterator[Block]:
    """The blocks of a page, in order.

    Raises:
        ValueError: a block has no end.
    """
    heading, begun, lines = "", None, []
    for number, line in enumerate(text.splitlines(), 1):
        fence = _FENCE.match(line)
        if begun is None:
            if fence is not None:
                begun, lines = (number + 1, fence[1], fence[2]), []
            elif line.startswith("#"):
                heading = line.lstrip("# ")
        elif fence is not None:
            yield Block(page, begun[0], heading, begun[2], "".join(f"{found}\n" for found in lines))
            begun = None
        else:
            lines.append(line.removeprefix(begun[1]))
    if begun is not None:
        raise ValueError(f"{page}:{begun[0]}: a block without an end")


def blocks() -> list[Block]:
    """All blocks of all pages."""
    return [
        block for page in PAGES for block in blocks_of(str(page.relative_to(ROOT)), page.read_text(encoding="utf-8"))
    ]


def inline_commands() -> list[tuple[str, str]]:
    """Commands of `stan` that stand in running text, each with its page."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        inside = False
        for line in text.splitlines():
            if _FENCE.match(line):
                inside = not inside
            elif not inside:
                found += [(str(page.relative_to(ROOT)), span) for span in _SPAN.findall(line) if _ENTRY.match(span)]
    return found
