"""The manifest of a data directory, `stan.json`: the owner of the data, and whether it was closed in order.

The file is replaced as a whole (write, fsync, rename, fsync of the directory), so a crash leaves the old or the new one.
"""

import contextlib
import fcntl
import json
import os
import secrets
import string
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from stan_protocol.refusals import go_quote

from stan import level
from stan.config import KEY_VARIABLES
from stan.errors import Damage, StartError
from stan.log.encryption import Cipher
from stan.log.files.disk import Files, OsFiles, read_file, write_durably

FORMAT = 1
NAME = "stan.json"
OLD_STORE_FILES = ("server.dat", "clients.dat")
RESTORE = "put it back from a backup; in a cluster this node can begin with an empty directory instead"
_CHECKSUM = "checksum"
SHARED = "ft"
"""Directory with the leases of a store that several servers share."""
MIGRATING = "unfinished-migration"
"""Name of a file that is in the directory from the beginning of a migration to its end."""
NOT_CLUSTERED_BEFORE = "stan: cannot restart server in clustered mode if it was not previously clustered"


@dataclass(slots=True)
class RecordedNodes:
    """The nodes of the cluster as this node last knew them, once a node was added or removed."""

    names: list[str] = field(default_factory=list)
    version: int = 0  # of the names; 0: none was added or removed
    founders: list[str] = field(default_factory=list)  # nodes by which the groups here were begun
    replicas: int = 0  # of each group
    belongs: bool = False  # this node is one of the nodes, or was one and is still needed
    labels: dict[str, list[str]] = field(
        default_factory=dict
    )  # zone, rack, host of nodes that have any, see stan.labels
    # Groups of channels that there are since the pool has grown, those in which this node votes from their beginning with their
    # directories; 0: it has not grown.
    pool: int = 0


@dataclass(slots=True)
class RecordedRescue:
    """The last rescue of the cluster that this node was part of, see stan.edge.cluster.rescue."""

    epoch: int
    survivors: list[str] = field(default_factory=list)  # empty: this node came later, and has only the epoch
    nodes_version: int = 0  # of the names in the metadata, when the cluster was rescued
    plan: dict[str, Any] | None = None  # the work still to do in this directory; None: none


@dataclass(slots=True)
class Manifest:
    """The content of `stan.json`."""

    cluster_id: str
    raft_groups: int  # with which the cluster was founded
    store_id: str  # 32 hex digits; in the header of every segment
    boot_id: str = ""  # of the machine when the directory was last opened
    clean: bool = True  # closed in an orderly way
    node_id: str = ""  # of a node of a cluster; "" for a server alone
    format: int = FORMAT
    nodes: RecordedNodes = field(default_factory=RecordedNodes)
    encryption: str = ""  # recognizes the key, and covers `sealed_from`; "": nothing here is encrypted
    level: int = 0  # of the formats in the directory, see stan.level; 0: the cluster has none yet
    # By group, the entry from which on each batch is encrypted in its place; 1 for groups that are not here. None: no log is yet.
    sealed_from: dict[str, int] | None = None
    rescue: RecordedRescue | None = None

    @property
    def pool(self) -> int:
        """Number of groups of channels that this directory counts since the pool has grown; 0: it has not."""
        return self.nodes.pool

    @property
    def groups(self) -> int:
        """Number of groups of channels of the cluster, as far as this directory knows."""
        return max(self.pool, self.raft_groups)

    @property
    def epoch(self) -> int:
        """The epoch of the cluster's last rescue as far as this node knows; 0: there was none."""
        return self.rescue.epoch if self.rescue is not None else 0

    @property
    def store_bytes(self) -> bytes:
        """The store id as 16 bytes."""
        return bytes.fromhex(self.store_id)


class Opened(NamedTuple):
    """A directory's manifest, and the findings of opening it."""

    manifest: Manifest
    power_lost: bool  # maybe, since the directory was last used: the log may lack deliveries that have left
    fresh: bool  # the directory had no manifest


def boot_id() -> str:
    """An id of this boot of the machine; "" where the system has none."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def open_manifest(
    directory: str,
    cluster_id: str,
    raft_groups: int,
    *,
    node_id: str = "",
    files: Files | None = None,
    boot: str | None = None,
    store_id: str = "",
    cipher: Cipher | None = None,
    rescuing: bool = False,
) -> Opened:
    """Read or make the manifest of *directory* and mark it as in use.

    Args:
        directory: made if necessary.
        cluster_id: refused if the directory is of another cluster.
        raft_groups: of the cluster when it was founded; refused if it was made with another number.
        node_id: this node of the cluster, "" for a server alone; refused if it is another one's.
        files: the operating system, if not a simulation's.
        boot: the id of this boot of the machine, if not the real one.
        store_id: of a new directory; by default a random one.
        cipher: with the key of encrypted messages; refused if it is another one, or missing.
        rescuing: a directory whose rescue was not finished is opened all the same.

    Raises:
        StartError: an argument is refused, or the directory is of the original server.
        Damage: the manifest cannot be read.
    """
    files = files or OsFiles()
    boot = boot_id() if boot is None else boot
    files.makedirs(directory)
    names = files.listdir(directory)
    if NAME not in names:
        refuse_foreign(directory, names)
        if SHARED in names:
            raise StartError(
                f"{directory} is shared by the servers of a fault tolerance group; start it with -ft_group"
            )
        store_id = store_id or secrets.token_hex(16)
        manifest = Manifest(cluster_id, raft_groups, store_id, boot, clean=False, node_id=node_id)
        if cipher is not None:
            note_encrypted_from(manifest, cipher, {})
        write_manifest(directory, manifest, files)
        return Opened(manifest, power_lost=False, fresh=True)
    manifest = read_manifest(directory, files)
    _refuse_others(manifest, directory, cluster_id, raft_groups, node_id)
    if manifest.rescue is not None and manifest.rescue.plan is not None and not rescuing:
        raise StartError(
            f"{directory}: the rescue of the cluster was not finished here; run stan cluster rescue once more"
        )
    _refuse_other_key(manifest, f"{directory}/{NAME}", cipher)
    if cipher is not None and not manifest.encryption:
        manifest.encryption = cipher.check(None)  # batches that are there stay in clear, new ones are encrypted
    same_boot = bool(manifest.boot_id) and manifest.boot_id == boot
    power_lost = not manifest.clean and not same_boot
    manifest.clean = False
    manifest.boot_id = "" if power_lost else boot  # until the logs are in order: see Storage.recover
    write_manifest(directory, manifest, files)
    return Opened(manifest, power_lost, fresh=False)


def refuse_foreign(directory: str, names: list[str]) -> None:
    """Raise StartError or Damage if *directory* has no manifest but has data that must not be overlooked."""
    if any(name in names for name in OLD_STORE_FILES):
        raise StartError(
            f"{directory} holds the file store of a NATS Streaming Server, which has another format; "
            f"move it with: stan migrate stan-filestore {directory} --to NEW_DIRECTORY"
        )
    if MIGRATING in names:
        raise StartError(f"the migration into {directory} was not finished; run stan migrate once more")
    if "groups" in names:
        raise Damage(f"{directory}/{NAME}: missing, but there are logs beside it; {RESTORE}")


def _refuse_others(manifest: Manifest, directory: str, cluster_id: str, raft_groups: int, node_id: str) -> None:
    if manifest.cluster_id != cluster_id:
        raise StartError(
            f"cluster ID {go_quote(cluster_id)} does not match recovered value of {go_quote(manifest.cluster_id)}"
        )
    if node_id and not manifest.node_id:
        raise StartError(NOT_CLUSTERED_BEFORE)
    if manifest.node_id and not node_id:
        raise StartError(f"{directory} is of node {go_quote(manifest.node_id)} of a cluster; start it with --clustered")
    if manifest.node_id != node_id:
        raise StartError(f"{directory} is of node {go_quote(manifest.node_id)}, not {go_quote(node_id)}")
    if manifest.raft_groups != raft_groups:
        since = f", and has grown to {manifest.pool} since" if manifest.pool else ""
        raise StartError(f"{directory} was made with {manifest.raft_groups} channel group(s), not {raft_groups}{since}")


def _refuse_other_key(manifest: Manifest, path: str, cipher: Cipher | None) -> None:
    if not manifest.encryption:
        return
    if cipher is None:
        raise StartError(
            f"{path}: the messages here are encrypted: start with --encrypt, and the key in {KEY_VARIABLES[1]}"
        )
    if not cipher.fits(manifest.encryption, _sealed_note(manifest)):
        raise StartError(
            f"{path}: the messages here are encrypted with another key than the one given, or what this file says of "
            "them was changed"
        )


def note_encrypted_from(manifest: Manifest, cipher: Cipher, since: dict[str, int]) -> None:
    """Note the entry from which on each log is encrypted, under a checksum that needs the key."""
    manifest.sealed_from = since
    manifest.encryption = cipher.check(_sealed_note(manifest))


def _sealed_note(manifest: Manifest) -> bytes | None:
    if manifest.sealed_from is None:
        return None
    return json.dumps([manifest.store_id, manifest.sealed_from], sort_keys=True).encode()


def read_manifest(directory: str, files: Files | None = None) -> Manifest:
    """Read `stan.json`. Raises Damage; StartError if it has another format; FileNotFoundError if there is none."""
    path = f"{directory}/{NAME}"
    try:
        fields = read_document(files or OsFiles(), path)
        rescue = fields["rescue"]
        parts = {
            "nodes": RecordedNodes(**fields["nodes"]),
            "rescue": None if rescue is None else RecordedRescue(**rescue),
        }
        manifest = Manifest(**fields | parts)
        _ = manifest.store_bytes
    except (ValueError, TypeError, KeyError) as error:
        raise Damage(f"{path}: {error}; {RESTORE}") from error
    if manifest.format != FORMAT:
        raise StartError(f"{path}: format {manifest.format}, this program reads format {FORMAT}")
    if manifest.level > level.KNOWN:
        raise StartError(
            f"{path}: the data is at level {manifest.level}, this version knows levels up to {level.KNOWN}: install a newer one"
        )
    return manifest


def recorded_pool(directory: str, files: Files | None = None) -> int:
    """Number of groups that the directory counts since the pool has grown; 0 if it has not. Raises Damage, StartError."""
    try:
        return read_manifest(directory, files).pool
    except FileNotFoundError:
        return 0


def recorded_node_id(directory: str, files: Files | None = None) -> str:
    """The node that the directory belongs to; "" without a manifest, or alone. Raises Damage, StartError."""
    try:
        return read_manifest(directory, files).node_id
    except FileNotFoundError:
        return ""


def write_manifest(directory: str, manifest: Manifest, files: Files | None = None) -> None:
    """Replace `stan.json` durably."""
    write_document(files or OsFiles(), f"{directory}/{NAME}", asdict(manifest))


def read_document(files: Files, path: str) -> dict[str, Any]:
    """Read a document of `write_document`. Raises ValueError, TypeError, FileNotFoundError."""
    document = dict(json.loads(read_file(files, path)))
    if document.pop(_CHECKSUM, None) != _checksum(document):
        raise ValueError("wrong checksum")
    return document


def write_document(files: Files, path: str, document: dict[str, Any]) -> None:
    """Replace a small JSON file durably."""
    content = json.dumps({**document, _CHECKSUM: _checksum(document)}, indent=2)
    write_durably(files, path, content.encode() + b"\n")


def _checksum(document: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(document, sort_keys=True).encode())


def lock_directory(directory: Path) -> int:
    """Make sure that no other process uses *directory*; returns the descriptor with the lock, which closing it releases."""
    OsFiles().makedirs(str(directory))
    return lock_file(directory / "lock", directory)


def lock_file(path: Path, store: Path) -> int:
    """Make sure that no other process uses *store*, by the lock of the file at *path*; returns its descriptor.

    Raises StartError if another process has the lock.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise StartError(f"{store} is in use by another server") from error
    return handle


def new_nuid() -> str:
    """22 random characters of NUID's alphabet (STAN-SPEC 1.7)."""
    alphabet = string.digits + string.ascii_uppercase + string.ascii_lowercase
    return "".join(secrets.choice(alphabet) for _ in range(22))
