"""From publishes that have passed the filters, and rows (stan.core.publishing.row_batch), to committed record batches and acks.

    publishes ─┬─ due later: hidden channel of the group ─┐
               ├─ expire: rows that say when ─────────────┼─► waiting in a channel ─► sealed: one entry per group ─► acks
    rows ──────┴──────────────────────────────────────────┘      └─► of an ephemeral channel: in memory, and acknowledged

A message is acknowledged (P1) only once its entry is committed, which means: on stable storage.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from struct import Struct

from stan_protocol import refusals
from stan_protocol.frames import Publishes
from stan_protocol.scalars import ChannelUid, GroupId, MiB, RaftIndex

from stan import limits
from stan.core.base.names import text
from stan.core.base.payload_limit import MESSAGE_ROOM
from stan.core.base.ready import InDoubt, Proposal, ReadResult
from stan.core.leader.local_group import LeaderParts, Leadership
from stan.core.leader.publish_replay import encode
from stan.core.publishing.channels import LiveChannels
from stan.core.publishing.compressing import Batch, Compressing, apart, frame_of
from stan.core.publishing.deferrals import Deferrals, deferred_change
from stan.core.publishing.ephemeral import BODIES_OF, COUNT_OF, EphemeralChannels
from stan.core.publishing.expiry_rows import expiring_change, expiry, restamped, runs_of, times_of
from stan.core.publishing.live_channel import LiveChannel
from stan.core.publishing.refusing import PASSING, refuse, refuse_as_leader
from stan.core.publishing.row_batch import RowBatch, StoreResult
from stan.core.publishing.schema_checks import SchemaChecks
from stan.core.publishing.waiting_publishes import WaitingPublishes
from stan.core.services.leader_part import LeaderPart
from stan.core.services.proposals import nobody_waits
from stan.core.services.services import Services
from stan.policies import EPHEMERAL
from stan.protocol.entries import (
    DEFERRED_UID,
    STAGING_UID,
    Kind,
    RecordBatch,
    encode_batch,
    encode_change,
    encode_fingerprints,
)
from stan.protocol.expiry import TAG, stamped
from stan.protocol.kernel import server as kernel

TIMES, REFERENCES = "messages with a time", "messages that are stored together with a change"
"""What an ephemeral channel does not have."""
_LENGTH = Struct("<I")
ENTRY_BYTES_TARGET = 1 * MiB
"""An entry is closed once it holds this many bytes (RAFT.md: larger entries only hurt the latency of others)."""


class Sealed:
    """A RECORDS entry on its way: the acks to send when it is committed, the sequences to take back when it is not. No
    dataclass: each publish that comes alone makes one."""

    __slots__ = ("acked", "acks", "channels", "fingerprinted", "leader", "parts", "rows", "size")

    def __init__(self, leader: LeaderParts) -> None:
        self.leader = leader
        self.parts: list[bytes] = []
        self.size = 0
        self.acks: list[bytes] = []
        self.acked = 0  # messages whose publishers want an ack
        self.channels: list[tuple[LiveChannel, int, int]] = []  # channel, base, bytes
        self.fingerprinted: list[Publishes] = []
        self.rows: list[tuple[RowBatch, int]] = []  # and their first sequence


class Publishing:
    """Stores messages in the channels that this node leads."""

    def __init__(self, services: Services, channels: LiveChannels, schemas: SchemaChecks) -> None:
        self._services = services
        self.faults, self.leading, self.node = services.faults, services.leading, services.node
        self.outgoing, self.placement, self.proposals = services.outgoing, services.placement, services.proposals
        self.reports, self.stored = services.reports, services.stored
        self.channels = channels
        self.schemas = schemas
        self.compressing = Compressing(services, channels)
        self.unqueued = WaitingPublishes()
        self.waiting: dict[GroupId, dict[ChannelUid, LiveChannel]] = {}  # channels with unsealed messages
        self.unsealed: Counter[GroupId] = Counter()  # bytes of messages that wait in their channels to be sealed
        self.uncommitted: Counter[GroupId] = Counter()  # bytes of sealed messages that are on their way into the log
        self.followed: dict[
            ChannelUid, Callable[[RecordBatch], None]
        ] = {}  # called with each committed batch of a channel

    # --- the route --------------------------------------------------------------------------------------------------------

    def store(self, channel: LiveChannel, batch: Publishes) -> None:
        """Queue publishes that have passed the filters; they are refused if too much waits."""
        info, times = channel.info, batch.times
        if times.dues:
            bodies = batch.bodies
            if times.ttls:  # from when it is due
                dues_and_ttls = zip(array("q", times.dues), array("q", times.ttls), strict=True)
                bodies = stamped(bodies, array("q", [expiry(due, ttl) if ttl else 0 for due, ttl in dues_and_ttls]))
            change = partial(deferred_change, info.uid, batch)
            rows = RowBatch(bodies, batch.count, partial(self._stored, batch), change, source=batch)
            queued = self._queue(self.leading.leadership(info.group).part(Deferrals).hidden, rows)
        elif times.ttls or info.uid in self.channels.policies.ttls:
            expiries = times_of(
                times.ttls, batch.count, self.node.clock.wall, self.channels.policies.ttls.get(info.uid, 0)
            )
            rows = RowBatch(stamped(batch.bodies, expiries), batch.count, partial(self._stored, batch), source=batch)
            if not self._list_expiring(channel, rows, expiries):
                refuse(self._services, batch.acks, refusals.TOO_MANY_EXPIRING, batch.channel)
                return
            queued = self._queue(channel, rows)
        else:
            queued = self._queue(channel, batch)
        if not queued:  # refused, as reading must not pause: it brings the majority's answers
            refuse(self._services, batch.acks, refusals.TOO_MUCH_WAITING, batch.channel)

    def _stored(self, batch: Publishes, stored: StoreResult) -> None:
        """Publishes that became rows are stored, or not."""
        acks = batch.acks
        if stored.error:
            refuse(self._services, acks, stored.error, batch.channel)
            return
        if batch.numbered:
            level = self.placement.ack_level(self.placement.group_number(batch.channel))
            acks = kernel.number(acks, batch.replied, stored.first, level)
        self.outgoing.pub_acks.append(acks)

    def add(self, channel: LiveChannel, rows: RowBatch) -> None:
        """Queue *rows* for a channel that this node leads; `rows.on_done` is called with the outcome."""
        error = self.channels.policies.delay_refusal(channel, rows.count)
        info, ttls = channel.info, self.channels.policies.ttls
        may_expire = not rows.lasting and TAG in rows.bodies
        if info.is_ephemeral:
            what = TIMES if may_expire else REFERENCES if rows.change or rows.expiring else ""
            error = refusals.NOT_OF_EPHEMERAL.format(refusals.go_quote(text(info.name)), what) if what else ""
        # What is put back into the hidden channel of delayed messages expires in its own channel, not there.
        if not error and info.uid != DEFERRED_UID and (info.uid in ttls or may_expire):
            rows.bodies, times = restamped(rows.bodies, self.node.clock.wall, ttls.get(info.uid, 0))
            rows.frame = b""
            error = "" if self._list_expiring(channel, rows, times) else refusals.TOO_MANY_EXPIRING
        if not error:
            if rows.frame:
                self.compressing.framed.add(info.uid)
            error = "" if self._queue(channel, rows) else refusals.TOO_MUCH_WAITING
        if error:
            rows.on_done(StoreResult(error=error, retry=error in PASSING))

    def _list_expiring(self, channel: LiveChannel, rows: RowBatch, times: "array[int]") -> bool:
        """See to it that rows which expire are listed once they are stored; False if that would be too many runs."""
        info = channel.info
        runs, expiries = runs_of(times)
        if not expiries:
            return True
        machine = self.node.group_of(info).machine
        gone = machine.tombstones.by_channel.get(info.uid)
        listed = machine.expiries.pieces(info.uid) + (gone.pieces if gone is not None else 0)
        if listed + len(expiries) > limits.EXPIRING_RUNS_MAX:
            return False
        rows.expiring = partial(expiring_change, info.uid, runs, expiries)
        return True

    # --- waiting in their channels ---------------------------------------------------------------------------------------

    def _queue(self, channel: LiveChannel, batch: Batch) -> bool:
        """Have messages wait for their sequences; returns False, and they do not, if too much waits already."""
        unsealed, number = channel.unsealed, channel.info.group
        if unsealed.closed or unsealed.halted:
            error = refusals.PARTS_DOUBLING if unsealed.halted else refusals.CHANNEL_MOVING
            if isinstance(batch, RowBatch):
                batch.on_done(StoreResult(error=error, retry=True))
            elif unsealed.halted:
                refuse(self._services, batch.acks, error, batch.channel)
            return True  # the next leader of the channel has buffered the publishes
        if (self.node.config.cluster is not None or channel.reserved) and self.is_too_much():
            return False
        unsealed.batches.append(batch)
        self.unsealed[number] += len(batch.bodies)
        self.waiting.setdefault(number, {})[channel.info.uid] = channel
        return True

    def is_too_much(self) -> bool:
        """True if too much waits to take more. Asked in a cluster, and of a reserved channel; else the edge reads less."""
        waiting = sum(self.unsealed.values()) + sum(self.uncommitted.values()) + sum(self.unqueued.bytes.values())
        return waiting + self.outgoing.waiting.bytes > limits.UNCOMMITTED_BYTES_MAX

    def reserve(self, channel: LiveChannel) -> None:
        """Reserve a channel for an entry that was made elsewhere (see `add_to`), until `release`: all other messages wait, so
        that none with a later sequence comes into the log before it."""
        channel.reserved += 1

    def release(self, channel: LiveChannel) -> None:
        """End a reservation: messages that waited for the end of all of them are stored."""
        channel.reserved -= 1
        if not channel.reserved:
            self.resume(channel)

    def resume(self, channel: LiveChannel, error: str = "") -> None:
        """Seal the messages that wait in a channel, or refuse them with *error* as they would wait too long."""
        info, unsealed = channel.info, channel.unsealed
        if error:
            waiting, unsealed.batches = unsealed.batches, []
            self.unsealed[info.group] -= sum(map(len, map(BODIES_OF, waiting)))
            self._give_up(waiting, error)
        elif unsealed.batches:
            self.waiting.setdefault(info.group, {})[info.uid] = channel

    def leave(self, channel: LiveChannel) -> None:
        """A channel goes to another group: unsealed publishes are left to the leader of that group."""
        unsealed = channel.unsealed
        waiting, unsealed.batches = unsealed.batches, []
        unsealed.closed = True
        self.unsealed[channel.info.group] -= sum(map(len, map(BODIES_OF, waiting)))
        self.waiting.get(channel.info.group, {}).pop(channel.info.uid, None)
        self._give_up([batch for batch in waiting if isinstance(batch, RowBatch)], refusals.CHANNEL_MOVING)

    def _give_up(self, waiting: list[Batch], error: str) -> None:
        for batch in waiting:
            if isinstance(batch, RowBatch):
                batch.on_done(StoreResult(error=error, retry=True))
            else:
                refuse(self._services, batch.acks, error, batch.channel)

    def follow(self, group: GroupId) -> None:
        """This node no longer leads the group: forget its waiting messages, the next leader has buffered the publishes, too."""
        self.unqueued.forget(lambda one: one.group == group)
        self.compressing.forget(group)
        self.waiting.pop(group, None)
        for bytes_of in (self.unsealed, self.uncommitted):
            bytes_of.pop(group, None)

    # --- sealing ------------------------------------------------------------------------------------------------------

    @property
    def can_seal(self) -> bool:
        """True if `seal` would find something to do."""
        leading = self.leading
        return bool(self.waiting.keys() - leading.saturated - leading.write_blocked)

    def seal(self) -> list[Proposal]:
        """Give all waiting messages their sequences and timestamp. Returns one proposal per group, or several if the entry would
        get larger than ENTRY_BYTES_TARGET. Saturated and write-blocked groups wait."""
        proposals: list[Proposal] = []
        leading = self.leading
        for group in (*self.waiting,):
            if group in leading.saturated or group in leading.write_blocked:
                continue
            try:
                proposals += self._seal_group(group)
            except Exception as error:  # noqa: BLE001 - the border of the group
                self.faults.fail(group, error)
        return proposals

    def _seal_group(self, group: GroupId) -> list[Proposal]:
        proposals: list[Proposal] = []
        leader = self.node.groups[group].leadership
        assert leader is not None  # noqa: S101 - for mypy
        entry = Sealed(leader)
        for channel in self.waiting.pop(group).values():
            for batches in self._to_seal(channel):
                self._seal_batches(channel, batches, entry)
                if entry.size >= ENTRY_BYTES_TARGET:
                    proposals.append(self._close(entry))
                    entry = Sealed(leader)
            if not channel.unsealed.batches:
                self.compressing.framed.discard(channel.info.uid)
        if entry.parts:
            proposals.append(self._close(entry))
        return proposals

    def _seal_batches(self, channel: LiveChannel, batches: list[Batch], entry: Sealed) -> None:
        """Make one record batch of *batches*."""
        info = channel.info
        count, base, bodies = sum(map(COUNT_OF, batches)), channel.next_sequence, [*map(BODIES_OF, batches)]
        timestamp = max(self.node.clock.wall, channel.last_timestamp)
        records = kernel.seal(info.name, base, timestamp, bodies)
        index = self.stored.source(info.group, info.uid)  # as `indexes`, without a call between
        size = index.accounted(len(records), count)
        first = self.channels.retention.first_after(channel, index, count, size)
        moved = first > (index.first_sequence or 1)  # by limits
        if moved and (change := self.channels.retention.limits_of_compacted(info, index, first)):
            entry.rows.append((change, base))
        logged, clear_bytes = records, 0
        if info.uid in self.channels.policies.compressed or info.uid in self.compressing.framed:
            logged, clear_bytes = self.compressing.kept(info, base, bodies, frame_of(batches), records)
        if info.uid == STAGING_UID:
            entry.parts += chain.from_iterable(_each_alone(records, base, timestamp, first))
        else:
            entry.parts += encode_batch(info.uid, base, count, timestamp, first, logged, clear_bytes)
        entry.size += len(records)
        entry.channels.append((channel, base, size))
        channel.next_sequence = base + count
        channel.last_timestamp = timestamp
        channel.idle_since = self.node.clock.now
        channel.uncommitted_bytes += size
        self.uncommitted[info.group] += size
        fingerprinted = self.node.config.cluster is not None
        for batch in batches:
            if isinstance(batch, RowBatch):
                entry.rows.append((batch, base))
                source = batch.source
            else:
                acks = batch.acks
                if batch.numbered:
                    acks = kernel.number(acks, batch.replied, base, self.placement.ack_level(info.group))
                entry.acks.append(acks)
                entry.acked += batch.count - batch.replied.count(0)
                source = batch
            if fingerprinted and source is not None:
                entry.fingerprinted.append(source)
            base += batch.count

    def _to_seal(self, channel: LiveChannel) -> list[list[Batch]]:
        """Take out the messages that wait in a channel, in parts for one record batch each: of about ENTRY_BYTES_TARGET, so that
        no entry gets much larger, and what a request has staged is in one. Ephemeral ones are sealed here."""
        info, unsealed = channel.info, channel.unsealed
        # Not by `is_ephemeral`, as each publish asks.
        ephemeral = self.leading.leadership(info.group).part(EphemeralChannels) if info.commit == EPHEMERAL else None
        if ephemeral is not None and ephemeral.waits(channel) and not channel.deleting:
            return []  # `resume` comes back to it
        if channel.reserved and not channel.deleting:
            return []  # `resume` comes back to it
        waiting, unsealed.batches = unsealed.batches, []
        self.unsealed[info.group] -= sum(map(len, map(BODIES_OF, waiting)))
        if channel.deleting:
            self._give_up(waiting, refusals.CHANNEL_DELETING)
            return []
        room = MESSAGE_ROOM + len(info.name)  # as in `sealed_size`
        parts: list[list[Batch]] = []
        size = ENTRY_BYTES_TARGET
        for batch in waiting:
            if size >= ENTRY_BYTES_TARGET:
                parts.append([])
                size = 0
            parts[-1].append(batch)
            size += len(batch.bodies) + room * batch.count
        if ephemeral is not None:
            self._keep_in_memory(channel, parts, ephemeral)
            return []
        return [*chain.from_iterable(map(apart, parts))] if info.uid in self.compressing.framed else parts

    def _keep_in_memory(self, channel: LiveChannel, parts: list[list[Batch]], ephemeral: EphemeralChannels) -> None:
        """Seal messages of an ephemeral channel, as far as its epoch has sequences; the others wait for more."""
        while channel.info.uid in self.channels.stores.by_uid and parts and ephemeral.seal(channel, parts[0]):
            del parts[0]
        waiting = [*chain.from_iterable(parts)]
        if waiting:
            channel.unsealed.batches[:0] = waiting
            self.unsealed[channel.info.group] += sum(map(len, map(BODIES_OF, waiting)))
            ephemeral.wait(channel, partial(self.resume, channel))

    def _close(self, entry: Sealed, in_doubt: InDoubt = nobody_waits) -> Proposal:
        if entry.fingerprinted:
            entry.parts += encode_fingerprints(encode(entry.fingerprinted))
        for rows, first in entry.rows:
            for change in (rows.change, rows.expiring, rows.scheduled):
                if change is not None:
                    entry.parts += encode_change(change(first))
        leader, body, done = entry.leader, b"".join(entry.parts), partial(self._acknowledge, entry)
        return Proposal(leader.number, Kind.RECORDS, body, urgent=True, leader=leader, done=done, in_doubt=in_doubt)

    def propose(self, entry: Sealed, in_doubt: InDoubt = nobody_waits) -> None:
        """Propose an *entry* that was made elsewhere, see `add_to`."""
        self.proposals.changes.append(self._close(entry, in_doubt))

    def add_to(self, entry: Sealed, channel: LiveChannel, next_sequence: int, size: int) -> None:
        """Note messages of a channel in an *entry*: *size* accounted bytes; the channel continues with *next_sequence*."""
        entry.channels.append((channel, channel.next_sequence, size))
        channel.next_sequence = next_sequence
        channel.uncommitted_bytes += size
        self.uncommitted[entry.leader.number] += size

    # --- outcome ------------------------------------------------------------------------------------------------------

    def _acknowledge(self, entry: Sealed, result: object, error: str) -> None:
        group = entry.leader.number
        for channel, base, size in entry.channels:
            channel.uncommitted_bytes -= size
            self.uncommitted[group] -= size
            if result is None:  # not written: the entry's sequences are free again
                channel.next_sequence = min(channel.next_sequence, base)
                self.compressing.forget(group, channel.info.uid, base)
        if result is None:
            for acks in entry.acks:
                refuse_as_leader(self._services, group, acks, error)
        else:
            self.outgoing.pub_acks += entry.acks
            if entry.acked:
                acked = self.reports.totals.acked
                acked[group] = acked.get(group, 0) + entry.acked
        for rows, first in entry.rows:
            stored = StoreResult(first, first + rows.count - 1)
            rows.on_done(stored if result is not None else StoreResult(error=error, retry=True))

    def committed(
        self, number: GroupId, index: RaftIndex, batches: list[RecordBatch], fingerprints: memoryview | None
    ) -> None:
        """A RECORDS entry is committed and indexed: its messages are visible (on every node, own entry or not)."""
        group, outgoing = self.node.groups[number], self.outgoing
        if fingerprints is not None and self.node.config.cluster is not None:
            since = self.leading.heard_since
            group.replay_filter.apply(fingerprints, self.node.clock.now, since, old=index <= group.loaded)
        machine, cursors = group.machine, group.dispatch.cursors.by_channel
        referring: set[ChannelUid] = set()  # channels with messages that are not in the entry
        for batch in batches:
            uid, base, count, _, first, *_ = batch
            channel = machine.channels.get(uid)
            if channel is None or first > channel.first_sequence:
                machine.begins(uid, first)  # the log has trimmed its index by itself, when it indexed the batch
            if uid in outgoing.watched:
                outgoing.news.add(uid)
            if uid in self.followed:
                self.followed[uid](batch)
            if batch.staged:
                referring.add(uid)
            elif cursors.get(uid):
                records = batch.records if not batch.size else self.compressing.records(number, batch)
                group.dispatch.committed(uid, ReadResult(base, count, records))
            elif batch.size:
                self.compressing.forget(number, uid, base)
        for uid in referring:
            group.dispatch.uncovered(uid)


def _each_alone(records: bytes, base: int, timestamp: int, first: int) -> Iterator[tuple[bytes, bytes]]:
    """Encode messages of the hidden channel, each in a batch of its own, as commits refer to them one by one."""
    at, sequence = 0, base
    while at < len(records):
        end = at + _LENGTH.size + _LENGTH.unpack_from(records, at)[0]
        yield encode_batch(STAGING_UID, sequence, 1, timestamp, first, records[at:end])
        at, sequence = end, sequence + 1


class StoringPart(LeaderPart):
    """A part of the leader of one group that stores messages in its channels."""

    def __init__(
        self, services: Services, leadership: Leadership, channels: LiveChannels, publishing: Publishing
    ) -> None:
        super().__init__(services, leadership)
        self.channels = channels
        self.publishing = publishing
