"""Consumers of streams that are made, changed or deleted: what these entries change.

A consumer is a durable cursor with one member, which is always there: it stands for all clients that pull, or for the subject to
which messages are pushed.
"""

from typing import Final

from stan_protocol.refusals import UNKNOWN_CHANNEL
from stan_protocol.scalars import ChannelUid, RaftIndex, WallNanos

from stan import limits
from stan.core.base.runs import Run, pairs
from stan.core.base.shares import Shares
from stan.core.state.consumers import CONSUMERS, Consumer
from stan.core.state.cursor_override import of_cursor
from stan.core.state.cursors import Cursor, CursorKind, CursorPast, Subscription, SubscriptionSettings
from stan.core.state.group_state import GroupResult, GroupState
from stan.protocol.jetstream.consumers import ConsumerConfig, decode
from stan.protocol.proto import entries_pb2 as pb
from stan.protocol.user_subjects import inbox_of

INCARNATION: Final = (1 << 64) - 1
"""Of the client that consumers' members name: no connection has it, so no end of a connection closes them."""
CHANGED, TOO_MANY, GONE = (
    "the consumer was changed meanwhile",
    "there are too many consumers",
    "there is no such consumer",
)
"""Why a change is not taken."""


def set_consumer(state: GroupState, change: pb.SetConsumer, index: RaftIndex) -> GroupResult:
    """Make a consumer with its cursor, or give it another configuration."""
    uid, name = ChannelUid(change.uid), change.name
    if uid in state.dropped:
        return GroupResult(error=UNKNOWN_CHANNEL)
    known = state.consumers.of(uid).get(name)
    if (0 if known is None else known.changed) != change.changed:
        return GroupResult(error=CHANGED)
    config = decode(change.config)
    if known is not None:
        state.consumers.put(uid, name, known._replace(config=config, changed=index))
        cursor = cursor_of_consumer(state, uid, name)
        member = cursor.members[0]
        member.settings = _settings(change, config)
        state.dirty.subscriptions.add(member.subscription_id)
        return GroupResult(cursor=cursor)
    if len(state.consumers.of(uid)) >= change.consumers_max:
        return GroupResult(error=TOO_MANY)
    state.consumers.put(uid, name, Consumer(change.stream, config, index, WallNanos(change.at), change.subject))
    return _make(state, change, config, index)


def _make(state: GroupState, change: pb.SetConsumer, config: ConsumerConfig, index: RaftIndex) -> GroupResult:
    start = max(1, change.start_sequence)
    uid = ChannelUid(change.uid)
    cursor = state.channel(uid).by_key.get((CursorKind.DURABLE, change.name, CONSUMERS))
    if cursor is not None:  # it was restored from a backup
        return _add_member(state, cursor, change, config, index)
    cursor = Cursor(state.new_id(), uid, CursorKind.DURABLE, change.name, CONSUMERS, start - 1)
    cursor.past = CursorPast(start)
    if change.skipped:
        override = of_cursor(start)
        for first, last in pairs(change.skipped):
            override.skipped.merge(Run(first, last))
        override.epoch = index
        cursor.override = override
    state.add_cursor(cursor)
    return _add_member(state, cursor, change, config, index)


def _add_member(
    state: GroupState, cursor: Cursor, change: pb.SetConsumer, config: ConsumerConfig, index: RaftIndex
) -> GroupResult:
    member = Subscription(
        subscription_id=state.new_id(),
        cursor_id=cursor.cursor_id,
        client_id=CONSUMERS,
        incarnation=INCARNATION,
        settings=_settings(change, config),
        ack_key=index,
    )
    state.add_member(cursor, member)
    return GroupResult(joined=member, cursor=cursor)


def _settings(change: pb.SetConsumer, config: ConsumerConfig) -> SubscriptionSettings:
    most = config.max_ack_pending if config.max_ack_pending > 0 else limits.STREAM_CONSUMER_ACK_PENDING_MAX
    return SubscriptionSettings(
        inbox=inbox_of(change.user, config.deliver_subject.encode()),  # it shows whose the cursor is
        ack_inbox=b"$JS.ACK.%b.%b" % (change.stream, config.name.encode()),
        max_in_flight=most,
        ack_wait_s=min(max(1, -(-config.ack_wait // 1_000_000_000)), (1 << 31) - 1),
    )


def cursor_of_consumer(state: GroupState, uid: ChannelUid, name: bytes) -> Cursor:
    """The cursor of a consumer that is there."""
    return state.channel(uid).by_key[CursorKind.DURABLE, name, CONSUMERS]


def consumers_max(state: GroupState, uid: ChannelUid, user: bytes, most: int) -> int:
    """Return how many consumers of a channel there may be, of *most*, with one more of a user: each has half of what the others
    leave."""
    shares = Shares()
    for name in state.consumers.of(uid):
        shares.add(cursor_of_consumer(state, uid, name).user, 1)
    return shares.used + max(0, shares.left(user, most))


def drop_consumer(state: GroupState, change: pb.DropConsumer, _index: RaftIndex) -> GroupResult:
    """Delete a consumer with its cursor."""
    uid = ChannelUid(change.uid)
    known = state.consumers.of(uid).get(change.name)
    if known is None:
        return GroupResult(error=GONE)
    if change.changed not in (0, known.changed):
        return GroupResult(error=CHANGED)
    cursor = cursor_of_consumer(state, uid, change.name)
    member = cursor.members[0]
    state.remove_cursor(cursor)
    return GroupResult(left=member, cursor=cursor, ended=True)
