"""A driver for test_source_crash: reads a stream from the newest message on; its argument is JSON that says with which broker.

Each batch goes to a file. With `hold`, batch 0 is never done.
"""

import json
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

WAIT_S = 0.01


def main():
    job = json.loads(sys.argv[1])
    directory = Path(job["directory"])
    builder = SparkSession.builder.master("local[2]")
    for key, value in job["settings"].items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()

    def take(frame, number):
        values = sorted(int(row.value) for row in frame.collect())
        fresh = directory / "fresh"
        fresh.write_text(json.dumps(values))
        fresh.rename(directory / f"{job['run']}-{number}")
        while job["hold"]:
            time.sleep(WAIT_S)

    stream = spark.readStream.format("stan").option("servers", job["servers"]).load(job["channel"])
    writer = stream.writeStream.option("checkpointLocation", str(directory / "checkpoint")).foreachBatch(take)
    if not job["hold"]:
        writer = writer.trigger(availableNow=True)
    writer.start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
