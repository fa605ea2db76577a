"""`kill -9` at random moments, many of them, and what is in the target channels at the end.

    python -m tests.spark.kills --victim worker --kills 50 --rows 200000 --seed 1 --directory /var/tmp/kills-worker

Two queries of one driver, `transactional` and `idempotent`, read a channel, some of whose rows are equal, through a shuffle,
while the victim is killed again and again: the driver (Python and its JVM), a Python worker, an executor (of two, in processes of
their own), or the broker that leads the targets, in a cluster of three. What is not the victim lives on; what has ended is
started again. A kill counts once both queries have gone on behind it; it prints a line. Should the rows come to an end before the
kills, as many come again. The end is a line with the rows that are there twice, and not at all; the exit code is 0 if there are
none. With `--tables` two more queries append to a Delta and to an Iceberg table, by foreachBatch. With a directory the command
goes on where it was, whatever has ended it.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import NamedTuple

from pyarrow import dataset
from pyspark_stan.java import ensure_java
from stan_client import StanClientError
from stan_client.blocking import BlockingClient

from stan.protocol.placement import channel_group
from tests.kit.cluster import GROUPS, StanCluster
from tests.kit.server import StanServer, until
from tests.spark.crash_kit import Job, fill, read

VICTIMS = {"driver": "local[4]", "worker": "local[4,64]", "executor": "local-cluster[2,1,1024]", "leader": "local[4]"}
"""And where Spark runs then: tasks that fail are tried again as often as kills may hit them."""
CONFIGURATION = {
    "spark.task.maxFailures": "64",
    "spark.stage.maxConsecutiveAttempts": "64",
    "spark.deploy.maxExecutorRetries": "-1",
}
DELIVERIES = ("transactional", "idempotent")
SOURCE = "source"
STALLED_S = 400.0
"""Nothing has gone on for so long: the command gives up."""
PACE_MAX_S = 10.0
"""A kill comes within the time that the queries took to go on behind the one before, but within this."""
BATCHES_PER_KILL = 4
POLL_S = 0.05
TICKS = os.sysconf("SC_CLK_TCK")
UNITS = (("s", "s"), ("cpu_s", "CPU s"))


class Tables:
    """The tables that two more queries append to."""

    def __init__(self, directory):
        catalog = {"type": "sql", "uri": f"sqlite:///{directory}/catalog.db", "warehouse": f"file://{directory}"}
        self.described = {"delta": str(directory / "table"), "iceberg": {"name": "kills.rows", "catalog": catalog}}

    def counts(self):
        """How many rows each has."""
        return {name: 0 if table is None else table.count_rows() for name, table in self._opened().items()}

    def values(self):
        """The values of each."""
        found = {}
        for name, table in self._opened().items():
            column = table.to_table().column("value")
            found[name] = Counter(column.to_pylist())
        return found

    def _opened(self):
        deltalake, catalogs = import_module("deltalake"), import_module("pyiceberg.catalog")
        where, iceberg = self.described["delta"], self.described["iceberg"]
        delta = deltalake.DeltaTable(where).to_pyarrow_dataset() if deltalake.DeltaTable.is_deltatable(where) else None
        catalog = catalogs.load_catalog(None, **iceberg["catalog"])
        there = catalog.table_exists(iceberg["name"])
        rows = dataset.dataset(catalog.load_table(iceberg["name"]).scan().to_arrow()) if there else None
        return {"delta": delta, "iceberg": rows}


class Process(NamedTuple):
    """One line of the table of processes."""

    pid: int
    parent: int
    command: str
    cpu_s: float


def descendants():
    """This process and all that it has started, and that is still its descendant."""
    known = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            fields = stat.read_text().rpartition(")")[2].split()
            command = (stat.parent / "cmdline").read_text().replace("\0", " ")
            pid = int(stat.parent.name)
            if fields[0] not in "ZX":
                known[pid] = Process(pid, int(fields[1]), command, (int(fields[11]) + int(fields[12])) / TICKS)
    found, left = [], [os.getpid()]
    while left:
        pid = left.pop()
        found += [known[pid]] if pid in known else []
        left += [one.pid for one in known.values() if one.parent == pid]
    return found


class Meter:
    """CPU seconds of everything that this process has started; the last moments of a process are not seen."""

    def __init__(self):
        self._of = {}

    def total(self):
        """Until now."""
        self._of |= {one.pid: one.cpu_s for one in descendants()}
        return sum(self._of.values())


class Kills:
    """One series of kills; its directory has all that it needs to go on."""

    def __init__(self, options, directory):
        self.victim, self.wanted, self.rows = options.victim, options.kills, options.rows
        self.directory, self.meter = directory, Meter()
        self.outcomes = directory / "outcomes.jsonl"
        self.targets = {delivery: _target(delivery) for delivery in DELIVERIES}
        self.tables = Tables(directory) if options.tables else None
        self.random = random.Random(f"{options.seed} {len(self.done())}")
        self.broker = StanCluster(directory) if self.victim == "leader" else StanServer(directory)
        self.job = self.client = None
        self.last = 0  # of the source

    def done(self):
        """The kills that counted, of all runs."""
        return [json.loads(line) for line in self.outcomes.read_text().splitlines()] if self.outcomes.exists() else []

    def run(self):
        """All kills and the rest of the rows; returns, of each delivery, how many rows are there twice and not at all."""
        with self.broker, BlockingClient(self.broker.url.split(","), timeout_s=120) as self.client:
            if not (self.directory / "filled").exists():
                self._fill()
                (self.directory / "filled").touch()
            self.last = self.client.info([SOURCE])[SOURCE].last
            with contextlib.ExitStack() as self.open_jobs:
                self._start()
                for _ in range(2):  # Spark has begun; the time of a batch is known
                    self._until_progress(self._ends())
                while len(self.done()) < self.wanted:
                    if self._is_complete():
                        until(lambda: self.job.ended is not None, STALLED_S, self.job.log)
                        self._fill()
                        self._start()
                        self._until_progress(self._ends())
                    self._one()
                self._wait(self._is_complete)
            wanted = Counter(read(self.client, SOURCE))
            found = {name: Counter(read(self.client, target)) for name, target in self.targets.items()}
            if self.tables is not None:
                found |= self.tables.values()
        return {name: ((rows - wanted).total(), (wanted - rows).total()) for name, rows in found.items()}

    def _fill(self):
        fill(self.client, SOURCE, self.rows)
        self.last = self.client.info([SOURCE])[SOURCE].last

    # --- one kill ---------------------------------------------------------------------------------------------------------

    def _one(self):
        number, begun, cpu_s = len(self.done()) + 1, time.monotonic(), self.meter.total()
        time.sleep(self.random.random() * self.pace_s)  # the random moment
        before = self._ends()
        what = "" if self._is_complete() else getattr(self, f"_kill_{self.victim}")()
        if not what:  # there was nothing to be killed any more
            return
        self._until_progress(before)
        ends = self._ends()
        told = {
            "kill": number,
            "what": what,
            "behind": before,
            "s": round(time.monotonic() - begun, 2),
            "cpu_s": round(self.meter.total() - cpu_s, 2),
        }
        with self.outcomes.open("a") as file:
            file.write(json.dumps(told) + "\n")
        said = ", ".join(f"{name} {before[name]:,} to {ends[name]:,}" for name in ends)
        print(f"kill {number} of {self.wanted}: {what}; rows {said}; {told['s']} s, {told['cpu_s']} CPU s", flush=True)

    def _kill_driver(self):
        self.job.kill9()
        self._start()
        return "driver and its JVM"

    def _workers(self):
        known = descendants()
        daemons = {one.pid for one in known if "pyspark.daemon" in one.command}  # and those that they have forked
        return [one.pid for one in known if one.parent in daemons]

    def _executors(self):
        return [one.pid for one in descendants() if "CoarseGrainedExecutorBackend" in one.command]

    def _kill_worker(self):
        return self._kill(self._workers)

    def _kill_executor(self):
        return self._kill(self._executors)

    def _kill(self, victims):
        """Kill one of what *victims* returns, as soon as it returns any."""
        self._wait(lambda: victims() or self._is_complete())
        pids = sorted(victims())
        if not pids:
            return ""
        pid = self.random.choice(pids)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return f"{self.victim} {pid}"

    def _kill_leader(self):
        name = self.broker.leader_of(self.targets["transactional"])
        self.broker.kill9(name)
        self.broker.start(name)
        return f"broker {name}"

    # --- the job -------------------------------------------------------------------------------------------------------------

    def _start(self):
        described = {
            "master": VICTIMS[self.victim],
            "configuration": CONFIGURATION,
            "servers": self.broker.url,
            "source": SOURCE,
            "targets": self.targets,
            "tables": self.tables.described if self.tables is not None else {},
            "update": False,
            "per_trigger": max(1, self.rows // (BATCHES_PER_KILL * self.wanted)),
            "checkpoints": str(self.directory),
        }
        self.job = self.open_jobs.enter_context(Job(self.directory, described, ""))

    def _ends(self):
        """How many rows each target has."""
        while True:
            with contextlib.suppress(StanClientError):  # no leader now
                known = self.client.info([*self.targets.values()])
                ends = {name: known[target].last if target in known else 0 for name, target in self.targets.items()}
                return ends if self.tables is None else ends | self.tables.counts()

    def _is_complete(self):
        return min(self._ends().values()) >= self.last

    def _until_progress(self, before):
        begun = time.monotonic()
        self._wait(lambda: self._is_complete() or all(end > before[name] for name, end in self._ends().items()))
        self.pace_s = min(time.monotonic() - begun, PACE_MAX_S)

    def _wait(self, reached):
        """Wait, and start a job again that has ended because of a kill."""
        deadline = time.monotonic() + STALLED_S
        while not reached():
            self.meter.total()
            if self.job.ended is not None:
                self._start()
            if time.monotonic() > deadline:
                raise TimeoutError(f"nothing has gone on for {STALLED_S:g} s:\n{self.job.log()}")
            time.sleep(POLL_S)


def _target(delivery):
    """A channel of the group that holds all targets, so that one leader is their leader."""
    names = (f"target.{delivery}.{number}" for number in count())
    return next(name for name in names if channel_group(name.encode(), GROUPS) == 1)


def main(arguments):
    """See the module's text."""
    parser = argparse.ArgumentParser(prog="python -m tests.spark.kills", description="kill -9 at random moments")
    parser.add_argument("--victim", choices=VICTIMS, required=True)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--tables", action="store_true", help="also a Delta and an Iceberg table")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--directory", type=Path, help="to go on where an earlier run was; without one a run begins anew"
    )
    options = parser.parse_args(arguments)
    if options.kills < 1 or options.rows < BATCHES_PER_KILL * options.kills:
        parser.error("--kills: 1 or more; --rows: at least four times as many")
    ensure_java()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing that was started stays
    with contextlib.ExitStack() as stack:
        directory = options.directory or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        directory.mkdir(parents=True, exist_ok=True)
        kills = Kills(options, directory)
        found = kills.run()
        done = kills.done()
    told = ", ".join(f"{name} {twice} twice, {missing} missing" for name, (twice, missing) in found.items())
    per_kill = " and ".join(f"{sum(one[key] for one in done) / max(1, len(done)):.1f} {unit}" for key, unit in UNITS)
    print(f"{len(done)} kills of {options.victim}, {options.rows:,} rows: {told}; {per_kill} a kill")
    return 0 if not any(map(any, found.values())) and len(done) >= options.kills else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
