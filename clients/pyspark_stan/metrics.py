"""How far a query is behind its channels, out of what Spark reports of its progress."""

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from pyspark_stan.offsets import INITIAL, from_json

log: Final = logging.getLogger("pyspark_stan")


def lag(progress: Mapping[str, Any] | None) -> dict[str, int]:
    """Messages of each channel that the query has not read yet; of `query.lastProgress`, of a listener's `event.progress`, or of
    the JSON of either. Empty if it reads no channel, or nothing has been reported yet."""
    found: dict[str, int] = {}
    for source in (progress or {}).get("sources", ()):
        end, latest = _parsed(source.get("endOffset")), _parsed(source.get("latestOffset"))
        if INITIAL not in end:
            continue
        positions = from_json(end).positions
        for channel, behind in latest.items():
            found[channel] = found.get(channel, 0) + max(0, behind - positions.get(channel, 1))
    return found


def summary(behind: Mapping[str, int]) -> dict[str, float]:
    """The same in the words of Spark's Kafka source."""
    values = list(behind.values()) or [0]
    return {
        "minOffsetsBehindLatest": min(values),
        "maxOffsetsBehindLatest": max(values),
        "avgOffsetsBehindLatest": sum(values) / len(values),
    }


class StanQueryListener(StreamingQueryListener):
    """Tells how far each query is behind, after each of its batches.

    spark.streams.addListener(StanQueryListener())

    Args:
        tell: takes the query's name (its id if it has none) and the lag of each channel; a line in the log by default.
    """

    def __init__(self, tell: Callable[[str, dict[str, int]], None] | None = None) -> None:
        self._tell = tell or _log

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing to tell."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Tell the lag."""
        behind = lag(event.progress)
        if behind:
            self._tell(event.progress.name or str(event.progress.id), behind)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing to tell."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing to tell."""


def _parsed(offset: object) -> dict[str, Any]:
    """An offset of a report, which is text in Python's objects and an object in their JSON."""
    try:
        said = json.loads(offset) if isinstance(offset, str) else offset
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _log(name: str, behind: dict[str, int]) -> None:
    log.info("query %s is behind by %s", name, ", ".join(f"{channel}: {rows}" for channel, rows in behind.items()))
