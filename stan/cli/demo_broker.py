"""The broker of `stan demo`: a `stan-server` of our own that can be killed and started again on the same port and directory.

Promises that processes and directory are gone when the block ends, however it ends. Never touches a server that runs already.
"""

import asyncio
import contextlib
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from stan_client import StanClientError
from stan_client.connection import CONNECT_FAILURES

from stan.cli.common import CliError

CLUSTER_ID: Final = "stan-demo"
WAIT_S: Final = 30.0
"""Whatever the demo waits for has to happen within this; on an idle machine everything does within two seconds."""
STOP_WAIT_S: Final = 10.0
POLL_S: Final = 0.005
LOG_LINES_SHOWN: Final = 15
READY: Final = "Streaming Server is ready"


class DemoBroker:
    """A `stan-server` with file store in a temporary directory on a free port; `async with` starts and removes it."""

    def __init__(self) -> None:
        self.directory = Path()
        self.port = 0
        self._process: asyncio.subprocess.Process | None = None
        self._starts = 0

    @property
    def url(self) -> str:
        """Where NATS answers."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Of the broker, not of its nats-server."""
        return self._process.pid if self._process is not None else 0

    async def __aenter__(self) -> Self:
        self.directory = Path(tempfile.mkdtemp(prefix="stan-demo-"))
        try:
            self.port = _free_port()
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
        command = ["-m", "stan.cli.server", "-a", "127.0.0.1", "-p", str(self.port), "-cid", CLUSTER_ID]
        command += ["-st", "FILE", "-dir", str(self.directory / "store"), "-l", str(self._log_file), "-mm", "0"]
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            start_new_session=True,  # Ctrl-C is for us, who then stop it in order
        )
        self._starts += 1
        await self.until(lambda: self._log().count(READY) >= self._starts, "the broker to start")

    async def kill(self) -> None:
        """SIGKILL, as the kernel or a power cut would; returns when its nats-server has gone as well."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await self.until(lambda: not _accepts(self.port), "nats-server to end with its broker")

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for *condition*.

        Raises:
            CliError: the broker ended by itself, or WAIT_S have passed; the text tells *what* was waited for.
        """
        deadline = asyncio.get_running_loop().time() + WAIT_S
        while not condition():
            if self._process is not None and self._process.returncode is not None:
                raise CliError(f"Waited for {what}, but the broker has ended. {self._log_end()}")
            if asyncio.get_running_loop().time() > deadline:
                raise CliError(f"Waited {WAIT_S:g} s in vain for {what}. {self._log_end()}")
            await asyncio.sleep(POLL_S)

    @property
    def _log_file(self) -> Path:
        return self.directory / "server.log"

    def _log(self) -> str:
        return self._log_file.read_text(errors="replace") if self._log_file.exists() else ""

    def _log_end(self) -> str:
        return "The broker's log ends so:\n" + "\n".join(self._log().splitlines()[-LOG_LINES_SHOWN:])

    async def _remove(self) -> None:
        try:
            await self._stop()
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)

    async def _stop(self) -> None:
        process = self._process
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_WAIT_S)
        except BaseException:
            await self.kill()
            raise
        self._process = None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
