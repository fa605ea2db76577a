"""The broker of `stan demo`: a `stan-server` of our own that can be killed and started again on the same port and directory.

Promises that processes and directory are gone when the block ends, however it ends. Never touches a server that runs already.
"""

from typing import Final

from stan_bench.processes import READY, Child, OwnServers, accepts, stan_server

CLUSTER_ID: Final = "stan-demo"
WAIT_S: Final = 30.0
"""Whatever the demo waits for has to happen within this; on an idle machine everything does within two seconds."""


class DemoBroker(OwnServers):
    """A `stan-server` with file store; `async with` starts and removes it."""

    def __init__(self) -> None:
        super().__init__(CLUSTER_ID, "stan-demo-", WAIT_S)
        self._server: Child | None = None

    @property
    def pid(self) -> int:
        """Process id of the broker, not of its nats-server."""
        return self._server.pid if self._server is not None else 0

    async def begin(self) -> None:
        """Start it, the first time or again; returns when it serves.

        Raises:
            CliError: it ended, or did not get ready in time.
        """
        if self._server is None:
            self._server = stan_server(
                "the broker",
                self.directory / "server.log",
                *("-a", "127.0.0.1", "-p", str(self.port), "-cid", CLUSTER_ID),
                *("-st", "FILE", "-dir", str(self.directory / "store"), "-mm", "0"),
            )
        server = self._server
        await server.start()
        await self.until(lambda: READY in server.log(), "the broker to start")

    async def kill(self) -> None:
        """SIGKILL, as the kernel or a power cut would; returns when its nats-server has gone as well."""
        if self._server is not None:
            await self._server.kill()
            await self.until(lambda: not accepts(self.port), "nats-server to end with its broker")

    async def stop(self) -> None:
        """Ask it to end, and kill it if it does not."""
        if self._server is not None:
            await self._server.stop()

    def children(self) -> list[Child]:
        """Return its process."""
        return [self._server] if self._server is not None else []
