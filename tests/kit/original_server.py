"""NATS Streaming Server itself, in place of a server of ours: where STAN_ORIGINAL names its program, 0.25 or so."""

import contextlib
import json
import urllib.request
from pathlib import Path
from typing import Any

import stan_client

from tests.kit.original import ORIGINAL
from tests.kit.ports import free_port
from tests.kit.server import CLUSTER_ID, StanServer, until


class Original(StanServer):
    """A server of the original, with a monitoring port; flags of its store that are given replace those of a FILE store."""

    def __init__(self, directory: Path, *flags: str, program: str = "", **more: str) -> None:
        self.http = free_port()
        self.pages = f"http://127.0.0.1:{self.http}"
        directory.mkdir(parents=True, exist_ok=True)
        super().__init__(directory, "-m", str(self.http), *flags, command=(program or ORIGINAL,), **more)

    def page(self, name: str) -> dict[str, Any]:
        """One of its pages; empty while it does not answer."""
        try:
            with urllib.request.urlopen(f"{self.pages}/streaming/{name}", timeout=5) as answer:  # noqa: S310 - http
                return json.load(answer)
        except OSError:
            return {}

    async def read(self, channel: str, last: int) -> list[tuple[int, int, bytes, str]]:
        """(sequence, time, payload, reply) of all messages of a channel, up to the sequence *last*."""
        return await read_subscribed(self.url, channel, last)


class OriginalCluster(contextlib.ExitStack):
    """Three servers of the original over one NATS."""

    def __init__(self, directory: Path, nats_url: str, program: str = "") -> None:
        super().__init__()
        self.url, names = nats_url, ("a", "b", "c")
        self.nodes = {
            name: Original(
                directory / name,
                *("-clustered", "-cluster_node_id", name, "-cluster_log_path", str(directory / name / "log")),
                *("-cluster_peers", ",".join(other for other in names if other != name)),
                program=program,
                nats_url=nats_url,
            )
            for name in names
        }

    def __enter__(self) -> "OriginalCluster":
        for node in self.nodes.values():
            node.launch()
            self.push(node.__exit__)
        until(self.leaders)
        return self

    def leaders(self) -> list[str]:
        """The node that says on its pages that it leads, if one does."""
        return [
            name for name, node in self.nodes.items() if node.running and node.page("serverz").get("role") == "Leader"
        ]

    def kill9(self) -> None:
        """Kill the leader."""
        until(self.leaders)
        self._killed = self.leaders()[0]
        self.nodes[self._killed].kill9()

    def start(self) -> None:
        """Start the killed one again."""
        self.nodes[self._killed].launch()
        until(self.leaders)

    @property
    def pages(self) -> str:
        """The pages of all of them."""
        return ",".join(node.pages for node in self.nodes.values())


async def read_subscribed(url: str, channel: str, last: int) -> list[tuple[int, int, bytes, str]]:
    """(sequence, time, payload, reply) of all messages of a channel, as a subscription from its beginning brings them."""
    found: list[tuple[int, int, bytes, str]] = []
    async with await stan_client.connect(url, client_id=f"reader-{free_port()}", cluster_id=CLUSTER_ID) as client:
        subscription = await client.subscribe(channel, start=stan_client.everything(), max_in_flight=4096)
        while not found or found[-1][0] < last:
            one = await anext(subscription)
            if not found or one.sequence > found[-1][0]:  # it may come again
                found.append((one.sequence, one.timestamp_ns, one.data, one.reply))
    return found
