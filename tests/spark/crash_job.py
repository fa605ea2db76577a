"""Streaming queries from a channel to one channel for each delivery, as a program: what the crash tests kill.

Run as `python -m tests.spark.crash_job JSON`; ends when everything that was in the source has been processed.
"""

import json
import sys

import pyspark_stan
from pyspark.sql import SparkSession

from tests.spark.conftest import SESSION
from tests.spark.crash_points import CrashSource

MORE = {"spark.sql.execution.arrow.maxRecordsPerBatch": "500", "spark.sql.shuffle.partitions": "3"}
"""So that there is something between the first and the last request of a task."""


def session_of(master, configuration):
    """A session whose workers see what this program sees."""
    builder = SparkSession.builder.master(master).appName("crash")
    for key, value in {**SESSION, **MORE, **configuration}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.dataSource.register(CrashSource)
    return session


def main(job):
    """Run the queries that *job* describes to their end."""
    spark = session_of(job["master"], job.get("configuration", {}))
    source = spark.readStream.format("stan").option("servers", job["servers"]).option("startingOffsets", "earliest")
    frame = source.option("maxOffsetsPerTrigger", job["per_trigger"]).load(job["source"]).select("value")
    queries = [_start(job, frame, delivery, target) for delivery, target in job["targets"].items()]
    for name, table in job.get("tables", {}).items():
        put = (
            pyspark_stan.to_delta(table)
            if name == "delta"
            else pyspark_stan.to_iceberg(table["name"], table["catalog"])
        )
        queries.append(_started(job, frame.repartition(3).writeStream.foreachBatch(put), name))
    for query in queries:
        query.awaitTermination()
    spark.stop()


def _start(job, frame, delivery, target):
    sink = {"servers": job["servers"], "channel": target, "delivery": delivery, "batchRows": 500}
    if job["update"]:  # how often each value came so far; only what has changed
        counted = frame.groupBy("value").count().selectExpr("concat(string(value), '=', count) AS value")
        writer = counted.writeStream.outputMode("update").foreachBatch(pyspark_stan.foreach_batch(**sink))
    else:
        writer = frame.repartition(3).writeStream.format("stan").options(**sink)
    return _started(job, writer, delivery)


def _started(job, writer, name):
    checkpoint = f"{job['checkpoints']}/{name}"
    return writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
