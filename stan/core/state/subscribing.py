"""Subscriptions of a group that begin, end, or are served by another node: what these entries change."""

from stan_protocol.refusals import (
    DUPLICATE_DURABLE,
    DURABLE_OF_ANOTHER,
    INVALID_SUBSCRIPTION,
    TOO_MANY_SUBSCRIPTIONS,
    UNKNOWN_CHANNEL,
)
from stan_protocol.scalars import ChannelUid, RaftIndex

from stan.core.state.consumers import CONSUMERS
from stan.core.state.cursors import (
    Cursor,
    CursorKind,
    CursorPast,
    LastMember,
    Subscription,
    SubscriptionSettings,
    kind_and_name,
)
from stan.core.state.group_state import GroupResult, GroupState
from stan.core.state.serving import LEADER, ServedBy
from stan.protocol.proto import entries_pb2 as pb
from stan.protocol.user_subjects import ACK_GROUPS


def cursor_for(state: GroupState, request: pb.Subscribe) -> Cursor | None:
    """The durable or queue group that a request resumes or joins; None: the request makes a new one."""
    kind, name = kind_and_name(request.queue_group, request.durable_name)
    known = state.channels.get(ChannelUid(request.uid))
    key = (kind, name, request.client_id if kind is CursorKind.DURABLE else b"")
    return None if known is None or kind is CursorKind.PLAIN else known.by_key.get(key)


def subscribe(state: GroupState, request: pb.Subscribe, index: RaftIndex) -> GroupResult:
    """Let a client join the cursor that it means, or a new one; refuse a duplicate durable, and one subscription too many."""
    uid = ChannelUid(request.uid)
    made = state.subscriptions.made_by(request)
    if made is not None:  # the previous leader had proposed it, too
        return GroupResult(joined=made, again=True)
    if uid in state.dropped:
        return GroupResult(error=UNKNOWN_CHANNEL)
    cursor, replaced = cursor_for(state, request), None
    if cursor is not None and request.user and cursor.user not in (b"", request.user, request.former_user):
        return GroupResult(error=DURABLE_OF_ANOTHER)
    if cursor is not None and cursor.members and not cursor.kind.shared:
        if not request.replace_durable:
            return GroupResult(error=DUPLICATE_DURABLE)
        replaced = cursor.members[0]
        _end_member(state, cursor, replaced)
    if cursor is None or cursor.members:
        limit = request.subscriptions_max
        if limit and state.channel(uid).subscription_count >= limit:
            return GroupResult(error=TOO_MANY_SUBSCRIPTIONS)
    if cursor is None:
        # An earlier leader may have chosen where it starts: in an epoch that has ended meanwhile.
        start = max(1, request.start_sequence, state.epochs.of(uid).first)
        kind, name = kind_and_name(request.queue_group, request.durable_name)
        cursor = Cursor(state.new_id(), uid, kind, name, request.client_id, start - 1)
        cursor.past = CursorPast(0 if request.sent_before else request.start_sequence)
        state.add_cursor(cursor)
    resumed = cursor.last_member.subscription_id if not cursor.members else 0
    ack_key = request.ack_key or index
    ack_group = state.group + ACK_GROUPS if request.replica else state.group
    prefix = request.ack_prefix or b"_INBOX." + request.nuid
    member = Subscription(
        subscription_id=resumed or state.new_id(),
        cursor_id=cursor.cursor_id,
        client_id=request.client_id,
        incarnation=request.incarnation,
        settings=SubscriptionSettings(
            inbox=request.inbox,
            ack_inbox=b"%b.%d.%d" % (prefix, ack_group, ack_key),
            max_in_flight=request.max_in_flight,
            ack_wait_s=request.ack_wait_s,
        ),
        ack_key=ack_key,
        joined=index if request.ack_key else 0,
        reply=request.reply,
        served=ServedBy(request.replica) if request.replica else LEADER,
    )
    state.add_member(cursor, member)
    cursor.client_id = request.client_id
    cursor.last_member = cursor.last_member._replace(subscription_id=0)
    state.dirty.cursors.add(cursor.cursor_id)
    return GroupResult(joined=member, cursor=cursor, replaced=replaced)


def leave(state: GroupState, change: pb.Leave, _index: RaftIndex) -> GroupResult:
    """End a subscription; a cursor ends with its last member, unless it is durable and the client has not unsubscribed."""
    member = state.subscriptions.by_id.get(change.subscription_id)
    if member is None or member.client_id == CONSUMERS:  # the member of a consumer ends with its cursor alone
        return GroupResult(error=INVALID_SUBSCRIPTION)
    cursor = state.cursors[member.cursor_id]
    _end_member(state, cursor, member)
    ended = not cursor.members and (change.unsubscribe or not cursor.kind.durable)
    if ended:
        state.remove_cursor(cursor)
    return GroupResult(left=member, cursor=cursor, ended=ended)


def _end_member(state: GroupState, cursor: Cursor, member: Subscription) -> None:
    """Remove a member; its pending messages are to be redelivered. The last member's settings stay with the cursor."""
    state.remove_member(cursor, member)
    for run in member.pending:
        cursor.to_redeliver.merge(run)
    if not cursor.members:
        cursor.last_member = LastMember(member.subscription_id, member.settings)
        cursor.past = cursor.past._replace(unacked_since=0)
    state.dirty.cursors.add(cursor.cursor_id)


def serve(state: GroupState, change: pb.Serve, index: RaftIndex) -> GroupResult:
    """Give plain subscriptions to another node that serves them, or to none: then the leader does."""
    result = GroupResult()
    for cursor_id in change.cursor_ids:
        cursor = state.cursors.get(cursor_id)
        if cursor is None or cursor.kind is not CursorKind.PLAIN or not cursor.members:
            continue
        member = cursor.members[0]
        member.served = ServedBy(member.served.wish, change.node, index if change.node else 0, change.instance)
        state.dirty.subscriptions.add(member.subscription_id)
        result.served.append(cursor)
    return result
