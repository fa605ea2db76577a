"""The data directory's identity card: whose data this is, and whether it was closed in an orderly way.

`stan.json` is replaced as a whole (write, fsync, rename, fsync of the directory), so a crash leaves the old or the new one.
"""

import contextlib
import fcntl
import json
import os
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

from stan.errors import Damage, StartError, go_quote

FORMAT = 1
NAME = "stan.json"
OLD_STORE_FILES = ("server.dat", "clients.dat")


@dataclass(slots=True)
class Manifest:
    """What `stan.json` says."""

    cluster_id: str
    raft_groups: int
    store_id: str  # 32 hex digits; in the header of every segment
    boot_id: str = ""  # of the machine when the directory was last opened
    clean: bool = True  # closed in an orderly way
    format: int = FORMAT

    @property
    def store_bytes(self) -> bytes:
        """The store id as 16 bytes."""
        return bytes.fromhex(self.store_id)


def boot_id() -> str:
    """Changes with every boot of the machine; "" where the system does not tell."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def open_manifest(directory: Path, cluster_id: str, raft_groups: int) -> tuple[Manifest, bool]:
    """Read or make the manifest of *directory* and mark it as in use.

    Returns the manifest and whether power may have been lost since the directory was last used: then messages may have been
    sent of which the log knows nothing. Raises StartError for another cluster's data, another number of groups, or
    a directory of the original server; Damage if the manifest cannot be read.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / NAME
    if not path.exists():
        if any((directory / name).exists() for name in OLD_STORE_FILES):
            raise StartError(
                f"{directory} holds the file store of a NATS Streaming Server, which has another format; "
                "give an empty directory with --dir"
            )
        if (directory / "groups").exists():
            raise Damage(f"{path}: missing, but there are logs beside it; put it back from a backup")
        manifest = Manifest(cluster_id, raft_groups, secrets.token_hex(16), boot_id(), clean=False)
        write_manifest(directory, manifest)
        return manifest, False
    try:
        manifest = Manifest(**json.loads(path.read_text()))
        _ = manifest.store_bytes
    except (ValueError, TypeError) as error:
        raise Damage(f"{path}: {error}") from error
    if manifest.format != FORMAT:
        raise StartError(f"{path}: format {manifest.format}, this program reads format {FORMAT}")
    if manifest.cluster_id != cluster_id:
        raise StartError(
            f"cluster ID {go_quote(cluster_id)} does not match recovered value of {go_quote(manifest.cluster_id)}"
        )
    if manifest.raft_groups != raft_groups:
        raise StartError(f"{directory} was made with {manifest.raft_groups} channel group(s), not {raft_groups}")
    same_boot = bool(manifest.boot_id) and manifest.boot_id == boot_id()
    doubt = not manifest.clean and not same_boot
    manifest.clean = False
    manifest.boot_id = boot_id()
    write_manifest(directory, manifest)
    return manifest, doubt


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Replace `stan.json` durably."""
    write_durably(directory / NAME, json.dumps(asdict(manifest), indent=2).encode() + b"\n")


def write_durably(path: Path, content: bytes) -> None:
    """Replace a small file: after a crash it is the old or the new one, whole."""
    temporary = path.with_suffix(path.suffix + ".new")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    handle = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def lock_directory(directory: Path) -> int:
    """Make sure that no other process uses *directory*; returns the descriptor that holds the lock until it is closed."""
    directory.mkdir(parents=True, exist_ok=True)
    handle = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise StartError(f"{directory} is in use by another server") from error
    return handle
