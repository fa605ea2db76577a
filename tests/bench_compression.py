"""What compression saves and costs, for JSON events: `python -m tests.bench_compression --messages 200000`.

A real server with files. Bytes on its disk, and seconds of CPU of the server and of this process (a client and, for reading,
columns as Spark's source makes them), so that other work on the machine does not count.
"""

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import stan_client
from stan_client.blocking import BlockingClient
from stan_protocol.kernel.rows import columns

from tests.kit.batches import rows_of
from tests.kit.damage import log_bytes
from tests.kit.server import CLUSTER_ID, StanServer

POLICY = 'streaming { policies { "*.policy" { compress: zstd } } }'
ROUNDS = 3
"""Readings of each channel; the quickest counts."""


def event(number: int) -> bytes:
    """One of a shop's events."""
    return json.dumps(
        {
            "id": number,
            "user": f"user-{number * 7919 % 5003}",
            "type": ("view", "click", "buy")[number % 3],
            "page": f"/shop/items/{number * 104729 % 20011}",
            "at": f"2026-11-24T10:{number // 60 % 60:02}:{number % 60:02}Z",
            "session": f"{number * 2654435761 % (1 << 64):016x}",
        }
    ).encode()


async def publish(url: str, channel: str, events: list[bytes]) -> None:
    """One by one, as an old client does."""
    async with await stan_client.connect(url, client_id="bench", cluster_id=CLUSTER_ID) as client:
        await client.publish_many(channel, events)


def fill(client: BlockingClient, channel: str, events: list[bytes], together: int, *, compress: bool) -> None:
    """As batches."""
    for at in range(0, len(events), together):
        part = events[at : at + together]
        client.publish_batch(channel, rows_of(part), len(part), compress=compress)


def read(client: BlockingClient, channel: str, count: int) -> None:
    """All messages, as columns."""
    for answer in client.read_range(channel, 1, count):
        columns(answer.records, answer.count)


def spent(pid: int) -> tuple[float, float]:
    """Seconds of CPU of the server and of this process."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system, time.process_time()


def main() -> None:
    """Measure, and print a line for each step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--together", type=int, default=1000, help="rows of a batch")
    asked = parser.parse_args()
    events = [event(number) for number in range(asked.messages)]
    payload = sum(map(len, events))
    with tempfile.TemporaryDirectory() as directory:
        conf = Path(directory) / "stan.conf"
        conf.write_text(POLICY)
        with StanServer(Path(directory), "-sc", str(conf), "-mm", "0", "-mb", "0") as server:

            def measure(what: str, call: Callable[[], None], rounds: int = 1) -> None:
                costs = []
                before = disk(directory)
                for _ in range(rounds):
                    begun = spent(server.pid)
                    call()
                    costs.append([after - start for after, start in zip(spent(server.pid), begun, strict=True)])
                of_server, of_client = min(costs, key=sum)
                more = disk(directory) - before
                stored = f"{more / 1e6:6.1f} MB, {payload / more:4.1f} times smaller" if rounds == 1 else ""
                print(f"{what:32} server {of_server:5.2f} s, client {of_client:5.2f} s  {stored}", flush=True)

            print(f"{asked.messages} events, {payload / 1e6:.1f} MB")
            measure("published", lambda: asyncio.run(publish(server.url, "one.plain", events)))
            measure("published, policy", lambda: asyncio.run(publish(server.url, "one.policy", events)))
            with BlockingClient(server.url, cluster_id=server.cluster_id) as client:
                for name, compress in (("plain", False), ("policy", False), ("client", True)):
                    channel = f"rows.{name}"
                    told = f"batches of {asked.together}, {name}"
                    measure(told, lambda: fill(client, channel, events, asked.together, compress=compress))  # noqa: B023
                for channel in ("one.plain", "one.policy", "rows.plain", "rows.client"):
                    measure(f"read {channel}", lambda: read(client, channel, len(events)), ROUNDS)  # noqa: B023


def disk(directory: str) -> int:
    """Bytes of the server's segments."""
    return log_bytes(Path(directory))


if __name__ == "__main__":
    main()
