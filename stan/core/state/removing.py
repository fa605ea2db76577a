"""What a committed removal of messages does to its group's machine: they are gone, and nobody has them pending any more."""

from typing import TYPE_CHECKING

from stan.core.base.runs import pairs
from stan.core.state.deleted import behind
from stan.errors import UNKNOWN_CHANNEL
from stan.protocol import entries_pb2 as pb
from stan.types import ChannelUid, RaftIndex

if TYPE_CHECKING:
    from stan.core.state.group import GroupMachine


def remove(machine: "GroupMachine", removal: pb.Removal, index: RaftIndex) -> str:
    """Apply it; returns why nothing was removed, or ""."""
    uid = ChannelUid(removal.uid)
    if uid in machine.dropped:
        return UNKNOWN_CHANNEL
    channel, deleted = machine.channel(uid), machine.deleted
    error = deleted.apply("removal", removal, index)
    if error:
        return error
    machine.trim(uid, removal.first_sequence)
    deleted.trim(uid, channel.first_sequence)
    oldest = max(channel.first_sequence, 1)
    left = behind(deleted.by_channel.get(uid), oldest)
    if left > oldest:
        machine.trim(uid, left)
    for cursor in channel.cursors.values():
        for first, last in removed_runs(removal):
            machine.take(cursor, first, last)
        cursor.last_sent = max(cursor.last_sent, removal.first_sequence - 1)
        if cursor.steering is not None:
            cursor.steering.passed(cursor.last_sent)
        machine.dirty_cursors.add(cursor.cursor_id)
    return ""


def removed_runs(removal: pb.Removal) -> list[tuple[int, int]]:
    """The sequences that a removal is about."""
    below = [(1, removal.first_sequence - 1)] if removal.first_sequence > 1 else []
    return below + list(pairs(removal.deleted))
