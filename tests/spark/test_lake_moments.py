"""The union of a lake and its broker is everything at any moment, and Spark and DuckDB read it; see lake_moments."""

import os
import subprocess
import sys

import duckdb
import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from stan_client.blocking import BlockingClient
from stan_lake import LakeTable, incarnations, open_store

from tests.kit.server import ROOT
from tests.spark.filling import fill
from tests.spark.lake_moments import PATIENCE_S, Moments

MOMENTS = int(os.environ.get("STAN_LAKE_MOMENTS", "10"))
SEED = int(os.environ.get("STAN_LAKE_SEED", "1"))


@pytest.mark.timeout(30 * 60 if MOMENTS > 10 else 5 * 60)
def test_union_of_lake_and_broker_is_everything_at_any_moment(tmp_path):
    moments = Moments(tmp_path, SEED)
    assert moments.run(MOMENTS) > 1, "the limits have removed what the lake has"
    assert any(0 < one["cold"] < one["count"] for one in moments.seen()), "reads from both"


@pytest.fixture
def lake(broker, channel, tmp_path):
    """A channel of which the first 30,000 messages are in a lake, and 1,000 more are not."""
    with BlockingClient(broker.url) as client:
        fill(client, channel, [b"%d" % number for number in range(1, 30_001)])
        command = [
            sys.executable,
            "-m",
            "stan.cli.main",
            "lake",
            "run",
            str(tmp_path),
            channel,
            "--once",
            "-s",
            broker.url,
        ]
        subprocess.run(command, check=True, cwd=ROOT, timeout=PATIENCE_S)
        fill(client, channel, [b"%d" % number for number in range(30_001, 31_001)])
    return str(tmp_path)


def test_spark_reads_cold_and_hot_as_one_batch(spark, broker, channel, lake):
    frame = spark.read.format("stan").option("servers", broker.url).option("cold", lake).load(channel)
    right = F.sum((F.col("value").cast("string") == F.col("sequence").cast("string")).cast("int"))
    found = frame.agg(F.count("*"), F.countDistinct("sequence"), F.max("sequence"), right).first()
    assert tuple(found) == (31_000, 31_000, 31_000, 31_000)


def test_spark_reads_cold_and_hot_as_one_stream(spark, broker, channel, lake, tmp_path):
    source = spark.readStream.format("stan").option("servers", broker.url).option("cold", lake)
    frame = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 20_000).load(channel)
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()
    found = spark.read.parquet(str(tmp_path / "out")).agg(F.count("*"), F.countDistinct("sequence")).first()
    assert tuple(found) == (31_000, 31_000)


def test_duckdb_reads_what_spark_does(channel, lake):
    store = open_store(lake)
    table = LakeTable(store, channel, incarnations(store, channel)[-1])
    found = duckdb.read_parquet([store.location(table.path(file.name)) for file in table.manifest().files])
    assert found.aggregate("count(*), max(sequence)").fetchall() == [(30_000, 30_000)]
