"""The files of the histories, in the data directory of the node: read once at start, written again and again as a whole.

Promises: the event loop waits for no disk; a file that is damaged, or cannot be read or written, costs only the history: the log
says so once. A crash costs the last interval at most, and leaves the old file or the new one, as it is renamed into
its place.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from stan_protocol.scalars import SECOND

from stan import limits
from stan.config import StoreConfig
from stan.monitor.dashboard.lag_history import LAG_FILE_BYTES_MAX
from stan.monitor.dashboard.measured_history import FILE_BYTES_MAX

FIGURES: Final = "dashboard-history"
LAGS: Final = "dashboard-lags"


class History(Protocol):
    """The contents of such a file."""

    def encoded(self) -> bytes:
        """Return it as bytes."""

    def restore(self, data: bytes, now: int) -> None:
        """Take over what `encoded` has given; *now*: Unix ns. Raises ValueError."""


def history_path(store: StoreConfig, name: str = FIGURES) -> Path | None:
    """Return where a history of a node with this store lies; None: it is in memory only."""
    if store.kind == "sql":
        return None if store.source is None else store.source.with_name(f"{store.source.name}.{name}")
    return None if store.kind == "memory" or store.directory is None else store.directory / name


class HistoryFile:
    """Keeps *history* in a file. *path*: None for none; *error*: called with a line for the log; *interval*: ns."""

    def __init__(
        self,
        path: Path | None,
        history: History,
        error: Callable[[str], None],
        interval: int = limits.HISTORY_SAVE_INTERVAL,
    ) -> None:
        self._interval = interval
        self._path = path
        self._history = history
        self._error = error
        self._failing = False

    async def run(self) -> None:
        """Read the file, then write it at intervals, until cancelled."""
        if self._path is None:
            return
        await self._read(self._path)
        while True:
            await asyncio.sleep(self._interval / SECOND)
            await self.save()

    async def save(self) -> None:
        """Write the file."""
        if self._path is None:
            return
        try:
            await asyncio.to_thread(_write, self._path, self._history.encoded())
            self._failing = False
        except OSError as error:
            if not self._failing:
                self._error(f"The history of the dashboard is not written, {self._path}: {error.strerror or error}")
            self._failing = True

    async def _read(self, path: Path) -> None:
        try:
            data = await asyncio.to_thread(_bytes_of, path)
            self._history.restore(data, time.time_ns())
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            self._error(f"The history of the dashboard begins again: {path} {error}")


def _bytes_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(max(FILE_BYTES_MAX, LAG_FILE_BYTES_MAX) + 1)


def _write(path: Path, data: bytes) -> None:
    new = path.with_name(f"{path.name}.new")
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        new.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            new.unlink()
        raise
