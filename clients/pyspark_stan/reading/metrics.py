"""The lag of a query behind its channels, computed from Spark's progress reports."""

import json
import logging
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from pyspark_stan.reading.offsets import AGES, BYTES, CLUSTER, INITIAL, from_json, unpacked

log: Final = logging.getLogger("pyspark_stan")


def lag(progress: Mapping[str, Any] | None) -> dict[str, int]:
    """Return for each channel the number of messages that the query has not read yet.

    *progress* is `query.lastProgress`, a listener's `event.progress`, or the JSON of either. The result is empty if the query
    reads no channel, or Spark has not reported yet. Of a channel that ends before the position, or that is another cluster's
    now, all messages are unread.
    """
    lags: dict[str, int] = {}
    for source in (progress or {}).get("sources", ()):
        end, latest = _parsed(source.get("endOffset")), _parsed(source.get("latestOffset"))
        if INITIAL not in end:
            continue
        for about in (AGES, BYTES):
            latest.pop(about, None)
        read = from_json(end)
        positions = read.positions if latest.pop(CLUSTER, read.cluster) == read.cluster else {}
        for channel, behind in latest.items():
            position = positions.get(channel, 1)
            lags[channel] = lags.get(channel, 0) + behind - (position if position <= behind else 1)
    return lags


def lag_seconds(progress: Mapping[str, Any] | None) -> dict[str, float]:
    """Return for each channel with messages that the query has not read how old the oldest of them is at least, in seconds.

    *progress* is as of `lag`. It is exact to a trigger's interval for messages that came while the query ran; of those that were
    there at its start it is at least the age of the newest one.
    """
    return _of_unread(progress, AGES, max)


def lag_bytes(progress: Mapping[str, Any] | None) -> dict[str, int]:
    """Return for each channel with messages that the query has not read how many bytes these have, by the average size of all its
    messages. *progress* is as of `lag`."""
    return _of_unread(progress, BYTES, operator.add)


def _of_unread(progress: Mapping[str, Any] | None, field: str, together: Callable[[Any, Any], Any]) -> dict[str, Any]:
    """Return what reports say of unread messages; *together*: makes one of what two sources say of a channel."""
    found: dict[str, Any] = {}
    for source in (progress or {}).get("sources", ()):
        if INITIAL in _parsed(source.get("endOffset")):
            for channel, value in _parsed(source.get("latestOffset")).get(field, {}).items():
                found[channel] = together(value, found.get(channel, 0))
    return found


def summary(behind: Mapping[str, int]) -> dict[str, float]:
    """Return minimum, maximum and average of the result of `lag`, under the names of Spark's Kafka source."""
    values = list(behind.values()) or [0]
    return {
        "minOffsetsBehindLatest": min(values),
        "maxOffsetsBehindLatest": max(values),
        "avgOffsetsBehindLatest": sum(values) / len(values),
    }


class StanQueryListener(StreamingQueryListener):
    """Reports the lag of each query after each of its batches.

    spark.streams.addListener(StanQueryListener())

    Args:
        tell: called with the query's name (its id if it has none) and the lag of each channel; by default, writes to the log.
    """

    def __init__(self, tell: Callable[[str, dict[str, int]], None] | None = None) -> None:
        self._tell = tell or _log

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: Spark requires the method."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Report the lag of the query that has run a batch."""
        behind = lag(event.progress)
        if behind:
            self._tell(event.progress.name or str(event.progress.id), behind)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: Spark requires the method."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: Spark requires the method."""


def _parsed(offset: object) -> dict[str, Any]:
    """Parse the offset of a report: text in Spark's Python objects, a dict in their JSON. Returns {} for anything else."""
    try:
        document = json.loads(offset) if isinstance(offset, str) else offset
    except ValueError:
        return {}
    try:
        return dict(unpacked(document)) if isinstance(document, dict) else {}
    except ValueError:
        return {}


def _log(name: str, behind: dict[str, int]) -> None:
    log.info("query %s is behind by %s", name, ", ".join(f"{channel}: {rows}" for channel, rows in behind.items()))
