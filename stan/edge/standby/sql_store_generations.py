"""The same as stan.edge.standby.store_generations for a store in one SQLite file: `<source>.ft/` is the root, `<source>` leads to
the newest file.

A file that somebody may be writing to is copied, and its write-ahead log after it: that holds every page which a checkpoint moves
meanwhile. Should the file itself change while both are copied, they are copied again, as a second log may have begun.
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
    """See the module."""

    def __init__(self, source: Path) -> None:
        super().__init__(shared_path(source))
        self._source = source

    @property
    def plain(self) -> Path:
        """See StoreGenerations."""
        return self._source.parent

    def has_plain(self) -> bool:
        """See StoreGenerations."""
        return self._source.exists() and not self._source.is_symlink()

    def refuse_foreign(self) -> None:
        """See StoreGenerations; what is no SQLite file shows when it is opened."""

    def lock_plain(self) -> int:
        """See StoreGenerations."""
        return lock_file(lock_path(self._source), self._source)

    def plain_files(self) -> list[Path]:
        """See StoreGenerations."""
        name = self._source.name
        found = [self.plain / f"{name}{ending}" for ending in (WAL, "-shm")]
        return found if self._source.is_symlink() else [*found, self._source]

    def store(self, config: StoreConfig, directory: Path) -> StoreConfig:
        """See StoreGenerations."""
        return replace(config, source=directory / self._source.name)

    def tidy(self, epoch: int) -> None:
        """See StoreGenerations; people find the newest file under the old name."""
        super().tidy(epoch)
        current = self.current()
        if current is not None:
            link = self._source.with_name(self._source.name + ".new")
            link.unlink(missing_ok=True)
            link.symlink_to(os.path.relpath(current / self._source.name, self.plain))
            link.replace(self._source)

    def fill(self, target: Path, source: Path, *, shared: bool) -> None:
        """See StoreGenerations."""
        name = self._source.name
        if not (source / name).exists():
            return  # its holder has not come to make it
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
