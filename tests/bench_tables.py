"""How long the operator's tables take with many channels: `python -m tests.bench_tables --channels 10000`.

A real server, a message and a durable in each channel, and each command as a process of its own, start of Python included.
"""

import argparse
import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import stan_client

from tests.kit.server import CLUSTER_ID, StanServer

COMMANDS = (
    ("context", "list"),
    ("channel", "list", "--names"),
    ("channel", "list"),
    ("channel", "list", "--json"),
    ("channel", "show", "orders.17"),
    ("durable", "list"),
    ("durable", "list", "--json"),
    ("durable", "why", "orders.17", "billing"),
    ("client", "list"),
    ("check", "--lag", "1000,10000"),
    ("doctor",),
)


async def fill(url: str, channels: int) -> None:
    """A message and a durable, offline, in each channel."""
    client = await stan_client.connect(url, client_id="filler", cluster_id=CLUSTER_ID)
    try:
        for first in range(0, channels, 200):
            names = [f"orders.{number}" for number in range(first, min(first + 200, channels))]
            await asyncio.gather(*(client.publish(name, b"hello") for name in names))
            opened = await asyncio.gather(
                *(client.subscribe(name, durable="billing", start=stan_client.everything()) for name in names)
            )
            await asyncio.gather(*(one.close() for one in opened))
    finally:
        await client.close()


def measure(url: str, rounds: int) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    for command in COMMANDS:
        times = []
        for _ in range(rounds):
            began = time.monotonic()
            done = subprocess.run(
                [sys.executable, "-m", "stan.cli.main", *command, *(("-s", url) if command[0] != "context" else ())],
                env=environment,
                capture_output=True,
                check=False,
            )
            times.append(time.monotonic() - began)
        told = f"exit {done.returncode}, {len(done.stdout):,} bytes {done.stderr.decode()[:200]}"
        print(f"stan {' '.join(command):32} {min(times):.2f} s best of {rounds}, {told}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--channels", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as directory,
        contextlib.closing(Stopped(StanServer(Path(directory), "-mc", "0", "-msu", "0"))) as place,
    ):
        place.server.start()
        began = time.monotonic()
        asyncio.run(fill(place.server.url, given.channels))
        print(f"filled in {time.monotonic() - began:.1f} s")
        measure(place.server.url, given.rounds)


class Stopped:
    """Ends a server."""

    def __init__(self, server: StanServer) -> None:
        self.server = server

    def close(self) -> None:
        if self.server.running:
            self.server.terminate()


if __name__ == "__main__":
    main()
