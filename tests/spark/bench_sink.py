"""How fast the sink is, how long a micro-batch takes at least, and how soon a published message is seen behind a query.

`python -m tests.spark.bench_sink [--rows N] [--size BYTES] [--messages N] [--json FILE]`: a broker with fsync, Spark and
everything else on this machine. Beside each figure stands the one of Spark's own file sink, and of `noop`, which writes
nothing. Prints JSON.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pyspark_stan
from pyspark.sql import SparkSession
from stan_client.blocking import BlockingClient

from tests.kit.server import ROOT, StanServer
from tests.spark.conftest import SESSION, slim_home
from tests.spark.crash_kit import packed

ROWS_PER_REQUEST = 5_000
SINKS = ("noop", "file", "transactional", "idempotent", "at-least-once")
SMALL_BATCHES = 30
SMALL_ROWS = 50
ANSWER_SECONDS_MAX = 60.0


class Bench:
    """One broker, one session, and figures."""

    def __init__(self, spark, broker, client, directory):
        self.spark, self.broker, self.client, self.directory = spark, broker, client, directory
        self._names = 0

    def new(self, word):
        """A name that was not used before."""
        self._names += 1
        return f"{word}.{self._names}"

    def fill(self, channel, rows, size):
        """Publish rows of *size* bytes."""
        for at in range(0, rows, ROWS_PER_REQUEST):
            part = [b"%0*d" % (size, number) for number in range(at, min(rows, at + ROWS_PER_REQUEST))]
            self.client.publish_batch(channel, packed(part), len(part))

    def query(self, source, sink, target):
        """A stream from channel to sink, not started."""
        reader = self.spark.readStream.format("stan").option("servers", self.broker.url)
        frame = reader.option("startingOffsets", "earliest").load(source).select("value")
        checkpoint = str(self.directory / self.new("checkpoint"))
        writer = frame.writeStream.option("checkpointLocation", checkpoint)
        if sink == "noop":
            return writer.format("noop")
        if sink == "file":
            return writer.format("parquet").option("path", str(self.directory / self.new("files")))
        return writer.format("stan").options(servers=self.broker.url, channel=target, delivery=sink)

    def throughput(self, source, sink, rows):
        """Rows a second of one large batch: all of it, and the part in which rows move."""
        query = self.query(source, sink, self.new("target")).trigger(availableNow=True).start()
        query.awaitTermination()
        batches = [batch for batch in query.recentProgress if batch.numInputRows]
        assert sum(batch.numInputRows for batch in batches) == rows
        moving = sum(batch.durationMs["addBatch"] for batch in batches) / 1000
        whole = sum(batch.durationMs["triggerExecution"] for batch in batches) / 1000
        return {
            "rows_per_s": round(rows / whole),
            "rows_per_s_add_batch": round(rows / moving),
            "seconds": round(whole, 3),
        }

    def floor(self, sink):
        """Milliseconds of a micro-batch of a few rows."""
        source = self.new("small")
        self.fill(source, SMALL_ROWS, 128)
        query = self.query(source, sink, self.new("target")).start()
        try:
            for _ in range(SMALL_BATCHES):
                query.processAllAvailable()
                self.fill(source, SMALL_ROWS, 128)
            query.processAllAvailable()
            batches = [batch for batch in query.recentProgress if batch.numInputRows][3:]
        finally:
            query.stop()
        times = [batch.durationMs["triggerExecution"] for batch in batches]
        adding = [batch.durationMs["addBatch"] for batch in batches]
        return {**_spread(times), "add_batch_p50_ms": statistics.median(adding), "batches": len(batches)}

    def latency(self, sink, messages):
        """Milliseconds from publishing one message to seeing it in the target channel."""
        source, target = self.new("ping"), self.new("pong")
        self.fill(source, 1, 128)
        query = self.query(source, sink, target).start()
        times = []
        try:
            query.processAllAvailable()
            for number in range(messages):
                begun = time.perf_counter()
                self.fill(source, 1, 128)
                self.wait_for(target, number + 2)
                times.append(1000 * (time.perf_counter() - begun))
        finally:
            query.stop()
        return {**_spread(times), "messages": messages}

    def wait_for(self, channel, last):
        """Return when a channel has come to a sequence."""
        until = time.monotonic() + ANSWER_SECONDS_MAX
        while self.client.info([channel], newer_than={channel: last - 1}, wait_s=1.0)[channel].last < last:
            assert time.monotonic() < until, f"{channel} does not get to {last}"


def _spread(times):
    ordered = sorted(times)
    return {
        "p50_ms": round(statistics.median(ordered), 1),
        "p99_ms": round(ordered[int(len(ordered) * 0.99)], 1),
        "min_ms": round(ordered[0], 1),
    }


@contextmanager
def running(directory):
    """A bench, with all it needs."""
    pyspark_stan.ensure_java()
    home = directory / "spark"
    home.mkdir()
    os.environ |= {
        "SPARK_HOME": str(slim_home(home)),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "clients")]),
    }
    with StanServer(directory, "-mm", "0", "-mb", "0") as broker, BlockingClient(broker.url) as client:
        builder = SparkSession.builder.master("local[2]").appName("bench")
        for key, value in SESSION.items():
            builder = builder.config(key, value)
        spark = builder.config("spark.sql.streaming.numRecentProgressUpdates", "1000").getOrCreate()
        try:
            yield Bench(spark, broker, client, directory)
        finally:
            spark.stop()


def main():
    """Run everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--messages", type=int, default=50)
    parser.add_argument("--repeat", type=int, default=3, help="the best of so many counts")
    parser.add_argument("--sinks", nargs="*", default=SINKS, choices=SINKS)
    parser.add_argument("--json", type=Path)
    wanted = parser.parse_args()
    found = {"rows": wanted.rows, "size": wanted.size, "cores": os.cpu_count(), "sync": "always"}
    with tempfile.TemporaryDirectory() as name, running(Path(name)) as bench:
        source = bench.new("source")
        bench.fill(source, wanted.rows, wanted.size)
        bench.throughput(source, "noop", wanted.rows)  # the first query starts the workers
        for sink in wanted.sinks:
            tries = [bench.throughput(source, sink, wanted.rows) for _ in range(wanted.repeat)]
            figures = {"throughput": max(tries, key=lambda each: each["rows_per_s"]), "micro_batch": bench.floor(sink)}
            if sink not in ("noop", "file"):
                figures["latency"] = bench.latency(sink, wanted.messages)
            found[sink] = figures
            print(sink, json.dumps(figures), file=sys.stderr)
    text = json.dumps(found, indent=2)
    if wanted.json:
        wanted.json.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
