"""The broker of `stan demo`: a `stan-server` of our own that can be killed and started again on the same port and directory.

Promises that processes and directory are gone when the block ends, however it ends. Never touches a server that runs already.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from stan_client import StanClientError
from stan_client.connection import CONNECT_FAILURES

from stan.cli.support.common import CliError
from stan.cli.support.processes import READY, Child, accepts, free_port, heed_cancellation, refuse_dead, stan_server

CLUSTER_ID: Final = "stan-demo"
WAIT_S: Final = 30.0
"""Whatever the demo waits for has to happen within this; on an idle machine everything does within two seconds."""
POLL_S: Final = 0.005


class DemoBroker:
    """A `stan-server` with file store in a temporary directory on a free port; `async with` starts and removes it."""

    def __init__(self) -> None:
        self.directory = Path()
        self.port = 0
        self._server: Child | None = None

    @property
    def url(self) -> str:
        """Where NATS answers."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Of the broker, not of its nats-server."""
        return self._server.pid if self._server is not None else 0

    async def __aenter__(self) -> Self:
        self.directory = Path(tempfile.mkdtemp(prefix="stan-demo-"))
        try:
            self.port = free_port()
            await self.start()
        except BaseException:
            await self._remove()
            raise
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Remove everything; what a client could not do becomes a CliError that shows the end of the broker's log."""
        log_end = self._log_end()
        await self._remove()
        if isinstance(error, (StanClientError, *CONNECT_FAILURES)):
            raise CliError(f"{error or type(error).__name__}. {log_end}") from error

    async def start(self) -> None:
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

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for *condition*.

        Raises:
            CliError: the broker ended by itself, or WAIT_S have passed; the text tells *what* was waited for.
        """
        deadline = asyncio.get_running_loop().time() + WAIT_S
        while not condition():
            heed_cancellation()
            self.refuse_dead(what)
            if asyncio.get_running_loop().time() > deadline:
                raise CliError(f"Waited {WAIT_S:g} s in vain for {what}. {self._log_end()}")
            await asyncio.sleep(POLL_S)

    def refuse_dead(self, what: str) -> None:
        """CliError if it has ended by itself while *what* was waited for."""
        if self._server is not None:
            refuse_dead([self._server], what)

    def _log_end(self) -> str:
        return self._server.log_end() if self._server is not None else ""

    async def _remove(self) -> None:
        try:
            if self._server is not None:
                await self._server.stop()
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)
