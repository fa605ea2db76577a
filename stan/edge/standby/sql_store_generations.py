"""Store generations of a shared store in one SQLite file: `<source>.ft/` is the root, `<source>` a link to the newest file.

A file that another server may be writing to is copied, and its write-ahead log after it, which holds every page that a checkpoint
moves meanwhile. If the file itself changes while both are copied, they are copied again, as a second write-ahead log may have
begun.
"""

import os
from dataclasses import replace
from pathlib import Path

from stan import limits
from stan.config import StoreConfig
from stan.edge.standby.store_generations import StoreGenerations, copy_file, link_file
from stan.edge.storage.manifest import lock_file
from stan.edge.storage.sqlstorage import lock_path, shared_path
from stan.errors import StartError

WAL = "-wal"


class SqlStoreGenerations(StoreGenerations):
    """`StoreGenerations` of a SQLite file; each data directory has one file, with the name of *source*."""

    def __init__(self, source: Path) -> None:
        super().__init__(shared_path(source))
        self._source = source

    @property
    def plain(self) -> Path:
        """The directory of the file in which a lone server has its data."""
        return self._source.parent

    def has_plain(self) -> bool:
        """True if there is a file of a lone server; a link leads to shared data."""
        return self._source.exists() and not self._source.is_symlink()

    def refuse_foreign(self) -> None:
        """Do nothing: a file that is not SQLite's is refused when it is opened."""

    def lock_plain(self) -> int:
        """Lock the file of a lone server; returns the descriptor. Raises StartError if such a server is running."""
        return lock_file(lock_path(self._source), self._source)

    def plain_files(self) -> list[Path]:
        """Files of a lone server, which `tidy` removes; the link to the newest file is not one of them."""
        name = self._source.name
        files = [self.plain / f"{name}{ending}" for ending in (WAL, "-shm")]
        return files if self._source.is_symlink() else [*files, self._source]

    def store(self, config: StoreConfig, directory: Path) -> StoreConfig:
        """Settings of a store in the data directory *directory*."""
        return replace(config, source=directory / self._source.name)

    def tidy(self, epoch: int) -> None:
        """Remove the data of earlier holders, and let the old name of the file lead to the newest one, for people."""
        super().tidy(epoch)
        current = self.current()
        if current is not None:
            link = self._source.with_name(self._source.name + ".new")
            link.unlink(missing_ok=True)
            link.symlink_to(os.path.relpath(current / self._source.name, self.plain))
            link.replace(self._source)

    def fill(self, target: Path, source: Path, *, shared: bool) -> None:
        """Link the SQLite file and its write-ahead log from *source* into *target*; copy them if *shared*.

        Raises StartError if the file is written to all the time.
        """
        name = self._source.name
        if not (source / name).exists():
            return  # the holder of the lease ended before it made the file
        if not shared:
            for ending in ("", WAL):
                if (source / f"{name}{ending}").exists():
                    link_file(source / f"{name}{ending}", target / f"{name}{ending}")
            return
        for _ in range(limits.COPY_ATTEMPTS_MAX):
            before = (source / name).stat()
            copy_file(source / name, target / name)
            if (source / f"{name}{WAL}").exists():
                copy_file(source / f"{name}{WAL}", target / f"{name}{WAL}")
            after = (source / name).stat()
            if (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns):
                return
        raise StartError(f"{source / name} is written to all the time, although its lease was taken")
