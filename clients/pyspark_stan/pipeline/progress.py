"""How a pipeline gets on: what Spark reports of each batch, in a few figures; pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """One batch."""

    batch: int
    rows: int  # read
    rows_per_s: float  # as fast as they were worked on
    batch_ms: int
    published: int  # results; -1 where Spark does not count them
    lag: Mapping[str, int]  # channel -> messages that are still to be read

    @property
    def idle(self) -> bool:
        """True if the batch had nothing to do."""
        return not self.rows and self.published <= 0

    def line(self) -> str:
        """All of it, for a log."""
        behind = ", ".join(f"{channel} {rows:,}" for channel, rows in sorted(self.lag.items())) or "nothing"
        published = f", {self.published:,} published" if self.published >= 0 else ""
        return (
            f"batch {self.batch}: {self.rows:,} read in {self.batch_ms:,} ms, {self.rows_per_s:,.0f} a second"
            f"{published}; behind by {behind}"
        )


def report_of(progress: Mapping[str, Any], lag: Mapping[str, int]) -> BatchReport:
    """Out of the JSON of a StreamingQueryProgress."""
    return BatchReport(
        batch=int(progress.get("batchId", 0)),
        rows=int(progress.get("numInputRows") or 0),
        rows_per_s=_number(progress.get("processedRowsPerSecond")),
        batch_ms=int((progress.get("durationMs") or {}).get("triggerExecution", 0)),
        published=int((progress.get("sink") or {}).get("numOutputRows", -1)),
        lag=dict(lag),
    )


def _number(value: object) -> float:
    """Spark writes no number where it would divide by nothing."""
    return float(value) if isinstance(value, int | float) else 0.0
