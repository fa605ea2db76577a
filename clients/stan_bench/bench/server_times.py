"""CPU time of the servers that a benchmark has started itself, while messages flow. Without /proc there are no figures."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from stan_bench.local_cluster import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Callable


class ServerTimes:
    """CPU seconds by server; empty until a cluster is watched."""

    def __init__(self) -> None:
        self.taken: dict[str, float] = {}
        self.leader: Callable[[str], str] = lambda _channel: ""  # the name of the node that leads a channel's group
        self._pids: dict[str, int] = {}
        self._before: dict[str, float] = {}

    def watch(self, cluster: LocalCluster) -> None:
        """Measure these servers from now on."""
        self._pids = {name: child.pid for name, child in cluster.nodes.items()}
        self.leader = cluster.leads

    def begin(self) -> None:
        """Messages flow from now on."""
        self._before = self._now()

    def end(self) -> None:
        """No more do."""
        now = self._now()
        self.taken = {name: round(now[name] - self._before.get(name, 0), 2) for name in now}

    def _now(self) -> dict[str, float]:
        return {name: seconds for name, pid in self._pids.items() if (seconds := _cpu(pid)) is not None}


def _cpu(pid: int) -> float | None:
    """CPU seconds of a process, of itself and of the system for it; None if that is not known."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
