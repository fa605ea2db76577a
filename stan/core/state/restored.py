"""What the committed changes of a restore do to their group's machine.

A channel begins with a sequence of its own, gets its durables back with their positions, and is a channel like any other from
the end of the restore on.
"""

from typing import TYPE_CHECKING

from stan.core.base.runs import from_flat
from stan.core.state.steering import of_row
from stan.errors import CHANNEL_IN_USE, CHANNEL_RESTORING, UNKNOWN_CHANNEL, UNKNOWN_RESTORE
from stan.protocol import entries_pb2 as pb
from stan.types import ChannelUid, RaftIndex

if TYPE_CHECKING:
    from stan.core.state.group import GroupMachine


def restore(machine: "GroupMachine", change: pb.Restore, index: RaftIndex) -> str:
    """A restore begins, or ends; returns why not, or ""."""
    uid = ChannelUid(change.uid)
    if uid in machine.dropped:
        return UNKNOWN_CHANNEL
    return _end(machine, change, index) if change.ended else _begin(machine, change, index)


def _begin(machine: "GroupMachine", change: pb.Restore, index: RaftIndex) -> str:
    uid, restores = ChannelUid(change.uid), machine.restores
    known = restores.by_channel.get(uid)
    if known is not None and known.name == change.name:
        return ""
    if known is not None and not known.ended:
        return CHANNEL_RESTORING
    channel, transactions = machine.channel(uid), machine.transactions
    busy = channel.cursors or uid in transactions.parts or uid in transactions.under_way
    if busy or channel.first_sequence > max(change.first_sequence, 1):
        return CHANNEL_IN_USE
    restores.apply("restore", change, index)
    machine.trim(uid, change.first_sequence)
    if change.HasField("limits"):
        change.limits.uid, change.limits.reset = uid, True
        machine.edits.apply("edit_limits", change.limits, index)
    return ""


def _end(machine: "GroupMachine", change: pb.Restore, index: RaftIndex) -> str:
    restores = machine.restores
    known = restores.by_channel.get(ChannelUid(change.uid))
    if known is None or known.name != change.name:
        return UNKNOWN_RESTORE
    change.first_sequence = known.first_sequence
    restores.apply("restore", change, index)
    return ""


def put_cursor(machine: "GroupMachine", change: pb.RestoredCursor, _index: RaftIndex) -> str:
    """A durable is there again; one that the same restore has put there takes the new position. Returns why not, or ""."""
    row = change.cursor
    uid = ChannelUid(row.uid)
    if machine.restores.under_way(uid) != change.restore:
        return UNKNOWN_RESTORE
    cursor = machine.found_cursor(uid, row.kind, row.name, row.client_id)
    cursor.client_id, cursor.inbox = row.client_id, row.inbox
    cursor.max_in_flight, cursor.ack_wait_s = row.max_in_flight, row.ack_wait_s
    cursor.last_sent, cursor.owed = row.last_sent, from_flat(row.owed)
    for gone in machine.deleted.within(uid, 1, row.last_sent):
        cursor.owed.remove(gone.first, gone.last)
    cursor.steering = of_row(row.steering) if row.HasField("steering") else None
    machine.dirty_cursors.add(cursor.cursor_id)
    return ""
