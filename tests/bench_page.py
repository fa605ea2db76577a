"""The tables of docs/benchmarks.md, made again: `python -m tests.bench_page original|jetstream|growth|spark`.

Each row is printed, as Markdown, when it is measured. Compare ratios; while other programs use the machine even those mean
little: `--load 2` waits before each run until the load of the last minute is below that. `original` needs STAN_ORIGINAL, the
program of NATS Streaming Server; `spark` needs Spark.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stan_bench.bench.bench_broker import own_broker, own_cluster
from stan_bench.bench.bench_drivers import Job
from stan_bench.bench.bench_fleet import Fleet
from stan_bench.bench.bench_report import combined

from tests.kit.original import ORIGINAL
from tests.kit.original_server import Original

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}

LOADS = {
    "10 publishers": ("-np", "10"),
    "1 publisher + 1 subscriber": ("-np", "1", "-ns", "1"),
    "1 subscriber, replay": ("-np", "1", "-ns", "1", "--replay"),
    "1 publisher, synchronous": ("-np", "1", "--sync"),
}
"""Options of `stan bench` by the name of the workload."""

COUNTS = {"10 publishers": 400_000, "1 publisher + 1 subscriber": 200_000, "1 subscriber, replay": 300_000}
SYNCHRONOUS = 2_000
"""Messages of the synchronous workload."""
SYNCED = 40_000
"""Messages where JetStream syncs each of them."""
WRITERS = 8
"""Load processes of the table of growth."""


class Runs:
    """How runs are made."""

    def __init__(self, rounds: int, load: float, scale: float) -> None:
        self.rounds, self.load, self.scale = rounds, load, scale

    def calm(self) -> None:
        """Wait until others leave the machine alone, if that is asked for."""
        while self.load and os.getloadavg()[0] >= self.load:
            time.sleep(1)

    def count(self, messages: int) -> int:
        """*messages*, fewer of them to try the command."""
        return max(10, int(messages * self.scale))

    def compared(self, name: str, messages: int, *options: str) -> str:
        """The cells of one comparison: command, rates of both servers, and the ratio of their medians."""
        arguments = ("c", *options, *LOADS[name], "-n", str(self.count(messages)))
        self.calm()
        command = (sys.executable, "-m", "stan.cli.main", "bench", *arguments, "--rounds", str(self.rounds), "--json")
        shown = json.loads(subprocess.run(command, env=ENVIRONMENT, stdout=subprocess.PIPE, check=True).stdout)
        return f"| {name} | {_cells(shown['subscribers' if 'subscribers' in shown else 'publishers'])} |"


def _cells(group: dict[str, Any]) -> str:
    rates = [f"{group[letter]['msgs_per_s']:,.0f}" for letter in "ab"]
    if "latency_ms" in group["a"]:
        rates = [f"{rate} ({_ms(group[letter])})" for letter, rate in zip("ab", rates, strict=True)]
    ratio = group["ratio"]
    return f"{rates[0]} | {rates[1]} | **{ratio['of_medians']:.2f}** ({ratio['min']:.2f} to {ratio['max']:.2f})"


def _ms(shown: dict[str, Any]) -> str:
    p50 = shown["latency_ms"]["p50"]
    return f"{p50:.2f} ms" if p50 < 10 else f"{p50:,.0f} ms"


def original(runs: Runs) -> Iterator[str]:
    """A broker beside NATS Streaming Server, both alone with files and fsync."""
    if not ORIGINAL:
        raise SystemExit("STAN_ORIGINAL names no program of NATS Streaming Server.")
    with tempfile.TemporaryDirectory() as directory, Original(Path(directory), "-mm", "0", "-mb", "0") as other:
        options = ("--start", "--compare", other.url, "--compare-cluster-id", other.cluster_id)
        for name in LOADS:
            yield runs.compared(name, COUNTS.get(name, SYNCHRONOUS), *options)


def jetstream(runs: Runs) -> Iterator[str]:
    """A broker beside JetStream with the same guarantees: acks before a sync and behind it, one node and three."""
    for place in (("--start",), ("--cluster", "3")):
        for sync in ("default", "always"):
            options = (*place, *(("--no-file-sync",) if sync == "default" else ()), "--compare-jetstream", sync)
            yield f"`stan bench c {' '.join(options)} …`"
            for name in LOADS:
                if sync == "always" and "replay" in name:
                    continue  # nothing is synced there
                messages = COUNTS.get(name, SYNCHRONOUS)
                yield runs.compared(name, min(messages, SYNCED) if sync == "always" else messages, *options)


def growth(runs: Runs) -> Iterator[str]:
    """The same publishers on one channel and on several, with more and more nodes."""
    for nodes in (1, 3, 5):
        cells = []
        for channels in (1, WRITERS):
            runs.calm()
            rates = sorted(asyncio.run(_published(nodes, channels, runs.count(400_000))) for _ in range(runs.rounds))
            cells.append(f"{rates[len(rates) // 2]:,.0f}")
        yield f"| {nodes} | {' | '.join(cells)} |"


async def _published(nodes: int, channels: int, messages: int) -> float:
    """Messages a second of all publishers together."""
    place = own_broker("test-cluster") if nodes == 1 else own_cluster(nodes, "test-cluster")
    async with place as target, Fleet(lambda _role, _done: None) as fleet:
        await fleet.prepare(
            [
                Job(
                    role="pub",
                    names=[f"writer-{number}"],
                    counts=[messages // WRITERS],
                    channel=f"c{number % channels}",
                    size=128,
                    server=target.server,
                    cluster_id=target.cluster_id,
                )
                for number in range(WRITERS)
            ]
        )
        return combined("all", (await fleet.run())["pub"]).rate


def spark(runs: Runs) -> Iterator[str]:
    """Spark's source and sink."""
    for command in (("bench_source", "--rows", str(runs.count(4_000_000))), ("bench_sink",)):
        runs.calm()
        module, *arguments = command
        yield subprocess.run(
            (sys.executable, "-m", f"tests.spark.{module}", *arguments),
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout


TABLES = {"original": original, "jetstream": jetstream, "growth": growth, "spark": spark}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--load", type=float, default=0, help="wait before each run until the load is below this")
    parser.add_argument("--scale", type=float, default=1, help="share of the messages, to try the command")
    given = parser.parse_args()
    for row in TABLES[given.table](Runs(given.rounds, given.load, given.scale)):
        print(row, flush=True)


if __name__ == "__main__":
    main()
