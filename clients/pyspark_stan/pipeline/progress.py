"""The progress of a pipeline: a few figures from Spark's report of each batch; pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """The figures of one batch."""

    batch: int
    rows: int  # read
    rows_per_s: float  # rows processed a second, while the batch ran
    batch_ms: int
    published: int  # results; -1: Spark has not counted them
    lag: Mapping[str, int]  # channel -> messages not read yet

    @property
    def idle(self) -> bool:
        """True if the batch had nothing to do."""
        return not self.rows and self.published <= 0

    def line(self) -> str:
        """Return all figures in one line, for a log."""
        behind = ", ".join(f"{channel} {rows:,}" for channel, rows in sorted(self.lag.items())) or "nothing"
        published = f", {self.published:,} published" if self.published >= 0 else ""
        return (
            f"batch {self.batch}: {self.rows:,} read in {self.batch_ms:,} ms, {self.rows_per_s:,.0f} a second"
            f"{published}; behind by {behind}"
        )


def report_of(progress: Mapping[str, Any], lag: Mapping[str, int]) -> BatchReport:
    """Make a report from *progress*, the JSON of a StreamingQueryProgress, and the *lag* of each channel in messages."""
    return BatchReport(
        batch=int(progress.get("batchId", 0)),
        rows=int(progress.get("numInputRows") or 0),
        rows_per_s=_number(progress.get("processedRowsPerSecond")),
        batch_ms=int((progress.get("durationMs") or {}).get("triggerExecution", 0)),
        published=int((progress.get("sink") or {}).get("numOutputRows", -1)),
        lag=dict(lag),
    )


def _number(value: object) -> float:
    """Return *value*, or 0.0 where Spark gives no number because it would have divided by zero."""
    return float(value) if isinstance(value, int | float) else 0.0
