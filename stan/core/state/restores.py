"""Restores of a group's channels from backups: what their entries change. Which restore a channel has had: restore_state.py."""

from stan_protocol.refusals import CHANNEL_IN_USE, CHANNEL_RESTORING, CURSOR_EXISTS, UNKNOWN_CHANNEL, UNKNOWN_RESTORE
from stan_protocol.scalars import ChannelUid, RaftIndex

from stan.core.base.runs import from_flat
from stan.core.state.cursor_override import of_row
from stan.core.state.cursors import Cursor, CursorKind
from stan.core.state.group_state import GroupResult, GroupState
from stan.protocol.proto import entries_pb2 as pb


def restore(state: GroupState, change: pb.Restore, index: RaftIndex) -> GroupResult:
    """Begin or end a restore; after its end the channel is like any other."""
    if change.uid in state.dropped:
        return GroupResult(error=UNKNOWN_CHANNEL)
    if not change.ended:
        return _begin(state, change, index)
    restores = state.restores
    known = restores.by_channel.get(ChannelUid(change.uid))
    if known is None or known.name != change.name:
        return GroupResult(error=UNKNOWN_RESTORE)
    change.first_sequence = known.first_sequence
    restores.remember(change)
    return GroupResult()


def _begin(state: GroupState, change: pb.Restore, index: RaftIndex) -> GroupResult:
    """Begin a restore: the channel starts with the first sequence of the backup, and may get its limits."""
    uid, restores = ChannelUid(change.uid), state.restores
    known = restores.by_channel.get(uid)
    if known is not None and known.name == change.name:
        return GroupResult()
    if known is not None and not known.ended:
        return GroupResult(error=CHANNEL_RESTORING)
    channel = state.channel(uid)
    if channel.cursors or uid in state.transactions.parts or channel.first_sequence > max(change.first_sequence, 1):
        return GroupResult(error=CHANNEL_IN_USE)
    restores.remember(change)
    state.trim(uid, change.first_sequence)
    if change.HasField("limits"):
        change.limits.uid, change.limits.reset = uid, True
        state.limit_overrides.apply("edit_limits", change.limits, index)
    return GroupResult()


def restore_cursor(state: GroupState, change: pb.RestoredCursor, _index: RaftIndex) -> GroupResult:
    """Restore a durable, or, without a restore, create one. While its channel is restored, an existing cursor takes the given
    position."""
    row = change.cursor
    uid = ChannelUid(row.uid)
    if state.restores.under_way(uid) != change.restore:
        return GroupResult(error=UNKNOWN_RESTORE)
    made = Cursor(state.next_id, uid, CursorKind(row.kind), row.name, row.client_id, 0)
    if not change.restore and uid in state.dropped:
        return GroupResult(error=UNKNOWN_CHANNEL)
    cursor = state.channel(uid).by_key.get(made.key)
    if not change.restore and cursor is not None:
        return GroupResult(error=CURSOR_EXISTS)
    if cursor is None:
        state.new_id()
        state.add_cursor(made)
        cursor = made
    cursor.client_id, last = row.client_id, cursor.last_member
    settings = last.settings._replace(inbox=row.inbox, max_in_flight=row.max_in_flight, ack_wait_s=row.ack_wait_s)
    cursor.last_member = last._replace(settings=settings)
    cursor.last_sent, cursor.to_redeliver = row.last_sent, from_flat(row.to_redeliver, row.counts)
    for gone in state.tombstones.within(uid, 1, row.last_sent):
        cursor.to_redeliver.remove(gone.first, gone.last)
    cursor.override = of_row(row.override) if row.HasField("override") else None
    cursor.maybe_sent_until = max(cursor.maybe_sent_until, row.maybe_sent_until)
    state.dirty.cursors.add(cursor.cursor_id)
    return GroupResult()
