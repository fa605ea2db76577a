"""The directories of a node's groups: logs and snapshots, files that are being received, and files that are being sent.

    groups/<n>/            segments, and snapshots (stan.edge.storage.snapshot_files)
    groups/<n>.incoming/   files received to replace groups/<n>; removed at a start
    groups/<n>.ready/      the same once complete: a start lets it replace groups/<n>
    groups/<n>.old/        replaced, about to be removed
    outgoing/<session>/    links to files being sent to another node; removed at a start

Promises: a crash at any point leaves the old group or the new one; a file is deleted only when another one has
replaced it.
Blocking; raises OSError, Damage, StartError.
"""

import re
from collections.abc import Callable
from pathlib import Path

from stan_protocol.scalars import GroupId, RaftIndex

from stan import limits
from stan.edge.storage.data_directory import DataDirectory
from stan.edge.storage.lost_found import LostFound
from stan.edge.storage.raft_files import RaftFiles, Voters
from stan.edge.storage.snapshot_files import SnapshotFiles
from stan.log.files.disk import Files, OsFiles, remove_directory
from stan.log.files.filelog import FileLog
from stan.log.types import GroupLog

_UNFINISHED = re.compile(r"(\d+)\.(incoming|incoming\.damaged|ready|old)")


class GroupFiles:
    """The files of all groups of a data directory, and with a node of a cluster those of its Raft members."""

    def __init__(self, directory: DataDirectory) -> None:
        disk = directory.disk
        self.files = disk.files
        self.outgoing = f"{disk.directory}/outgoing"
        self.snapshots = SnapshotFiles(disk.files, f"{disk.directory}/groups")
        self.directory = directory
        self._groups = f"{disk.directory}/groups"
        self.lost_found = LostFound(disk.files, disk.directory)
        clustered = bool(
            directory.manifest.node_id
        )  # entries lost here can come from another node, if the loss is known
        self.raft = RaftFiles(disk.files, disk.directory, self.lost_found) if clustered else None

    def path(self, number: GroupId, ending: str = "") -> str:
        """Directory of a group; *ending*: "", ".incoming", ".ready" or ".old", see the module's docstring."""
        return f"{self._groups}/{number}{ending}"

    # --- start --------------------------------------------------------------------------------------------------------

    def tidy(self) -> list[str]:
        """Finish or remove the half-done work of a crash; returns texts for the operator."""
        self.files.makedirs(self._groups)
        texts = []
        for name in sorted(self.files.listdir(self._groups)):
            match = _UNFINISHED.fullmatch(name)
            if match is None:
                continue
            if match[2] == "ready":
                number = GroupId(int(match[1]))
                self._take_place(number, keep_old=True)
                texts.append(f"group {number}: what was received before the last stop has taken its place")
            else:
                remove_directory(self.files, f"{self._groups}/{name}")
        self.files.sync_directory(self._groups)
        if self.raft is not None:
            self.files.makedirs(self.outgoing)
            for name in self.files.listdir(self.outgoing):
                remove_directory(self.files, f"{self.outgoing}/{name}")
        return texts

    def open_log(
        self, number: GroupId, on_damage: Callable[[], None], on_loss: Callable[[str], None]
    ) -> tuple[FileLog, list[str]]:
        """Open the log of a group, made if necessary; returns it with the texts of its recovery for the operator.

        *on_damage* is called as by FileLog.open, and has to mark the log as damaged; not for a server alone, as no
        other node could restore its log. If no entry is missing between others, a new mark is removed again. *on_loss* is called
        with a text if written entries are lost.
        """
        raft, disk = self.raft, self.directory.disk
        marked = raft is not None and not raft.is_intact(number)
        log, report = FileLog.open(
            Path(self.path(number)),
            number,
            self.directory.manifest.store_bytes,
            lost_found=Path(self.lost_found.path),
            files=self.files,
            segment_bytes_max=disk.segment_bytes_max,
            tail_cache_bytes_max=disk.tail_cache_bytes_max,
            on_damage=on_damage if raft is not None else None,
            on_loss=on_loss,
            power_lost=self.directory.power_lost,
            cuts_unsynced=raft is not None and raft.answers_unsynced(number),
            cipher=self.directory.log_cipher(number),
        )
        if raft is not None and not marked and not report.quarantined:
            raft.mark_intact(number)  # a file was damaged, but the log has all entries up to its last one
        return log, report.texts

    def bootstrap(self, number: GroupId, voters: Voters, *, votes: bool) -> None:
        """Make the directories of a group that is new in the cluster, durably; see `RaftFiles.bootstrap`."""
        if self.raft is not None:
            self.raft.bootstrap(number, voters, votes=votes)
        self.files.makedirs(self.path(number))

    # --- replacing ------------------------------------------------------------------------------------------------------

    def set_aside(self, number: GroupId) -> str:
        """Move a group's directory, whose log is closed, to lost+found; returns its new path."""
        return self.lost_found.put(self.path(number), f"group-{number}")

    def retire(self, number: GroupId) -> str:
        """Move all files of a group, whose log is closed, to lost+found; returns the new directory of its log.

        The hard state goes first: after a crash in between, a log without it is that of an amnesiac member.
        """
        if self.raft is not None:
            self.raft.retire(number)
        return self.set_aside(number)

    def carry_over(self, number: GroupId, old: GroupLog) -> None:
        """Append to the received log the entries that the group's own log has after it, as they may have been acknowledged."""
        path, store_id = Path(self.path(number, ".incoming")), self.directory.manifest.store_bytes
        cipher = self.directory.log_cipher(number)
        log, _ = FileLog.open(path, number, store_id, files=self.files, cipher=cipher)
        try:
            while log.last_index < old.last_index:
                log.append(old.entries(RaftIndex(log.last_index + 1), old.last_index, limits.TURN_BYTES_MAX))
        finally:
            log.close()
        self.files.sync_directory(self.path(number, ".incoming"))

    def make_ready(self, number: GroupId) -> None:
        """Mark the received log, which is complete and durable: from here on it takes the group's place even after a crash."""
        self.files.rename(self.path(number, ".incoming"), self.path(number, ".ready"))
        self.files.sync_directory(self._groups)

    def take_place(self, number: GroupId, *, keep_old: bool) -> None:
        """Replace the group's log, which is closed, by the one that is ready; the old one is removed, or moved to lost+found."""
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
        if self.raft is not None:
            self.raft.mark_intact(number)


def groups_on_disk(directory: str, files: Files | None = None) -> list[GroupId]:
    """Groups of which a data directory has files; none if it is new. Changes nothing in it."""
    try:
        names = (files or OsFiles()).listdir(f"{directory}/groups")
    except FileNotFoundError:
        return []
    return sorted(GroupId(int(name)) for name in names if name.isdigit())
