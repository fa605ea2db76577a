"""Whether the server of a directory still runs: who holds its files open to write, whether they change, who answers on its NATS.

The original locks its directory in a fault tolerance group only, but keeps its files open for writing while it runs. What is seen
is reason enough not to move; that nothing is seen is no proof: a server elsewhere may use the same directory.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PROCESSES: Final = Path("/proc")
"""Where Linux tells of them."""

State = dict[Path, tuple[int, int, int, int]]


class QuietWatch:
    """A directory, from now on. *least_s*: for how many seconds at least it is to be looked at."""

    def __init__(self, directory: Path, least_s: float) -> None:
        self._directory = directory
        self._until = time.monotonic() + least_s
        self._before = _state(directory)

    def holders(self) -> list[str]:
        """Processes that may write to its files, as far as they may be looked at; on Linux only."""
        files = {inode[:2]: path for path, inode in self._before.items()}
        return [
            f"{_name(process)} (process {process.name}) has {files[held]} open to write"
            for process in sorted(PROCESSES.glob("[0-9]*"), key=lambda process: int(process.name))
            if process.name != str(os.getpid())
            for held in [next((one for one in _written(process) if one in files), None)]
            if held is not None
        ]

    def changed(self) -> str:
        """What has changed since it began, "" if nothing did; waits until it was looked at for long enough."""
        time.sleep(max(0.0, self._until - time.monotonic()))
        after = _state(self._directory)
        paths = sorted(path for path in self._before.keys() | after.keys() if self._before.get(path) != after.get(path))
        return f"{paths[0]} changes" if paths else ""


def _state(directory: Path) -> State:
    """All files: device, inode, size, time of the last change."""
    found: State = {}
    for folder, _, names in os.walk(directory):
        for name in names:
            path = Path(folder, name)
            try:
                seen = path.stat()
            except OSError:  # it has gone meanwhile, which is seen by the one look that had it
                continue
            found[path] = (seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns)
    return found


def _written(process: Path) -> Iterator[tuple[int, int]]:
    """Device and inode of each file that a process has open to write; those of other containers have another path, not others."""
    try:
        handles = os.listdir(process / "fd")  # noqa: PTH208 - names only
    except OSError:  # it has ended, or is somebody else's
        return
    for handle in handles:
        try:
            told = dict(line.split(":", 1) for line in (process / "fdinfo" / handle).read_text().splitlines()[:3])
            if int(told["flags"], 8) & os.O_ACCMODE != os.O_RDONLY:
                seen = (process / "fd" / handle).stat()
                yield seen.st_dev, seen.st_ino
        except (OSError, KeyError, ValueError):
            continue


def _name(process: Path) -> str:
    try:
        return (process / "comm").read_text(errors="replace").strip()
    except OSError:
        return "somebody"
