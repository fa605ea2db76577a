"""`python -m tests.bench_monitoring`: what monitoring costs the broker of its publish throughput, as a ratio in one run.

One server with many channels; `stan bench` in turn with nobody looking, and with a Prometheus that scrapes and a console that
reads the old pages, each as often as usual. Prints each pair and the median ratio.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from stan_client.blocking import BlockingClient

from tests.kit.batches import rows_of
from tests.kit.ports import free_port
from tests.kit.server import ROOT, StanServer

LOOKED_AT = {"/metrics": 10.0, "/streaming/channelsz?limit=100": 5.0, "/streaming/serverz": 5.0, "/dashboard/": 30.0}
"""Path -> seconds between two requests."""


def bench(url: str, channel: str, messages: int) -> float:
    """Messages a second of one run."""
    command = [
        sys.executable,
        "-m",
        "stan.cli.main",
        "bench",
        channel,
        "-np",
        "10",
        "-n",
        str(messages),
        "--json",
        "-s",
        url,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, timeout=300)
    return float(json.loads(done.stdout)["publishers"]["msgs_per_s"])


def look(port: int, over: threading.Event) -> None:
    """Ask for every page when it is due, until it is over."""
    due = dict.fromkeys(LOOKED_AT, 0.0)
    while not over.wait(0.05):
        for path, every in LOOKED_AT.items():
            if due[path] <= time.monotonic():
                due[path] = time.monotonic() + every
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
                    answer.read()


def main() -> None:
    """Parse the arguments, run, report."""
    arguments = argparse.ArgumentParser(prog="python -m tests.bench_monitoring", description=__doc__)
    arguments.add_argument("--channels", type=int, default=1000)
    arguments.add_argument("--messages", type=int, default=2_000_000)
    arguments.add_argument("--pairs", type=int, default=5)
    given = arguments.parse_args()
    port = free_port()
    with tempfile.TemporaryDirectory() as directory:
        flags = ("-m", str(port), "-mc", "0", "-mm", "0", "-mb", "0")
        with (
            StanServer(Path(directory), *flags) as server,
            BlockingClient(server.url, cluster_id=server.cluster_id) as client,
        ):
            for number in range(given.channels):
                client.publish_batch(f"channel.{number}", rows_of([b"x"]), 1)
            ratios = []
            for pair in range(given.pairs):
                rates = {}
                for watched in (False, True) if pair % 2 else (True, False):
                    over = threading.Event()
                    looking = threading.Thread(target=look, args=(port, over))
                    if watched:
                        looking.start()
                    rates[watched] = bench(server.url, f"load.{pair}.{watched:d}", given.messages)
                    over.set()
                    if watched:
                        looking.join()
                ratios.append(rates[True] / rates[False])
                print(f"alone {rates[False]:,.0f}/s, watched {rates[True]:,.0f}/s: {ratios[-1]:.3f}", flush=True)
    print(f"median of {given.pairs} pairs with {given.channels:,} channels: {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main()
