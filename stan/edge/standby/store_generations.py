"""The data directories of a store that several servers share: each server that takes the store over works in one of its own.

    <root>/ft/             the leases (stan.edge.standby.store_lease)
    <root>/epoch-<n>/      data of the server that has or had the lease <n>; the newest is complete, older ones are removed
    <root>/epoch-<n>.building/

Promises: an earlier holder that goes on after the loss of its lease changes nothing in the new directory, whether it was frozen
between two system calls or in one. Files that it may still have open for writing are copied, files that never change again are
linked, and it does not know the name of the new directory. A crash leaves the old directory or the new one complete. Blocking;
raises OSError.
"""

import contextlib
import errno
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

from stan import limits
from stan.config import StoreConfig
from stan.edge.storage.lost_found import LOST_FOUND
from stan.edge.storage.manifest import NAME as MANIFEST
from stan.edge.storage.manifest import SHARED, lock_directory, refuse_foreign
from stan.log.files.disk import Named, OsFiles

_EPOCH = re.compile(r"epoch-(\d{10})")
_BUILDING = ".building"
_PLAIN = (MANIFEST, "groups", LOST_FOUND, "state.db", "state.db-wal", "state.db-shm")
"""Files and directories that a lone server, which does not share its store, has in the root."""
_SEGMENT, _INDEX_FILE, _SNAPSHOT = ".log", ".idx", ".snap"
_FILES_THAT_CHANGE = 2
"""The newest segment may be written to, and the index file of the one before it."""


class StoreGenerations:
    """The root directory of one shared store, and the data directories in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._files = OsFiles()
        self._lock = -1

    @property
    def leases(self) -> Path:
        """Directory of the leases."""
        return self.root / SHARED

    def make(self) -> None:
        """Make the root. Raises StartError or Damage if a lone server uses it, or if it has other data."""
        self._files.makedirs(str(self.root))
        if self.current() is not None:
            return
        if not self.has_plain():
            self.refuse_foreign()
        elif self._lock < 0:
            self._lock = self.lock_plain()

    def current(self) -> Path | None:
        """The newest data directory; None if there is none."""
        epochs = [name for name in os.listdir(self.root) if _EPOCH.fullmatch(name)]  # noqa: PTH208 - names are wanted
        return self.root / max(epochs) if epochs else None

    def enter(self, epoch: int, *, alone: bool) -> Path:
        """Make the data directory of *epoch*, with the data of the last holder or of a lone server; returns it.

        *alone*: the last holder has closed the store, or is gone.
        """
        target = self.root / f"epoch-{epoch:010d}"
        building = target.with_name(target.name + _BUILDING)
        source = self.current()
        if source == target:  # an earlier call has made it, and a later step failed
            pass
        elif source is not None and alone:
            source.rename(target)
        elif source is None and not self.has_plain():
            target.mkdir()
        else:
            shutil.rmtree(building, ignore_errors=True)
            building.mkdir()
            self.fill(building, source or self.plain, shared=source is not None)
            self._files.sync_directory(str(building))
            building.rename(target)
        self._files.sync_directory(str(self.root))
        return target

    def tidy(self, epoch: int) -> None:
        """Remove the data of earlier holders; call it once *epoch* is entered while its lease counts."""
        for name in os.listdir(self.root):  # noqa: PTH208 - names are wanted
            match = _EPOCH.fullmatch(name.removesuffix(_BUILDING))
            if match and int(match[1]) < epoch:
                shutil.rmtree(self.root / name, ignore_errors=True)
        for path in self.plain_files():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Release the lock of `make`."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # --- before the store is shared -------------------------------------------------------------------------------------

    @property
    def plain(self) -> Path:
        """The directory in which a lone server has its data."""
        return self.root

    def has_plain(self) -> bool:
        """True if the root has the data of a lone server, which can be shared."""
        return (self.root / MANIFEST).exists()

    def refuse_foreign(self) -> None:
        """Raise StartError or Damage if the root has data that must not be overlooked."""
        refuse_foreign(str(self.root), os.listdir(self.root))  # noqa: PTH208 - names are wanted

    def lock_plain(self) -> int:
        """Lock the data of a lone server; returns the descriptor. Raises StartError if such a server is running."""
        return lock_directory(self.root)

    def plain_files(self) -> list[Path]:
        """Files and directories of a lone server, which `tidy` removes."""
        return [self.root / name for name in _PLAIN]

    def store(self, config: StoreConfig, directory: Path) -> StoreConfig:
        """Settings of a store in the data directory *directory*."""
        return replace(config, directory=directory)

    # --- filling a directory ------------------------------------------------------------------------------------------------

    def fill(self, target: Path, source: Path, *, shared: bool) -> None:
        """Fill the directory *target* with the data in *source*.

        *shared*: another server may be writing to *source*. The rows of the state are then left out, as they can be made again
        from the snapshots and the logs.
        """
        copy_file(source / MANIFEST, target / MANIFEST)
        for name in () if shared else ("state.db", "state.db-wal"):
            if (source / name).exists():
                link_file(source / name, target / name)
        for directory in sorted((source / "groups").glob("*")):
            if directory.name.isdigit():
                self._fill_group(target / "groups" / directory.name, directory, shared=shared)
        if (target / "groups").exists():
            self._files.sync_directory(str(target / "groups"))
        if (source / LOST_FOUND).exists():
            shutil.copytree(source / LOST_FOUND, target / LOST_FOUND, copy_function=link_file)

    def _fill_group(self, target: Path, source: Path, *, shared: bool) -> None:
        target.mkdir(parents=True)
        names = sorted(os.listdir(source))  # noqa: PTH208 - names are wanted
        segments = [name for name in names if name.endswith(_SEGMENT)]
        changing = {Path(name).stem for name in segments[-_FILES_THAT_CHANGE:]} if shared else set()
        for name in names:
            ended = name.endswith((_SEGMENT, _INDEX_FILE)) and Path(name).stem not in changing
            if ended or name.endswith(_SNAPSHOT):
                link_file(source / name, target / name)
            elif name.endswith(_SEGMENT):
                copy_file(source / name, target / name)
        self._files.sync_directory(str(target))


def link_file(source: Path | str, target: Path | str) -> None:
    """Give a file that does not change a second name; copy it if the file system has no hard links."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.EXDEV):
            raise
        copy_file(Path(source), Path(target))


def copy_file(source: Path, target: Path) -> None:
    """Copy a file durably; begin again if another process has written to it, COPY_ATTEMPTS_MAX times at most."""
    for _ in range(limits.COPY_ATTEMPTS_MAX):
        with source.open("rb") as old, target.open("wb") as new:
            before = os.fstat(old.fileno())
            _copy(old.fileno(), new.fileno(), before.st_size)
            with Named(new.fileno()):
                os.fsync(new.fileno())
            after = os.fstat(old.fileno())
        if (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns):
            return


def _copy(source: int, target: int, size: int) -> None:
    """Copy *size* bytes in the kernel, as some file systems then share blocks; if the kernel refuses, copy the rest in chunks."""
    done = 0
    with contextlib.suppress(OSError, AttributeError):
        while done < size and (copied := os.copy_file_range(source, target, size - done)):
            done += copied
        return
    os.lseek(source, done, os.SEEK_SET)
    os.lseek(target, done, os.SEEK_SET)
    while chunk := _read(source):
        view = memoryview(chunk)
        with Named(target):
            while view:
                view = view[os.write(target, view) :]


def _read(source: int) -> bytes:
    with Named(source):
        return os.read(source, limits.SCAN_BYTES)
