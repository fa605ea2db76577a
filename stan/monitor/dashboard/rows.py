"""Converts answers of the cluster to the JSON that the pages read: names as text and as keys, times in Unix ms. Pure."""

from typing import Any

from stan_protocol.ack_levels import AckLevel
from stan_protocol.admin_types import ChannelStatus, ClientStatus, CursorKind, CursorStatus, Event, NodeStatus
from stan_protocol.scalars import SECOND

from stan.monitor.dashboard.formatting import key_of, millis, shown
from stan.monitor.dashboard.node_history import NodeNews, Throughput
from stan.policies import COMMITS, SYNCED
from stan.protocol.part_status import part_of
from stan.status.findings import Finding
from stan.status.positions import (
    FULL,
    KINDS,
    QUEUES,
    STUCK,
    PositionState,
    ack_overdue,
    name_of,
    state_of,
    why,
    window,
    window_now,
)
from stan.troubles import Severity

Json = dict[str, Any]
_LIMITS = ("max_msgs", "max_bytes", "max_subs", "max_age", "max_inactivity")
LEVELS = {Severity.FINE: "ok", Severity.NOTE: "busy", Severity.ATTENTION: "warn", Severity.BROKEN: "bad"}
"""Classes of the style sheet."""
COMPACTS = ("none", "newest", "oldest")
"""Which message of a key stays, by the number in a ChannelStatus."""
_NANOS = {"max_age", "max_inactivity"}


def channel(row: ChannelStatus, rate: float | None, lag: int, cursors: int) -> Json:
    """Return a row of the table of channels; *rate*: messages a second, None: not known; *lag*: the largest of its cursors, in
    messages; *cursors*: their number. `whole`: the channel of which it is a part, if it is one."""
    return {
        "key": key_of(row.name),
        "name": shown(row.name),
        "whole": key_of(part_of(row).channel),
        "whole_name": shown(part_of(row).channel),
        "uid": row.uid,
        "group": row.group,
        "first": row.first_sequence,
        "last": row.last_sequence,
        "messages": row.messages,
        "bytes": row.bytes,
        "first_time": millis(row.first_timestamp),
        "last_time": millis(row.last_timestamp),
        "online": row.subscriptions,
        "offline": row.offline,
        "deleted": row.deleted,
        "delayed": row.delayed,
        "ttl": row.ttl / SECOND,
        "rate": None if rate is None else round(rate, 1),
        "lag": lag,
        "cursors": cursors,
        "commit": COMMITS[row.commit] if row.commit < len(COMMITS) else "?",
        "on_disk": row.commit == SYNCED and row.ack_level == AckLevel.SYNCED,
        "compression": _compression(row),
        "compaction": _compaction(row),
        "limits": {
            name: getattr(row.limits, name) // (SECOND if name in _NANOS else 1)
            for name in _LIMITS
            if getattr(row.limits, name) is not None
        },
        "edited": [name for name in _LIMITS if getattr(row.edited, name) is not None],
    }


def _compression(row: ChannelStatus) -> Json | None:
    """Return bytes in clear and as stored, both 0 if nothing is compressed yet; None: compression is off, too."""
    if not row.kept_bytes and not row.compress:
        return None
    return {"clear": row.clear_bytes, "kept": row.kept_bytes}


def _compaction(row: ChannelStatus) -> Json | None:
    """Return the progress of compaction by key, and the reader that tombstones wait for; None: it never ran, and is off."""
    if not row.compact and not row.compacted_until:
        return None
    return {
        "stays": COMPACTS[row.compact] if row.compact < len(COMPACTS) else "?",
        "until": row.compacted_until,
        "here": row.compacted_here,
        "tombstones_until": row.tombstones_until,
        "held": row.tombstone_held,
        "held_by": shown(row.held_by) if row.held_by else "",
        "passes": row.compaction_passes,
        "saved": row.compaction_saved_bytes,
        "ended": millis(row.compaction_ended),
    }


def cursor(row: CursorStatus, now: int, left_s: float | None = None, *, of: CursorStatus | None = None) -> Json:
    """Return a row of the table of durables.

    Args:
        row: the position, or the sums of several.
        now: Unix ns.
        left_s: seconds until it has caught up; None: not known.
        of: the position that gives the state; None: *row*.
    """
    judged = of or row
    state = state_of(judged, now)
    return {
        "channel": shown(row.channel),
        "channel_key": key_of(row.channel),
        "cursor": str(row.cursor_id),
        "name": _name(row),
        "durable": shown(row.durable_name),
        "queue": shown(row.queue_group),
        "client": "" if row.kind in QUEUES else shown(_client(row)),
        "kind": KINDS.get(row.kind, "?"),
        "state": state.word,
        "text": shown(why(judged, now, left_s)[0]),
        "level": _level(state, judged, now),
        "paused": row.paused,
        "lag": row.waiting,
        "held_back": row.held_back,
        "pending": row.pending,
        "window": window(row),
        "window_now": window_now(row),
        "ack_wait": max([member.ack_wait_s for member in row.members], default=row.ack_wait_s),
        "redelivered": row.redelivered,
        "last_sent": row.last_sent,
        "acked": row.acked_up_to,
        "last": row.last_sequence,
        "oldest": millis(row.oldest_pending),
        "last_ack": millis(row.last_ack),
        "online": len(row.members),
        "group": row.group,
        "members": [
            {
                "client": shown(member.client_id),
                "subscription": str(member.subscription_id),
                "window": member.max_in_flight,
                "window_now": member.window_now,
                "pending": member.pending,
                "last_sent": member.last_sent,
                "stalled": member.stalled,
                "failing": member.failing,
                "active": member.active,
            }
            for member in row.members
        ],
    }


def _level(state: PositionState, row: CursorStatus, now: int) -> str:
    """Return the class of a state; a full window becomes yellow once acks are overdue, before the position counts as stuck."""
    return LEVELS[Severity.ATTENTION if state.word == FULL and ack_overdue(row, now) else state.severity]


def _client(row: CursorStatus) -> str:
    return row.client_id or (row.members[0].client_id if row.members else "")


def _name(row: CursorStatus) -> str:
    """Return the name for people: of a plain subscription its client's."""
    return shown(name_of(row) if row.kind != CursorKind.PLAIN else _client(row)) or "(no name)"


def source(row: CursorStatus) -> Json:
    """Return a position that has dead letters."""
    return {
        "channel": shown(row.channel),
        "channel_key": key_of(row.channel),
        "name": _name(row),
        "exhausted": row.exhausted,
        "dead_letters": row.dead_letters,
        "fault": shown(row.dead_letter_fault),
    }


def client(row: ClientStatus, subscriptions: int, lag: int) -> Json:
    """Return a row of the table of clients; *lag*: the largest of its *subscriptions*, in messages."""
    return {
        "key": key_of(row.client_id),
        "name": shown(row.client_id),
        "inbox": shown(row.heartbeat_inbox),
        "protocol": row.protocol,
        "ping_interval": row.ping_interval_s,
        "ping_max_out": row.ping_max_out,
        "failing": row.failing,
        "subscriptions": subscriptions,
        "lag": lag,
    }


def node(row: NodeStatus, reported: int, silent: int = 0) -> Json:
    """Return a node and the state of its groups; *reported*: time of its report, *silent*: since when it does not answer, 0: it
    does (both Unix ns)."""
    return {
        "name": row.node or "this node",
        "id": row.node,
        "asked": millis(reported),
        "silent": millis(silent),
        "server_id": row.server_id,
        "product": row.product,
        "labels": row.labels,
        "started": millis(row.started),
        "replica": row.replica,
        "not_ready": list(row.not_ready),
        "disk_free": row.disk_free,
        "disk_total": row.disk_total,
        "rss": row.rss,
        "kernel": row.kernel,
        "sync": row.sync,
        "store": row.store,
        "clients": row.clients,
        "channels": row.channels,
        "groups": {
            str(group.group): {
                "role": group.role,
                "leader": group.leader,
                "term": group.term,
                "last": group.last_index,
                "committed": group.committed,
                "applied": group.applied,
                "voter": row.node in group.voters or not group.voters,
                "trouble": group.trouble,
                "hash": group.state_hash.hex()[:16],
                "behind": {one.node: max(0, group.last_index - one.match) for one in group.replicas},
            }
            for group in row.groups
        },
    }


def problem(row: Finding) -> Json:
    """Return a finding of the health summary; `link`: the page with details."""
    link = "#/durables?state=stuck" if row.kind == STUCK else "#/cluster"
    return {"text": shown(row.text), "level": LEVELS[row.severity], "link": link, "since": millis(row.since)}


def sample(row: Throughput) -> list[float | int | None]:
    """Return a point of the overview's charts: time, then messages in and out, bytes in and out, all a second."""
    return [
        millis(row.wall),
        *(round(number, 1) for number in (row.messages_in, row.messages_out, row.bytes_in, row.bytes_out)),
    ]


def node_news(row: NodeNews) -> Json:
    """Return an event of the cluster that this node has seen itself."""
    said = f"node {row.node or 'this node'} {'answers again' if row.answers else 'does not answer'}"
    kind = "node_back" if row.answers else "node_silent"
    return {"time": millis(row.at), "node": row.node, "kind": kind, "text": said, "channel": "", "channel_key": ""}


def event(row: Event) -> Json:
    """Return an event of the cluster."""
    return {
        "time": millis(row.time),
        "node": row.node,
        "kind": row.kind,
        "text": row.text,
        "channel": shown(row.channel),
        "channel_key": key_of(row.channel),
    }
