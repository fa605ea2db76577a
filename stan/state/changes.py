"""Changed rows of the state machines, as rows of the database."""

from stan_protocol.scalars import GroupId, RaftIndex, Term

from stan.core.metadata.meta import MetaRows
from stan.core.state.cursors import cursor_row, subscription_row
from stan.core.state.group_state import GroupRows
from stan.state.database import Changes


def add_some_rows(changes: Changes, group: GroupId, rows: GroupRows) -> None:
    """Add some of the changed rows of a group; `add_rows` follows in the same flush."""
    _add_group(changes, group, rows)


def add_rows(changes: Changes, group: GroupId, rows: MetaRows | GroupRows, applied: tuple[RaftIndex, Term]) -> None:
    """Add changed rows of a group and the index and term of its newest applied entry."""
    if isinstance(rows, MetaRows):
        _add_meta(changes, rows)
        changes.put("applied", 0, *applied, rows.next_uid)
    else:
        _add_group(changes, group, rows)
        changes.put("applied", group, *applied, rows.next_id)


def _add_meta(changes: Changes, rows: MetaRows) -> None:
    if rows.info is not None:
        info = rows.info
        changes.put("cluster", 1, info.cluster_id.decode(errors="replace"), info.raft_groups, info.SerializeToString())
    for client_id, client in rows.clients:
        if client is None:
            changes.remove("clients", client_id)
        else:
            changes.put("clients", client_id, client.incarnation, client.SerializeToString())
    for uid, channel in rows.channels:
        if channel is None:
            changes.remove("channels", uid)
        else:
            changes.put("channels", uid, channel.name, channel.group, channel.SerializeToString())
    _add_parts(changes, 0, rows.parts)


def _add_group(changes: Changes, group: GroupId, rows: GroupRows) -> None:
    for cursor_id, cursor in rows.cursors:
        if cursor is None:
            changes.remove("cursors", group, cursor_id)
        else:
            state = cursor_row(cursor).SerializeToString()
            changes.put("cursors", group, cursor_id, cursor.uid, cursor.name, cursor.last_sent, state)
    for subscription_id, sub in rows.subscriptions:
        if sub is None:
            changes.remove("subscriptions", group, subscription_id)
        else:
            state = subscription_row(sub).SerializeToString()
            changes.put("subscriptions", group, subscription_id, sub.cursor_id, sub.client_id, state)
    for uid, first in rows.first_sequences:
        if first:
            changes.put("first_sequences", group, uid, first)
        else:
            changes.remove("first_sequences", group, uid)
    _add_parts(changes, group, rows.parts)


def _add_parts(changes: Changes, group: int, rows: list[tuple[str, bytes, bytes | None]]) -> None:
    for kind, key, row in rows:
        if row is None:
            changes.remove("parts", group, kind, key)
        else:
            changes.put("parts", group, kind, key, row)
