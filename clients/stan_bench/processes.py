"""Server processes of our own: started, watched by their log files, killed, started again, and never left behind.

For `stan bench --start`, `stan bench failover` and `stan demo`. Each process has its log in a file and is in a session of its
own, so that Ctrl-C reaches the command alone, which then stops them in order. Never touches a process that ran before.
"""

import asyncio
import contextlib
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, Self

import stan_client
from stan_client import Client, StanClientError

from stan.cli.support.common import CliError, Target

POLL_S: Final = 0.005
STOP_WAIT_S: Final = 15.0
LOG_LINES_SHOWN: Final = 15
READY: Final = "Streaming Server is ready"


class Child:
    """A process, with the same command at each start."""

    def __init__(
        self, name: str, command: Iterable[str], log_file: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """Make a process that does not run yet.

        Args:
            name: for error texts.
            command: program and arguments.
            log_file: gets all that it prints, over all starts.
            environment: variables beside our own.
        """
        self.name = name
        self._command = tuple(command)
        self._log_file = log_file
        self._environment = dict(environment or {})
        self._began_at = 0  # length of the log when it was started
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """Process id; 0 while the process is not started, or was stopped."""
        return self._process.pid if self._process is not None else 0

    @property
    def running(self) -> bool:
        """True if the process was started and has not ended."""
        return self._process is not None and self._process.returncode is None

    @property
    def died(self) -> bool:
        """True if the process has ended by itself."""
        return self._process is not None and self._process.returncode is not None

    async def start(self) -> None:
        """Start it; it is not ready yet."""
        with self._log_file.open("ab") as log:
            self._began_at = log.seek(0, os.SEEK_END)
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                    **self._environment,
                },
                start_new_session=True,
            )

    async def kill(self) -> None:
        """SIGKILL, as the kernel or a power cut would; returns when it is dead."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()

    async def stop(self) -> None:
        """Ask it to end, and kill it if it does not."""
        process = self._process
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_WAIT_S)
        except TimeoutError:
            await self.kill()
        except BaseException:
            await self.kill()
            raise
        self._process = None

    async def end(self) -> int:
        """Ask it to end, and wait until it does; returns its exit code."""
        if self._process is None:
            raise RuntimeError(f"{self.name} does not run")
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        return await self._process.wait()

    def log(self) -> str:
        """Output of the process since its last start."""
        if not self._log_file.exists():
            return ""
        with self._log_file.open("rb") as file:
            file.seek(self._began_at)
            return file.read().decode(errors="replace")

    def log_end(self) -> str:
        """The last lines, for an error text."""
        return f"The log of {self.name} ends so:\n" + "\n".join(self.log().splitlines()[-LOG_LINES_SHOWN:])


class OwnServers:
    """Servers with their files in a temporary directory and NATS on a free port; `async with` starts and removes them."""

    def __init__(self, cluster_id: str, prefix: str, wait_s: float) -> None:
        """Make servers that do not run yet; *prefix*: of the directory's name; *wait_s*: patience of each wait."""
        self.cluster_id = cluster_id
        self.directory = Path()
        self.port = 0
        self._prefix = prefix
        self._wait_s = wait_s

    @property
    def url(self) -> str:
        """URL of NATS."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def target(self) -> Target:
        """The target for clients."""
        return Target(server=self.url, cluster_id=self.cluster_id)

    async def begin(self) -> None:
        """Start everything, the first time."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Stop everything."""
        raise NotImplementedError

    def children(self) -> list[Child]:
        """Return the processes, those of stan-server behind the others."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        self.directory = Path(tempfile.mkdtemp(prefix=self._prefix))
        try:
            self.port = free_port()
            await self.begin()
        except BaseException:
            await self._remove()
            raise
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Remove everything; an error of a client becomes a CliError with the ends of the logs."""
        log_ends = self._log_ends()
        await self._remove()
        if isinstance(error, StanClientError):
            raise CliError(f"{error or type(error).__name__}. {log_ends}") from error

    @contextlib.asynccontextmanager
    async def client(self, client_id: str, ack_timeout_s: float, window: int) -> AsyncIterator[Client]:
        """A client that is closed behind the block, if anybody answers; *window*: its publishes without ack."""
        client = await stan_client.connect(
            self.url,
            client_id=client_id,
            cluster_id=self.cluster_id,
            connect_timeout_s=ack_timeout_s,
            ack_timeout_s=ack_timeout_s,
            max_pub_acks_in_flight=window,
            ping_interval_s=1,
        )
        try:
            yield client
        finally:
            with contextlib.suppress(StanClientError):
                await client.close()

    async def until(self, condition: Callable[[], bool], what: str, wait_s: float = 0) -> None:
        """Wait for *condition*, for *wait_s* if that is not 0.

        Raises:
            CliError: a process ended by itself, or the time is over; the text has *what* was expected.
        """
        wait_s = wait_s or self._wait_s
        deadline = asyncio.get_running_loop().time() + wait_s
        while not condition():
            heed_cancellation()
            refuse_dead(self.children(), what)
            if asyncio.get_running_loop().time() > deadline:
                raise CliError(f"Waited {wait_s:g} s in vain for {what}. {self._log_ends()}")
            await asyncio.sleep(POLL_S)

    def _log_ends(self) -> str:
        return "\n".join(child.log_end() for child in self.children())

    async def _remove(self) -> None:
        try:
            await self.stop()
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)


def stan_server(name: str, log_file: Path, *flags: str) -> Child:
    """A `stan-server` with *flags*, of the package that runs now."""
    return Child(name, (sys.executable, "-P", "-m", "stan.server.main", *flags), log_file)


async def stop_all(children: Iterable[Child]) -> None:
    """Stop all at the same time; all are gone even if this is cancelled."""
    stopping = [asyncio.ensure_future(child.stop()) for child in children]
    if not stopping:
        return
    try:
        await asyncio.wait(stopping)
    except asyncio.CancelledError:
        for task in stopping:
            task.cancel()  # a stop that is cancelled kills
        await asyncio.wait(stopping)
        raise


def refuse_dead(children: Iterable[Child], what: str) -> None:
    """Raise CliError if one of them died during the wait for *what*."""
    for child in children:
        if child.died:
            raise CliError(f"Waited for {what}, but {child.name} has ended. {child.log_end()}")


def heed_cancellation() -> None:
    """Raise CancelledError if this task was cancelled: asyncio.wait_for of Python 3.11 may swallow that."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def free_port() -> int:
    """Return a TCP port of this machine on which no process listens at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def accepts(port: int) -> bool:
    """Return True if a process listens on *port* of this machine."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
