"""A data directory that this process uses: its place, its changing manifest (`stan.json`), and its lock.

Promises: a change of the manifest counts once it is on the disk. Blocking; raises OSError.
"""

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from stan_protocol.scalars import GroupId, RaftIndex

from stan import limits
from stan.config import EncryptionConfig
from stan.edge.storage.manifest import (
    Manifest,
    RecordedNodes,
    RecordedRescue,
    boot_id,
    lock_directory,
    note_encrypted_from,
    open_manifest,
    write_manifest,
)
from stan.log.encryption import NEVER, Cipher, LogCipher
from stan.log.files.disk import Files, OsFiles, close_to_others


@dataclass(frozen=True, kw_only=True)
class Disk:
    """The disk of a node: place and settings; the defaults are those of a real disk, a simulation sets others."""

    directory: str
    files: Files = field(default_factory=OsFiles)
    boot: str | None = None  # the id of this boot of the machine; None: the real one
    store_id: str = ""  # 32 hex digits for a new directory; "": random ones
    segment_bytes_max: int = limits.SEGMENT_BYTES_MAX
    tail_cache_bytes_max: int = limits.TAIL_CACHE_BYTES_MAX
    cipher: Cipher | None = None  # messages are encrypted with it
    accepts_loss: bool = False  # a server alone goes on without lost entries
    rescuing: bool = False  # the directory is opened for a rescue of its cluster, which may have been begun before

    @classmethod
    def of(cls, directory: Path, encryption: EncryptionConfig | None, *, accepts_loss: bool = False) -> "Disk":
        """The real disk, by the settings. Raises StartError if messages cannot be encrypted like that."""
        cipher = None if encryption is None else Cipher(encryption.key, encryption.cipher)
        return cls(directory=str(directory), cipher=cipher, accepts_loss=accepts_loss)


def claim_directory(directory: Path, note: Callable[[str, str], None]) -> int:
    """Lock a directory, made if necessary, and close it to all but its owner; returns the descriptor that holds the lock.

    *note* gets level and text of a line if other users can still read it. Raises StartError if another process has the lock.
    """
    lock = lock_directory(directory)
    if warning := close_to_others(str(directory)):
        note("WRN", warning)
    return lock


class DataDirectory:
    """The directory with its manifest; made by `open`, ended by `close`."""

    def __init__(self, disk: Disk, manifest: Manifest, *, boot: str, power_lost: bool, lock: int | None) -> None:
        self.disk = disk
        self.manifest = manifest
        self.power_lost = power_lost  # maybe, since the directory was last used
        self._boot = boot
        self._lock = lock
        self._changing = threading.Lock()  # the loop and a worker thread may change the manifest at the same time

    @classmethod
    def open(cls, disk: Disk, cluster_id: str, raft_groups: int, *, node_id: str, lock: int | None) -> Self:
        """Read or make the manifest, and mark the directory as in use.

        Args:
            disk: the place of the directory.
            cluster_id: refused if the directory is of another cluster.
            raft_groups: refused if it was made with another number.
            node_id: this node of the cluster, "" for a server alone; refused if it is another one's.
            lock: descriptor of the locked file, which `close` closes; None in a simulation.

        Raises:
            StartError: an argument is refused.
            Damage: the manifest cannot be read.
        """
        boot = boot_id() if disk.boot is None else disk.boot
        opened = open_manifest(
            disk.directory,
            cluster_id,
            raft_groups,
            node_id=node_id,
            files=disk.files,
            boot=boot,
            store_id=disk.store_id,
            cipher=disk.cipher,
            rescuing=disk.rescuing,
        )
        return cls(disk, opened.manifest, boot=boot, power_lost=opened.power_lost, lock=lock)

    def write(self, manifest: Manifest) -> None:
        """Replace the manifest durably. Only while nothing else may change it; otherwise `change`."""
        write_manifest(self.disk.directory, manifest, self.disk.files)
        self.manifest = manifest

    def change(self, **fields: Any) -> None:
        """Replace fields of the manifest durably; changes of other threads stay."""
        with self._changing:
            self.write(replace(self.manifest, **fields))

    def note_boot(self) -> None:
        """Note that the logs are in order: from now on a crash is one of this boot, no longer one on another boot's logs."""
        if self.manifest.boot_id != self._boot:
            self.change(boot_id=self._boot)

    def forget_boot(self) -> None:
        """Let the next start assume that power was lost since this one."""
        if self.manifest.boot_id:
            self.change(boot_id="")

    def note_nodes(self, nodes: RecordedNodes) -> None:
        """Record the metadata's nodes for the next start; the pool stays as recorded."""
        self.change(nodes=replace(nodes, pool=self.manifest.nodes.pool))

    def note_pool(self, groups: int) -> None:
        """Record that the directories of so many groups are here, as far as this node votes in them from their beginning."""
        if groups > self.manifest.groups:
            self.change(nodes=replace(self.manifest.nodes, pool=groups))

    def note_epoch(self, epoch: int) -> None:
        """Record the cluster's epoch, which this node, with nothing on its disk, has from others."""
        self.change(rescue=RecordedRescue(epoch))

    # --- encryption -------------------------------------------------------------------------------------------------------

    def log_cipher(self, number: GroupId) -> LogCipher | None:
        """Cipher of a group's log, which encrypts and decrypts its batches; None if they are in clear."""
        if self.disk.cipher is None:
            return None
        known = self.manifest.sealed_from
        since = NEVER if known is None else RaftIndex(known.get(str(number), 1))
        return self.disk.cipher.of(self.manifest.store_bytes, number, since, fits=True)

    def note_encrypted_after(self, last: dict[GroupId, RaftIndex | None]) -> None:
        """Record that each group's log is encrypted after its last entry; None: never, as the group is not here.

        A group that is not given is encrypted from its first entry on.
        """
        indexes = {number: NEVER if index is None else index for number, index in last.items()}
        self._note_encrypted_from({str(number): index + 1 for number, index in indexes.items() if index})

    def _note_encrypted_from(self, since: dict[str, int]) -> None:
        if self.disk.cipher is not None:
            with self._changing:
                changed = replace(self.manifest)
                note_encrypted_from(changed, self.disk.cipher, since)
                self.write(changed)

    def note_encrypted(self, number: GroupId) -> None:
        """Record that each later log of a group is encrypted from its first entry."""
        known = self.manifest.sealed_from
        if known and str(number) in known:
            self._note_encrypted_from({key: since for key, since in known.items() if key != str(number)})

    # --- the end ----------------------------------------------------------------------------------------------------------

    def close(self, *, clean: bool) -> None:
        """Unlock the directory; *clean* when all writes are durable and flushed."""
        if clean:
            with suppress(OSError):  # on a full disk the directory counts as not closed in order
                self.change(clean=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
