"""The output of `stan demo`: numbered steps, facts, and the closing table."""

import time
from collections.abc import Sequence

from rich.table import Table

from stan.cli.support.common import EXIT_FAILED
from stan.cli.support.terminal import out
from stan_bench.demo_tally import Figure


def step(number: int, title: str, sentence: str) -> None:
    """Print the next part, with a sentence on its purpose."""
    out.print(f"\n[bold cyan]{number}  {title}[/]\n   [dim]{sentence}[/]", highlight=False, soft_wrap=True)


def fact(text: str) -> None:
    """Something that has happened."""
    out.print(f"   {text}", highlight=False, soft_wrap=True)


def rate(count: int, began: float) -> str:
    """Return the number since *began*, and per second, in words."""
    return f"{count:,} messages, {count / (time.monotonic() - began):,.0f} a second"


def verdict(figures: Sequence[Figure], seconds: float) -> int:
    """The closing table; returns the exit code, 0 only if all of it holds."""
    out.print(_table(figures))
    if all(figure.holds is not False for figure in figures):
        out.print(f"[bold green]All of it holds[/] ({seconds:.0f} s; processes and files are removed).")
        return 0
    out.print(f"[bold red]Not all of it holds[/] ({seconds:.0f} s): see the lines marked NO.")
    return EXIT_FAILED


def _table(figures: Sequence[Figure]) -> Table:
    table = Table(title="\nWhat became of it", title_justify="left", title_style="bold")
    table.add_column("figure")
    table.add_column("count", justify="right")
    table.add_column("as promised")
    shown = {True: "[green]yes[/]", False: "[bold red]NO[/]", None: ""}
    for figure in figures:
        table.add_row(figure.name, f"{figure.value:,}", shown[figure.holds])
    return table
