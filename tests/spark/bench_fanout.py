"""What a batch costs that writes many channels from many tasks, without Spark: CPU seconds of the broker and of the sink.

`python -m tests.spark.bench_fanout [--tasks N] [--channels N] [--rows N]`: one batch at least once, and one transactional; each
task writes so many rows to each channel. The trees of two versions are compared by running it with PYTHONPATH set to one and to
the other.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, StringType, StructType
from pyspark_stan.writing.sink import stream_writer

from tests.kit.server import StanServer
from tests.spark.bench_commit import cpu_s

SCHEMA = StructType().add("value", BinaryType()).add("channel", StringType())
VALUE = b"x" * 100


def be(partition):
    """Say which task of the query the code runs in."""
    context = object.__new__(TaskContext)  # calling the class gives the one there is
    context._partitionId, context._attemptNumber = partition, 0
    context._localProperties = {"sql.streaming.queryId": "fanout", "streaming.sql.batchId": "0"}
    TaskContext._taskContext = context


def measure(server, delivery, given):
    """CPU seconds of the broker and of the sink, for the tasks and for the commit."""
    names = [f"{delivery}.{number}" for number in range(given.channels)] * given.rows
    columns = {"value": pa.array([VALUE] * len(names), pa.binary()), "channel": pa.array(names, pa.string())}
    rows, writer = pa.record_batch(columns), stream_writer({"servers": server.url, "delivery": delivery}, SCHEMA, False)  # noqa: FBT003
    marks, messages = [(cpu_s(server.pid), time.process_time())], []
    for task in range(given.tasks):
        be(task)
        messages.append(writer.write(iter([rows])))
    marks.append((cpu_s(server.pid), time.process_time()))
    writer.commit(messages, 0)
    marks.append((cpu_s(server.pid), time.process_time()))
    (broker, sink), (broker_tasks, sink_tasks), (broker_end, sink_end) = marks
    return {
        "broker": {"tasks": round(broker_tasks - broker, 2), "commit": round(broker_end - broker_tasks, 2)},
        "sink": {"tasks": round(sink_tasks - sink, 2), "commit": round(sink_end - sink_tasks, 2)},
    }


def main():
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--tasks", type=int, default=200)
    arguments.add_argument("--channels", type=int, default=300)
    arguments.add_argument("--rows", type=int, default=1)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as directory, StanServer(Path(directory), "-mc", "0") as server:
        found = {delivery: measure(server, delivery, given) for delivery in ("at-least-once", "transactional")}
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
