"""A driver that reads a channel with its lake on request, as a process that may be killed: `lake_driver.py URL LAKE CHANNEL
[--spark]`.

For each line on stdin it makes a new batch reader, plans, and does all tasks one by one, or with `--spark` has a session of Spark
read all; then it prints one line of JSON: how many messages came, whether they were all from 1 on without a gap, each once and
with what was published as it, and how many the lake had.
"""

import json
import sys

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark_stan.datasource import StanDataSource
from pyspark_stan.reading import cold
from stan_lake import LakeTable, incarnations, open_store


def options_of(url, lake, channel):
    return {"servers": url, "subscribe": channel, "cold": lake, "fetch.numRetries": "100"}


def read_by_spark(spark, url, lake, channel):
    frame = spark.read.format("stan").options(**options_of(url, lake, channel)).load()
    same = F.sum((F.col("value").cast("string") == F.col("sequence").cast("string")).cast("int"))
    count, different, last, right = frame.agg(
        F.count("*"), F.countDistinct("sequence"), F.max("sequence"), same
    ).first()
    manifest = LakeTable(store := open_store(lake), channel, incarnations(store, channel)[-1]).manifest()
    return {"count": count, "right": count == different == last == right, "cold": manifest.next - 1}


def session():
    """One with two cores, quick to start."""
    from tests.spark.conftest import SESSION  # noqa: PLC0415 - imports pytest, which the driver in Python alone does without

    builder = SparkSession.builder.master("local[2,8]").appName("moments")
    for key, value in SESSION.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def read(url, lake, channel):
    options = options_of(url, lake, channel)
    source = StanDataSource({key.lower(): value for key, value in options.items()})
    reader = source.reader(source.schema())
    count, right = 0, True
    for part in reader.partitions():
        for batch in reader.read(part):
            expected = pa.array(range(count + 1, count + batch.num_rows + 1), pa.int64())
            right &= batch.column("sequence").equals(expected)
            right &= batch.column("value").cast(pa.string()).equals(expected.cast(pa.string()))
            count += batch.num_rows
    (known,) = cold._manifests.values()
    return {
        "count": count,
        "right": right,
        "cold": known.manifest.next - 1,
    }


def main():
    where = sys.argv[1:4]
    spark = session() if "--spark" in sys.argv else None
    for _line in sys.stdin:
        print(json.dumps(read(*where) if spark is None else read_by_spark(spark, *where)), flush=True)


if __name__ == "__main__":
    main()
