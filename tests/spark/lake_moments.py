"""Real processes at random moments: the broker, the tierer and the driver are killed, limits remove what the tier has, and what a
read with `cold` returns is always everything, each message once.

    python -m tests.spark.lake_moments --moments 500 --seed 1 --directory /var/tmp/moments [--spark]

The driver plans and reads as Spark would have it, in Python alone; with `--spark` it is a session of Spark with its JVM, at some
twenty times the cost. Each moment prints a line; with a directory the command goes on where it was, whatever has ended it.
"""

import argparse
import contextlib
import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from pyspark_stan.java import ensure_java
from stan_client import StanClientError
from stan_client.blocking import BlockingClient
from stan_protocol.kernel.rows import pack_rows

from tests.kit.server import ROOT, StanServer, until
from tests.spark.conftest import slim_home
from tests.spark.filling import column
from tests.spark.kills import UNITS, Meter

PATIENCE_S = 180
CHANNEL = "orders"
CONF = "streaming { store_limits { max_msgs: 2000 }\n policies { orders { tier: lake, tier_stretch: 0 } } }"
VICTIMS = ("tierer", "broker", "driver", "driver", "nobody", "all")


class Processes:
    """The tierer and the driver, each as often as it was started."""

    def __init__(self, url, directory, spark):
        self.url, self.lake, self._spark = url, directory / "lake", spark
        self.pace_s = 3.0 if spark else 0.3  # within which a kill comes, of the time of a read
        self._environment = {**os.environ}
        if spark:
            home = directory / "spark"
            if not home.exists():
                home.mkdir()
                slim_home(home)
            self._environment |= {
                "SPARK_HOME": str(home),
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_LOCAL_DIRS": str(directory),
            }
            self._environment |= {
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            }
        self._log = (directory / "processes.log").open("wb")
        self.tierer = self.driver = None

    def start_tierer(self):
        command = ["-m", "stan.cli.main", "lake", "run", str(self.lake), CHANNEL, "--age", "10ms", "-s", self.url]
        self.tierer = self._start(command)

    def start_driver(self):
        how = ["--spark"] if self._spark else []
        self.driver = self._start(["-m", "tests.spark.lake_driver", self.url, str(self.lake), CHANNEL, *how])

    def _start(self, command):
        return subprocess.Popen(
            [sys.executable, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=ROOT,
            env=self._environment,
            start_new_session=True,
        )

    def kill(self, process):
        """With all that it has started: its JVM, and that one's workers."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
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
                    known = client.info([CHANNEL])
                    last = known[CHANNEL].last if known else 0
                    numbers = range(last + 1, last + 200)
                    rows = pack_rows(*column([b"%d" % number for number in numbers]), 0, len(numbers))
                    ids = b"".join(
                        number.to_bytes(16, "big") for number in numbers
                    )  # what NATS has kept may come once more
                    client.publish_batch(CHANNEL, rows, len(numbers), producer="publisher", version=1, ids=ids)
                    self.stored = last + len(numbers)


class Moments:
    """A series of moments; its directory has all that it needs to go on."""

    def __init__(self, directory, seed, *, spark=False):
        self.directory = directory
        self._outcomes = directory / "moments.jsonl"
        self._draw = random.Random(f"{seed} {len(self.seen())}")
        self._spark, self._meter = spark, Meter()
        conf = directory / "stan.conf"
        conf.write_text(CONF)
        self.server = StanServer(directory, "-mc", "100", "-sc", str(conf))
        self._processes = self._publisher = None

    def seen(self):
        """What reads have found, of all runs."""
        return [json.loads(line) for line in self._outcomes.read_text().splitlines()] if self._outcomes.exists() else []

    def run(self, wanted, told=lambda _found: None):
        """Go on until so many moments are over. Raises AssertionError: something was missing, twice, or another."""
        with self.server:
            self._processes, self._publisher = (
                Processes(self.server.url, self.directory, self._spark),
                Publisher(self.server.url),
            )
            try:
                self._publisher.start()
                until(lambda: self._publisher.stored)
                self._processes.start_tierer()
                self._processes.start_driver()
                while len(self.seen()) < wanted:
                    self._moment(self._draw.choice(VICTIMS))
                    told(self.seen()[-1])
                self._at_rest()
            finally:
                self._publisher.ended.set()
                self._publisher.join(PATIENCE_S)
                self._processes.end()
            return self.first()

    def first(self):
        """The first message that the broker has still."""
        with BlockingClient(self.server.url) as client:
            return client.info([CHANNEL])[CHANNEL].first

    def _moment(self, victim):
        processes, sure, begun, cpu_s = self._processes, self._publisher.stored, time.monotonic(), self._meter.total()
        processes.ask()
        early = processes.answer(self._draw.random() * processes.pace_s)
        if victim in ("tierer", "all"):
            processes.kill(processes.tierer)
            processes.start_tierer()
        if victim in ("broker", "all"):
            self.server.kill9()
            self.server.start()
        if victim in ("driver", "all"):
            self._meter.total()
            processes.kill(processes.driver)
            processes.start_driver()
            processes.ask()
            early = None
        self._check(early or processes.answer(), victim, sure, begun, cpu_s)

    def _at_rest(self):
        """Once more, when the limits have removed something."""
        self._processes.kill(self._processes.tierer)  # one that began without a broker has ended
        self._processes.start_tierer()
        until(lambda: self.first() > 1, PATIENCE_S)
        sure = self._publisher.stored
        self._processes.ask()
        self._check(self._processes.answer(), "nobody", sure, time.monotonic(), self._meter.total())

    def _check(self, found, victim, sure, begun, cpu_s):
        assert found, (self.directory / "processes.log").read_text(errors="replace")[-3000:]
        assert found["right"], (victim, found)
        assert found["count"] >= sure
        cost = {"s": round(time.monotonic() - begun, 2), "cpu_s": round(self._meter.total() - cpu_s, 2)}
        with self._outcomes.open("a") as file:
            file.write(json.dumps({"victim": victim, **found, **cost}) + "\n")


def main(arguments):
    """See the module's text."""
    parser = argparse.ArgumentParser(prog="python -m tests.spark.lake_moments", description="reads at random moments")
    parser.add_argument("--moments", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--directory", type=Path, help="to go on where an earlier run was; without one a run begins anew"
    )
    parser.add_argument("--spark", action="store_true", help="the driver is a session of Spark")
    options = parser.parse_args(arguments)
    if options.spark:
        ensure_java()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing that was started stays
    with contextlib.ExitStack() as stack:
        directory = options.directory or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        directory.mkdir(parents=True, exist_ok=True)
        moments = Moments(directory, options.seed, spark=options.spark)

        def told(found):
            print(f"moment {len(moments.seen())} of {options.moments}: {found}", flush=True)

        moments.run(options.moments, told)
        seen = moments.seen()
    cost = " and ".join(f"{sum(one[key] for one in seen) / len(seen):.1f} {unit}" for key, unit in UNITS)
    print(f"{len(seen)} moments: everything was there, each message once; {cost} a moment")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
