"""Channels restored from a backup, on the leader of the channel's group.

    restore_channel ─► restore_rows … restore_cursor … restore_delayed … ─► restore_end

Messages keep their sequences and times, and are stored like any others, in record batches of RECORDS entries. A batch without
records stands for missing sequences between them, which count as deleted, or, in a channel that is compacted, as compacted.
Messages that expire are listed by the entry which stores them. Promises: while the restore is under way, nothing else is stored
in the channel, no client can subscribe, and nothing is removed but by compaction, also not what has expired: that goes after
the end. Each request is answered once its effect is committed, and may be repeated, also after a change of leaders.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from stan_protocol import refusals
from stan_protocol.channels import is_channel_name
from stan_protocol.scalars import ChannelUid, Sequence, WallNanos

from stan import limits
from stan.core.base.delivery_policy import KEEP_FIRST
from stan.core.features.restore.cursors import SEQUENCE_END, cursor_row
from stan.core.features.restore.delays import RestoredDelays
from stan.core.features.restore.rows import Part, fault, listing, missing, schedules_of, too_many, widest_gap
from stan.core.leader.local_group import Leadership
from stan.core.metadata.meta import ChannelInfo
from stan.core.publishing.channels import LiveChannels
from stan.core.publishing.live_channel import LiveChannel
from stan.core.publishing.publishing import Publishing, Sealed, StoringPart
from stan.core.publishing.row_batch import RowBatch, StoreResult, can_open_later
from stan.core.requests.request import AcceptedRequest
from stan.core.services.proposals import nobody_waits
from stan.core.services.services import Services
from stan.core.state.cursors import CursorKind
from stan.core.state.group_state import GroupResult
from stan.core.state.limit_overrides import edit_of
from stan.protocol.entries import encode_batch
from stan.protocol.kernel import server as kernel
from stan.protocol.proto import entries_pb2 as pb

if TYPE_CHECKING:
    from stan_protocol.proto import admin_pb2 as admin


Handle = Callable[["Restoring", AcceptedRequest, LiveChannel], None]
"""Handles one kind of request about a channel that is being restored."""


class Restoring(StoringPart):
    """Handles the requests of `stan restore` in one group, while this node leads it."""

    def __init__(
        self, services: Services, leadership: Leadership, channels: LiveChannels, publishing: Publishing
    ) -> None:
        super().__init__(services, leadership, channels, publishing)
        self.placement = services.placement
        self.delays = RestoredDelays(services, leadership, publishing)
        self._opening = 0  # requests that wait until their channel is made
        self._storing: set[ChannelUid] = set()  # channels with an entry on its way

    # --- begin --------------------------------------------------------------------------------------------------------

    def channel(self, accepted: AcceptedRequest) -> None:
        """A RestoreChannelRequest: begin."""
        request: admin.RestoreChannelRequest = accepted.request
        named = 0 < len(request.restore) <= limits.RESTORE_NAME_BYTES_MAX
        if not is_channel_name(request.channel):
            accepted.refuse(refusals.INVALID_SUBJECT)
        elif not named or request.first_sequence >= SEQUENCE_END or edit_of(ChannelUid(0), request.limits) is None:
            accepted.refuse(refusals.INVALID_RESTORE)
        elif request.channel in self.channels.by_name:
            self._begin(accepted, self.channels.by_name[request.channel], "")
        elif self._opening >= limits.CHANNEL_CHANGES_WAITING_MAX:
            accepted.busy()
        else:
            self._opening += 1
            self.channels.openings.open(request.channel, partial(self._opened, accepted))

    def _opened(self, accepted: AcceptedRequest, channel: LiveChannel | None, error: str) -> None:
        self._opening -= 1
        self._begin(accepted, channel, error)

    def _begin(self, accepted: AcceptedRequest, channel: LiveChannel | None, error: str) -> None:
        request: admin.RestoreChannelRequest = accepted.request
        if channel is None or channel.deleting:
            error = error or refusals.CHANNEL_DELETING
            accepted.refuse(error, retry=can_open_later(error))
            return
        known = self.group.machine.restores.by_channel.get(channel.info.uid)
        if known is not None and known.name == request.restore:
            self._done(accepted, channel, 0)
        elif channel.restoring:
            accepted.refuse(refusals.CHANNEL_RESTORING, retry=channel.restoring == request.restore)
        elif self._is_used(channel, max(request.first_sequence, 1)):
            accepted.refuse(refusals.CHANNEL_IN_USE)
        else:
            uid, channel.restoring = channel.info.uid, request.restore
            restore = pb.Restore(uid=uid, name=request.restore, first_sequence=max(request.first_sequence, 1))
            if request.HasField("limits"):
                edit = edit_of(uid, request.limits)
                if edit is not None:
                    restore.limits.CopyFrom(edit)
            self._change(accepted, channel, 1, restore=restore)

    def _is_used(self, channel: LiveChannel, first: int) -> bool:
        """True unless the channel is empty, not in use, and can begin at the sequence *first*."""
        index = self.stored.indexes(channel.info.group, channel.info.uid)
        known = self.group.machine.channel(channel.info.uid)
        last = max(index.last_sequence, known.first_sequence - 1)
        return bool(
            known.cursors
            or channel.info.uid in self.group.machine.deferred.counts
            or channel.pending_subscribes
            or channel.unsealed.count
            or channel.uncommitted_bytes
            or last >= first
            or 0 < max(index.first_sequence, known.first_sequence) <= index.last_sequence
        )

    def _change(self, accepted: AcceptedRequest, channel: LiveChannel, count: int, **change: object) -> None:
        """Propose a change that stores no message, and answer the request with its outcome."""

        def done(result: object, error: str) -> None:
            if isinstance(result, GroupResult) and not result.error:
                self._done(accepted, channel, count)
                return
            channel.restoring = self.group.machine.restores.under_way(channel.info.uid)
            why = result.error if isinstance(result, GroupResult) else error
            accepted.refuse(why, retry=result is None)

        self.change(done, nobody_waits, **change)

    # --- messages -----------------------------------------------------------------------------------------------------

    def rows(self, accepted: AcceptedRequest, channel: LiveChannel) -> None:
        """A RestoreRowsRequest."""
        request: admin.RestoreRowsRequest = accepted.request
        error = fault(request, self.nats.delivered_bytes_max)
        if error:
            accepted.refuse(error)
            return
        parts = list(missing(request, channel.next_sequence))
        if not parts:
            self._done(accepted, channel, 0)
        elif not channel.restoring:
            accepted.refuse(refusals.UNKNOWN_RESTORE)
        else:
            last = parts[-1].first + parts[-1].count - 1
            self._store(accepted, channel, parts, last, None)

    def _store(
        self, accepted: AcceptedRequest, channel: LiveChannel, parts: list[Part], last: int, ended: pb.Restore | None
    ) -> None:
        """Store *parts* in one entry, with batches for the missing sequences before and between them and up to *last*, and with
        the end of the restore, *ended*, if it is given."""
        info = channel.info
        index, machine = self.stored.indexes(info.group, info.uid), self.group.machine
        oldest = machine.channel(info.uid).first_sequence
        entry, base = Sealed(self.leadership), channel.next_sequence
        gaps: list[int] = []  # first, last, first, last, ...
        if widest_gap(parts, base, last) > limits.RESTORED_GAP_MAX:
            accepted.refuse(refusals.INVALID_RESTORE)
            return
        total = size = 0
        for part in (*parts, None):
            upto, timestamp = (last + 1, 0) if part is None else (part.first, part.timestamp)
            timestamp = max(timestamp, channel.last_timestamp)
            if upto > base:
                gaps += (base, upto - 1)
                entry.parts += self._batch(channel, base, upto - base, timestamp, oldest, b"")
            if part is not None:
                records = kernel.seal(info.name, part.first, part.timestamp, [part.bodies])
                kept: tuple[bytes, int] = (records, 0)
                if timestamp == part.timestamp:  # what is compressed has that of its batch
                    kept = self.publishing.compressing.kept(info, part.first, [part.bodies], b"", records)
                entry.parts += self._batch(channel, part.first, part.count, timestamp, oldest, *kept)
                size += index.accounted(len(records), part.count)
                total += part.count
                base, channel.last_timestamp = part.first + part.count, timestamp
        expiring, runs = listing(info.uid, parts)
        scheduled, schedules = schedules_of(info.uid, parts, self.node.clock.wall)
        compacted = self._compacted(info, last)
        if error := too_many(machine, info.uid, len(gaps) // 2 if compacted is None else 0, runs, schedules):
            accepted.refuse(error)
            return
        changes = [*expiring, *scheduled]
        if gaps:
            removal = pb.Removal(uid=info.uid, deleted=gaps)
            left_out = pb.GroupChange(removal=removal) if compacted is None else pb.GroupChange(compacted=compacted)
            changes.append(left_out.SerializeToString())
        if ended is not None:
            changes.append(pb.GroupChange(restore=ended).SerializeToString())
        told = partial(self._stored, accepted, channel, total)
        for change in changes:
            entry.rows.append((RowBatch(b"", 0, lambda _stored: None, partial(_encoded, change)), last))
        entry.rows.append((RowBatch(b"", total, told), last))
        self._storing.add(info.uid)
        self.publishing.add_to(entry, channel, last + 1, size)
        self.publishing.propose(entry, partial(self._storing.discard, info.uid))

    def _compacted(self, info: ChannelInfo, last: int) -> pb.Compacted | None:
        """The change that lets messages up to *last* be missing, of a channel of which each key keeps one: it may have any number
        of gaps. None: a gap is messages that were deleted one by one."""
        policy = self.placement.policies.of(info.name, b"")
        if not policy.compact or policy.delay or info.is_ephemeral:
            return None
        further = pb.CompactedChannel(uid=info.uid, until=last, keep_first=policy.compact == KEEP_FIRST)
        return pb.Compacted(channels=[further])

    def _batch(
        self, channel: LiveChannel, first: int, count: int, timestamp: int, oldest: int, records: bytes, size: int = 0
    ) -> tuple[bytes, bytes]:
        uid = channel.info.uid
        return encode_batch(uid, Sequence(first), count, WallNanos(timestamp), Sequence(oldest), records, size)

    def _stored(self, accepted: AcceptedRequest, channel: LiveChannel, count: int, stored: StoreResult) -> None:
        self._storing.discard(channel.info.uid)
        if stored.error:
            accepted.refuse(stored.error, retry=stored.retry)
        else:
            self._done(accepted, channel, count)

    # --- positions ----------------------------------------------------------------------------------------------------

    def cursor(self, accepted: AcceptedRequest, channel: LiveChannel) -> None:
        """A RestoreCursorRequest."""
        row = cursor_row(channel.info.uid, accepted.request.cursor)
        if row is None:
            accepted.refuse(refusals.INVALID_RESTORE)
        elif not channel.restoring:  # the restore has ended: with this cursor, or without it
            key = row.kind, row.name, row.client_id if row.kind == CursorKind.DURABLE else b""
            if key in self.group.machine.channel(channel.info.uid).by_key:
                self._done(accepted, channel, 0)
            else:
                accepted.refuse(refusals.UNKNOWN_RESTORE)
        else:
            self._change(
                accepted, channel, 1, restored_cursor=pb.RestoredCursor(restore=accepted.request.restore, cursor=row)
            )

    # --- what waits for its time ----------------------------------------------------------------------------------------

    def delayed(self, accepted: AcceptedRequest, channel: LiveChannel) -> None:
        """A RestoreDelayedRequest."""
        if error := self.delays.refusal(accepted.request):
            accepted.refuse(error)
            return
        messages = self.delays.missing(accepted, channel)
        if not messages or not channel.restoring:  # the restore ends when all of them are there
            self._done(accepted, channel, 0)
            return
        self._storing.add(channel.info.uid)
        self.delays.store(accepted, channel, messages, partial(self._stored, accepted, channel, len(messages)))

    # --- end ----------------------------------------------------------------------------------------------------------

    def end(self, accepted: AcceptedRequest, channel: LiveChannel) -> None:
        """A RestoreEndRequest."""
        request: admin.RestoreEndRequest = accepted.request
        if not channel.restoring:
            self._done(accepted, channel, 0)
            return
        if request.last_sequence >= SEQUENCE_END:
            accepted.refuse(refusals.INVALID_RESTORE)
            return
        ended = pb.Restore(uid=channel.info.uid, name=request.restore, ended=True)
        if request.last_sequence >= channel.next_sequence:
            self._store(accepted, channel, [], request.last_sequence, ended)
        else:
            self._change(accepted, channel, 1, restore=ended)

    # --- for all requests ---------------------------------------------------------------------------------------------

    def with_channel(self, handle: Handle, accepted: AcceptedRequest, info: ChannelInfo) -> None:
        """Call *handle* with a request and the channel that it restores; the restore may have ended."""
        channel = self.channels.by_uid.get(info.uid)
        known = self.group.machine.restores.by_channel.get(info.uid)
        if channel is None or info.uid in self._storing:
            accepted.busy()
        elif channel.deleting:
            accepted.refuse(refusals.CHANNEL_DELETING, retry=True)
        elif known is None or known.name != accepted.request.restore:
            accepted.refuse(refusals.UNKNOWN_RESTORE, retry=channel.restoring == accepted.request.restore)
        else:
            handle(self, accepted, channel)

    def _done(self, accepted: AcceptedRequest, channel: LiveChannel, changed: int) -> None:
        first = self.group.machine.channel(channel.info.uid).first_sequence
        accepted.answer(changed=changed, first_sequence=first, last_sequence=channel.next_sequence - 1)


def _encoded(change: bytes, _first: int) -> bytes:
    return change
