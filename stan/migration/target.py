"""A new data directory for one node, written as if a broker had received everything itself: the same entries, applied by the same
machines, so that a replay of the logs gives the same state as the rows.

Promises: until `finish` has returned, no server starts on the directory: the manifest comes last.
An interrupted migration's directory is recognised by its mark, and removed by the next one. Nothing else is ever removed.
"""

import asyncio
import os
import secrets
import shutil
from pathlib import Path

from stan_protocol.scalars import ChannelUid, GroupId, MiB, RaftIndex, Sequence, Term, WallNanos

from stan import level
from stan.core.metadata.meta import MetaMachine
from stan.core.state.group import GroupMachine
from stan.edge.storage.manifest import MIGRATING, NAME, Manifest, boot_id, lock_directory, new_nuid, write_manifest
from stan.edge.storage.snapshot_files import snapshot_bytes, snapshot_path
from stan.errors import StartError
from stan.log.files.disk import OsFiles, write_durably
from stan.log.files.filelog import FileLog
from stan.log.types import Entry
from stan.migration.source import MessageRun
from stan.migration.subscriptions import OldPosition
from stan.protocol.entries import Kind, encode_batch
from stan.protocol.placement import channel_group
from stan.protocol.proto import entries_pb2 as pb
from stan.state.changes import add_rows
from stan.state.database import Changes, Database

ENTRY_BYTES = 1 * MiB
"""An entry is written once it holds this much."""
_TERM = Term(1)
_META = GroupId(0)


class _Log:
    """The log of one group and the entry that is being filled."""

    def __init__(self, directory: Path, group: GroupId, store_id: bytes) -> None:
        self.group = group
        self.log, _ = FileLog.open(directory / "groups" / str(group), group, store_id, tail_cache_bytes_max=0)
        self._parts: list[bytes] = []
        self._size = 0

    @property
    def index(self) -> RaftIndex:
        """Index of the newest entry."""
        return self.log.last_index

    def add(self, header: bytes, records: bytes) -> None:
        """Add a batch to the entry that is being filled."""
        self._parts += (header, records)
        self._size += len(header) + len(records)
        if self._size >= ENTRY_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the entry that is being filled."""
        if self._parts:
            body = b"".join(self._parts)
            self._parts.clear()
            self._size = 0
            self._append(Kind.RECORDS, body)

    def skip(self) -> None:
        """Leave a gap in the log, across which sequences may be missing."""
        self.flush()
        self.log.skip()

    def append(self, kind: Kind, body: bytes) -> RaftIndex:
        """Write an entry after all others; returns its index."""
        self.flush()
        return self._append(kind, body)

    def _append(self, kind: Kind, body: bytes) -> RaftIndex:
        index = RaftIndex(self.log.last_index + 1)
        self.log.append([Entry(index, _TERM, kind, body)])
        self.log.commit(index)
        return index


class MigrationTarget:
    """The new data directory, closed by leaving its `with` block. Raises StartError, StanError, OSError.

    Args:
        directory: does not exist, is empty, or was left by an interrupted migration.
        cluster_id: whose the channels are.
        raft_groups: pool of channel groups of the server that will use it.
    """

    def __init__(self, directory: Path, cluster_id: bytes, raft_groups: int) -> None:
        self._directory = directory
        self._lock = lock_directory(directory)
        try:
            self._begin()
            store_id = secrets.token_hex(16)
            self._manifest = Manifest(cluster_id.decode(errors="replace"), raft_groups, store_id, boot_id())
            self._meta = MetaMachine()
            self._machines = {GroupId(number): GroupMachine(GroupId(number)) for number in range(1, raft_groups + 1)}
            self._logs = {
                number: _Log(directory, number, self._manifest.store_bytes) for number in (_META, *self._machines)
            }
        except BaseException:
            os.close(self._lock)
            raise
        self._nuid = new_nuid().encode()
        self._change_meta(
            cluster_info=pb.ClusterInfo(
                cluster_id=cluster_id, raft_groups=raft_groups, nuid=self._nuid, level=level.KNOWN
            )
        )

    def __enter__(self) -> "MigrationTarget":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)

    def _begin(self) -> None:
        """Mark the directory, and remove the remains of an earlier attempt."""
        names = {path.name for path in self._directory.iterdir()} - {"lock"}
        if names and (MIGRATING not in names or NAME in names):
            raise StartError(f"{self._directory} is not empty; give a directory that does not exist yet")
        write_durably(OsFiles(), str(self._directory / MIGRATING), b"not a store yet\n")
        for path in self._directory.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name not in (MIGRATING, "lock"):
                path.unlink()
        OsFiles().makedirs(str(self._directory / "groups"))
        OsFiles().sync_directory(str(self._directory))

    def channel(self, name: bytes) -> "TargetChannel | None":
        """Begin a channel; None if the name of another one differs from it in upper and lower case alone."""
        group = channel_group(name, len(self._machines))
        known = len(self._meta.channels)
        self._change_meta(create_channels=pb.CreateChannels(channels=[pb.Channel(name=name, group=group)]))
        if len(self._meta.channels) == known:
            return None
        return TargetChannel(self._meta.channels[name].uid, self._machines[group], self._logs[group], self._nuid)

    def _change_meta(self, **change: pb.ClusterInfo | pb.CreateChannels) -> None:
        entry = pb.MetaChange(**change)  # type: ignore[arg-type]
        index = self._logs[_META].append(Kind.META, entry.SerializeToString())
        self._meta.apply(entry, index)

    def finish(self) -> None:
        """Make everything durable, then make the directory a store."""
        for log in self._logs.values():
            log.flush()
        marks = {number: log.index for number, log in self._logs.items()}
        self._write_snapshots(marks)
        for log in self._logs.values():
            log.log.close()
        asyncio.run(self._write_rows(marks))
        files = OsFiles()
        files.sync_directory(str(self._directory / "groups"))
        files.sync_directory(str(self._directory))
        write_manifest(str(self._directory), self._manifest)
        files.unlink(str(self._directory / MIGRATING))
        files.sync_directory(str(self._directory))

    def _write_snapshots(self, marks: dict[GroupId, RaftIndex]) -> None:
        """Write the state beside each log, as entries may be missing before it."""
        for number, index in marks.items():
            snapshot = pb.Snapshot(applied_index=index, applied_term=_TERM)
            if number == _META:
                self._meta.snapshot(snapshot)
            else:
                self._machines[number].snapshot(snapshot)
            path = snapshot_path(str(self._directory / "groups" / str(number)), index)
            write_durably(OsFiles(), path, snapshot_bytes(snapshot.SerializeToString()))

    async def _write_rows(self, marks: dict[GroupId, RaftIndex]) -> None:
        changes = Changes()
        add_rows(changes, _META, self._meta.take_changed_rows(), (marks[_META], _TERM))
        for number, machine in self._machines.items():
            add_rows(changes, number, machine.take_changed_rows(), (marks[number], _TERM))
        database = await Database.open(self._directory / "state.db")
        try:
            await database.flush(changes)
        finally:
            await database.close()


class TargetChannel:
    """A channel of the new directory."""

    def __init__(self, uid: ChannelUid, machine: GroupMachine, log: _Log, nuid: bytes) -> None:
        self._uid = uid
        self._machine = machine
        self._log = log
        self._nuid = nuid
        self._first = Sequence(0)

    def add(self, batch: MessageRun) -> None:
        """Add the next messages."""
        if batch.gap:
            self._log.skip()
        if not self._first:
            self._first = Sequence(batch.base)
            self._machine.trim(self._uid, self._first)
        time = WallNanos(batch.timestamp)
        self._log.add(*encode_batch(self._uid, Sequence(batch.base), batch.count, time, self._first, batch.records))

    def begin_behind(self, sequence: int) -> None:
        """Begin an empty channel, whose next message comes after *sequence*."""
        self._change(trim=pb.Trim(first_sequences=[self._uid, sequence + 1]))

    def position(self, position: OldPosition) -> None:
        """Add a durable or durable group as its last member would have left it."""
        before = set(self._machine.subscriptions.by_id)
        self._change(
            subscribe=pb.Subscribe(
                uid=self._uid,
                client_id=position.client_id,
                inbox=position.inbox,
                queue_group=position.queue_group,
                durable_name=position.durable,
                max_in_flight=position.max_in_flight,
                ack_wait_s=position.ack_wait_s,
                start_sequence=position.last_sent + 1,
                sent_before=True,
                nuid=self._nuid,
            )
        )
        (member,) = set(self._machine.subscriptions.by_id) - before
        cursor = self._machine.subscriptions.by_id[member].cursor_id
        owed = pb.Progress(cursor_id=cursor, last_sent=position.last_sent, held=[pb.Held(runs=position.runs())])
        self._change(progress=[owed], leave=pb.Leave(uid=self._uid, subscription_id=member))

    def _change(self, **change: object) -> None:
        entry = pb.GroupChange(**change)  # type: ignore[arg-type]
        index = self._log.append(Kind.CHANGE, entry.SerializeToString())
        self._machine.apply(entry, index)
