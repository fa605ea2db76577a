"""The state of a durable, queue group or subscription in words: what it does, or why it receives nothing. Pure."""

from typing import Final, NamedTuple

from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.scalars import SECOND
from stan_protocol.units import ago, counted, span

from stan.protocol.part_status import unacked_for

KINDS: Final = {admin.PLAIN: "subscription", admin.DURABLE: "durable", admin.QUEUE: "queue group"}
KINDS[admin.DURABLE_QUEUE] = "durable queue group"


class CursorState(NamedTuple):
    """The state of a cursor: a word to filter by, a sentence for people, and its severity."""

    word: str
    text: str
    level: str  # ok, busy, warn, bad


def state_of(cursor: admin.CursorStatus, now: int, left_s: float | None = None) -> CursorState:
    """Return the state of a cursor at *now* (Unix ns); *left_s*: seconds until it has caught up, None: not known."""
    waiting = int(cursor.waiting)
    behind = f"{counted(waiting, 'message')} behind" if waiting else "nothing is waiting"
    if cursor.paused and cursor.pause_reason:
        reason = cursor.pause_reason.decode("utf-8", "replace")
        return CursorState("paused", f"Paused by the broker: {reason}; {behind}", "bad")
    if cursor.paused:
        return CursorState("paused", f"Paused by an operator; {behind}", "warn" if waiting else "busy")
    if not cursor.members:
        return _offline(cursor, behind, now)
    members = takers(cursor)
    failing = sum(member.failing for member in members)
    if failing == len(members):
        who = "Its client does" if failing == 1 else f"All {failing} clients do"
        return CursorState("silent", f"{who} not answer heartbeats; {behind}", "warn")
    return _held(cursor, behind, now) or _moving(cursor, behind, left_s)


def _held(cursor: admin.CursorStatus, behind: str, now: int) -> CursorState | None:
    """Return the state of a cursor that waits for acks; None if acks keep coming and its window has room."""
    pending = int(cursor.pending)
    window = sum(member.max_in_flight for member in takers(cursor)) or cursor.max_in_flight
    still = unacked_for(cursor, now)
    if pending and (pending >= window or all(member.stalled for member in takers(cursor))):
        held = f"{pending:,} of {window:,} messages sent and not acknowledged"
        if still:
            return CursorState("stuck", f"Stuck: its window is full, {held}, no ack for {span(still)}; {behind}", "bad")
        return CursorState("window full", f"Its window is full, {held}; {behind}", "busy")
    if still:
        held = f"{counted(pending, 'message')} sent and not acknowledged for {span(still)}"
        return CursorState("not acknowledging", f"Not acknowledging: {held}; {behind}", "warn")
    return None


def _moving(cursor: admin.CursorStatus, behind: str, left_s: float | None) -> CursorState:
    if cursor.waiting:
        left = f", about {span(int(left_s * SECOND))} left" if left_s is not None else ""
        return CursorState("catching up", f"Catching up: {behind}{left}", "busy")
    sent = f"; {cursor.pending:,} sent, not acknowledged yet" if cursor.pending else ""
    return CursorState("up to date", f"Up to date{sent}", "ok")


def _offline(cursor: admin.CursorStatus, behind: str, now: int) -> CursorState:
    since = f", last ack {ago(cursor.last_ack, now)}" if cursor.last_ack else ""
    owed = f", {cursor.pending:,} to be sent again" if cursor.pending else ""
    return CursorState("offline", f"Nobody is online{since}; {behind}{owed}", "warn" if cursor.waiting else "busy")


def name_of(cursor: admin.CursorStatus) -> bytes:
    """Return the name of a cursor for people: the queue group's, else the durable's, else the client's."""
    return cursor.queue_group or cursor.durable_name or _client(cursor)


def _client(cursor: admin.CursorStatus) -> bytes:
    return cursor.client_id or (cursor.members[0].client_id if cursor.members else b"")


def takers(row: admin.CursorStatus) -> list[admin.MemberStatus]:
    """Return the members of a cursor that get messages: all, or the active one of a failover group."""
    return [member for member in row.members if member.active] or list(row.members)


def window_now(row: admin.CursorStatus) -> int:
    """Return how many messages the members of a cursor may have in flight now; without a member, how many they might have."""
    return sum(member.window_now or member.max_in_flight for member in takers(row)) or row.max_in_flight
