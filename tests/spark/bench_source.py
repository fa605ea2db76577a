"""How fast the source is, and what a million rows cost each process.

`python -m tests.spark.bench_source [--rows N] [--size BYTES] [--repeats N] [--master local[2]]`: a broker with a FILE store and
fsync, its nats-server and Spark on this machine, read into `noop`. Beside it Spark's own file source reads the same rows from
parquet, those of a lake too. Of each case the best of some repeats, after one that warms up; with `--cases cold,lake` only those
whose names begin so. Prints JSON.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark_stan import ensure_java
from stan_client.blocking import BlockingClient
from stan_lake import LakeTable, incarnations, open_store

from tests.kit.server import ROOT, StanServer
from tests.spark.conftest import SESSION, slim_home
from tests.spark.filling import fill

CHANNEL = "rows"
FILL_ROWS = 100_000
NOT_MEASURED = {"spark.driver.memory": "2g"}


def cpu(process):
    """Seconds of a process and of those of its children that have ended."""
    try:
        return sum(process.cpu_times()[:4])
    except psutil.Error:
        return 0.0


class Bench:
    """One broker with one channel, one session, and figures."""

    def __init__(self, spark, broker, rows, directory):
        self.spark, self.broker, self.rows, self.directory = spark, broker, rows, directory
        self._checkpoints = 0

    def source(self, reader, **options):
        """The channel as a DataFrame."""
        return reader.format("stan").option("servers", self.broker.url).options(**options).load(CHANNEL)

    def tiered(self):
        """A lake that has all of the channel."""
        lake = self.directory / "lake"
        command = [
            sys.executable,
            "-m",
            "stan.cli.main",
            "lake",
            "run",
            str(lake),
            CHANNEL,
            "--once",
            "-s",
            self.broker.url,
        ]
        subprocess.run(command, check=True, cwd=ROOT)
        return lake

    def files_of(self, lake):
        """Its files."""
        store = open_store(str(lake))
        table = LakeTable(store, CHANNEL, incarnations(store, CHANNEL)[-1])
        return [store.location(table.path(file.name)) for file in table.manifest().files]

    def batch(self, frame):
        """Read all of a DataFrame."""
        frame.write.format("noop").mode("overwrite").save()

    def stream(self, frame):
        """The same as a stream, to the end of what there is."""
        self._checkpoints += 1
        writer = frame.writeStream.format("noop").trigger(availableNow=True)
        writer.option("checkpointLocation", str(self.directory / f"checkpoint-{self._checkpoints}"))
        writer.start().awaitTermination()

    def spent(self):
        """CPU seconds so far, by kind of process."""
        broker, jvm = psutil.Process(self.broker.pid), psutil.Process(SparkContext._gateway.proc.pid)
        return {
            "broker": cpu(broker),
            "nats-server": sum(map(cpu, broker.children())),
            "jvm": cpu(jvm),
            "python": sum(map(cpu, jvm.children(recursive=True))),
        }

    def measure(self, run, repeats):
        """The best run of some."""
        found = []
        run()
        for _ in range(repeats):
            before, began = self.spent(), time.perf_counter()
            run()
            seconds, after = time.perf_counter() - began, self.spent()
            costs = {name: round((after[name] - before[name]) / self.rows * 1e6, 3) for name in after}
            found.append({"rows_per_s": round(self.rows / seconds), "cpu_s_per_1M_rows": costs})
        return max(found, key=lambda one: one["rows_per_s"])


@contextmanager
def session(master, directory):
    """A session with all cores' worth of optimisation, unlike that of the tests."""
    home = directory / "home"
    home.mkdir()
    os.environ["SPARK_HOME"] = str(slim_home(home))
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "clients")])
    ensure_java()
    builder = SparkSession.builder.master(master).appName("bench")
    for key, value in {**SESSION, **NOT_MEASURED}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def figures(bench, repeats, wanted):
    """All cases, or those whose names begin as *wanted*."""
    files = str(bench.directory / "parquet")
    spark, lake = bench.spark, str(bench.tiered())  # a reader keeps what it is given: each case takes a new one
    bench.source(spark.read).write.parquet(files)
    schema = spark.read.parquet(files).schema
    two = -(-bench.rows // 2)
    cases = {
        "batch": lambda: bench.batch(bench.source(spark.read)),
        "batch, value alone": lambda: bench.batch(bench.source(spark.read.schema("value binary"))),
        "batch, 1 task": lambda: bench.batch(bench.source(spark.read, maxRecordsPerPartition=bench.rows)),
        "batch, 2 tasks": lambda: bench.batch(bench.source(spark.read, maxRecordsPerPartition=two)),
        "cold, batch": lambda: bench.batch(bench.source(spark.read, cold=lake)),
        "cold, 2 tasks": lambda: bench.batch(bench.source(spark.read, cold=lake, maxRecordsPerPartition=two)),
        "lake's files, batch": lambda: bench.batch(spark.read.parquet(*bench.files_of(lake)).select(schema.names)),
        "stream, one trigger": lambda: bench.stream(bench.source(spark.readStream, startingOffsets="earliest")),
        "parquet, batch": lambda: bench.batch(spark.read.parquet(files)),
        "parquet, stream": lambda: bench.stream(spark.readStream.schema(schema).parquet(files)),
    }
    found = {}
    for name, run in cases.items():
        if not name.startswith(wanted):
            continue
        found[name] = bench.measure(run, repeats)
        print(name, found[name], file=sys.stderr)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--cases", default="")
    args = parser.parse_args()
    limits = ("-mc", "0", "-mm", "0", "-mb", "0")
    with tempfile.TemporaryDirectory() as name, StanServer(Path(name), *limits) as broker:
        with BlockingClient(broker.url) as client:
            for at in range(0, args.rows, FILL_ROWS):
                values = [b"%0*d" % (args.size, row) for row in range(at, min(args.rows, at + FILL_ROWS))]
                fill(client, CHANNEL, values)
        with session(args.master, Path(name)) as spark:
            found = figures(Bench(spark, broker, args.rows, Path(name)), args.repeats, tuple(args.cases.split(",")))
    print(json.dumps({"rows": args.rows, "size": args.size, "master": args.master, "cases": found}, indent=2))


if __name__ == "__main__":
    main()
