"""Signs that the server of a directory still runs: its files are open to write, or they change.

The original locks its directory in a fault tolerance group only, but has its files open for writing while it runs. A sign
is reason enough not to move; the absence of signs is no proof: a server elsewhere may use the same directory.
"""

import os
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Final

PROCESSES: Final = Path("/proc")
"""The processes, as Linux shows them."""

State = dict[Path, tuple[int, int, int, int]]


class QuietWatch:
    """Watches directories from now on, for *least_s* seconds at least."""

    not_seen = (
        "no process that may be looked at has its files open to write, none of them changes, and {nats}. One on another machine, "
        "of another user or behind another NATS is not seen: make sure that it is stopped"
    )

    def __init__(self, directories: Sequence[Path], least_s: float) -> None:
        self._directories = directories
        self._until = time.monotonic() + least_s
        self._before = _state(directories)

    def holders(self) -> list[str]:
        """Describe the processes that may write to its files, as far as they are visible; on Linux only."""
        files = {inode[:2]: path for path, inode in self._before.items()}
        return [
            f"{_name(process)} (process {process.name}) has {files[inode]} open to write"
            for process in sorted(PROCESSES.glob("[0-9]*"), key=lambda process: int(process.name))
            if process.name != str(os.getpid())
            for inode in [next((one for one in _written(process) if one in files), None)]
            if inode is not None
        ]

    def changed(self) -> str:
        """Return the first change since the watch began, "" if there is none; waits until the watch was long enough."""
        time.sleep(max(0.0, self._until - time.monotonic()))
        after = _state(self._directories)
        paths = sorted(path for path in self._before.keys() | after.keys() if self._before.get(path) != after.get(path))
        return f"{paths[0]} changes" if paths else ""


def _state(directories: Sequence[Path]) -> State:
    """All files: device, inode, size, time of the last change."""
    state: State = {}
    for folder, _, names in chain.from_iterable(map(os.walk, directories)):
        for name in names:
            path = Path(folder, name)
            try:
                seen = path.stat()
            except OSError:  # it is gone; if the other state has it, the difference shows
                continue
            state[path] = (seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns)
    return state


def _written(process: Path) -> Iterator[tuple[int, int]]:
    """Device and inode of each file that a process has open to write; those of other containers have another path, not others."""
    try:
        handles = os.listdir(process / "fd")  # noqa: PTH208 - names only
    except OSError:  # it has ended, or belongs to another user
        return
    for handle in handles:
        try:
            info = dict(line.split(":", 1) for line in (process / "fdinfo" / handle).read_text().splitlines()[:3])
            if int(info["flags"], 8) & os.O_ACCMODE != os.O_RDONLY:
                seen = (process / "fd" / handle).stat()
                yield seen.st_dev, seen.st_ino
        except (OSError, KeyError, ValueError):
            continue


def _name(process: Path) -> str:
    try:
        return (process / "comm").read_text(errors="replace").strip()
    except OSError:
        return "somebody"
