"""Loading of groups from a storage into a broker, at a start and after a transfer: the state first, then the log."""

from functools import partial
from typing import Any

from stan_protocol.scalars import GroupId, MiB, RaftIndex, Sequence, Term

from stan.core.broker.broker import Broker
from stan.core.services.node import META_GROUP
from stan.edge.storage.manifest import new_nuid
from stan.edge.storage.raft_files import Voters
from stan.edge.storage.storage import BACKUP, REMEDY, Storage
from stan.errors import Damage, StanError, StartError, fault
from stan.limits import RESTORED_GAP_MAX
from stan.log.files.filelog import FileLog
from stan.log.types import Entry
from stan.protocol.entries import DEFERRED_UID, Kind, encode_batch
from stan.protocol.proto import entries_pb2 as pb
from stan.raft.solo import SOLO_TERM

REPLAY_BYTES = 4 * MiB
"""Entries read at once while the log is replayed."""


class StateLoader:
    """Brings a broker to the state of a storage: rows or snapshot of each group, then every entry of its log after them."""

    def __init__(self, storage: Storage, broker: Broker, *, replicated: bool = False) -> None:
        """*replicated*: the later entries are neither committed nor applied, as the group's leader decides about them; a group
        whose state and log do not fit together begins empty."""
        self._storage = storage
        self._broker = broker
        self._replicated = replicated

    async def load(self) -> dict[GroupId, Exception]:
        """Load all groups. Returns the errors of those whose log the program could not replay; the others can be served."""
        if self._storage.rows.database is not None and self._storage.directory is not None:
            for text in await self._storage.rows.database.drop_strays(self._storage.directory.manifest.groups):
                self._storage.note("ERR", text)
        failed: dict[GroupId, Exception] = {}
        await self.load_group(META_GROUP)
        if not self._broker.view.meta.founded and not self._replicated:
            body = pb.MetaChange(cluster_info=self._broker.roles.founding(new_nuid().encode())).SerializeToString()
            self.append(META_GROUP, Kind.META, body)  # which gives a new server its identity
        for number in self._broker.view.groups:
            if number in self._storage.logs:
                error = await self.load_group(number)
                if error is not None:
                    failed[number] = error
                if not self._replicated:
                    self._expect_known_channels(number)
        return failed

    def _expect_known_channels(self, number: GroupId) -> None:
        """Raise Damage if the log has messages of a channel that the metadata has lost: the next channel would get its number."""
        log, next_uid = self._storage.logs[number], self._broker.view.meta.next_uid
        unknown = [u for u in log.channels() if next_uid <= u < DEFERRED_UID and log.channel(u).last_sequence]
        if unknown:
            raise Damage(
                f"group {number} has messages of channel number {unknown[0]}, of which the metadata has lost its name; "
                f"{BACKUP}"
            )

    async def load_group(self, number: GroupId) -> Exception | None:
        """Give the broker the state of one group, from its log and rows.

        It is made off the event loop, and takes the place of the old one in one step: until then the old metadata have
        the channels and clients.

        Returns the error if the program could not replay the log; then the failure of the group is reported to the self._broker.
        """
        snapshot, rewrites = await self._newest_state(number)
        machine: Any = await self._storage.offload(
            partial(self._broker.states.restored, number, snapshot, changed=rewrites)
        )
        self._broker.states.reset(number, machine)
        if rewrites:
            self._storage.rows.mark_stale(number)
        if snapshot.voters_index and number in self._storage.members:  # a server alone has no members
            self._storage.members[number].set_voters(Voters(list(snapshot.voters), snapshot.voters_index))
        applied = RaftIndex(snapshot.applied_index)
        if self._replicated:
            self._storage.logs[number].commit(applied)
            self._storage.applied[number] = (applied, Term(snapshot.applied_term))
        else:
            try:
                self.replay(number, applied)
            except (StanError, OSError):
                raise
            except Exception as error:  # the border of the group: the others are served
                if number == META_GROUP:
                    raise StartError(f"the metadata cannot be replayed: {fault(error)}") from error
                self._broker.stops.step_failed(number, fault(error))
                return error
            if self._storage.accepts_loss and number != META_GROUP:
                self._pass_over(number)
        if number != META_GROUP:
            self._trim(number)
        return None

    async def _newest_state(self, number: GroupId) -> tuple[pb.Snapshot, bool]:
        """Find the state to start from: the rows, or the newest snapshot if the rows are lost or older.

        The second value is True if all rows have to be written again. Raises Damage if state and log do not fit together; a
        replicated group begins empty then.
        """
        log = self._storage.logs[number]
        snapshot, why = await self._storage.rows.read(number)
        newest = self._storage.files.snapshots.find(number) if self._storage.directory is not None else RaftIndex(0)
        rewrites = bool(why)
        if snapshot.applied_index < newest <= log.last_index:
            try:
                stored: Any = await self._storage.offload(partial(self._storage.files.snapshots.read, number, newest))
                snapshot, rewrites = stored, True
            except Damage as error:
                why += f"{error}; "
        applied = snapshot.applied_index
        if log.first_index - 1 <= applied <= log.last_index:
            if why:
                self._storage.note("ERR", f"{why}group {number} is made again from entry {applied + 1} of its log on")
            return snapshot, rewrites
        why += (
            f"group {number}: the state stands at entry {applied}, the log holds [{log.first_index}, {log.last_index}]"
        )
        if not self._replicated:
            if applied > log.last_index and self._storage.accepts_loss and isinstance(log, FileLog):
                log.skip(RaftIndex(applied + 1))
                return snapshot, rewrites
            remedy = REMEDY if applied > log.last_index else BACKUP
            raise Damage(f"{why}; {'restore the file from a backup' if self._storage.directory is None else remedy}")
        await self._storage.begin_empty_log(number, why)
        return pb.Snapshot(), False

    def replay(self, number: GroupId, applied: RaftIndex) -> None:
        """Apply the entries after *applied*: a server alone has committed its whole log."""
        log = self._storage.logs[number]
        log.commit(log.last_index)
        at = RaftIndex(applied + 1)
        term = SOLO_TERM
        while at <= log.last_index:
            entries = log.entries(at, log.last_index, REPLAY_BYTES)
            for entry in entries:
                self._broker.states.replay_entry(number, entry.index, entry.kind, entry.body)
                term = entry.term
            at = RaftIndex(entries[-1].index + 1)
        self._storage.applied[number] = (RaftIndex(max(applied, log.last_index)), term)

    def _pass_over(self, number: GroupId) -> None:
        """Mark the messages that the log has lost, for readers; those behind its end that a position knows get no new message.

        In place of the latter the log gets a batch without records, and a removal of its sequences.
        """
        log, group = self._storage.logs[number], self._broker.view.groups[number]
        first_sequences, passed = group.first_sequences(), group.passed()
        for uid in sorted({*passed, *log.channels()} & self._broker.view.meta.by_uid.keys()):
            index, oldest = log.channel(uid), Sequence(first_sequences.get(uid, 0))
            first = Sequence(index.last_sequence + 1)
            last = min(passed.get(uid, 0), index.last_sequence + RESTORED_GAP_MAX)
            lost = log.lost_until(uid) if isinstance(log, FileLog) else 0
            removal = pb.Removal(uid=uid, lost_until=lost if lost >= oldest else 0)
            if first <= last:
                removal.lost_until = last
                removal.deleted.extend((first, last))
                gap = encode_batch(uid, first, last - first + 1, index.last_timestamp, oldest, b"")
                self.append(number, Kind.RECORDS, b"".join(gap))
            if removal.lost_until:
                name = self._broker.view.meta.by_uid[uid].name
                text = f"messages {first} to {last}" if first <= last else f"messages up to {lost}"
                self._storage.note("ERR", f"group {number}: {text} of {name!r} are lost")
                self.append(number, Kind.CHANGE, pb.GroupChange(removal=removal).SerializeToString())

    def append(self, number: GroupId, kind: Kind, body: bytes) -> None:
        """Append, sync, commit and apply an entry of a server alone, before it serves clients."""
        log = self._storage.logs[number]
        index = RaftIndex(log.last_index + 1)
        log.append([Entry(index, SOLO_TERM, kind, body)])
        log.sync()
        log.commit(index)
        self._broker.states.replay_entry(number, index, kind, body)
        self._storage.applied[number] = (index, SOLO_TERM)

    def _trim(self, number: GroupId) -> None:
        """Trim and drop the channels of a group's log as far as its loaded state has removed their messages."""
        group, log = self._broker.view.groups[number], self._storage.logs[number]
        for uid, first_sequence in group.first_sequences().items():
            log.trim(uid, Sequence(first_sequence))
        for uid in [uid for uid in log.channels() if group.is_dropped(uid)]:
            log.drop(uid)
