"""Space on the disk of the store, read on demand: for the answers of `stan node`, and for metrics.

Promises: a disk that hangs blocks one thread, and delays no answer by more than DISK_PATIENCE.
"""

import asyncio
import shutil
from pathlib import Path
from typing import NamedTuple

from stan_protocol.scalars import SECOND

from stan import limits


class Space(NamedTuple):
    """Bytes free for this process, and bytes in all; 0 and 0: not known."""

    free: int = 0
    total: int = 0


class DiskSpace:
    """The space of one file system."""

    def __init__(self, directory: Path | None) -> None:
        """*directory*: lies on it; None: there is none."""
        self._directory = directory
        self._space = Space()
        self._looking: asyncio.Future[Space] | None = None

    async def look(self) -> Space:
        """Return the space; where the disk does not answer in time or fails, as last seen."""
        if self._directory is not None:
            if self._looking is None:
                self._looking = asyncio.get_running_loop().run_in_executor(None, _space, self._directory)
                self._looking.add_done_callback(self._seen)
            await asyncio.wait([self._looking], timeout=limits.DISK_PATIENCE / SECOND)
        return self._space

    def _seen(self, looking: asyncio.Future[Space]) -> None:
        self._looking = None
        if not looking.cancelled() and looking.exception() is None:
            self._space = looking.result()


def _space(directory: Path) -> Space:
    usage = shutil.disk_usage(directory)
    return Space(usage.free, usage.total)
