"""The state of a position (a durable, a queue group, a plain subscription), why it gets nothing, and the next step. Pure.

The only place that judges positions: the command line and the dashboard render the result. A position is one CursorStatus, as the
leader of its group reports it, or the sums of those of one name in the parts of a channel.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from stan_protocol.admin_types import CursorKind, CursorStatus, MemberStatus
from stan_protocol.scalars import SECOND
from stan_protocol.units import counted, format_age, format_duration

from stan.protocol.part_status import unacked_for
from stan.troubles import Severity

DURABLES: Final[frozenset[int]] = frozenset({CursorKind.DURABLE})
QUEUES: Final[frozenset[int]] = frozenset({CursorKind.QUEUE, CursorKind.DURABLE_QUEUE})
KINDS: Final = {
    CursorKind.PLAIN: "subscription",
    CursorKind.DURABLE: "durable",
    CursorKind.QUEUE: "queue group",
    CursorKind.DURABLE_QUEUE: "durable queue group",
}

STUCK: Final = "stuck"
SILENT: Final = "not answering"
UNACKING: Final = "not acking"
FULL: Final = "window full"
OFFLINE: Final = "offline"
PAUSED: Final = "paused"
OWED: Final = "redelivery due"
BEHIND: Final = "catching up"
UNACKED: Final = "waiting for acks"
WELL: Final = "caught up"
WORST_FIRST: Final = (STUCK, SILENT, UNACKING, FULL, OFFLINE, PAUSED, OWED, BEHIND, UNACKED, WELL)
IN_VAIN: Final = frozenset({OFFLINE, SILENT, STUCK, FULL})
"""States in which nothing is sent though nobody wanted that."""
OFFLINE_NS: Final = 7 * 24 * 3600 * SECOND
"""A position without a member for longer than that is probably forgotten."""


class PositionState(NamedTuple):
    """A word for a state, and its severity."""

    word: str
    severity: Severity


def state_of(cursor: CursorStatus, now_ns: int) -> PositionState:
    """Return the state of a position."""
    word = _word(cursor, now_ns)
    if word in (STUCK, SILENT, UNACKING) or (word == PAUSED and cursor.pause_reason):
        return PositionState(word, Severity.ATTENTION)
    if word == OFFLINE and offline_long(cursor, now_ns) and (lag(cursor) or cursor.owed):
        return PositionState(word, Severity.ATTENTION)
    return PositionState(word, Severity.FINE if word in (WELL, UNACKED) else Severity.NOTE)


def _word(cursor: CursorStatus, now_ns: int) -> str:
    members = takers(cursor)
    full = all(member.stalled or member.failing for member in members)
    unacking = bool(unacked_for(cursor, now_ns))
    words = {
        PAUSED: cursor.paused,
        OFFLINE: not members,
        SILENT: all(member.failing for member in members),
        STUCK: full and unacking,
        FULL: full and (cursor.waiting or cursor.owed),
        UNACKING: unacking,
        OWED: cursor.owed > cursor.exhausted,
        BEHIND: cursor.waiting,
        UNACKED: cursor.pending,
    }
    return next((word for word, is_so in words.items() if is_so), WELL)


def worst_of(cursors: Iterable[CursorStatus], now_ns: int) -> CursorStatus:
    """Return the position in the worst state, which is also that of all of them together."""
    return min(cursors, key=lambda one: WORST_FIRST.index(_word(one, now_ns)))


def in_vain(cursor: CursorStatus, now_ns: int) -> bool:
    """Return True if messages wait for a position, and will not be sent by themselves."""
    return bool(lag(cursor)) and _word(cursor, now_ns) in IN_VAIN


def ack_overdue(cursor: CursorStatus, now_ns: int) -> bool:
    """Return True if nothing was acked for longer than one ack wait, though members have messages: it may be stuck soon."""
    if not cursor.pending or not cursor.oldest_pending:
        return False
    wait = max((member.ack_wait_s for member in cursor.members), default=cursor.ack_wait_s)
    return now_ns - max(cursor.oldest_pending, cursor.last_ack) > max(wait, 1) * SECOND


def offline_long(cursor: CursorStatus, now_ns: int) -> bool:
    """Return True if the last ack is so long ago that a position without a member is probably forgotten."""
    return bool(cursor.last_ack) and now_ns - cursor.last_ack > OFFLINE_NS


# --- names and windows ----------------------------------------------------------------------------------------------------


def name_of(cursor: CursorStatus) -> str:
    """Return the name of a durable or queue group; of a plain subscription its inbox."""
    durable, queue = cursor.durable_name, cursor.queue_group
    if cursor.kind == CursorKind.DURABLE_QUEUE and ":" not in queue:
        return f"{durable}:{queue}"
    return queue or durable or cursor.inbox


def full_name(cursor: CursorStatus) -> str:
    """Return the name, of a durable with its client's id: `client/name`."""
    owner = cursor.client_id
    return f"{owner}/{name_of(cursor)}" if cursor.kind == CursorKind.DURABLE and owner else name_of(cursor)


def lag(cursor: CursorStatus) -> int:
    """Return how many messages a position lacks: not sent, or not acked."""
    return cursor.waiting + cursor.pending


def takers(cursor: CursorStatus) -> list[MemberStatus]:
    """Return the members that get messages: all, or the active one of a failover group."""
    return [member for member in cursor.members if member.active] or list(cursor.members)


def window(cursor: CursorStatus) -> int:
    """Return how many messages may be unacked, of all members together that get any."""
    return sum(member.max_in_flight for member in takers(cursor)) or cursor.max_in_flight


def window_now(cursor: CursorStatus) -> int:
    """Return how many messages may be unacked at the moment: fewer than `window` while an adaptive window is cut."""
    return sum(member.window_now for member in takers(cursor)) or cursor.max_in_flight


def command_of(cursor: CursorStatus) -> str:
    """Return the command line for a position, before the name of a command."""
    return "stan queue" if cursor.kind in QUEUES else "stan durable"


# --- why ------------------------------------------------------------------------------------------------------------------


def why(cursor: CursorStatus, now_ns: int, left_s: float | None = None) -> list[str]:
    """Return why nothing comes, or that all is well: sentences, the most important first, the next step last.

    *left_s*: seconds until it has caught up; None: not known.
    """
    at = f"{cursor.channel} {full_name(cursor)}"
    reasons = _given_up(cursor, at)
    if cursor.delayed:
        waits = f"wait{'s' * (cursor.delayed == 1)}"
        reasons.append(f"{counted(cursor.delayed, 'failed message')} {waits} until a pause is over.")
    if cursor.held_back:
        back = f"{counted(cursor.held_back, 'message')} {'is' if cursor.held_back == 1 else 'are'} held back by the order by key"
        reasons.append(f"{back}, each until an earlier message of its key, or of a key with the same slot, is acked.")
    return reasons + _why(cursor, at, now_ns, left_s)


def _why(cursor: CursorStatus, at: str, now_ns: int, left_s: float | None) -> list[str]:
    channel, word = cursor.channel, _word(cursor, now_ns)
    waits = f"{counted(cursor.waiting, 'message')} not sent yet, {cursor.pending:,} sent and not acked"
    waits = waits if lag(cursor) else "Nothing waits for it"
    if not cursor.last_sequence and not lag(cursor):
        none = f"The channel {channel} has no messages: there never was one. Nothing is wrong with {full_name(cursor)}."
        offline = [] if cursor.members else ["It is offline, too: nobody is subscribed."]
        return [none, *offline, f"Publish one: stan pub {channel} hello"]
    if word == PAUSED:
        return _paused(cursor, waits, f"{command_of(cursor)} resume {at}")
    if word == OFFLINE:
        return _offline(cursor, waits)
    if word == SILENT:
        return _silent(cursor, waits)
    if word in (STUCK, FULL):
        return _full(cursor, at, now_ns)
    return _flowing(cursor, at, waits, now_ns, left_s)


def given_up_by(cursor: CursorStatus) -> str:
    """Return why messages of a position were given up."""
    rejected, worn_out = cursor.given_up_rejected, cursor.exhausted - cursor.given_up_rejected
    both = bool(rejected and worn_out)
    reasons = [
        f"{f'{rejected:,} ' * both}rejected by a client" if rejected else "",
        f"{f'{worn_out:,} ' * both}delivered as often as the policy allows, in vain" if worn_out else "",
    ]
    return "; ".join(filter(None, reasons))


def _given_up(cursor: CursorStatus, at: str) -> list[str]:
    if not cursor.exhausted:
        return []
    was, them = ("was", "it") if cursor.exhausted == 1 else ("were", "them")
    by_key = "The order by key holds later messages of the same keys back until then; all others go on."
    others = (
        ""
        if cursor.paused
        else f" {by_key if cursor.policy and cursor.policy.ordered_by_key else 'All other messages go on.'}"
    )
    reason = f"{counted(cursor.exhausted, 'message')} {was} given up ({given_up_by(cursor)})"
    if cursor.dead_letter_channel:
        fails = f", which fails: {cursor.dead_letter_fault}" if cursor.dead_letter_fault else ""
        return [f"{reason}, to be moved to {cursor.dead_letter_channel}{fails}.{others}"]
    command = command_of(cursor)
    return [
        f"{reason}, and will not be sent again.{others}",
        f"Send {them} again: {command} redeliver {at}; leave {them} out: {command} skip {at} SEQUENCE",
    ]


def _paused(cursor: CursorStatus, waits: str, resume: str) -> list[str]:
    if not cursor.pause_reason:
        return [f"It is paused: nothing is sent, acks count. {waits}.", f"Go on: {resume}"]
    into = cursor.dead_letter_channel
    look = f"See what is wrong with them: stan dlq show {into}. " if into else ""
    return [
        f"The broker has paused it: {cursor.pause_reason}. Nothing is sent, acks count. {waits}.",
        f"{look}When that is mended, go on: {resume}",
    ]


def _offline(cursor: CursorStatus, waits: str) -> list[str]:
    channel, owner = cursor.channel, cursor.client_id
    if cursor.kind == CursorKind.DURABLE:
        who = f"client {owner!r} is not subscribed under this durable name"
        read = f"; or read as it: stan sub {channel} --durable {name_of(cursor)} --client-id {owner}"
        step = f"Start that client{read}" if owner else "Start its client."
    else:
        who = "no member of the group is subscribed"
        durable = f" --durable {cursor.durable_name}" if cursor.durable_name else ""
        step = f"Start a member: stan sub {channel} --queue {name_of(cursor).rpartition(':')[2]}{durable}"
    return [f"It is offline: {who}. {waits}{'; they are kept for it' if lag(cursor) else ''}.", step]


def _silent(cursor: CursorStatus, waits: str) -> list[str]:
    members = takers(cursor)
    silent = "Its client does" if len(members) == 1 else "All its clients do"
    silent = "Its active member does" if len(members) < len(cursor.members) else silent
    cause = "the process hangs, has no network, or was killed and is not closed yet"
    return [
        f"{silent} not answer heartbeats ({_clients(members)}): {cause}. {waits}.",
        f"Look at the process; or close it from here: stan client evict {members[0].client_id}",
    ]


def _full(cursor: CursorStatus, at: str, now_ns: int) -> list[str]:
    oldest = f", the oldest since {format_age(cursor.oldest_pending, now_ns)}" if cursor.oldest_pending else ""
    waits = f"{counted(cursor.waiting, 'message')} wait{'' if cursor.waiting != 1 else 's'}."
    full = f"Its window is full: {cursor.pending:,} of {window(cursor):,} messages are sent and not acked{oldest}."
    reasons = [f"{full} Nothing more is sent before an ack comes. {waits}"]
    if cursor.last_ack:
        reasons.append(f"Its last ack came {format_age(cursor.last_ack, now_ns)} ago.")
    if cursor.redelivered:
        again = f"Messages were sent again {counted(cursor.redelivered, 'time')}"
        reasons.append(f"{again}: what is not acked within {cursor.ack_wait_s} s comes again.")
    first = cursor.pending_runs[0][0] if cursor.pending_runs else cursor.acked_up_to + 1
    busiest = max(takers(cursor), key=lambda member: member.pending)
    step = (
        f"See what client {busiest.client_id!r} does with message {first:,} "
        f"(stan channel get {cursor.channel} --seq {first}); it acks too slowly, or not at all. "
        f"To leave it out: {command_of(cursor)} skip {at} {first}"
    )
    return [*reasons, *_cut(cursor), step]


def _flowing(cursor: CursorStatus, at: str, waits: str, now_ns: int, left_s: float | None) -> list[str]:
    command, more = command_of(cursor), [*_cut(cursor), *_some_members(cursor)]
    if owed := cursor.owed - cursor.exhausted:
        again = f"{counted(owed, 'message')} wait to be sent again, to whichever member has room. {waits}."
        return [again, *more, f"Look again in a moment: {command} show {at} --watch"]
    if cursor.waiting:
        left = f", about {format_duration(int(left_s) * SECOND)} left" if left_s else ""
        late = f" The oldest was sent {format_age(cursor.oldest_pending, now_ns)} ago." * bool(
            unacked_for(cursor, now_ns)
        )
        behind = f"Messages are on their way: {waits}.{late} It is catching up{left}."
        return [behind, *more, f"See how quickly: {command} show {at} --watch"]
    if cursor.pending:
        since = f", the oldest since {format_age(cursor.oldest_pending, now_ns)}" if cursor.oldest_pending else ""
        return [
            f"All {cursor.last_sequence:,} messages were sent; {cursor.pending:,} are not acked yet{since}.",
            f"What is not acked within {format_duration(cursor.ack_wait_s * SECOND)} comes again.",
            *more,
            f"Send them again at once: {command} redeliver {at}",
        ]
    gone = cursor.first_sequence > cursor.last_sequence
    empty = " The channel is empty now: its messages were removed." if gone else ""
    return [
        f"It is caught up: message {cursor.last_sequence:,} is the newest of the channel, and it was acked.{empty}",
        *more,
        f"To get earlier ones again: {command} move {at} --back 1h",
    ]


def _cut(cursor: CursorStatus) -> list[str]:
    now, most = window_now(cursor), window(cursor)
    if now >= most:
        return []
    late = f"acks did not come within the ack wait of {format_duration(cursor.ack_wait_s * SECOND)}"
    return [f"Its window is adaptive, and {now:,} of {most:,} messages now: {late}. It grows again as acks come early."]


def _some_members(cursor: CursorStatus) -> list[str]:
    members = takers(cursor)
    full, failing = [one for one in members if one.stalled], [one for one in members if one.failing]
    reasons = [f"{len(full)} of {len(members)} members have a full window: {_clients(full)}."] if full else []
    return reasons + ([f"These clients do not answer heartbeats: {_clients(failing)}."] if failing else [])


def _clients(members: Iterable[MemberStatus]) -> str:
    names = list(dict.fromkeys(member.client_id for member in members))
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
