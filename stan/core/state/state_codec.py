"""Between a group's machine and its stored form: rows of cursors and subscriptions, and snapshots of the whole state.

Rows are protobuf messages of entries.proto; other code keeps them in the tables of stan.state.
"""

from collections.abc import Iterable

from stan_protocol.scalars import ChannelUid

from stan.core.base.runs import pairs
from stan.core.state.group import Cursor, GroupMachine, Subscription, cursor_of, subscription_of
from stan.protocol.proto import entries_pb2 as pb


def cursor_row(cursor: Cursor) -> pb.Cursor:
    """The row of one cursor."""
    last = cursor.last_member
    to_redeliver, counts = cursor.to_redeliver.counted()
    return pb.Cursor(
        cursor_id=cursor.cursor_id,
        uid=cursor.uid,
        name=cursor.name,
        kind=cursor.kind,
        client_id=cursor.client_id,
        last_sent=cursor.last_sent,
        to_redeliver=to_redeliver,
        counts=counts,
        inbox=last.settings.inbox,
        ack_inbox=last.settings.ack_inbox,
        max_in_flight=last.settings.max_in_flight,
        ack_wait_s=last.settings.ack_wait_s,
        subscription_id=last.subscription_id,
        maybe_sent_until=cursor.maybe_sent_until,
        start_sequence=cursor.past.start_sequence,
        override=cursor.override.row() if cursor.override is not None else None,
        acked_at=cursor.past.acked_at,
        unacked_since=cursor.past.unacked_since,
    )


def subscription_row(member: Subscription) -> pb.Subscription:
    """The row of one subscription."""
    pending, counts = member.pending.counted()
    return pb.Subscription(
        subscription_id=member.subscription_id,
        cursor_id=member.cursor_id,
        client_id=member.client_id,
        incarnation=member.incarnation,
        inbox=member.settings.inbox,
        ack_inbox=member.settings.ack_inbox,
        ack_key=member.ack_key,
        max_in_flight=member.settings.max_in_flight,
        ack_wait_s=member.settings.ack_wait_s,
        pending=pending,
        counts=counts,
        last_sent=member.last_sent,
        reply=member.reply,
        joined=member.joined,
        replica=member.served.wish,
        served_by=member.served.node,
        served_since=member.served.since,
        server_instance=member.served.instance,
        ack_group=member.ack_group,
    )


def load_group(machine: GroupMachine, cursors: Iterable[pb.Cursor], members: Iterable[pb.Subscription]) -> None:
    """Fill a new machine with rows; members join their cursor in the order in which they have joined it."""
    for row in cursors:
        cursor = cursor_of(row, row.cursor_id, row.subscription_id)
        machine._index_cursor(cursor)  # noqa: SLF001 - this module is the machine's other half
        machine.next_id = max(machine.next_id, cursor.cursor_id + 1, row.subscription_id + 1)
    for member in sorted(members, key=lambda row: row.joined or row.ack_key):
        made = subscription_of(member, member.subscription_id, member.cursor_id)
        machine._index_member(machine.cursors[member.cursor_id], made)  # noqa: SLF001
        machine.next_id = max(machine.next_id, member.subscription_id + 1)


def snapshot_group(machine: GroupMachine, snapshot: pb.Snapshot) -> None:
    """Write the whole state into *snapshot*, in an order that depends on the state alone."""
    subscriptions = machine.subscriptions.by_id
    snapshot.cursors.extend(cursor_row(machine.cursors[key]) for key in sorted(machine.cursors))
    snapshot.subscriptions.extend(subscription_row(subscriptions[key]) for key in sorted(subscriptions))
    for uid in sorted(machine.channels):
        if machine.channels[uid].first_sequence:
            snapshot.first_sequences.extend((uid, machine.channels[uid].first_sequence))
    snapshot.next_id = machine.next_id
    for part in machine.components:
        for key in sorted(part.keys()):
            snapshot.parts.add(kind=part.KIND, key=key, state=part.row(key) or b"")


def restore_group(machine: GroupMachine, snapshot: pb.Snapshot) -> None:
    """Make a new machine what *snapshot* says."""
    load_group(machine, snapshot.cursors, snapshot.subscriptions)
    for uid, first in pairs(snapshot.first_sequences):
        machine.channel(ChannelUid(uid)).first_sequence = first
    machine.next_id = max(machine.next_id, snapshot.next_id)
    parts = {part.KIND: part for part in machine.components}
    for row in snapshot.parts:
        parts[row.kind].load(row.key, row.state)
