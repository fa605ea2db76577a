"""The output of `stan pipeline run`: a table that changes on a terminal, a line for each batch elsewhere."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

from pyspark_stan.pipeline.progress import BatchReport
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from stan.cli.support.terminal import out


@dataclass
class Lines:
    """A line for each batch that had something to do."""

    batches: int = 0

    def announce(self, text: str) -> None:
        """Show a sentence."""
        out.print(text, highlight=False, markup=False, soft_wrap=True)

    def show(self, report: BatchReport) -> None:
        """Show a batch."""
        if not report.idle:
            self.batches += 1
            self.announce(report.line())


class LiveTable(Lines):
    """A table with the figures of the last batch and the sums of all."""

    def __init__(self, title: str, live: Live) -> None:
        super().__init__()
        self._title = title
        self._live = live
        self._began = time.monotonic()
        self._rows = 0
        self._published = 0
        self._last: BatchReport | None = None

    def show(self, report: BatchReport) -> None:
        """Count a batch in."""
        if not report.idle:
            self.batches += 1
            self._rows += report.rows
            self._published += max(report.published, 0)
            self._last = report
        if self._last is not None:
            self._live.update(self._table(self._last, report))

    def _table(self, last: BatchReport, newest: BatchReport) -> Table:
        seconds = time.monotonic() - self._began
        table = Table(title=f"{escape(self._title)}, {seconds:,.0f} s", title_justify="left", title_style="bold")
        for column in ("", "last batch", "all"):
            table.add_column(column, justify="right" if column else "left")
        table.add_row("batch", f"{last.batch:,}", f"{self.batches:,}")
        table.add_row("messages read", f"{last.rows:,}", f"{self._rows:,}")
        table.add_row("a second", f"{last.rows_per_s:,.0f}", f"{self._rows / max(seconds, 1):,.0f}")
        table.add_row("time", f"{last.batch_ms:,} ms", "")
        if last.published >= 0:
            table.add_row("results published", f"{last.published:,}", f"{self._published:,}")
        for channel, behind in sorted(newest.lag.items()):
            table.add_row(f"behind in {escape(channel)}", f"{behind:,}", "", style="yellow" if behind else "green")
        return table


@contextlib.contextmanager
def screen(title: str) -> Iterator[Lines]:
    """Yield a table for a terminal, or lines for any other output."""
    if not out.is_terminal:
        yield Lines()
        return
    with Live(console=out, refresh_per_second=4) as live:
        yield LiveTable(title, live)
