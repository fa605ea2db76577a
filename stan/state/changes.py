"""The changes of the state machines since the last flush, as rows of the database."""

from stan.core.state.components import StateComponent
from stan.core.state.group import GroupMachine
from stan.core.state.meta import MetaMachine
from stan.core.state.state_codec import cursor_row, subscription_row
from stan.state.database import Changes
from stan.types import ChannelUid, GroupId, RaftIndex, Term


def meta_changes(changes: Changes, meta: MetaMachine, applied: tuple[RaftIndex, Term]) -> None:
    """Add the metadata group's dirty rows and its applied index; they are clean afterwards."""
    if meta.dirty_info and meta.info is not None:
        info = meta.info
        changes.put("cluster", 1, info.cluster_id.decode(errors="replace"), info.raft_groups, info.SerializeToString())
    for client_id in sorted(meta.dirty_clients):  # a restart finds them in this order, whatever the process
        client = meta.client_row(client_id)
        if client is None:
            changes.remove("clients", client_id)
        else:
            changes.put("clients", client_id, client.incarnation, client.SerializeToString())
    for uid in meta.dirty_channels:
        channel = meta.channel_row(ChannelUid(uid))
        if channel is None:
            changes.remove("channels", uid)
        else:
            changes.put("channels", uid, channel.name, channel.group, channel.SerializeToString())
    changes.put("applied", 0, *applied, meta.next_uid)
    meta.dirty_info = False
    meta.dirty_clients = set()
    meta.dirty_channels = set()


def group_changes(changes: Changes, machine: GroupMachine, applied: tuple[RaftIndex, Term]) -> None:
    """Add one channel group's dirty rows and its applied index; they are clean afterwards."""
    group = machine.group
    for cursor_id in machine.dirty_cursors:
        cursor = machine.cursors.get(cursor_id)
        if cursor is None:
            changes.remove("cursors", group, cursor_id)
        else:
            state = cursor_row(cursor).SerializeToString()
            changes.put("cursors", group, cursor_id, cursor.uid, cursor.name, cursor.last_sent, state)
    for subscription_id in machine.dirty_subscriptions:
        sub = machine.subscriptions.get(subscription_id)
        if sub is None:
            changes.remove("subscriptions", group, subscription_id)
        else:
            state = subscription_row(sub).SerializeToString()
            changes.put("subscriptions", group, subscription_id, sub.cursor_id, sub.client_id, state)
    for uid in machine.dirty_channels:
        channel = machine.channels.get(ChannelUid(uid))
        if uid in machine.dropped:
            changes.remove("first_sequences", group, uid)
            changes.put("dropped", group, uid)
        elif channel is not None and channel.first_sequence:
            changes.put("first_sequences", group, uid, channel.first_sequence)
    for part in machine.components:
        _part_changes(changes, group, part)
    changes.put("applied", group, *applied, machine.next_id)
    machine.dirty_cursors = set()
    machine.dirty_subscriptions = set()
    machine.dirty_channels = set()


def _part_changes(changes: Changes, group: GroupId, part: StateComponent) -> None:
    for key in sorted(part.dirty):
        row = part.row(key)
        if row is None:
            changes.remove("parts", group, part.KIND, key)
        else:
            changes.put("parts", group, part.KIND, key, row)
    part.dirty.clear()
