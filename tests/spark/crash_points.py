"""The data source with points at which it can be made to stop, die or fail, once: for tests of what survives that.

A point is named in the environment; reaching it leaves a mark, a file for each delivery, and then waits until somebody kills the
process or lets it go on. A mark that is there already is not made again, so that a second run goes through. Importable by
Spark's workers.
"""

import os
import signal
import time
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter
from pyspark_stan.datasource import StanDataSource

POINT, MARKS = "STAN_TEST_POINT", "STAN_TEST_MARKS"
BATCH = 1  # the micro-batch concerned
RECORD_BATCHES_BEFORE = 3  # that a task hands over before it stops
POLL_SECONDS = 0.005


def reach(point, delivery, *, wait=True):
    """Whether this is the named point and it is reached first, by a query with that delivery; waits there."""
    if os.environ.get(POINT) != point:
        return False
    marks = Path(os.environ[MARKS])
    try:
        (marks / f"{point}.{delivery}").touch(exist_ok=False)
    except FileExistsError:
        return False
    while wait and not (marks / f"{point}.go").exists():
        time.sleep(POLL_SECONDS)
    return True


class CrashSource(StanDataSource):
    """Takes the place of the format `stan`."""

    def writer(self, schema, overwrite):
        return CrashBatchWriter(super().writer(schema, overwrite))

    def streamWriter(self, schema, overwrite):  # noqa: N802 - Spark's name
        return CrashStreamWriter(super().streamWriter(schema, overwrite))


def _write(inner, iterator):
    context = TaskContext.get()
    concerned = context.partitionId() == 1 and context.getLocalProperty("streaming.sql.batchId") == str(BATCH)
    delivery = inner._options.delivery
    message = inner.write(_stopped(iterator, delivery) if concerned else iterator)
    if concerned and reach("retry", delivery, wait=False):
        raise RuntimeError("a task fails after all of its rows were acknowledged")
    return message


def _stopped(iterator, delivery):
    for number, batch in enumerate(iterator, 1):
        yield batch
        if number == RECORD_BATCHES_BEFORE:
            reach("writing", delivery)
            if reach("worker", delivery, wait=False):
                os.kill(os.getpid(), signal.SIGKILL)


class CrashStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, inner):
        self._inner = inner

    def write(self, iterator):
        return _write(self._inner, iterator)

    def commit(self, messages, batchId):  # noqa: N803 - Spark's name
        if batchId == BATCH:
            reach("acked", self._inner._options.delivery)
        self._inner.commit(messages, batchId)
        if batchId == BATCH:
            reach("committed", self._inner._options.delivery)

    def abort(self, messages, batchId):  # noqa: N803 - Spark's name
        self._inner.abort(messages, batchId)


class CrashBatchWriter(DataSourceArrowWriter):
    def __init__(self, inner):
        self._inner = inner

    def write(self, iterator):
        return _write(self._inner, iterator)

    def commit(self, messages):
        delivery = self._inner._options.delivery
        reach("acked", delivery)  # in whichever batch: a save is not told which one it is
        self._inner.commit(messages)
        reach("committed", delivery)

    def abort(self, messages):
        self._inner.abort(messages)
