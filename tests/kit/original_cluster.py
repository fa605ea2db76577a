"""Clusters of the real NATS Streaming Server, where `STAN_ORIGINAL` names its program; see tests/fixtures/README.md.

Leaving the `with` block ends all nodes and their nats-server.
"""

import contextlib
import hashlib
import json
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.kit.fake_broker import nats_server
from tests.kit.original import ORIGINAL
from tests.kit.ports import free_port
from tests.kit.server import until

NODES = ("a", "b", "c")
LIMITS = """
streaming {
  store_limits {
    channels {
      "small" { max_msgs: 50 }
      "passing" { max_inactivity: "1s" }
    }
  }
}
"""


class OriginalCluster:
    """Three nodes over one nats-server; each has its store in DIRECTORY/NODE/store, its Raft log in DIRECTORY/NODE/raft."""

    def __init__(self, directory: Path, url: str, *flags: str) -> None:
        self.directory = directory
        self.url = url
        self._flags = flags
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._pages: dict[str, int] = {}
        (directory / "limits.conf").write_text(LIMITS)

    def start(self, *names: str) -> None:
        """Start nodes, and wait until one of the cluster leads and all of these are connected."""
        for name in names:
            self._pages[name] = port = free_port()
            home = self.directory / name
            home.mkdir(exist_ok=True)
            command = [
                ORIGINAL, "-sc", self.directory / "limits.conf", "-cid", "test-cluster", "-ns", self.url, "-m", port,
                "-a", "127.0.0.1", "-st", "FILE", "-dir", home / "store", "-file_slice_max_msgs", 100,
                "-clustered", "-cluster_node_id", name, "-cluster_peers", ",".join(n for n in NODES if n != name),
                "-cluster_log_path", home / "raft", *self._flags,
            ]  # fmt: skip
            with (home / "log").open("ab") as log:
                self._processes[name] = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log)
        until(lambda: self.leader() and all(self.page(name, "serverz") for name in names))

    def stop(self, *names: str, by: signal.Signals = signal.SIGTERM) -> None:
        """End nodes."""
        for name in names:
            self._processes[name].send_signal(by)
        for name in names:
            self._processes.pop(name).wait(30)

    def page(self, name: str, path: str) -> dict[str, Any]:
        """A page of a node, {} if it does not answer."""
        with contextlib.suppress(OSError):
            url = f"http://127.0.0.1:{self._pages[name]}/streaming/{path}"
            with urllib.request.urlopen(url, timeout=5) as answer:
                return json.load(answer)
        return {}

    def leader(self) -> str:
        """The node that leads, "" if none is known to."""
        roles = ((name, self.page(name, "serverz").get("role")) for name in self._processes)
        return next((name for name, role in roles if role == "Leader"), "")

    def positions(self, name: str, channel: str) -> dict[str, tuple[int, int]]:
        """Durables and durable groups as a node shows them: last sent and pending by name."""
        shown: dict[str, tuple[int, int]] = {}
        for sub in self.page(name, f"channelsz?channel={channel}&subs=1").get("subscriptions") or ():
            if not sub["is_durable"]:
                continue
            known = sub.get("queue_name") or f"{sub['client_id']}/{sub['durable_name']}"
            sent, pending = shown.get(known, (0, 0))
            shown[known] = max(sent, sub["last_sent"]), pending + sub["pending_count"]
        return shown

    def ends(self, name: str) -> dict[str, tuple[int, int]]:
        """First and last sequence of each channel as a node shows them."""
        shown = self.page(name, "channelsz?subs=1&limit=1000").get("channels") or ()
        return {channel["name"]: (channel["first_seq"], channel["last_seq"]) for channel in shown}

    def raft(self, name: str) -> Path:
        """The Raft directory of a node."""
        return self.directory / name / "raft" / "test-cluster"


@contextlib.contextmanager
def original_cluster(directory: Path, *flags: str) -> Iterator[OriginalCluster]:
    """A cluster of three nodes, all started."""
    with nats_server() as url:
        cluster = OriginalCluster(directory, url, *flags)
        try:
            cluster.start(*NODES)
            yield cluster
        finally:
            cluster.stop(*list(cluster._processes), by=signal.SIGKILL)


def digest(messages: Iterator[tuple[int, int, bytes]]) -> str:
    """Hash of sequences, times and data."""
    sha = hashlib.sha256()
    for sequence, time, data in messages:
        sha.update(b"%d %d %d " % (sequence, time, len(data)) + data)
    return sha.hexdigest()
