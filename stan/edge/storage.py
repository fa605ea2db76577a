"""What a node keeps: one log per group and the state database; opening, replaying, flushing, closing.

Layout of a data directory: `stan.json` (manifest), `lock`, `state.db`, `groups/<number>/` (segments and snapshots),
`lost+found/` (what could not be used; nothing is ever deleted because something else is missing).
"""

import asyncio
import os
import secrets
import string
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from google.protobuf.message import DecodeError

from stan.config import Config
from stan.core.broker import Broker
from stan.core.rows import restore_group, snapshot_group
from stan.core.shared import META_GROUP
from stan.edge.log import ServerLog
from stan.edge.manifest import Manifest, lock_directory, open_manifest, write_durably, write_manifest
from stan.errors import Damage, StartError
from stan.log.filelog import FileLog
from stan.log.memorylog import MemoryLog
from stan.log.types import Entry, GroupLog
from stan.protocol import entries_pb2 as pb
from stan.protocol.entries import Kind, decode_batches
from stan.state.changes import group_changes, meta_changes
from stan.state.database import Changes, Database
from stan.types import ChannelUid, GroupId, MiB, RaftIndex, Sequence, Term

REPLAY_BYTES = 4 * MiB
"""Entries read at once while the log is replayed."""


Offload = Callable[[Callable[[], object]], Awaitable[object]]
"""Runs something that blocks; the simulator runs it on the spot."""


async def in_thread(call: Callable[[], object]) -> object:
    """Run *call* in a worker thread."""
    return await asyncio.get_running_loop().run_in_executor(None, call)


class Storage:
    """Logs by group, and the database; None with the memory store."""

    def __init__(self, logs: dict[GroupId, GroupLog], offload: Offload | None = None) -> None:
        self.logs = logs
        self._offload: Offload = offload or in_thread
        self.directory: Path | None = None
        self.database: Database | None = None
        self.manifest: Manifest | None = None
        self.doubt = False
        self.applied: dict[GroupId, tuple[RaftIndex, Term]] = {}  # kept up to date by the driver
        self._flushed: dict[GroupId, RaftIndex] = {}
        self._snapshots: dict[GroupId, RaftIndex] = {}
        self._unwritten: list[Changes] = []
        self._lock: int | None = None

    # --- opening --------------------------------------------------------------------------------------------------------

    @classmethod
    async def open(cls, config: Config, log: ServerLog) -> "Storage":
        """Open what `config.store` says; raises StartError or Damage."""
        numbers = [GroupId(number) for number in range(config.store.raft_groups + 1)]
        if config.store.kind == "memory":
            return cls({number: MemoryLog() for number in numbers})
        directory = config.store.directory
        if directory is None:
            raise StartError("for FILE stores, root directory must be specified")
        lock = lock_directory(directory)
        try:
            return await cls._open_files(config, directory, numbers, log, lock)
        except BaseException:
            os.close(lock)
            raise

    @classmethod
    async def _open_files(
        cls, config: Config, directory: Path, numbers: list[GroupId], log: ServerLog, lock: int
    ) -> "Storage":
        manifest, doubt = open_manifest(directory, config.cluster_id, config.store.raft_groups)
        logs: dict[GroupId, GroupLog] = {}
        for number in numbers:
            opened, report = FileLog.open(
                directory / "groups" / str(number),
                group=number,
                store_id=manifest.store_bytes,
                lost_found=directory / "lost+found",
            )
            for line in report.texts:
                log.warning(line)
            logs[number] = opened
        self = cls(logs)
        self._lock = lock
        self.directory = directory
        self.manifest = manifest
        self.doubt = doubt
        self.database = await self._open_database(directory, log)
        return self

    async def _open_database(self, directory: Path, log: ServerLog) -> Database:
        path = directory / "state.db"
        try:
            return await Database.open(path)
        except Damage as error:
            aside = directory / "lost+found"
            aside.mkdir(exist_ok=True)
            log.error(f"{error}; moved to {aside}, the state is rebuilt from the logs")
            stamp = time.time_ns()
            for name in ("state.db", "state.db-wal", "state.db-shm"):
                if (directory / name).exists():
                    (directory / name).rename(aside / f"{stamp}-{name}")
            return await Database.open(path)

    # --- replay -----------------------------------------------------------------------------------------------------------

    async def load(self, broker: Broker, cluster_id: str) -> None:
        """Bring *broker* to the state of its logs: rows, then every entry after them."""
        meta = broker.shared.meta
        snapshot, lost = await self._snapshot(META_GROUP)
        meta.restore(snapshot)
        if lost:
            meta.touch_all()
        self._replay(broker, META_GROUP, RaftIndex(snapshot.applied_index))
        if meta.info is None:
            self._found_cluster(broker, cluster_id)
        if meta.info is not None:
            broker.set_ack_prefix(meta.info.nuid)
        for number in broker.shared.groups:
            snapshot, lost = await self._snapshot(number)
            machine = broker.shared.groups[number].machine
            restore_group(machine, snapshot)
            if lost:
                machine.touch_all()
            self._replay(broker, number, RaftIndex(snapshot.applied_index))
            self._trim(broker, number)

    async def _snapshot(self, number: GroupId) -> tuple[pb.Snapshot, bool]:
        """The state to start from, and whether it comes from a snapshot file because the rows are lost."""
        snapshot = pb.Snapshot() if self.database is None else await self.database.snapshot(number)
        files = self._snapshot_files(number)
        lost = bool(files) and not snapshot.applied_index
        if files:
            self._snapshots[number] = RaftIndex(int(files[-1].stem.split("-")[1]))
        if lost:
            try:
                snapshot = pb.Snapshot.FromString(files[-1].read_bytes())
            except DecodeError as error:
                raise Damage(f"{files[-1]}: {error}") from error
        log = self.logs[number]
        if snapshot.applied_index > log.last_index or snapshot.applied_index + 1 < log.first_index:
            raise Damage(
                f"group {number}: the state stands at entry {snapshot.applied_index}, the log holds "
                f"[{log.first_index}, {log.last_index}]; restore the directory from a backup"
            )
        return snapshot, lost

    def _snapshot_files(self, number: GroupId) -> list[Path]:
        if self.directory is None:
            return []
        return sorted((self.directory / "groups" / str(number)).glob("state-*.snap"))

    def _replay(self, broker: Broker, number: GroupId, applied: RaftIndex) -> None:
        log = self.logs[number]
        log.commit(log.last_index)
        at = RaftIndex(applied + 1)
        term = Term(1)
        while at <= log.last_index:
            entries = log.entries(at, log.last_index, REPLAY_BYTES)
            for entry in entries:
                apply_entry(broker, number, entry.index, entry.kind, entry.body)
                term = entry.term
            at = RaftIndex(entries[-1].index + 1)
        self.applied[number] = (RaftIndex(max(applied, log.last_index)), term)

    def _found_cluster(self, broker: Broker, cluster_id: str) -> None:
        """The first entry of all: who we are."""
        log = self.logs[META_GROUP]
        info = pb.ClusterInfo(
            cluster_id=cluster_id.encode(), raft_groups=len(broker.shared.groups), nuid=new_nuid().encode()
        )
        body = pb.MetaChange(cluster_info=info).SerializeToString()
        index = RaftIndex(log.last_index + 1)
        log.append([Entry(index, Term(1), Kind.META, body)])
        log.sync()
        log.commit(index)
        apply_entry(broker, META_GROUP, index, Kind.META, body)
        self.applied[META_GROUP] = (index, Term(1))

    def _trim(self, broker: Broker, number: GroupId) -> None:
        machine = broker.shared.groups[number].machine
        for uid, channel in machine.channels.items():
            if channel.first_sequence:
                self.logs[number].trim(uid, Sequence(channel.first_sequence))
        for dropped in machine.dropped:
            self.logs[number].drop(ChannelUid(dropped))

    # --- flushing ---------------------------------------------------------------------------------------------------------

    async def flush(self, broker: Broker) -> None:
        """Make everything written durable, then the rows that changed; then let go of what the logs no longer need.

        The state never leads the log: what is applied is looked at before the logs are synced.
        """
        marks = dict(self.applied)
        changes = self._changes(broker, marks)
        for log in self.logs.values():
            if log.durable_index < log.last_index:
                await self._offload(log.sync)
        if self.database is None:
            return
        if changes.upserts:
            self._unwritten.append(changes)
        while self._unwritten:
            await self.database.flush(self._unwritten[0])
            del self._unwritten[0]
        for number, mark in marks.items():
            self._flushed[number] = mark[0]

    def _changes(self, broker: Broker, marks: dict[GroupId, tuple[RaftIndex, Term]]) -> Changes:
        changes = Changes()
        for number, mark in marks.items():
            if mark[0] == self._flushed.get(number):
                continue
            if number == META_GROUP:
                meta_changes(changes, broker.shared.meta, mark)
            else:
                group_changes(changes, broker.shared.groups[number].machine, mark)
        return changes

    async def release(self, broker: Broker) -> None:
        """Write a snapshot of each group that has sealed segments behind its flushed state, then give these segments free."""
        for number, log in self.logs.items():
            if self.database is None:
                log.release(self.applied[number][0])
                continue
            sealed = log.sealed_index
            if sealed <= self._snapshots.get(number, 0) or sealed > self._flushed.get(number, RaftIndex(0)):
                await self._offload(log.clean)
                continue
            await self._write_snapshot(broker, number)
            log.release(self._flushed[number])

    async def _write_snapshot(self, broker: Broker, number: GroupId) -> None:
        """The state as of now in a file, so that a lost database can be made again."""
        index, term = self.applied[number]
        snapshot = pb.Snapshot(applied_index=index, applied_term=term)
        if number == META_GROUP:
            broker.shared.meta.snapshot(snapshot)
        else:
            snapshot_group(broker.shared.groups[number].machine, snapshot)
        if self.directory is not None:
            old = self._snapshot_files(number)
            path = self.directory / "groups" / str(number) / f"state-{index:020d}.snap"
            await self._offload(partial(write_durably, path, snapshot.SerializeToString()))
            for obsolete in old:
                obsolete.unlink(missing_ok=True)
        self._snapshots[number] = index

    async def close(self, *, clean: bool) -> None:
        """Close everything; *clean* when all that was written is durable and flushed."""
        for log in self.logs.values():
            log.close()
        if self.database is not None:
            await self.database.close()
        if self.directory is not None and self.manifest is not None and clean:
            self.manifest.clean = True
            write_manifest(self.directory, self.manifest)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def apply_entry(broker: Broker, number: GroupId, index: RaftIndex, kind: int, body: bytes) -> None:
    """Apply one entry to the replicated state alone, as replay does: nobody is answered and nothing is delivered."""
    if kind == Kind.META:
        broker.shared.meta.apply(pb.MetaChange.FromString(body), index)
    elif kind == Kind.CHANGE:
        broker.shared.groups[number].machine.apply(pb.GroupChange.FromString(body), index)
    elif kind == Kind.RECORDS:
        machine = broker.shared.groups[number].machine
        for batch in decode_batches(body):
            machine.trim(batch.uid, batch.first_sequence)


def new_nuid() -> str:
    """22 random characters of NUID's alphabet (STAN-SPEC 1.7)."""
    alphabet = string.digits + string.ascii_uppercase + string.ascii_lowercase
    return "".join(secrets.choice(alphabet) for _ in range(22))
