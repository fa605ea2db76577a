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

from stan.edge.nats_process import find_binary
from tests.kit.ports import accepts, free_port

ROOT = Path(__file__).parents[2]
CLUSTER_ID = "test-cluster"
READY = "Streaming Server is ready"
START_SECONDS_MAX = 30.0  # a loaded machine; on an idle one it is half a second
END_SECONDS_MAX = 10.0
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
        command: tuple[str, ...] = (sys.executable, "-m", "stan.cli.server"),
    ) -> None:
        """Nothing runs yet.

        Args:
            directory: exists; "store" and "server.log" are made in it.
            flags: further flags of the command line.
            store: FILE or MEMORY.
            nats_url: a running NATS to connect to, instead of an embedded one.
            command: what to run.
        """
        self.port = free_port() if nats_url is None else int(nats_url.rpartition(":")[2])
        self.url = nats_url or f"nats://127.0.0.1:{self.port}"
        self.cluster_id = CLUSTER_ID
        where = ["-ns", nats_url] if nats_url else ["-a", "127.0.0.1", "-p", str(self.port)]
        kept = ["-st", "FILE", "-dir", str(directory / "store")] if store == "FILE" else ["-st", store]
        self._command = [*command, "-cid", CLUSTER_ID, *where, *kept, *flags]
        self._log = directory / "server.log"
        self._embedded = nats_url is None
        self._process: subprocess.Popen[bytes] | None = None

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

    def start(self) -> None:
        """Start it and wait until it says that it is ready."""
        assert not self.running
        starts = self.log().count(READY)
        with self._log.open("ab") as stderr:
            self._process = subprocess.Popen(self._command, stderr=stderr, cwd=ROOT, start_new_session=True)
        until(lambda: self.log().count(READY) > starts or not self.running, why=self.log)
        assert self.running, self.log()

    def kill9(self) -> None:
        """As a power cut for the broker; returns when its nats-server has gone too."""
        self._end(signal.SIGKILL)

    def terminate(self) -> int:
        """Ask it to stop; returns the exit code."""
        return self._end(signal.SIGTERM)

    def restart(self) -> None:
        """Start it again, with the same flags, after ending it in order if it still runs."""
        if self.running:
            self.terminate()
        self.start()

    def _end(self, number: int) -> int:
        assert self._process is not None, "not started"
        self._process.send_signal(number)
        code = self._process.wait(END_SECONDS_MAX)
        until(lambda: not self._survivors(), END_SECONDS_MAX, lambda: f"left behind: {self._survivors()}\n{self.log()}")
        return code

    def _survivors(self) -> list[int]:
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
            self._sweep()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self.running:
                self._end(signal.SIGTERM)
        finally:
            self._sweep()

    def _sweep(self) -> None:
        """Kill whatever is left."""
        if self._process is None:
            return
        for pid in self._survivors():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()


class NatsServer:
    """A nats-server of our own, as the wheel brings it, with further *flags*."""

    def __init__(self, directory: Path, *flags: str) -> None:
        self.port = free_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        log_file = directory / f"nats-server-{self.port}.log"
        with log_file.open("wb") as log:
            self._process = subprocess.Popen(
                [find_binary(), "-a", "127.0.0.1", "-p", str(self.port), *flags], stderr=log
            )
        until(lambda: accepts(self.port) or self._process.poll() is not None)
        assert self._process.poll() is None, log_file.read_text()

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
