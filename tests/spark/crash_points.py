"""The data source with points at which it can be made to stop, die or fail, once: for tests of what survives that.

A point is named in the environment; reaching it leaves a mark, a file, and then waits until somebody kills the process or lets it
go on. A mark that is there already is not made again, so that a second run goes through. Importable by Spark's workers.
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


def mark(point):
    """Where a point leaves its mark."""
    return Path(os.environ[MARKS], point)


def go(point):
    """What lets it go on."""
    return Path(os.environ[MARKS], f"{point}.go")


def reach(point, *, wait=True):
    """Whether this is the named point and it is reached first; waits there."""
    if os.environ.get(POINT) != point:
        return False
    try:
        mark(point).touch(exist_ok=False)
    except FileExistsError:
        return False
    while wait and not go(point).exists():
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
    message = inner.write(_stopped(iterator) if concerned else iterator)
    if concerned and reach("retry", wait=False):
        raise RuntimeError("a task fails after all of its rows were acknowledged")
    return message


def _stopped(iterator):
    for number, batch in enumerate(iterator, 1):
        yield batch
        if number == RECORD_BATCHES_BEFORE:
            reach("writing")
            if reach("worker", wait=False):
                os.kill(os.getpid(), signal.SIGKILL)


class CrashStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, inner):
        self._inner = inner

    def write(self, iterator):
        return _write(self._inner, iterator)

    def commit(self, messages, batchId):  # noqa: N803 - Spark's name
        if batchId == BATCH:
            reach("acked")
        self._inner.commit(messages, batchId)
        if batchId == BATCH:
            reach("committed")

    def abort(self, messages, batchId):  # noqa: N803 - Spark's name
        self._inner.abort(messages, batchId)


class CrashBatchWriter(DataSourceArrowWriter):
    def __init__(self, inner):
        self._inner = inner

    def write(self, iterator):
        return _write(self._inner, iterator)

    def commit(self, messages):
        concerned = any(message.identity is not None and message.identity.version == BATCH for message in messages)
        if concerned:
            reach("acked")
        self._inner.commit(messages)
        if concerned:
            reach("committed")

    def abort(self, messages):
        self._inner.abort(messages)
