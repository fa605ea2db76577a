"""Delayed messages of a backup, put back into the hidden channel of a group, on its leader: with their times and their ids.

Their sequences there are new, and above all ids that were put back, so that no message which comes later gets an id that is
in use. Promises: nothing leaves the hidden channel for a channel that is being restored, so the ids which wait for it tell what
is there, and a request may be repeated.
"""

from array import array
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from struct import Struct

from stan_protocol import refusals
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.scalars import SECOND, Sequence, WallNanos

from stan import limits
from stan.core.features.restore.rows import LATEST
from stan.core.leader.local_group import Leadership
from stan.core.publishing.deferrals import Deferrals
from stan.core.publishing.expiry_rows import EXPIRY_BYTES
from stan.core.publishing.live_channel import LiveChannel
from stan.core.publishing.publishing import Publishing, Sealed
from stan.core.publishing.row_batch import RowBatch, StoreResult, refusal
from stan.core.requests.request import AcceptedRequest
from stan.core.services.leader_part import LeaderPart
from stan.core.services.services import Services
from stan.protocol.entries import DEFERRED_UID, encode_batch
from stan.protocol.expiry import stamped
from stan.protocol.proto import entries_pb2 as pb

_LENGTH = Struct("<I")


class RestoredDelays(LeaderPart):
    """Stores the messages of `restore_delayed` in one group, while this node leads it."""

    def __init__(self, services: Services, leadership: Leadership, publishing: Publishing) -> None:
        super().__init__(services, leadership)
        self.publishing = publishing

    def refusal(self, request: admin.RestoreDelayedRequest) -> str:
        """Why a request cannot be carried out, whatever is there; "" if it can."""
        found = request.messages
        payload_max = self.nats.delivered_bytes_max
        if any(one.expires_at for one in found):
            payload_max -= EXPIRY_BYTES
        if error := refusal(request.channel, request.rows, len(found), payload_max):
            return error
        if any(one.id >= after.id for one, after in pairwise(found)):
            return refusals.RESTORED_OUT_OF_ORDER
        if not found[0].id or any(one.due <= 0 or not 0 <= one.expires_at <= LATEST * SECOND for one in found):
            return refusals.INVALID_RESTORE
        return ""

    def missing(self, accepted: AcceptedRequest, channel: LiveChannel) -> list[admin.DelayedMessage]:
        """Those of a request that are not there yet."""
        deferred, uid = self.group.machine.deferred, channel.info.uid
        there = [batch.ids_from(first)[-1] for first, batch in deferred.batches.items() if batch.uid == uid]
        newest = max(there, default=0)
        return [one for one in accepted.request.messages if one.id > newest]

    def store(
        self,
        accepted: AcceptedRequest,
        channel: LiveChannel,
        messages: list[admin.DelayedMessage],
        done: Callable[[StoreResult], None],
    ) -> None:
        """Store the last *messages* of a request; *done* is called as `RowBatch.on_done` is."""
        hidden, deferred = self.leadership.part(Deferrals).hidden, self.group.machine.deferred
        gap = messages[-1].id + 1 - hidden.next_sequence
        if hidden.unsealed.count + len(messages) > deferred.shares.left(b"", limits.DEFERRED_MAX):
            done(StoreResult(error=refusals.TOO_MANY_DELAYED))
        elif gap > limits.RESTORED_GAP_MAX:
            done(StoreResult(error=refusals.INVALID_RESTORE))
        elif gap <= 0:
            self._add(hidden, accepted.request, channel, messages, done)
        elif hidden.unsealed.count or hidden.uncommitted_bytes or hidden.reserved:
            done(StoreResult(error=refusals.BUSY, retry=True))
        else:
            self._skip(hidden, gap, partial(self._skipped, hidden, accepted.request, channel, messages, done))

    def _skip(self, hidden: LiveChannel, count: int, done: Callable[[StoreResult], None]) -> None:
        """Leave so many sequences unused: the ids that are put back. Publishes wait meanwhile."""
        self.publishing.reserve(hidden)
        entry, base = Sealed(self.leadership), hidden.next_sequence
        oldest = self.group.machine.channel(DEFERRED_UID).first_sequence
        timestamp = max(self.node.clock.wall, hidden.last_timestamp)
        entry.parts += encode_batch(DEFERRED_UID, base, count, WallNanos(timestamp), oldest, b"")
        entry.rows.append((RowBatch(b"", count, done), base))
        self.publishing.add_to(entry, hidden, Sequence(base + count), 0)
        self.publishing.propose(entry, partial(self.publishing.release, hidden))

    def _skipped(
        self,
        hidden: LiveChannel,
        request: admin.RestoreDelayedRequest,
        channel: LiveChannel,
        messages: list[admin.DelayedMessage],
        done: Callable[[StoreResult], None],
        stored: StoreResult,
    ) -> None:
        self.publishing.release(hidden)
        if stored.error:
            done(stored)
        else:
            self._add(hidden, request, channel, messages, done)

    def _add(
        self,
        hidden: LiveChannel,
        request: admin.RestoreDelayedRequest,
        channel: LiveChannel,
        messages: list[admin.DelayedMessage],
        done: Callable[[StoreResult], None],
    ) -> None:
        rows, at = request.rows, 0
        for _ in range(len(request.messages) - len(messages)):
            at += _LENGTH.size + _LENGTH.unpack_from(rows, at)[0]
        kept = rows[at:]
        if any(one.expires_at for one in messages):
            kept = stamped(kept, array("q", [-(-one.expires_at // SECOND) for one in messages]))

        def change(first: int) -> bytes:
            told = pb.Deferred(uid=channel.info.uid, sequence=first, bytes=len(kept))
            told.dues.extend(one.due for one in messages)
            told.ids.extend(one.id for one in messages)
            return pb.GroupChange(deferred=told).SerializeToString()

        self.publishing.add(hidden, RowBatch(kept, len(messages), done, change))
