"""Messages of a group that go: by the limits of their channel, purged, deleted, expired, compacted, with an epoch, or with their
channel. Nobody has them pending then, except for those that a limit has removed.
"""

from stan_protocol.refusals import UNKNOWN_CHANNEL
from stan_protocol.scalars import ChannelUid, RaftIndex

from stan.core.base.runs import Runs, pairs, removed_runs
from stan.core.state.group_state import GroupResult, GroupState
from stan.core.state.tombstones import behind
from stan.protocol.proto import entries_pb2 as pb


def trim(state: GroupState, change: pb.Trim, _index: RaftIndex) -> GroupResult:
    """Note the first messages that are left of channels."""
    for uid, first in pairs(change.first_sequences):
        state.trim(ChannelUid(uid), first, lost=True)
    return GroupResult()


def drop_channel(state: GroupState, change: pb.DropChannel, _index: RaftIndex) -> GroupResult:
    """Delete a channel."""
    forget_channel(state, ChannelUid(change.uid))
    return GroupResult()


def forget_channel(state: GroupState, uid: ChannelUid) -> None:
    """Forget everything about a channel that is deleted, or is another group's."""
    for part in state.components:
        part.drop_channel(uid)
    state.trim_hidden()
    if uid in state.channels:
        for cursor in list(state.channels[uid].cursors.values()):
            state.remove_cursor(cursor)
        del state.channels[uid]
    state.dirty.channels.add(uid)


def remove(state: GroupState, removal: pb.Removal, _index: RaftIndex) -> GroupResult:
    """Purge or delete messages, or note that they are lost: note it for the owner of a position, mark them as deleted, trim the
    channel, settle them."""
    uid, bookmarks = ChannelUid(removal.uid), state.bookmarks
    if uid in state.dropped:
        return GroupResult(error=UNKNOWN_CHANNEL)
    channel = state.channel(uid)
    error = bookmarks.refuses(removal) or state.tombstones.delete(removal)
    if error:
        return GroupResult(error=error)
    bookmarks.note_removal(removal)
    if removal.lost_until:
        state.retention.lost(uid, channel.first_sequence, removal.lost_until)
    state.trim(uid, removal.first_sequence)
    state.schedules.remove(uid, pairs(removal.deleted))
    state.tombstones.trim(uid, channel.first_sequence)
    _trim_deleted(state, uid, state.tombstones.by_channel.get(uid))
    for cursor in channel.cursors.values():
        for first, last in removed_runs(removal.first_sequence, removal.deleted):
            state.take(cursor, first, last)
        cursor.last_sent = max(cursor.last_sent, removal.first_sequence - 1)
        if cursor.override is not None:
            cursor.override.passed(cursor.last_sent)
        state.dirty.cursors.add(cursor.cursor_id)
    return GroupResult()


def _trim_deleted(state: GroupState, uid: ChannelUid, deleted: Runs | None) -> None:
    """Trim a channel whose first messages are *deleted*."""
    oldest = max(state.channel(uid).first_sequence, 1)
    left = behind(deleted, oldest)
    if left > oldest:
        state.trim(uid, left)


def list_expiring(state: GroupState, change: pb.Expiring, _index: RaftIndex) -> GroupResult:
    """List messages of the same entry that expire, and forget those that the channel's limits have removed since."""
    uid, listed = ChannelUid(change.uid), state.expiries
    if uid in state.dropped:
        return GroupResult(error=UNKNOWN_CHANNEL)
    listed.add(change)
    listed.trim(uid, state.channel(uid).first_sequence)
    return GroupResult()


def list_scheduled(state: GroupState, change: pb.Scheduled, _index: RaftIndex) -> GroupResult:
    """List messages of the same entry that are schedules, and forget those that the channel's limits have removed since."""
    uid = ChannelUid(change.uid)
    if uid in state.dropped:
        return GroupResult(error=UNKNOWN_CHANNEL)
    state.schedules.add(change)
    state.schedules.remove(uid, ((1, state.channel(uid).first_sequence - 1),))
    return GroupResult()


def expire(state: GroupState, change: pb.Expired, _index: RaftIndex) -> GroupResult:
    """Remove messages that have expired. The result is which, by channel."""
    expired: dict[ChannelUid, list[tuple[int, int]]] = {}
    for number, upto in pairs(change.channels):
        uid = ChannelUid(number)
        if uid in state.moves.held:
            continue
        found = state.expiries.expire(uid, change.until, upto)
        oldest = max(state.channel(uid).first_sequence, 1) if found else 1
        runs = [(max(first, oldest), last) for first, last in found if last >= oldest]
        if not runs:
            continue
        expired[uid] = runs
        state.schedules.remove(uid, runs)
        _trim_deleted(state, uid, state.tombstones.merge(uid, runs))
        for cursor in state.channel(uid).cursors.values():
            state.take_each(cursor, runs)
    return GroupResult(of_part=expired)


def compact(state: GroupState, change: pb.Compacted, index: RaftIndex) -> GroupResult:
    """Compact channels further; those that are gone meanwhile, or held for a move, are left out."""
    gone, held = state.dropped, state.moves.held
    state.compactions.advance([one for one in change.channels if one.uid not in gone and one.uid not in held], index)
    return GroupResult()


def begin_epoch(state: GroupState, change: pb.EphemeralEpoch, index: RaftIndex) -> GroupResult:
    """Begin an epoch of an ephemeral channel: it is empty, and its cursors stand before it, own and owe nothing. Or give the
    newest one more sequences, which changes nothing else."""
    uid, epochs = ChannelUid(change.uid), state.epochs
    if uid in state.dropped:
        return GroupResult(error=UNKNOWN_CHANNEL)
    before = epochs.of(uid).number
    error = epochs.begin(change)
    epoch = epochs.of(uid)
    if epoch.number == before:
        return GroupResult(error=error)
    state.trim(uid, epoch.first, lost=True)
    for cursor in state.channel(uid).cursors.values():
        for member in cursor.members:
            member.pending.clear()
            state.dirty.subscriptions.add(member.subscription_id)
        cursor.to_redeliver.clear()
        cursor.last_sent, cursor.maybe_sent_until = epoch.first - 1, 0
        if cursor.override is not None:
            cursor.override.forget(index)
        state.dirty.cursors.add(cursor.cursor_id)
    return GroupResult()
