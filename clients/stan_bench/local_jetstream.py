"""JetStream of our own for one command: one nats-server, or a cluster of some, with streams on disk in a temporary directory.

Promises that all processes and files are gone when the block ends, however it ends.
"""

from typing import Final

from stan.cli.support.common import CliError, Target
from stan.edge.nats.nats_process import find_binary
from stan.errors import StartError
from stan_bench.processes import Child, OwnServers, accepts, free_port, stop_all

WAIT_S: Final = 60.0
"""Whatever is waited for has to happen within this."""

COLLECTOR: Final = {"GOGC": "400"}
"""Go's garbage collection as the broker sets it for a nats-server of its own, so that both have the same."""

SYNCED: Final = {"default": "", "always": ", sync_interval: always"}
"""When JetStream syncs: after its default interval, or before each ack."""


class LocalJetStream(OwnServers):
    """Servers j1, j2, ...; `async with` starts and removes them."""

    def __init__(self, nodes: int, sync: str) -> None:
        """*nodes*: 1 for a server alone; *sync*: one of SYNCED."""
        super().__init__("", "stan-bench-jetstream-", WAIT_S)
        self.servers: dict[str, Child] = {}
        self.urls: dict[str, str] = {}
        self._nodes = nodes
        self._sync = sync

    @property
    def target(self) -> Target:
        """The target for clients: all servers."""
        return Target(server=",".join(self.urls.values()))

    async def begin(self) -> None:
        """Start all servers; they listen when this returns, and may not have a leader yet."""
        try:
            binary = find_binary()
        except StartError as error:
            raise CliError(str(error)) from error
        names = [f"j{number}" for number in range(1, self._nodes + 1)]
        ports = {name: self.port if name == names[0] else free_port() for name in names}
        routes = {name: free_port() for name in names} if self._nodes > 1 else {}
        for name, port in ports.items():
            configuration = self.directory / f"{name}.conf"
            configuration.write_text(self._configuration(name, port, routes))
            self.urls[name] = f"nats://127.0.0.1:{port}"
            command = (str(binary), "-c", str(configuration))
            self.servers[name] = Child(f"nats-server {name}", command, self.directory / f"{name}.log", COLLECTOR)
        for server in self.servers.values():
            await server.start()
        await self.until(lambda: all(map(accepts, ports.values())), "nats-server with JetStream to start")

    async def stop(self) -> None:
        """Stop all servers."""
        await stop_all(self.servers.values())

    def children(self) -> list[Child]:
        """Return the servers."""
        return list(self.servers.values())

    def _configuration(self, name: str, port: int, routes: dict[str, int]) -> str:
        lines = [
            f'listen: "127.0.0.1:{port}"',
            f"server_name: {name}",
            f'jetstream {{ store_dir: "{self.directory / name}"{SYNCED[self._sync]} }}',
        ]
        if routes:
            urls = ", ".join(f'"nats://127.0.0.1:{route}"' for route in routes.values())
            lines.append(f'cluster {{ name: stan-bench, listen: "127.0.0.1:{routes[name]}", routes: [{urls}] }}')
        return "\n".join(lines) + "\n"
