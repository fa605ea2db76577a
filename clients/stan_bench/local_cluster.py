"""A cluster of our own for one command: N `stan-server` processes over one nats-server, files in a temporary directory.

Promises that all processes and files are gone when the block ends, however it ends. Who leads a group is read from the nodes'
logs; a node that is killed keeps its files and can be started again.
"""

import re
from pathlib import Path
from typing import Final

from stan.cli.support.common import CliError
from stan.config import RAFT_GROUPS_CLUSTERED, ClusterConfig
from stan.edge.nats.nats_process import find_binary
from stan.errors import StartError
from stan.protocol.placement import channel_group
from stan.raft.placement import place
from stan_bench.processes import READY, Child, OwnServers, accepts, stan_server, stop_all

NODES_MAX: Final = 15
WAIT_S: Final = 60.0
"""Whatever is waited for has to happen within this; on an idle machine all of it does within a few seconds."""
REPLICAS: Final = ClusterConfig().replicas
UNLIMITED: Final = ("-mm", "0", "-mb", "0")

_ROLE = re.compile(r"group (\d+): leads (?:in term (\d+)|no more)\s")


def leads(log: str) -> dict[int, int]:
    """Return the groups that a node leads, by its log since its start -> the term."""
    last = {int(role[1]): role[2] for role in _ROLE.finditer(log)}
    return {group: int(term) for group, term in last.items() if term is not None}


class LocalCluster(OwnServers):
    """Nodes n1, n2, ...; `async with` starts and removes them."""

    def __init__(
        self,
        nodes: int,
        cluster_id: str,
        *,
        replicas: int = 0,
        prefix: str = "stan-cluster-",
        flags: tuple[str, ...] = (),
    ) -> None:
        """*replicas*: read replicas r1, r2, ... besides; *flags*: further ones of each node."""
        super().__init__(cluster_id, prefix, WAIT_S)
        self.names = [f"n{number}" for number in range(1, nodes + 1)]
        self.replicas = [f"r{number}" for number in range(1, replicas + 1)]
        self.nodes: dict[str, Child] = {}
        self._nats: Child | None = None
        self._flags = (*UNLIMITED, *flags)

    # --- begin and end --------------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Start nats-server and all nodes."""
        await self._start_nats()
        for name in self.names:
            self.nodes[name] = self._node(name)
        await self.start(*self.names)
        for name in self.replicas:
            self.nodes[name] = self._node(name)
        await self.start(*self.replicas)

    async def stop(self) -> None:
        """Stop the nodes, then kill nats-server."""
        try:
            await stop_all(self.nodes.values())
        finally:
            if self._nats is not None:
                await self._nats.kill()

    def children(self) -> list[Child]:
        """Return nats-server and the nodes, as far as they were started."""
        return [child for child in (self._nats, *self.nodes.values()) if child is not None]

    async def _start_nats(self) -> None:
        try:
            binary = find_binary()
        except StartError as error:
            raise CliError(str(error)) from error
        command = (str(binary), "-a", "127.0.0.1", "-p", str(self.port))
        nats = self._nats = Child("nats-server", command, self.directory / "nats-server.log")
        await nats.start()
        await self.until(lambda: accepts(self.port), "nats-server to start")

    def _node(self, name: str) -> Child:
        peers = ",".join(self.names)
        role = ("-replica", "-join") if name in self.replicas else ("-cluster_peers", peers)
        return stan_server(
            name,
            self.directory / f"{name}.log",
            *(
                "-ns",
                self.url,
                "-cid",
                self.cluster_id,
                "-st",
                "FILE",
                "-dir",
                str(self.directory / name),
                *self._flags,
            ),
            *("-clustered", "-cluster_node_id", name, *role),
            *(("-cluster_bootstrap",) if self.names == [name] else ()),
        )

    # --- nodes ----------------------------------------------------------------------------------------------------------

    async def start(self, *names: str) -> None:
        """Start nodes, the first time or again; returns when they serve.

        Raises:
            CliError: one of them ended, or did not get ready in time.
        """
        for name in names:
            await self.nodes[name].start()
        await self.until(lambda: all(READY in self.nodes[name].log() for name in names), f"{', '.join(names)} to start")

    async def kill(self, name: str) -> None:
        """SIGKILL for one node, as a power cut would."""
        await self.nodes[name].kill()

    def leader(self, group: int) -> str | None:
        """Return the running node that leads *group*, by the logs; None while there is none."""
        terms = {name: leads(node.log()).get(group, 0) for name, node in self.nodes.items() if node.running}
        best = max(terms, key=terms.__getitem__, default="")
        return best if terms.get(best) else None

    def leads(self, channel: str) -> str:
        """The node that leads the group of *channel*; "" while there is none."""
        return self.leader(group_of(channel)) or ""

    async def leader_of(self, channel: str) -> str:
        """The node that leads the group of *channel*, once there is one."""
        group = group_of(channel)
        await self.until(lambda: self.leader(group) is not None, f"a leader of group {group}")
        return self.leader(group) or ""

    async def settled(self) -> None:
        """Wait until each group is led by its preferred node: no handover disturbs the steps after it."""
        places = place(RAFT_GROUPS_CLUSTERED, self.names, REPLICAS)
        await self.until(
            lambda: all(self.leader(group) == placed.preferred for group, placed in places.items()),
            "leaderships to settle",
        )

    def followers(self, group: int) -> list[str]:
        """The other nodes that keep *group*, running or not."""
        leader = self.leader(group)
        return [name for name in self.names if name != leader and self._files(name, group).is_dir()]

    async def caught_up(self, name: str, group: int) -> None:
        """Wait until a node that was away has as much of *group* as its leader has now: files of the same log are as long."""
        await self.until(lambda: self.leader(group) is not None, f"a leader of group {group}")
        leader = self.leader(group) or name
        target = self._written(leader, group)
        await self.until(lambda: self._written(name, group) >= target, f"{name} to catch up with {leader}")

    def _files(self, name: str, group: int) -> Path:
        return self.directory / name / "groups" / str(group)

    def _written(self, name: str, group: int) -> int:
        return sum(path.stat().st_size for path in self._files(name, group).glob("*.log"))


def group_of(channel: str) -> int:
    """The group that holds *channel*."""
    return channel_group(channel.encode(), RAFT_GROUPS_CLUSTERED)
