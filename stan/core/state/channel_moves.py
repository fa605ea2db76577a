"""Moves of channels between groups: what their entries change in the state of the source and of the target. How far each move is:
moves.py, where the order of the entries is drawn.
"""

from stan_protocol.refusals import (
    CHANNEL_RESTORING,
    MOVE_WAITS_DELAYED,
    MOVE_WAITS_SERVED,
    MOVE_WAITS_STAGED,
    UNKNOWN_CHANNEL,
    UNKNOWN_MOVE,
)
from stan_protocol.scalars import ChannelUid, RaftIndex

from stan.core.state.cursors import Cursor, cursor_of, subscription_of
from stan.core.state.group_state import GroupResult, GroupState
from stan.core.state.moves import MoveStage, Stage
from stan.core.state.removals import forget_channel
from stan.protocol.proto import entries_pb2 as pb


def arriving(state: GroupState, change: pb.Moving, _index: RaftIndex) -> GroupResult:
    """Target: messages of these channels come from now on."""
    moves = state.moves
    if any(uid in state.dropped for uid in change.uids):
        return GroupResult(error=UNKNOWN_CHANNEL)
    moves.moved(
        change.move, [uid for uid in change.uids if moves.is_newer(ChannelUid(uid), change.move)], Stage.COPYING
    )
    return GroupResult()


def arrived(state: GroupState, change: pb.Arrived, index: RaftIndex) -> GroupResult:
    """Target: all messages of the channels are here; take in everything else that the source has of them. Cursors and
    subscriptions get numbers of this group, in the order in which the rows come."""
    if not all(state.moves.at(ChannelUid(uid), change.move, Stage.COPYING) for uid in change.uids):
        return GroupResult(error=UNKNOWN_MOVE)
    parts = {part.KIND: part for part in state.components}
    cursors: dict[int, Cursor] = {}  # by their numbers in the source
    members: list[pb.Subscription] = []
    for row in change.rows:
        match row.WhichOneof("row"):
            case "first":
                state.trim(ChannelUid(row.first.uid), row.first.first_sequence, lost=True)
            case "cursor":
                cursors[row.cursor.cursor_id] = _take_cursor(state, row.cursor, index)
            case "subscription":
                members.append(row.subscription)
            case "part" if row.part.kind in parts:
                part = parts[row.part.kind]
                part.load(row.part.key, row.part.state)
                part.dirty.add(row.part.key)
    compactions = state.compactions
    for uid in map(ChannelUid, change.uids):
        if uid in compactions.by_channel:  # decided by this entry, for this group's log
            compactions.put(uid, compactions.of(uid)._replace(index=index))
    for told in sorted(members, key=lambda row: row.joined or row.ack_key):
        _take_member(state, cursors[told.cursor_id], told)
    state.moves.moved(change.move, change.uids, Stage.ARRIVED)
    return GroupResult()


def _take_cursor(state: GroupState, row: pb.Cursor, index: RaftIndex) -> Cursor:
    last = state.new_id() if row.subscription_id else 0
    cursor = cursor_of(row, state.new_id(), last)
    if cursor.override is not None and cursor.override.epoch:
        cursor.override.epoch = index  # epochs are indexes of this group's log
    state.add_cursor(cursor)
    return cursor


def _take_member(state: GroupState, cursor: Cursor, row: pb.Subscription) -> None:
    """Take in a subscription: it has joined before whoever joins here, in the order in which they have joined there."""
    member = subscription_of(row, state.new_id(), cursor.cursor_id)
    member.joined = len(cursor.members) + 1
    if member.ack_group == state.group:
        member.ack_group = 0
    state.add_member(cursor, member)


def arrival_dropped(state: GroupState, change: pb.Moving, _index: RaftIndex) -> GroupResult:
    """Target: the move was cancelled. The messages stay, as a later move begins with the same ones."""
    for uid in map(ChannelUid, change.uids):
        if state.moves.at(uid, change.move, Stage.ARRIVED):
            for cursor in list(state.channel(uid).cursors.values()):
                state.remove_cursor(cursor)
            for part in state.components:
                if part is not state.dropped and part is not state.moves:
                    part.drop_channel(uid)
            state.moves.put(uid, MoveStage(change.move, Stage.COPYING))
    return GroupResult()


def depart(state: GroupState, change: pb.Moving, _index: RaftIndex) -> GroupResult:
    """Source: from now on nothing of the channels changes. Refused while something is half done in one of them."""
    uids = [ChannelUid(uid) for uid in change.uids]
    for uid in uids:
        if not state.moves.is_newer(uid, change.move):
            return GroupResult(error="" if state.moves.at(uid, change.move, Stage.HELD) else UNKNOWN_MOVE)
        if reason := half_done(state, uid):
            return GroupResult(error=reason)
    state.moves.moved(change.move, uids, Stage.HELD)
    return GroupResult()


def half_done(state: GroupState, uid: ChannelUid) -> str:
    """Why a channel cannot be moved to another group now; "" if it can."""
    if uid in state.dropped:
        return UNKNOWN_CHANNEL
    if uid in state.transactions.parts:
        return MOVE_WAITS_STAGED
    if state.restores.under_way(uid):
        return CHANNEL_RESTORING
    if uid in state.deferred.counts:
        return MOVE_WAITS_DELAYED
    if any(member.served.wish for cursor in state.channel(uid).cursors.values() for member in cursor.members):
        return MOVE_WAITS_SERVED
    return ""


def departed(state: GroupState, change: pb.Moving, _index: RaftIndex) -> GroupResult:
    """Source: the channels are another group's."""
    for uid in map(ChannelUid, change.uids):
        if state.moves.at(uid, change.move, Stage.HELD):
            forget_channel(state, uid)
            state.moves.put(uid, MoveStage(change.move, Stage.GONE))
    return GroupResult()


def returned(state: GroupState, change: pb.Moving, _index: RaftIndex) -> GroupResult:
    """Source: the move was cancelled, the channels stay."""
    for uid in map(ChannelUid, change.uids):
        if state.moves.at(uid, change.move, Stage.HELD):
            state.moves.put(uid, None)
    return GroupResult()
