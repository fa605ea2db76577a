"""What a command shows: a table for people, one JSON document, or names for scripts; once, or again and again.

Tables are lines of aligned columns: ten thousand rows of them are written faster than they are asked for. Names come from the
network: what is no printable text in them is shown escaped, so that none of it reaches the terminal as a command.
"""

import asyncio
import json
import sys
import textwrap
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import stan_client

from stan.cli.support.common import err, out, stop_on_signals
from stan.cli.support.options import View
from stan.units import format_time

GAP: Final = "  "
CELL_MIN: Final = 16
"""A column is not made narrower than this to fit a terminal."""


@dataclass(slots=True)
class Table:
    """A command's result: rows for people, a JSON document, and names for scripts."""

    columns: tuple[str, ...] = ()  # titles; one that begins with ">" is aligned to the right; none: labels and values
    rows: Sequence[tuple[str, ...]] | Callable[[], Sequence[tuple[str, ...]]] = ()  # called only if they are shown
    document: dict[str, Any] | Callable[[], dict[str, Any]] = field(default_factory=dict)  # the same
    names: list[str] = field(default_factory=list)
    head: str = ""
    foot: str = ""
    empty: str = "Nothing."  # instead of a table without rows


def clean(text: str) -> str:
    """*text* for a terminal: what is not printable is escaped."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def _cleaned(column: tuple[str, ...]) -> Sequence[str]:
    return column if "".join(column).isprintable() else [clean(cell) for cell in column]


def _escaped(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is no UTF-8
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def table_lines(table: Table, width: int = 0, *, bold: bool = False) -> list[str]:
    """The lines of a table; *width*: columns of the terminal, 0 if there is none."""
    given = table.rows() if callable(table.rows) else table.rows
    if not given:
        return [table.empty] if table.empty else []
    titles = tuple(title.removeprefix(">") for title in table.columns)
    columns = [_cleaned(column) for column in zip(*([titles] if titles else []), *given, strict=True)]
    widths = [max(map(len, column)) for column in columns]
    right = [title.startswith(">") for title in table.columns] or [False] * len(columns)
    last = len(columns) - 1
    excess = sum(widths) + len(GAP) * last - width
    while width and excess > 0:
        widest = max((at for at in range(len(widths)) if not right[at]), key=widths.__getitem__, default=None)
        if widest is None or widths[widest] <= CELL_MIN or (not titles and widest == last):
            break
        cut = min(excess, widths[widest] - CELL_MIN)
        widths[widest] -= cut
        excess -= cut
    if width and not titles:
        return _wrapped(list(zip(*columns, strict=True)), widths[:-1], width)
    for at, size in enumerate(widths):
        if max(map(len, columns[at])) > size:
            columns[at] = [cell if len(cell) <= size else cell[: size - 1] + "…" for cell in columns[at]]
    formats = [f"%{size}s" if right[at] else f"%-{size}s" for at, size in enumerate(widths)]
    if not right[last]:
        formats[last] = "%s"
    line = GAP.join(formats)
    lines = [(line % row).rstrip() for row in zip(*columns, strict=True)]
    if titles and bold:
        lines[0] = f"\x1b[1m{lines[0]}\x1b[0m"
    return lines


def _wrapped(rows: list[tuple[str, ...]], widths: list[int], width: int) -> list[str]:
    """Labels and values, values over as many lines as they need."""
    lines = []
    for *labels, value in rows:
        head = "".join(label.ljust(size) + GAP for label, size in zip(labels, widths, strict=True))
        lines += textwrap.wrap(
            value, max(width, len(head) + 20), initial_indent=head, subsequent_indent=" " * len(head)
        ) or [head.rstrip()]
    return lines


def text_lines(table: Table) -> list[str]:
    """All lines for people."""
    terminal = out.is_terminal
    lines = [table.head] if table.head else []
    lines += table_lines(table, out.width if terminal else 0, bold=terminal and not out.no_color)
    return [*lines, table.foot] if table.foot else lines


def show(table: Table, view: View) -> None:
    """Write it to stdout."""
    if view.json:
        document = table.document() if callable(table.document) else table.document
        write([json.dumps(document, indent=None if view.watch else 2, ensure_ascii=False)])
    elif view.names:
        write(table.names)
    else:
        write(text_lines(table))


def write(lines: Iterable[str]) -> None:
    """Lines to stdout, in one piece."""
    text = "".join(f"{line}\n" for line in lines)
    sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
    sys.stdout.buffer.flush()


def present(fetch: Callable[[], Awaitable[Table]], view: View) -> Callable[[], Awaitable[int]]:
    """A function that shows the fetched table once, or again and again until it is interrupted; its result is the exit code."""

    async def shown() -> int:
        if not view.watch:
            show(await fetch(), view)
            return 0
        stop = asyncio.Event()
        stop_on_signals(stop)
        while not stop.is_set():
            try:
                table = await fetch()
            except (
                stan_client.RequestTimeoutError
            ) as error:  # a leader may be changing: who watches wants to see it come back
                err.print(f"{error}; asking again", markup=False, highlight=False, soft_wrap=True)
                continue
            if out.is_terminal and not view.json and not view.names:
                lines = [f"Every {view.watch:g} s, {format_time(time.time_ns())}; Ctrl-C ends it.", *text_lines(table)]
                out.clear()
                write(lines[: max(2, out.height - 1)])
            else:
                show(table, view)
            try:
                await asyncio.wait_for(stop.wait(), view.watch)
            except TimeoutError:
                continue
        return 0

    return shown


def done(text: str) -> None:
    """Say to people that something is done; pipes get it, too."""
    write([clean(text)])
