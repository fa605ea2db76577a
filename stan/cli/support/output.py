"""The output of a command: a table for people, one JSON document, or names for scripts; once, or again and again.

Tables are aligned columns. A terminal gets them laid out by rich so that they fit; a pipe gets every cell whole. Names come
from the network: unprintable characters in them are escaped, so that none of them reaches the terminal as a command.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import stan_client
from stan_protocol.units import format_time

from stan.cli.support.common import stop_on_signals
from stan.cli.support.options import View
from stan.cli.support.terminal import TextConsole, clean, err, out, write, write_json

GAP: Final = "  "
CELL_MIN: Final = 16
"""A column is not made narrower than this to fit a terminal."""
FITTED_MAX: Final = 500
"""Rows that are made to fit a terminal: rich needs 0.4 ms for each."""


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


def table_lines(table: Table, width: int = 0, *, bold: bool = False) -> list[str]:
    """The lines of a table; *width*: columns of the terminal, 0 if there is none."""
    given = table.rows() if callable(table.rows) else table.rows
    if not given:
        return [table.empty] if table.empty else []
    titles = [tuple(title.removeprefix(">") for title in table.columns)] if table.columns else []
    columns = [[clean(cell) for cell in column] for column in zip(*titles, *given, strict=True)]
    right = [title.startswith(">") for title in table.columns] or [False] * len(columns)
    if width and len(given) <= FITTED_MAX:
        lines = _fitted(columns, right, width, titled=bool(titles))
    else:
        sizes = [max(map(len, column)) for column in columns]
        line = GAP.join(f"%{size if right[at] else -size}s" for at, size in enumerate(sizes))
        lines = [(line % row).rstrip() for row in zip(*columns, strict=True)]
    if titles and bold:
        lines[0] = f"\x1b[1m{lines[0]}\x1b[0m"
    return lines


def _fitted(columns: list[list[str]], right: list[bool], width: int, *, titled: bool) -> list[str]:
    """Lines for a terminal: cells that are too wide are cut; values behind labels take as many lines as they need."""
    from rich import cells, table, text  # noqa: PLC0415 - slow to import, and of no use in a pipe

    grid = table.Table.grid(padding=(0, len(GAP), 0, 0))
    for at, column in enumerate(columns):
        size = max(map(cells.cell_len, column))
        whole = right[at] or not (titled or at == len(columns) - 1)
        grid.add_column(justify="right" if right[at] else "left", min_width=size if whole else min(size, CELL_MIN))
    for row in zip(*columns, strict=True):
        grid.add_row(*(text.Text(cell, no_wrap=titled, overflow="ellipsis" if titled else "fold") for cell in row))
    console = TextConsole(width=width, color_system=None)
    with console.capture() as captured:
        console.print(grid, crop=False)
    return [line.rstrip() for line in captured.get().splitlines()]


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
        write_json(document, None if view.watch else 2)
    elif view.names:
        write(table.names)
    else:
        write(text_lines(table))


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
            ) as error:  # a leader may be changing: the watch goes on until it is back
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
