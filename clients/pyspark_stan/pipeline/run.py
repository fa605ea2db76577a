"""Runs a pipeline until it is stopped, has read all messages (`available_now`), or fails.

Promises that a stop comes between two batches, or else aborts the batch that runs: the next start repeats this batch,
and the sink's delivery mode decides whether readers see its published messages. Leaves no process behind.
"""

import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

from pyspark_stan.pipeline.config import Pipeline
from pyspark_stan.pipeline.progress import BatchReport, report_of
from pyspark_stan.pipeline.session import conf_of, first_line, jvm_pid, spark_session

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_S: Final = 0.2
"""Interval at which the query's state and its reports are read."""
FINISH_S: Final = 20.0
"""Time that a running batch has to finish when the pipeline has to stop; then it is aborted."""
_BEHIND_THE_REASON: Final = re.compile(r"\s*at |=== Streaming Query ===")
_CLASS: Final = re.compile(r"^(?:[A-Za-z_$][\w$]*\.)+[\w$]+: ")
"""Class name of a Java exception, before its message."""

Announce = Callable[[str], None]
Show = Callable[[BatchReport], None]


class PipelineError(Exception):
    """The pipeline has failed or cannot be started; the text is shown to the user."""


def run(pipeline: Pipeline, stop: threading.Event, announce: Announce, show: Show) -> None:
    """Run *pipeline* until *stop* is set or, with `available_now`, all messages are read.

    Args:
        pipeline: as read from its file.
        stop: may be set by any thread, and by a signal handler.
        announce: called with sentences about the progress of the start.
        show: called with a report of each batch.

    Raises:
        SparkMissingError: Spark cannot run here.
        PipelineError: the pipeline does not start, or has failed.
    """
    with spark_session(conf_of(pipeline)) as spark:
        from pyspark_stan.pipeline import flow  # noqa: PLC0415 - needs Spark

        announce(f"Spark {spark.version} at {pipeline.spark.master}, pid {jvm_pid(spark)}")
        if stop.is_set():
            return
        try:
            query = flow.start(spark, pipeline)
        except Exception as error:
            raise PipelineError(first_line(error)) from error
        follow(query, stop, show)


def follow(query: "StreamingQuery", stop: threading.Event, show: Show) -> None:
    """Show reports until *query* ends, or *stop* is set and the query is stopped.

    Raises:
        PipelineError: the query has failed, or Spark does not answer.
    """
    try:
        _follow(_Reports(query, show), query, stop)
        error = query.exception()
    except Exception as gone:
        raise PipelineError(f"Spark does not answer any more: {first_line(gone)}") from gone
    if error is not None:
        raise PipelineError(reason_of(error)) from error


def _follow(reports: "_Reports", query: "StreamingQuery", stop: threading.Event) -> None:
    while query.isActive and not stop.wait(LOOK_S):
        reports.show_new()
    deadline = time.monotonic() + FINISH_S
    while query.isActive and not reports.show_new() and query.status["isTriggerActive"] and time.monotonic() < deadline:
        time.sleep(LOOK_S)
    query.stop()
    reports.show_new()


def reason_of(error: BaseException) -> str:
    """Return the reason why a query has failed, in one line: the innermost cause in Spark's chain of causes."""
    lines = str(error).splitlines() or [type(error).__name__]
    begin = max((number for number, line in enumerate(lines) if line.startswith("Caused by: ")), default=0)
    reason = list(takewhile(lambda line: not _BEHIND_THE_REASON.match(line), lines[begin:])) or lines[:1]
    if "Traceback (most recent call last)" in reason[0]:  # of a Python worker: the reason is in the last line
        reason = [line for line in reason if line and not line[0].isspace()][-1:]
    return _CLASS.sub("", reason[0].removeprefix("Caused by: ")).strip()


class _Reports:
    """Shows each report of a query once."""

    def __init__(self, query: "StreamingQuery", show: Show) -> None:
        self._query = query
        self._show = show
        self._seen: set[tuple[int, str]] = set()

    def show_new(self) -> bool:
        """Show the reports that are new; returns True if there were any."""
        from pyspark_stan.reading.metrics import lag  # noqa: PLC0415 - needs Spark

        recent = [json.loads(progress.json) for progress in self._query.recentProgress]
        new = [progress for progress in recent if _key(progress) not in self._seen]
        for progress in new:
            self._show(report_of(progress, lag(progress)))
        self._seen = {_key(progress) for progress in recent}
        return bool(new)


def _key(progress: Mapping[str, Any]) -> tuple[int, str]:
    return progress["batchId"], progress["timestamp"]
