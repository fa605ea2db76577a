"""Real processes at random moments: the broker, the tierer and the driver are killed, limits remove what the tier has, and what a
read with `cold` returns is always everything, each message once. STAN_LAKE_MOMENTS=500 in the environment goes on for longer."""

import contextlib
import json
import os
import random
import select
import subprocess
import sys
import threading

import duckdb
import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from stan_client import StanClientError
from stan_client.blocking import BlockingClient
from stan_lake import LakeTable, incarnations, open_store

from stan.protocol.kernel.rows import pack_rows
from tests.kit.server import ROOT, StanServer, until
from tests.spark.filling import column, fill

MOMENTS = int(os.environ.get("STAN_LAKE_MOMENTS", "10"))
SEED = int(os.environ.get("STAN_LAKE_SEED", "1"))
PATIENCE_S = 120
CHANNEL = "orders"
CONF = "streaming { store_limits { max_msgs: 2000 }\n policies { orders { tier: lake, tier_stretch: 0 } } }"


class Processes:
    """The tierer and the driver, each as often as it was started."""

    def __init__(self, url, directory):
        self.url, self.lake = url, directory / "lake"
        self._log = (directory / "processes.log").open("wb")
        self.tierer = self.driver = None

    def start_tierer(self):
        command = ["-m", "stan.cli.main", "lake", "run", str(self.lake), CHANNEL, "--age", "10ms", "-s", self.url]
        self.tierer = self._start(command)

    def start_driver(self):
        self.driver = self._start(["-m", "tests.spark.lake_driver", self.url, str(self.lake), CHANNEL])

    def _start(self, command):
        return subprocess.Popen(
            [sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, cwd=ROOT
        )

    def kill(self, process):
        process.kill()
        process.communicate()

    def ask(self):
        self.driver.stdin.write(b"\n")
        self.driver.stdin.flush()

    def answer(self, seconds=PATIENCE_S):
        """What the driver has read; None: nothing came in this time."""
        ready, _, _ = select.select([self.driver.stdout], [], [], seconds)
        return json.loads(self.driver.stdout.readline()) if ready else None

    def end(self):
        for process in (self.tierer, self.driver):
            if process is not None:
                self.kill(process)
        self._log.close()


class Publisher(threading.Thread):
    """Publishes numbers, again and again, while the broker comes and goes; `stored`: so many are acknowledged."""

    def __init__(self, url):
        super().__init__(daemon=True)
        self.url, self.stored = url, 0
        self.ended = threading.Event()

    def run(self):
        with BlockingClient(self.url) as client:
            while not self.ended.wait(0.02):
                with contextlib.suppress(StanClientError):
                    last = client.info([CHANNEL])[CHANNEL].last if self.stored else 0
                    numbers = range(last + 1, last + 200)
                    rows = pack_rows(*column([b"%d" % number for number in numbers]), 0, len(numbers))
                    ids = b"".join(
                        number.to_bytes(16, "big") for number in numbers
                    )  # what NATS has kept may come once more
                    client.publish_batch(CHANNEL, rows, len(numbers), producer="publisher", version=1, ids=ids)
                    self.stored = last + len(numbers)


@pytest.mark.timeout(30 * 60 if MOMENTS > 10 else 5 * 60)
def test_union_of_lake_and_broker_is_everything_at_any_moment(tmp_path):
    draw, conf = random.Random(SEED), tmp_path / "stan.conf"
    conf.write_text(CONF)
    processes = publisher = None
    seen = []

    def check(found, victim, sure):
        assert found, (tmp_path / "processes.log").read_text(errors="replace")[-3000:]
        assert found["right"], (victim, found)
        assert found["count"] >= sure
        seen.append(found)
        (tmp_path / "moments").write_text(f"{len(seen)}: {found}\n")

    with StanServer(tmp_path, "-mc", "100", "-sc", str(conf)) as server:
        try:
            processes, publisher = Processes(server.url, tmp_path), Publisher(server.url)
            publisher.start()
            until(lambda: publisher.stored)
            processes.start_tierer()
            processes.start_driver()
            for _ in range(MOMENTS):
                sure = publisher.stored
                processes.ask()
                victim = draw.choice(["tierer", "broker", "driver", "driver", "nobody", "all"])
                early = processes.answer(draw.random() * 0.3)
                if victim in ("tierer", "all"):
                    processes.kill(processes.tierer)
                    processes.start_tierer()
                if victim in ("broker", "all"):
                    server.kill9()
                    server.start()
                if victim in ("driver", "all"):
                    processes.kill(processes.driver)
                    processes.start_driver()
                    processes.ask()
                    early = None
                check(early or processes.answer(), victim, sure)
            processes.kill(processes.tierer)  # one that began without a broker has ended
            processes.start_tierer()
            with BlockingClient(server.url) as client:
                until(lambda: client.info([CHANNEL])[CHANNEL].first > 1, PATIENCE_S)
            sure = publisher.stored
            processes.ask()
            check(processes.answer(), "nobody", sure)
        finally:
            if publisher is not None:
                publisher.ended.set()
                publisher.join(PATIENCE_S)
            if processes is not None:
                processes.end()
        with BlockingClient(server.url) as client:
            first = client.info([CHANNEL])[CHANNEL].first
    assert first > 1, "the limits have removed what the lake has"
    assert any(0 < one["cold"] < one["count"] for one in seen), "reads from both"


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
