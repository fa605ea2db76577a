"""Durables, queue groups and plain subscriptions in words: names, states, and why one gets nothing. Pure.

What is told comes from one CursorStatus, of the leader of its group, and in doubt from what the nodes say of that group.
"""

from collections.abc import Iterable
from typing import Final

from stan_client.transport.session import text_of
from stan_protocol.proto import admin_pb2 as pb
from stan_protocol.units import counted, format_age, format_duration

from stan.protocol.part_status import unacked_for

DURABLES: Final[frozenset[int]] = frozenset({pb.DURABLE})
QUEUES: Final[frozenset[int]] = frozenset({pb.QUEUE, pb.DURABLE_QUEUE})
KINDS: Final = {pb.PLAIN: "plain", pb.DURABLE: "durable", pb.QUEUE: "queue", pb.DURABLE_QUEUE: "durable queue"}

PAUSED: Final = "paused"
OFFLINE: Final = "offline"
RESTING: Final = "offline, nothing waits"
SILENT: Final = "not answering"
STUCK: Final = "stuck"
FULL: Final = "window full"
OWED: Final = "redelivery due"
BEHIND: Final = "catching up"
UNACKED: Final = "waiting for acks"
WELL: Final = "caught up"
_WORST_FIRST: Final = (STUCK, SILENT, FULL, OFFLINE, PAUSED, OWED, BEHIND, UNACKED, RESTING, WELL)
BAD: Final = frozenset({OFFLINE, SILENT, STUCK, FULL})
"""States in which messages wait and none is sent, though nobody wanted that."""


def name_of(cursor: pb.CursorStatus) -> str:
    """Of a durable or queue group; of a plain subscription its inbox."""
    durable, queue = text_of(cursor.durable_name), text_of(cursor.queue_group)
    if cursor.kind == pb.DURABLE_QUEUE and ":" not in queue:
        return f"{durable}:{queue}"
    return queue or durable or text_of(cursor.inbox)


def full_name(cursor: pb.CursorStatus) -> str:
    """As `name_of`, of a durable with its client's id: `client/name`."""
    owner = text_of(cursor.client_id)
    return f"{owner}/{name_of(cursor)}" if cursor.kind == pb.DURABLE and owner else name_of(cursor)


def lag(cursor: pb.CursorStatus) -> int:
    """Messages that it does not have yet: not sent, or not acked."""
    return cursor.waiting + cursor.pending


def takers(cursor: pb.CursorStatus) -> list[pb.MemberStatus]:
    """The members that get messages: all, or the active one of a failover group."""
    return [member for member in cursor.members if member.active] or list(cursor.members)


def window(cursor: pb.CursorStatus) -> int:
    """How many messages may be unacked, of all members together that get any."""
    return sum(member.max_in_flight for member in takers(cursor)) or cursor.max_in_flight


def window_now(cursor: pb.CursorStatus) -> int:
    """How many messages may be unacked at the moment: fewer than `window` while an adaptive window is cut."""
    return sum(member.window_now or member.max_in_flight for member in takers(cursor)) or cursor.max_in_flight


def state_of(cursor: pb.CursorStatus, now_ns: int) -> str:
    """One of the words above."""
    members = takers(cursor)
    if cursor.paused or not members:
        return PAUSED if cursor.paused else OFFLINE if lag(cursor) or cursor.owed else RESTING
    if all(member.failing for member in members):
        return SILENT
    if all(member.stalled or member.failing for member in members):
        return _full_state(cursor, now_ns)
    if cursor.owed > cursor.exhausted:
        return OWED
    if cursor.waiting:
        return BEHIND
    return UNACKED if cursor.pending else WELL


def worst_state(cursors: Iterable[pb.CursorStatus], now_ns: int) -> str:
    """The state of several positions together: the worst one of theirs."""
    return min((state_of(one, now_ns) for one in cursors), key=_WORST_FIRST.index)


def _full_state(cursor: pb.CursorStatus, now_ns: int) -> str:
    if unacked_for(cursor, now_ns):
        return STUCK
    return FULL if cursor.waiting or cursor.owed else UNACKED


def in_vain(cursor: pb.CursorStatus, now_ns: int) -> bool:
    """Whether messages wait for it, and will not come by themselves."""
    return bool(lag(cursor)) and state_of(cursor, now_ns) in BAD


def why(cursor: pb.CursorStatus, command: str, now_ns: int) -> list[str]:
    """Why nothing comes, or that all is well: sentences, the most important first, the next step last.

    *command*: `stan durable` or `stan queue`, for the next step.
    """
    given_up = _given_up(cursor, f"{text_of(cursor.channel)} {full_name(cursor)}", command)
    return [*given_up, *_paused_messages(cursor), *_held_back(cursor), *_why(cursor, command, now_ns)]


def _given_up(cursor: pb.CursorStatus, at: str, command: str) -> list[str]:
    if not cursor.exhausted:
        return []
    was, them = ("was", "it") if cursor.exhausted == 1 else ("were", "them")
    others = "" if cursor.paused else f" {_others(cursor)}"
    if cursor.dead_letter_channel:
        into = text_of(cursor.dead_letter_channel)
        fault = text_of(cursor.dead_letter_fault)
        waits = f"{counted(cursor.exhausted, 'message')} {was} given up ({given_up_by(cursor)}), to be moved to {into}"
        return [f"{waits}{f', which fails: {fault}' if fault else ''}.{others}"]
    said = f"{counted(cursor.exhausted, 'message')} {was} given up ({given_up_by(cursor)})"
    return [
        f"{said}, and will not be sent again.{others}",
        f"Send {them} again: {command} redeliver {at}; leave {them} out: {command} skip {at} SEQUENCE",
    ]


def given_up_by(cursor: pb.CursorStatus) -> str:
    """Why messages of a position were given up."""
    rejected, worn_out = cursor.given_up_rejected, cursor.exhausted - cursor.given_up_rejected
    both = bool(rejected and worn_out)
    told = [
        f"{f'{rejected:,} ' * both}rejected by a client" if rejected else "",
        f"{f'{worn_out:,} ' * both}delivered as often as the policy allows, in vain" if worn_out else "",
    ]
    return "; ".join(filter(None, told))


def _others(cursor: pb.CursorStatus) -> str:
    if cursor.policy.ordered_by_key:
        return "The order by key holds later messages of the same keys back until then; all others go on."
    return "All other messages go on."


def _held_back(cursor: pb.CursorStatus) -> list[str]:
    if not cursor.held_back:
        return []
    said = f"{counted(cursor.held_back, 'message')} {'is' if cursor.held_back == 1 else 'are'} held back by the order by key"
    return [f"{said}, each until an earlier message of its key, or of a key with the same slot, is acked."]


def _paused_messages(cursor: pb.CursorStatus) -> list[str]:
    if not cursor.delayed:
        return []
    return [f"{counted(cursor.delayed, 'failed message')} wait{'s' * (cursor.delayed == 1)} until a pause is over."]


def _why(cursor: pb.CursorStatus, command: str, now_ns: int) -> list[str]:
    channel, name = text_of(cursor.channel), full_name(cursor)
    at = f"{channel} {name}"
    waits = f"{counted(cursor.waiting, 'message')} not sent yet, {cursor.pending:,} sent and not acked"
    waits = waits if lag(cursor) else "Nothing waits for it"
    if not cursor.last_sequence and not lag(cursor):
        said = [f"The channel {channel} has no messages: there never was one. Nothing is wrong with {name}."]
        return [*said, *_offline_too(cursor), f"Publish one: stan pub {channel} hello"]
    if cursor.paused:
        return _paused(cursor, waits, f"{command} resume {at}")
    if not cursor.members:
        return _offline(cursor, waits)
    members = takers(cursor)
    failing = [member for member in members if member.failing]
    if len(failing) == len(members):
        who = _listed(text_of(member.client_id) for member in failing)
        silent = "Its client does" if len(failing) == 1 else "All its clients do"
        silent = "Its active member does" if len(members) < len(cursor.members) else silent
        cause = "the process hangs, has no network, or was killed and is not closed yet"
        return [
            f"{silent} not answer heartbeats ({who}): {cause}. {waits}.",
            f"Look at the process; or close it from here: stan client evict {text_of(failing[0].client_id)}",
        ]
    if all(member.stalled or member.failing for member in members):
        return _full(cursor, command, at, now_ns)
    return _flowing(cursor, at, waits, command, now_ns, [*_cut(cursor), *_some_full(cursor), *_some_failing(failing)])


def _paused(cursor: pb.CursorStatus, waits: str, resume: str) -> list[str]:
    reason, into = text_of(cursor.pause_reason), text_of(cursor.dead_letter_channel)
    if not reason:
        return [f"It is paused: nothing is sent, acks count. {waits}.", f"Go on: {resume}"]
    look = f"See what is wrong with them: stan dlq show {into}. " if into else ""
    return [
        f"The broker has paused it: {reason}. Nothing is sent, acks count. {waits}.",
        f"{look}When that is mended, go on: {resume}",
    ]


def _offline(cursor: pb.CursorStatus, waits: str) -> list[str]:
    channel, owner = text_of(cursor.channel), text_of(cursor.client_id)
    if cursor.kind == pb.DURABLE:
        who = f"client {owner!r} is not subscribed under this durable name"
        step = (
            f"Start that client; or read as it: stan sub {channel} --durable {name_of(cursor)} --client-id {owner}"
            if owner
            else "Start its client."
        )
    else:
        queue = name_of(cursor).rpartition(":")[2]
        durable = f" --durable {text_of(cursor.durable_name)}" if cursor.durable_name else ""
        who = "no member of the group is subscribed"
        step = f"Start a member: stan sub {channel} --queue {queue}{durable}"
    return [f"It is offline: {who}. {waits}{'; they are kept for it' if lag(cursor) else ''}.", step]


def _offline_too(cursor: pb.CursorStatus) -> list[str]:
    return [] if cursor.members else ["It is offline, too: nobody is subscribed."]


def _full(cursor: pb.CursorStatus, command: str, at: str, now_ns: int) -> list[str]:
    since = format_age(cursor.oldest_pending, now_ns)
    oldest = f", the oldest since {since}" if cursor.oldest_pending else ""
    waiting = f"{counted(cursor.waiting, 'message')} wait{'' if cursor.waiting != 1 else 's'}."
    full = f"Its window is full: {cursor.pending:,} of {window(cursor):,} messages are sent and not acked{oldest}."
    said = [f"{full} Nothing more is sent before an ack comes. {waiting}"]
    if cursor.last_ack:
        said.append(f"Its last ack came {format_age(cursor.last_ack, now_ns)} ago.")
    if cursor.redelivered:
        said.append(
            f"Messages were sent again {counted(cursor.redelivered, 'time')}: what is not acked within {cursor.ack_wait_s} s "
            "comes again."
        )
    said += _cut(cursor)
    busiest = max(takers(cursor), key=lambda member: member.pending)
    said.append(
        f"See what client {text_of(busiest.client_id)!r} does with message {_oldest(cursor):,} "
        f"(stan channel get {text_of(cursor.channel)} --seq {_oldest(cursor)}); it acks too slowly, or not at all. "
        f"To leave it out: {command} skip {at} {_oldest(cursor)}"
    )
    return said


def _oldest(cursor: pb.CursorStatus) -> int:
    return cursor.pending_runs[0] if cursor.pending_runs else cursor.acked_up_to + 1


def _flowing(cursor: pb.CursorStatus, at: str, waits: str, command: str, now_ns: int, more: list[str]) -> list[str]:
    owed = cursor.owed - cursor.exhausted
    if owed:
        said = f"{counted(owed, 'message')} wait to be sent again, to whichever member has room. {waits}."
        return [said, *more, f"Look again in a moment: {command} show {at} --watch"]
    if cursor.waiting:
        return [
            f"Messages are on their way: {waits}. It is catching up.",
            *more,
            f"See how quickly: {command} show {at} --watch",
        ]
    if cursor.pending:
        since = f", the oldest since {format_age(cursor.oldest_pending, now_ns)}" if cursor.oldest_pending else ""
        return [
            f"All {cursor.last_sequence:,} messages were sent; {cursor.pending:,} are not acked yet{since}.",
            f"What is not acked within {format_duration(cursor.ack_wait_s * 1_000_000_000)} comes again.",
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


def _cut(cursor: pb.CursorStatus) -> list[str]:
    now, most = window_now(cursor), window(cursor)
    if now >= most:
        return []
    wait = format_duration(cursor.ack_wait_s * 1_000_000_000)
    late = f"acks did not come within the ack wait of {wait}"
    return [f"Its window is adaptive, and {now:,} of {most:,} messages now: {late}. It grows again as acks come early."]


def _some_full(cursor: pb.CursorStatus) -> list[str]:
    members = takers(cursor)
    full = [member for member in members if member.stalled]
    who = _listed(text_of(member.client_id) for member in full)
    return [f"{len(full)} of {len(members)} members have a full window: {who}."] if full else []


def _some_failing(failing: list[pb.MemberStatus]) -> list[str]:
    who = _listed(text_of(member.client_id) for member in failing)
    return [f"These clients do not answer heartbeats: {who}."] if failing else []


def _listed(names: Iterable[str]) -> str:
    every = list(dict.fromkeys(names))
    return ", ".join(every[:5]) + (f" and {len(every) - 5} more" if len(every) > 5 else "")
