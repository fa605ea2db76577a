"""The directories of a node's groups: logs, snapshots, and what tells that a log is not whole.

    groups/<n>/            segments and `state-<index>.snap`
    groups/<n>.incoming/   what is being received to take the place of groups/<n>; forgotten at a start
    groups/<n>.ready/      the same once it is complete: a start lets it take the place
    groups/<n>.old/        replaced, about to be removed
    outgoing/<session>/    links to what is being sent to another node; forgotten at a start
    raft/<n>/damaged       the log of the group has lost entries, and nothing has brought them back since
    raft/<n>/voters.json   who votes in the group, once a voter was added or removed
    lost+found/            what could not be used

Promises: a crash at any point leaves a group as it was or as it was to become; nothing is deleted but what is superseded.
Blocking; raises OSError, Damage, StartError.
"""

import re
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path

from google.protobuf.message import DecodeError

from stan import limits
from stan.config import EncryptionConfig
from stan.edge.storage.manifest import RESTORE, Manifest, read_document, write_document, write_manifest
from stan.errors import Damage
from stan.log.encryption import NEVER, Cipher, LogCipher
from stan.log.files.disk import Files, OsFiles, read_file, remove_directory, write_durably
from stan.log.files.filelog import FileLog
from stan.log.types import GroupLog
from stan.protocol.proto import entries_pb2 as pb
from stan.raft.pysyncobj.hard_state import HARD_STATE
from stan.types import GroupId, RaftIndex

LOST_FOUND = "lost+found"
_DAMAGED = "damaged"
_VOTERS = "voters.json"
_SNAPSHOT = re.compile(r"state-(\d{20})\.snap")
_SNAPSHOT_FRONT = b"\xc2\x3e\x04SNAP"
_SNAPSHOT_END = b"\xcd\x3e"
"""Tags of fields 1000 and 1001, which readers that do not know of them pass over."""
_UNFINISHED = re.compile(r"(\d+)\.(incoming|incoming\.damaged|ready|old)")


@dataclass(frozen=True, kw_only=True)
class Disk:
    """Where a node keeps its things, and on what; the defaults are for real ones, the rest is a simulation's."""

    directory: str
    files: Files = field(default_factory=OsFiles)
    boot: str | None = None  # which boot of the machine this is; None: the real one
    store_id: str = ""  # 32 hex digits for a new directory; "": random ones
    segment_bytes_max: int = limits.SEGMENT_BYTES_MAX
    tail_cache_bytes_max: int = limits.TAIL_CACHE_BYTES_MAX
    cipher: Cipher | None = None  # messages are encrypted with it
    accepts_loss: bool = False  # a server alone goes on without what its logs have lost

    @classmethod
    def of(cls, directory: Path, encryption: EncryptionConfig | None, *, accepts_loss: bool = False) -> "Disk":
        """A real one. Raises StartError: messages cannot be encrypted so."""
        cipher = None if encryption is None else Cipher(encryption.key, encryption.cipher)
        return cls(directory=str(directory), cipher=cipher, accepts_loss=accepts_loss)


@dataclass(slots=True)
class Voters:
    """The voters of a group."""

    names: list[str] = field(default_factory=list)
    index: int = 0  # of the entry that says so; 0: it was begun with them


class GroupFiles:
    """See the module. *clustered*: what is lost here can be had from another node, so it must be known to be lost.
    *power_lost*: power may have been lost since the directory was last used."""

    def __init__(self, disk: Disk, store_id: bytes, *, clustered: bool, power_lost: bool) -> None:
        self.files = disk.files
        self.power_lost = power_lost
        self.accepts_loss = disk.accepts_loss
        self.backup = "restore the directory from a backup"
        self.remedy = f"{self.backup}, or start once with --file_truncate_bad_eof to go on without what is lost"
        self.store_id = store_id
        self.cipher = disk.cipher
        self.sealed_from: dict[str, int] | None = None  # see Manifest
        self._disk = disk
        self._clustered = clustered
        self._groups = f"{disk.directory}/groups"
        self._lost_found = f"{disk.directory}/{LOST_FOUND}"
        self.outgoing = f"{disk.directory}/outgoing"

    def path(self, number: GroupId, ending: str = "") -> str:
        """Directory of a group; *ending* as in the module's picture."""
        return f"{self._groups}/{number}{ending}"

    def log_cipher(self, number: GroupId) -> LogCipher | None:
        """Cipher of a group's log, which encrypts and decrypts its batches; None if they are in clear."""
        if self.cipher is None:
            return None
        since = NEVER if self.sealed_from is None else RaftIndex(self.sealed_from.get(str(number), 1))
        return self.cipher.of(self.store_id, number, since, fits=True)

    def write_manifest(self, manifest: Manifest) -> None:
        """Replace `stan.json` of the directory."""
        write_manifest(self._disk.directory, manifest, self.files)

    # --- start --------------------------------------------------------------------------------------------------------

    def tidy(self) -> list[str]:
        """Finish or forget what a crash left half done; returns what is worth a line."""
        self.files.makedirs(self._groups)
        texts = []
        for name in sorted(self.files.listdir(self._groups)):
            found = _UNFINISHED.fullmatch(name)
            if found is None:
                continue
            if found[2] == "ready":
                number = GroupId(int(found[1]))
                self._take_place(number, keep_old=True)
                texts.append(f"group {number}: what was received before the last stop has taken its place")
            else:
                remove_directory(self.files, f"{self._groups}/{name}")
        self.files.sync_directory(self._groups)
        if self._clustered:
            self.files.makedirs(self.outgoing)
            for name in self.files.listdir(self.outgoing):
                remove_directory(self.files, f"{self.outgoing}/{name}")
        return texts

    def open_log(
        self, number: GroupId, on_damage: Callable[[], None], on_loss: Callable[[str], None]
    ) -> tuple[FileLog, list[str]]:
        """The log of a group, made if need be, and what its recovery has to say.

        *on_damage* has to mark it; that is taken back if no entry is missing between others. A server alone has nobody to get
        them from. *on_loss*: see FileLog.open.
        """
        marked = not self.is_intact(number)
        log, report = FileLog.open(
            Path(self.path(number)),
            number,
            self.store_id,
            lost_found=Path(self._lost_found),
            files=self.files,
            segment_bytes_max=self._disk.segment_bytes_max,
            tail_cache_bytes_max=self._disk.tail_cache_bytes_max,
            on_damage=on_damage if self._clustered else None,
            on_loss=on_loss,
            power_lost=self.power_lost,
            cipher=self.log_cipher(number),
        )
        if not marked and not report.quarantined:
            self.mend(number)  # a file was damaged, but what is left is a beginning of the log
        return log, report.texts

    # --- whole or not ---------------------------------------------------------------------------------------------------

    def raft_path(self, number: GroupId) -> str:
        """Directory of the group's term and vote, which no transfer touches."""
        return f"{self._disk.directory}/raft/{number}"

    def is_intact(self, number: GroupId) -> bool:
        """True if the log has lost no entry since it was begun or received."""
        if not self._clustered:
            return True
        self.files.makedirs(self.raft_path(number))
        return _DAMAGED not in self.files.listdir(self.raft_path(number))

    def mark_damaged(self, number: GroupId) -> None:
        """The log has lost entries, durably known: before anything is moved that shows it."""
        if self.is_intact(number):
            write_durably(self.files, f"{self.raft_path(number)}/{_DAMAGED}", b"entries of the log were lost\n")

    def mend(self, number: GroupId) -> None:
        """The log has everything again."""
        if not self.is_intact(number):
            self.files.unlink(f"{self.raft_path(number)}/{_DAMAGED}")
            self.files.sync_directory(self.raft_path(number))

    # --- who votes ------------------------------------------------------------------------------------------------------

    def voters(self, number: GroupId) -> Voters:
        """Who votes in a group as far as an entry told; nobody at index 0 if none did. Raises Damage."""
        self.files.makedirs(self.raft_path(number))
        if _VOTERS not in self.files.listdir(self.raft_path(number)):
            return Voters()
        path = f"{self.raft_path(number)}/{_VOTERS}"
        try:
            return Voters(**read_document(self.files, path))
        except (ValueError, TypeError) as error:
            raise Damage(f"{path}: {error}; {RESTORE}") from error

    def set_voters(self, number: GroupId, voters: Voters) -> None:
        """Remember durably who votes in a group from now on."""
        write_document(self.files, f"{self.raft_path(number)}/{_VOTERS}", asdict(voters))

    # --- replacing ------------------------------------------------------------------------------------------------------

    def set_aside(self, number: GroupId) -> str:
        """Move a group's directory, whose log is closed, to lost+found; returns where to."""
        target = self._free_name(f"group-{number}")
        self.files.rename(self.path(number), target)
        self.files.sync_directory(self._lost_found)
        self.files.sync_directory(self._groups)
        return target

    def put_promises_aside(self, number: GroupId) -> str:
        """Move a group's term and vote, which cannot be read, to lost+found; returns where to."""
        target = self._free_name(f"raft-{number}-{HARD_STATE}")
        self.files.rename(f"{self.raft_path(number)}/{HARD_STATE}", target)
        self.files.sync_directory(self._lost_found)
        self.files.sync_directory(self.raft_path(number))
        return target

    def retire(self, number: GroupId) -> str:
        """Move all that a node has of a group, whose log is closed, to lost+found; returns where its messages went.

        The promises go first: a log without them is that of a node which may have promised anything, and knows it.
        """
        self.files.rename(self.raft_path(number), self._free_name(f"raft-{number}"))
        self.files.sync_directory(self._lost_found)
        self.files.sync_directory(f"{self._disk.directory}/raft")
        return self.set_aside(number)

    def carry_over(self, number: GroupId, old: GroupLog) -> None:
        """Append to what is incoming the entries that the group's log has behind it: what was acknowledged stays so."""
        path = Path(self.path(number, ".incoming"))
        log, _ = FileLog.open(path, number, self.store_id, files=self.files, cipher=self.log_cipher(number))
        try:
            while log.last_index < old.last_index:
                log.append(old.entries(RaftIndex(log.last_index + 1), old.last_index, limits.TURN_BYTES_MAX))
        finally:
            log.close()
        self.files.sync_directory(self.path(number, ".incoming"))

    def make_ready(self, number: GroupId) -> None:
        """What is incoming is whole and durable: from here on it will take the group's place, whatever happens."""
        self.files.rename(self.path(number, ".incoming"), self.path(number, ".ready"))
        self.files.sync_directory(self._groups)

    def take_place(self, number: GroupId, *, keep_old: bool) -> None:
        """Let what is ready be the group, whose log is closed; what it replaces is removed or kept in lost+found."""
        self._take_place(number, keep_old=keep_old)
        old = self.path(number, ".old")
        if not keep_old:
            remove_directory(self.files, old)

    def _take_place(self, number: GroupId, *, keep_old: bool) -> None:
        names = self.files.listdir(self._groups)
        if str(number) in names:
            if keep_old:
                self.set_aside(number)
            else:
                self.files.rename(self.path(number), self.path(number, ".old"))
                self.files.sync_directory(self._groups)
        self.files.rename(self.path(number, ".ready"), self.path(number))
        self.files.sync_directory(self._groups)
        self.mend(number)

    def _free_name(self, stem: str) -> str:
        """A name in lost+found that nothing has yet."""
        self.files.makedirs(self._lost_found)
        taken = set(self.files.listdir(self._lost_found))
        numbered = (stem if number == 1 else f"{stem}.{number}" for number in count(1))
        return f"{self._lost_found}/{next(name for name in numbered if name not in taken)}"

    # --- snapshots ------------------------------------------------------------------------------------------------------

    def snapshots(self, number: GroupId) -> list[RaftIndex]:
        """Applied indexes of the snapshot files, oldest first."""
        found = map(_SNAPSHOT.fullmatch, self.files.listdir(self.path(number)))
        return sorted(RaftIndex(int(name[1])) for name in found if name)

    def read_snapshot(self, number: GroupId, index: RaftIndex) -> pb.Snapshot:
        """A snapshot file."""
        return read_snapshot(self.files, snapshot_path(self.path(number), index))

    def write_snapshot(self, number: GroupId, index: RaftIndex, content: bytes) -> None:
        """A new snapshot file in place of the older ones."""
        older = [other for other in self.snapshots(number) if other < index]
        write_durably(self.files, snapshot_path(self.path(number), index), content)
        for other in older:
            self.files.unlink(snapshot_path(self.path(number), other))


def groups_on_disk(directory: str, files: Files | None = None) -> list[GroupId]:
    """Groups that a data directory holds something of; none in one that is new. Makes nothing there."""
    try:
        names = (files or OsFiles()).listdir(f"{directory}/groups")
    except FileNotFoundError:
        return []
    return sorted(GroupId(int(name)) for name in names if name.isdigit())


def snapshot_bytes(snapshot: pb.Snapshot) -> bytes:
    """The content of a snapshot file: the message between two fields that it does not have, the second one with a CRC-32."""
    content = _SNAPSHOT_FRONT + snapshot.SerializeToString()
    return content + _SNAPSHOT_END + zlib.crc32(content).to_bytes(4, "little")


def read_snapshot(files: Files, path: str) -> pb.Snapshot:
    """A snapshot file; those of earlier versions hold the message alone. Raises Damage."""
    content = read_file(files, path)
    checked = content.startswith(_SNAPSHOT_FRONT) or content[-6:-4] == _SNAPSHOT_END
    if not content or (checked and zlib.crc32(content[:-6]) != int.from_bytes(content[-4:], "little")):
        raise Damage(f"{path}: wrong CRC")
    try:
        return pb.Snapshot.FromString(content[len(_SNAPSHOT_FRONT) : -6] if checked else content)
    except DecodeError as error:
        raise Damage(f"{path}: {error}") from error


def snapshot_path(directory: str, index: RaftIndex) -> str:
    """Name of the file with the state as of *index*."""
    return f"{directory}/state-{index:020d}.snap"
