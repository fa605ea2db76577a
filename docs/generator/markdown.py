"""Markdown of generated pages: cells, tables, code; text is shown as it is, but for code in backticks."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

_SPECIAL: Final = re.compile(r"[\\*_<>\[\]#|]")
_BRACES: Final = {"<": "&lt;", ">": "&gt;"}


def shown(text: str) -> str:
    """A text as Markdown that shows just that; what stands in backticks stays code."""
    parts = " ".join(text.split()).split("`")
    if len(parts) % 2 == 0:  # a backtick without a partner
        return _escaped("".join(parts))
    return "".join(code(part) if at % 2 else _escaped(part) for at, part in enumerate(parts))


def _escaped(text: str) -> str:
    return _SPECIAL.sub(lambda found: _BRACES.get(found[0], f"\\{found[0]}"), text)


def code(text: str) -> str:
    """A text as code within a line, and within a cell; nothing for an empty one."""
    if not text:
        return ""
    marks = "``" if "`" in text else "`"
    space = " " if "`" in text else ""
    return f"{marks}{space}{text.replace('|', chr(92) + '|')}{space}{marks}"


def codes(texts: Iterable[str]) -> str:
    """Several, with commas."""
    return ", ".join(map(code, texts))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def block(language: str, text: str) -> str:
    """A block of code."""
    return f"```{language}\n{text.rstrip()}\n```\n"


def page(title: str, *parts: str) -> str:
    """A page with its parts, which empty lines divide."""
    return "\n\n".join((f"# {title}", *(part.strip() for part in parts if part.strip()))) + "\n"
