"""A pipeline from its start to its end: until it is told to stop, has read what there was, or fails.

Promises to end between batches, or by aborting the one that runs, whose results are then in nobody's sight and come again at the
next start; and that no process is left behind.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark_stan.pipeline.config import Pipeline
from pyspark_stan.pipeline.progress import Report, report_of
from pyspark_stan.pipeline.session import conf_of, first_line, jvm_pid, spark_session

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_S: Final = 0.2
FINISH_S: Final = 20.0
"""How long a batch that runs may take to its end when the pipeline is to stop; then it is aborted."""
Tell = Callable[[str], None]
Show = Callable[[Report], None]


class PipelineError(Exception):
    """A pipeline that has failed, or cannot be started; the text is for people."""


def run(pipeline: Pipeline, stop: threading.Event, tell: Tell, show: Show) -> None:
    """Run until *stop* is set, or all that there was is read.

    Args:
        pipeline: as its file says.
        stop: from anywhere, a signal's handler too.
        tell: takes sentences about what happens.
        show: takes a report for each batch.

    Raises:
        SparkMissingError: there is no Spark here.
        PipelineError: it does not start, or has failed.
    """
    with spark_session(conf_of(pipeline)) as spark:
        from pyspark_stan.pipeline import flow  # noqa: PLC0415 - there is Spark now

        tell(f"Spark {spark.version} at {pipeline.spark.master}, pid {jvm_pid(spark)}")
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
        PipelineError: the query has failed.
    """
    reports = _Reports(query, show)
    while query.isActive and not stop.wait(LOOK_S):
        reports.show_new()
    deadline = time.monotonic() + FINISH_S
    while query.isActive and not reports.show_new() and query.status["isTriggerActive"] and time.monotonic() < deadline:
        time.sleep(LOOK_S)
    query.stop()
    reports.show_new()
    error = query.exception()
    if error is not None:
        raise PipelineError(reason_of(error)) from error


def reason_of(error: BaseException) -> str:
    """Why a query has failed: the innermost of the reasons that Spark tells one after the other."""
    lines = [line.strip() for line in str(error).splitlines()]
    told = [line for line in lines if line and not line.startswith(("at ", "===", "JVM stacktrace", "..."))]
    causes = [line.partition(": ")[2] for line in told if line.startswith("Caused by: ")]
    return causes[-1] if causes else " ".join(told[:1]) or type(error).__name__


class _Reports:
    """Which reports of a query have been shown."""

    def __init__(self, query: "StreamingQuery", show: Show) -> None:
        self._query = query
        self._show = show
        self._seen: set[tuple[int, str]] = set()

    def show_new(self) -> bool:
        """Show what is new; returns whether anything was."""
        from pyspark_stan.metrics import lag  # noqa: PLC0415 - there is Spark now

        recent = [json.loads(progress.json) for progress in self._query.recentProgress]
        new = [progress for progress in recent if _key(progress) not in self._seen]
        for progress in new:
            self._show(report_of(progress, lag(progress)))
        self._seen = {_key(progress) for progress in recent}
        return bool(new)


def _key(progress: Mapping[str, Any]) -> tuple[int, str]:
    return progress["batchId"], progress["timestamp"]
