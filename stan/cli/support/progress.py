"""Bars for long work: on a terminal only, on stderr, gone when the work is done."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

from stan.cli.support.terminal import err


def bars(*columns: ProgressColumn) -> Progress:
    """Bars with *columns* behind them, none yet."""
    named = (TextColumn("{task.description}"), BarColumn())
    return Progress(*named, *columns, console=err, transient=True, disable=not err.is_terminal)


@contextmanager
def bar(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with each amount that is done, of *total*; None: not known."""
    with bars(MofNCompleteColumn(), TimeRemainingColumn()) as progress:
        task = progress.add_task(what, total=total)
        yield lambda count: progress.advance(task, count)
