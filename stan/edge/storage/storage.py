"""Storage of a node: one log per group, and the state database; opening, flushing, transfer, closing.

A data directory holds `stan.json` (the manifest), `lock`, `state.db`, `groups/<number>/` (segments and snapshots),
`raft/<number>/` (memory of a cluster node's Raft members) and `lost+found/` (files that could not be used). No file is
ever deleted because another one is missing.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from collections.abc import Sequence as Seq
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from stan_protocol.scalars import GroupId, MiB, Nanos, RaftIndex

from stan.config import Config
from stan.core.broker.broker import Broker
from stan.edge.log import ServerLog
from stan.edge.storage.data_directory import DataDirectory, Disk, claim_directory
from stan.edge.storage.groupfiles import GroupFiles, groups_on_disk
from stan.edge.storage.manifest import new_nuid, recorded_node_id
from stan.edge.storage.raft_files import StoredMember, Voters
from stan.edge.storage.snapshot_files import snapshot_bytes
from stan.edge.storage.state_rows import Marks, StateRows
from stan.edge.storage.transfer import Export, Receiver, Sender, goes_on
from stan.errors import Damage, Frozen, NotNow, StanError, StartError
from stan.log.files.filelog import FileLog
from stan.log.memorylog import MemoryLog
from stan.log.types import GroupLog
from stan.protocol.compressed_batches import require as require_compression
from stan.protocol.proto import entries_pb2 as pb
from stan.state.database import Changes, Database, StoredState

REPLAY_BYTES = 4 * MiB
"""Entries read at once while the log is replayed."""

SLICES_MAX: Final = 10_000
"""Slices of changed rows before the rest is collected at once, if rows change as fast as that."""

BACKUP = "restore the directory from a backup"
REMEDY = f"{BACKUP}, or start once with --file_truncate_bad_eof to go on without what is lost"
POWER_LOST = (
    "power was lost, which may have taken messages that were acked before they were synced: this node has no vote in the group "
    "until it holds again what the others hold, or all nodes of the group vote"
)
NO_FILES = "the memory store keeps no files"

Offload = Callable[[Callable[[], object]], Awaitable[object]]
"""Runs a blocking call; the simulator runs it on the spot."""

Note = Callable[[str, str], None]
"""Takes level and text of a line for the operator."""


def _nothing() -> None:
    """Stand for work of a thread."""


async def in_thread(call: Callable[[], object]) -> object:
    """Run *call* in a worker thread."""
    return await asyncio.get_running_loop().run_in_executor(None, call)


class Storage:
    """The log of each group, the rows of the groups' states, and with the file store the data directory with them."""

    def __init__(self, logs: dict[GroupId, GroupLog], offload: Offload | None = None) -> None:
        self.logs = logs
        self.rows = StateRows()
        self.directory: DataDirectory | None = None
        self.unconfirmed = False  # the logs may lack deliveries that have left; see Broker.lead
        self.fresh = False  # when it was opened, it had no entry, no term and no vote: the node has promised nothing
        self.differs: dict[GroupId, str] = {}  # text for each group whose state differs from that of other nodes
        self.members: dict[GroupId, StoredMember] = {}  # only a node of a cluster has them
        self.applied: Marks = {}  # newest applied entry; the driver updates it
        self.offload: Offload = offload or in_thread
        self.note: Note = lambda _level, _text: None
        self._files: GroupFiles | None = None
        self._receivers: dict[GroupId, Receiver] = {}

    # --- opening --------------------------------------------------------------------------------------------------------

    @classmethod
    async def open(
        cls,
        config: Config,
        log: ServerLog,
        *,
        groups: Seq[GroupId] | None = None,
        present: bool = False,
        node_id: str = "",
    ) -> "Storage":
        """Open the store of `config.store`.

        Args:
            config: settings.
            log: gets a line for each problem.
            groups: those that this node is a member of; by default all.
            present: open also those of which the directory has files.
            node_id: name in the cluster; by default the one of the settings, else of the directory, else a new one.

        Raises:
            StartError: the directory is not ours, or cannot be used.
            Damage: its content is not as it was written.
        """
        require_compression()
        if config.store.kind == "memory":
            numbers = range(config.store.raft_groups + 1) if groups is None else groups
            return cls({GroupId(number): MemoryLog() for number in numbers})
        directory = config.store.directory
        if directory is None:
            raise StartError("for FILE stores, root directory must be specified")

        def note(level: str, text: str) -> None:
            (log.error if level == "ERR" else log.warning)(text)

        lock = claim_directory(directory, note)
        try:
            if config.cluster is not None and not node_id:
                node_id = config.cluster.node_id or recorded_node_id(str(directory)) or new_nuid()
            if present:
                groups = sorted({*(groups or ()), *groups_on_disk(str(directory))})
            disk = Disk.of(directory, config.encryption, accepts_loss=config.store.truncate_bad_eof)
            self = cls.recover(
                disk, config.cluster_id, config.store.raft_groups, groups=groups, node_id=node_id, lock=lock, note=note
            )
            lost_found = Path(self.files.lost_found.path)
            self.rows.database = await Database.recover(directory / "state.db", lost_found, log.error)
        except BaseException:
            os.close(lock)
            raise
        return self

    @classmethod
    def recover(
        cls,
        disk: Disk,
        cluster_id: str,
        raft_groups: int,
        *,
        groups: Seq[GroupId] | None = None,
        node_id: str = "",
        lock: int | None = None,
        note: Note,
        offload: Offload | None = None,
    ) -> "Storage":
        """Open everything but `rows.database`, which the caller sets before `load`. Blocking.

        Args:
            disk: the place of the directory.
            cluster_id: refused if the directory is of another cluster.
            raft_groups: refused if the directory was made with another number.
            groups: those that this node is a member of; by default all.
            node_id: name in the cluster; "" for a server alone.
            lock: descriptor of the directory's locked file, closed with the storage.
            note: gets a line for each problem.
            offload: runs a blocking call; by default in a thread.

        Raises:
            StartError: the directory is not ours, or cannot be used.
            Damage: its content is not as it was written.
        """
        directory = DataDirectory.open(disk, cluster_id, raft_groups, node_id=node_id, lock=lock)
        files = GroupFiles(directory)
        self = cls({}, offload)
        self.directory, self.unconfirmed, self._files, self.note = directory, directory.power_lost, files, note
        for text in files.tidy():
            note("WRN", text)
        # Directories of other groups are from an unfinished growth.
        counted = range(directory.manifest.groups + 1)
        for number in map(GroupId, counted) if groups is None else groups:
            if number in counted:
                self._open_group(number)
        if disk.cipher is not None and directory.manifest.sealed_from is None:
            self._encrypt_from_now_on(directory, groups_on_disk(disk.directory, disk.files))
        directory.note_boot()
        members = self.members.values()
        self.fresh = all(member.intact for member in members) and not (
            any(log.last_index for log in self.logs.values()) or any(member.hard_state.term for member in members)
        )
        return self

    def _open_group(self, number: GroupId) -> None:
        raft = self.files.raft
        if raft is None:
            self._open_log(number)
            return
        member = self.members[number] = raft.open(number, self.note)
        if member.answers_unsynced and self.files.directory.power_lost:
            self.note("WRN", f"group {number}: {POWER_LOST}")
            member.hard_state.mark_entries_forgotten()  # before anything else is changed
        self._open_log(number)
        state, last = member.hard_state, self.logs[number].last_index
        if state.commit_hint > last and self.files.directory.power_lost:
            state.lower_hint(last)  # the log had that entry, but need not have synced it
        elif state.commit_hint > last and not state.amnesiac:
            self._lost(number, f"the log ends with entry {last}, {state.commit_hint} was committed here")

    def _encrypt_from_now_on(self, directory: DataDirectory, present: Seq[GroupId]) -> None:
        """Encrypt each batch that is appended from here on; those already in the logs may be in clear."""
        directory.note_encrypted_after({n: self.logs[n].last_index if n in self.logs else None for n in present})
        for number, log in self.logs.items():
            if isinstance(log, FileLog):
                log.sealed_from(RaftIndex((log.last_index if number in present else 0) + 1))

    def _lost(self, number: GroupId, what: str) -> None:
        """Handle a log that has lost written entries.

        A member of a cluster has no vote until it has them again. A server alone refuses to start with StartError, unless the
        operator has accepted the loss.
        """
        if self.node_id:
            self.members[number].hard_state.mark_amnesiac()
            more = "this node has no vote in the group until it holds again what the others hold"
        elif self.accepts_loss:
            self.unconfirmed = True
            more = "it goes on without them, and sequences of messages that are lost may be given out again"
        else:
            raise StartError(f"group {number}: {what}; nothing was changed: {REMEDY}")
        self.note("ERR", f"group {number}: {what}; {more}")

    def _open_log(self, number: GroupId) -> None:
        member, opening = self.members.get(number), True

        def damaged() -> None:
            """Note damage: of a file that is about to be moved away, or of a read, which may be in any thread."""
            if member is not None:
                if opening:
                    member.hard_state.mark_amnesiac()
                member.mark_damaged()

        self.logs[number], texts = self.files.open_log(number, damaged, partial(self._lost, number))
        if member is not None:
            member.read_mark()
        opening = False
        for text in texts:
            self.note("WRN", text)

    @property
    def files(self) -> GroupFiles:
        """The files of the groups. Raises StartError: the store has none."""
        if self._files is None:
            raise StartError(NO_FILES)
        return self._files

    @property
    def accepts_loss(self) -> bool:
        """True if the operator has accepted that a log has lost entries."""
        return self.directory is not None and self.directory.disk.accepts_loss

    @property
    def node_id(self) -> str:
        """Name in the cluster; "" for a server alone."""
        return self.directory.manifest.node_id if self.directory is not None else ""

    @property
    def epoch(self) -> int:
        """The epoch of the cluster's last rescue, as far as the directory has it."""
        return self.directory.manifest.epoch if self.directory is not None else 0

    def is_intact(self, number: GroupId) -> bool:
        """False if the log of a group has lost entries that no other log has restored since."""
        member = self.members.get(number)
        return member is None or member.intact

    # --- flushing ---------------------------------------------------------------------------------------------------------

    async def flush(self, broker: Broker) -> None:
        """Sync the logs, then write the rows that have changed to the database.

        Rows are never ahead of the log, as they are collected before its sync. A group whose log fails does not hold up the
        other groups: its rows stay as they are, and Frozen is raised once the rows of the others are written.
        """
        marks, changes = await self._collect(broker)
        failed = None
        for number, log in list(self.logs.items()):
            try:
                if log.durable_index < log.last_index:
                    await self.offload(log.sync)
            except Frozen as error:
                changes.pop(number, None)
                if self.logs.get(number) is log:
                    failed = error
                    self.rows.freeze(number)
                    # The failed log may lack deliveries that have left. On such a disk this may fail, too, and is tried again.
                    if self.directory is not None:
                        with suppress(OSError):
                            await self.offload(self.directory.forget_boot)
            except Exception as error:  # noqa: BLE001 - the border of the group
                changes.pop(number, None)
                self._fail(broker, number, error)
        await self.rows.write(changes, marks, self.applied)
        if self.directory is not None and self.directory.manifest.level < broker.view.meta.level:
            await self.offload(partial(self.directory.change, level=broker.view.meta.level))
        if failed is not None:
            raise failed

    async def _collect(self, broker: Broker) -> tuple[Marks, dict[GroupId, list[Changes]]]:
        """Collect the changed rows of all groups, and the entries as of which they are. Many rows of one group are collected
        slice by slice, each in a turn of the event loop of its own."""
        for number in list(self.applied):
            for _ in range(SLICES_MAX):
                try:
                    if number not in self.applied or not self.rows.take_some(broker, number):
                        break
                except Exception as error:  # noqa: BLE001 - the border of the group, whose rows stay as they are
                    self._fail(broker, number, error)
                    break
                await self.offload(_nothing)
        marks = {number: mark for number, mark in self.applied.items() if mark[0] != self.rows.flushed.get(number)}
        changes: dict[GroupId, list[Changes]] = {}
        for number, mark in marks.items():
            try:
                changes[number] = self.rows.take_changes(broker, number, mark)
            except Exception as error:  # noqa: BLE001 - the border of the group, whose rows stay as they are
                self._fail(broker, number, error)
        return marks, changes

    def _fail(self, broker: Broker, number: GroupId, error: Exception) -> None:
        """Write nothing more of a group in which the program failed; the driver freezes the group."""
        self.applied.pop(number, None)
        self.rows.freeze(number)
        broker.step_fault(number, error)

    def hash_state(self, broker: Broker, number: GroupId) -> None:
        """Remember the hash of a group's state as of the newest applied entry."""
        if number in self.applied:
            self.rows.keep_hash(broker, number, self.applied[number])

    async def release(self, broker: Broker) -> None:
        """Let the logs delete or clean sealed segments that the flushed state covers.

        A group whose newest snapshot is older than its sealed segments gets a new snapshot first. A group whose disk fails does
        not hold up the others: the last such error is raised at the end.
        """
        failed: StanError | OSError | None = None
        for number, log in list(self.logs.items()):
            if number not in self.applied:  # between install and load_group
                continue
            try:
                await self._release(broker, number, log)
            except (StanError, OSError) as error:
                failed = error
            except Exception as error:  # noqa: BLE001 - the border of the group
                self._fail(broker, number, error)
        if failed is not None:
            raise failed

    async def _release(self, broker: Broker, number: GroupId, log: GroupLog) -> None:
        if self.rows.database is None:
            log.release(self.applied[number][0])
            return
        flushed, snapshots = self.rows.flushed.get(number, RaftIndex(0)), self.files.snapshots
        if snapshots.is_due(number, log.sealed_index, flushed):
            await self._snapshot(broker, number)
        if log.sealed_index and self.logs.get(number) is log:  # also if a segment is sealed before each call
            log.compact(broker.view.compactions(number, flushed))
            await self.offload(log.clean)
            broker.step_compacted(number, log.compacted())
        if self.logs.get(number) is log:
            log.release(min(flushed, snapshots.newest[number]))

    async def _snapshot(self, broker: Broker, number: GroupId) -> None:
        """Write a snapshot of a group's state from its rows, from which a lost database can be rebuilt."""
        log, snapshots = self.logs[number], self.files.snapshots
        written: list[RaftIndex] = []

        def write() -> None:
            state = self.read_state(number)
            snapshots.write(number, state.applied_index, state.content)
            written.append(state.applied_index)

        try:
            await self.offload(write)
        except Damage as error:
            self.write_again(broker, number, error)
        if written and self.logs.get(number) is log:
            snapshots.newest[number] = written[0]

    def read_state(self, number: GroupId, sealed_from: int = 0) -> StoredState:
        """Return the state of a group as of the last flush of its rows, with its known voters: the content of a snapshot file.
        Blocking, for a worker thread. *sealed_from*: see pb.Snapshot. Raises NotNow, Damage."""
        database = self.rows.database
        state = None if database is None else database.read_state(number)
        if state is None or not state.applied_index:
            raise NotNow(f"the state of group {number} was not written yet")
        more = pb.Snapshot(sealed_from=sealed_from)
        if number in self.members:
            voters = self.members[number].voters
            if voters.index:
                more.voters[:], more.voters_index = voters.names, voters.index
        return state._replace(content=snapshot_bytes(state.content, more.SerializeToString()))

    def write_again(self, broker: Broker, number: GroupId, error: Damage) -> None:
        """Have the next flush write all rows of a group again, as they are damaged in the database; the state is in memory."""
        self.note("ERR", f"{error}; all rows of group {number} are written again")
        self.rows.mark_stale(number)
        self.rows.flushed.pop(number, None)
        broker.states.touch_all(number)

    # --- transfer ---------------------------------------------------------------------------------------------------------

    def sender(self, now: Callable[[], Nanos]) -> Sender:
        """Make the sender that answers other nodes' requests for groups of this node."""
        files, data = self.files, self.files.directory

        def read(number: GroupId) -> StoredState:
            cipher = data.log_cipher(number)
            return self.read_state(number, cipher.since if cipher is not None else 0)

        def export(number: GroupId, state: StoredState, directory: str) -> Export:
            log = self.logs.get(number)
            if not isinstance(log, FileLog) or not self.is_intact(number) or number not in self.applied:
                raise NotNow(f"group {number} is not whole on this node")
            index = state.applied_index
            if log.first_index - 1 > index or log.term_at(index) not in (0, state.applied_term):
                raise NotNow(f"the log of group {number} has gone on")  # or another one has taken its place
            return Export(log.first_index, log.export(index, directory))

        return Sender(files.files, files.outgoing, read, export, now)

    def receiver(self, number: GroupId) -> Receiver:
        """Return the receiver that gets a group from another node, for `install`; the same one until that is done."""
        files = self.files
        if number not in self._receivers:
            store_id, cipher = self.files.directory.manifest.store_bytes, self.files.directory.disk.cipher
            self._receivers[number] = Receiver(files.files, files.path(number, ".incoming"), number, store_id, cipher)
        return self._receivers[number]

    def install(self, number: GroupId) -> GroupLog:
        """Replace a group's log by the received one; `load_group` into a new machine comes next.

        Until then the group has no applied index. Blocking. Raises NotNow, and has changed nothing, if the received log is not
        finished, does not fit the old log, or cannot add its further entries; after OSError or Damage the group is
        of no use until a restart.
        """
        files, receiver, old = self.files, self._receivers[number], self.logs[number]
        offer = receiver.offer
        if offer is None or not receiver.finished:
            raise NotNow(f"group {number} was not received")
        fits = goes_on(old, offer)
        if fits and old.last_index > offer.index:
            try:
                files.carry_over(number, old)
            except BaseException as error:
                receiver.discard()
                if isinstance(error, OSError | Damage):
                    raise NotNow(f"entries behind those received could not be added to them: {error}") from error
                raise
        files.make_ready(number)
        del self._receivers[number]
        with suppress(Frozen):  # the new log has its entries
            old.close()
        self.applied.pop(number, None)
        self.rows.forget_changes(number)
        files.take_place(number, keep_old=not (fits and self.is_intact(number)))
        self.files.directory.note_encrypted(number)
        self._open_log(number)
        self.rows.unfreeze(number)
        files.snapshots.newest[number] = offer.index
        return self.logs[number]

    # --- added and removed groups -------------------------------------------------------------------------------------------

    def found_groups(self, voters: Mapping[GroupId, Seq[str]], pool: int, *, votes: bool) -> None:
        """Make the directories of groups that are new in the cluster, those in which this node votes; then count *pool* groups.

        A crash before the last step leaves directories that no start reads, and the next call completes. Blocking.

        Args:
            voters: the first voters of each such group.
            pool: number of groups of channels, including them.
            votes: this data directory is the one named for this node; with another one it has no vote yet.
        """
        for number, names in voters.items():
            self.files.bootstrap(number, Voters(list(names)), votes=votes)
        self.files.directory.note_pool(pool)

    async def begin_group(self, number: GroupId) -> None:
        """Begin another group, without entries and rows; `load_group` into a new machine comes next. Its directories are made, or
        are those that `found_groups` has made."""
        await self.rows.delete(number)
        self._open_group(number)

    async def begin_empty_log(self, number: GroupId, why: str) -> None:
        """Move a group's log to lost+found, begin it empty, and delete the group's rows; other nodes have its entries."""
        files = self.files
        self.members[number].hard_state.mark_amnesiac()
        self.logs[number].close()
        aside = files.set_aside(number)
        if files.raft is not None:
            files.raft.mark_intact(number)  # like a new disk: the next log is complete from its beginning
        self.note("ERR", f"{why}; moved to {aside}, this node gets the group's messages from others again")
        self.files.directory.note_encrypted(number)
        self._open_log(number)
        files.snapshots.newest[number] = RaftIndex(0)
        await self.rows.delete(number)

    def abandon_group(self, number: GroupId) -> None:
        """Drop a group that could not be begun; its files are for the next `begin_group`."""
        log, member = self.logs.pop(number, None), self.members.pop(number, None)
        self.applied.pop(number, None)
        self.rows.forget(number)
        with suppress(Frozen, OSError):
            if log is not None:
                log.close()
        with suppress(OSError):
            if member is not None:
                member.hard_state.close()

    async def end_group(self, number: GroupId) -> str:
        """End a group that nothing uses anymore; returns the directory into which its files were moved aside."""
        log, files = self.logs.pop(number), self.files
        for known in (self.applied, files.snapshots.newest, self._receivers):
            known.pop(number, None)
        self.rows.forget(number)
        with suppress(Frozen):
            log.close()
        self.members.pop(number).hard_state.close()
        await self.rows.delete(number)
        self.files.directory.note_encrypted(number)
        return files.retire(number)

    # --- closing ----------------------------------------------------------------------------------------------------------

    async def close(self, *, clean: bool) -> None:
        """Close everything; *clean* when all writes are durable and flushed."""
        for log in self.logs.values():
            log.close()
        for member in self.members.values():
            member.hard_state.close()
        if self.rows.database is not None:
            await self.rows.database.close()
        if self.directory is not None:
            self.directory.close(clean=clean)
