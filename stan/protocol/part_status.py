"""The parts of a channel seen together, from the answers to operators: their sums, and their faults. Pure.

    ChannelStatus of orders.~0 … orders.~3, invoices ─► orders (4 parts) with its sums, invoices
    CursorStatus of the durable "ledger" in each part ─► one position with its sums

The servers report the channel of each part (`part_of`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from stan_protocol.admin_types import ChannelStatus, CursorKind, CursorStatus, PartOf
from stan_protocol.scalars import SECOND
from stan_protocol.units import counted, format_duration

SKEW_TIMES: Final = 3
"""A part has too much if it has this many times the average of the others ..."""
SKEW_MESSAGES_MIN: Final = 1000
"""... and all of them together at least so many messages."""
DOUBLING_NS: Final = 60 * SECOND
"""A doubling takes a second or two; one that takes longer waits for something."""
UNACKED_WAITS: Final = 3
"""Ack waits without an ack after which a position with pending messages counts as not acknowledging, or as stuck."""
_NO_PART: Final = PartOf()


class ChannelSum(NamedTuple):
    """A channel, or all parts of one."""

    total: ChannelStatus  # of parts: called after their channel, with their sums, the oldest and newest time; group 0: several
    parts: list[ChannelStatus]  # by number; empty: it is a channel of its own, or one part alone


class PositionSum(NamedTuple):
    """A durable or queue group, or those of one name in several parts of a channel."""

    total: CursorStatus  # of parts: of their channel, with their sums and all of their members
    parts: list[CursorStatus]  # by number; empty: it is in a channel of its own, or in one part alone


class PartFault(NamedTuple):
    """A fault of the parts of a channel, and its remedy."""

    kind: str
    text: str
    step: str
    passing: bool = False  # it ends by itself, as a rule


def part_of(status: ChannelStatus | CursorStatus) -> PartOf:
    """Return the place of a channel, or of a position's channel, as a part of another; an empty record if it is none."""
    return status.part_of or _NO_PART


# --- sums -----------------------------------------------------------------------------------------------------------------


def summed_channels(channels: Iterable[ChannelStatus]) -> list[ChannelSum]:
    """*channels* with the parts of each channel as one, where the first of them was."""
    by_name: dict[str, list[ChannelStatus]] = {}
    for one in channels:
        by_name.setdefault(part_of(one).channel or one.name, []).append(one)
    return [
        ChannelSum(rows[0], []) if len(rows) == 1 else _channel_sum(name, sorted(rows, key=_number))
        for name, rows in by_name.items()
    ]


def _channel_sum(name: str, parts: list[ChannelStatus]) -> ChannelSum:
    groups = {one.group for one in parts}
    total = ChannelStatus(
        name=name,
        group=groups.pop() if len(groups) == 1 else 0,
        first_timestamp=_earliest(one.first_timestamp for one in parts),
        last_timestamp=max(one.last_timestamp for one in parts),
        commit=parts[0].commit,
        **_sums(parts, "messages", "bytes", "kept_bytes", "subscriptions", "offline", "deleted", "delayed"),
    )
    return ChannelSum(total, parts)


def summed_positions(cursors: Iterable[CursorStatus]) -> list[PositionSum]:
    """*cursors* with the durables and queue groups of one name in the parts of a channel as one, where the first of them was."""
    by_names: dict[object, list[CursorStatus]] = {}
    for one in cursors:
        whole = part_of(one).channel
        names = (whole, *_names(one)) if whole and one.kind != CursorKind.PLAIN else (one.channel, one.cursor_id)
        by_names.setdefault(names, []).append(one)
    return [
        PositionSum(rows[0], []) if len(rows) == 1 else _position_sum(sorted(rows, key=_number))
        for rows in by_names.values()
    ]


def _position_sum(parts: list[CursorStatus]) -> PositionSum:
    first = parts[0]
    total = CursorStatus(
        channel=part_of(first).channel,
        kind=first.kind,
        durable_name=first.durable_name,
        queue_group=first.queue_group,
        client_id=first.client_id,
        oldest_pending=_earliest(one.oldest_pending for one in parts),
        last_ack=max(one.last_ack for one in parts),
        ack_wait_s=max(one.ack_wait_s for one in parts),
        members=tuple(member for one in parts for member in one.members),
        **_sums(parts, "pending", "owed", "waiting", "redelivered", "max_in_flight"),
        **_sums(parts, "exhausted", "given_up_rejected", "delayed", "held_back"),
    )
    return PositionSum(total, parts)


def _sums(parts: Sequence[ChannelStatus | CursorStatus], *fields: str) -> dict[str, Any]:
    return {field: sum(getattr(one, field) for one in parts) for field in fields}


def _earliest(times: Iterable[int]) -> int:
    """The earliest of *times*; a time of 0 is unknown."""
    return min(filter(None, times), default=0)


def _number(status: ChannelStatus | CursorStatus) -> int:
    return part_of(status).number


def _names(cursor: CursorStatus) -> tuple[int, str, str, str]:
    owner = cursor.client_id if cursor.kind == CursorKind.DURABLE else ""
    return cursor.kind, owner, cursor.durable_name, cursor.queue_group


# --- faults ---------------------------------------------------------------------------------------------------------------


def channel_faults(parts: list[ChannelStatus], groups: Mapping[int, int], now_ns: int) -> Iterator[PartFault]:
    """Yield the faults of the parts of one channel; *groups*: the groups over which channels are spread, each with its ack
    level (`commit`)."""
    name = part_of(parts[0]).channel
    yield from _doubling(name, parts, now_ns)
    if len(parts) == part_of(parts[0]).parts:
        yield from _skew(name, parts)
        yield from _crowd(name, parts, [number for number, commit in groups.items() if commit == parts[0].commit])


def _doubling(name: str, parts: list[ChannelStatus], now_ns: int) -> Iterator[PartFault]:
    since = max(part_of(one).doubling for one in parts)
    if not since:
        return
    still = [one for one in parts if part_of(one).doubling and not part_of(one).closed]
    which = ", ".join(f"~{part_of(one).number} (group {one.group})" for one in still[:8])
    wait = f"; not closed yet: {which}" if still else ""
    took = format_duration(max(now_ns - since, SECOND) // SECOND * SECOND)
    yield PartFault(
        "doubling",
        f"The parts of channel {name} are being doubled for {took}: publishes to it wait{wait}.",
        "It takes a second or two. stan group list: do their groups have leaders? Their logs say what they wait for.",
        passing=now_ns - since < DOUBLING_NS,
    )


def _skew(name: str, parts: list[ChannelStatus]) -> Iterator[PartFault]:
    """Yield the fault that a part has too much of the messages since the last doubling; older ones are in the earlier parts."""
    counts = [min(one.messages, max(0, one.last_sequence - part_of(one).before)) for one in parts]
    total, most = sum(counts), max(counts)
    if total >= SKEW_MESSAGES_MIN and most * (len(parts) - 1) >= SKEW_TIMES * (total - most):
        part = parts[counts.index(most)]
        yield PartFault(
            "skew",
            f"Part ~{part_of(part).number} of channel {name} has {most:,} of {total:,} messages ({100 * most // total} %), "
            f"its share of {len(parts)} parts would be {100 // len(parts)} %: there is a hot key, or there are few keys.",
            f"stan channel get {part.name} --newest 20 shows its keys; more parts do not help, keys with more values do",
        )


def _crowd(name: str, parts: list[ChannelStatus], groups: list[int]) -> Iterator[PartFault]:
    there = Counter(one.group for one in parts)
    if not groups:
        return
    free = min(groups, key=lambda number: (there[number], number))
    group, count = max(there.items(), key=lambda pair: pair[1])
    if count <= 1 or count - there[free] <= 1:
        return
    crowd = [one for one in parts if one.group == group]
    which = ", ".join(f"~{part_of(one).number}" for one in crowd[:8])
    others = f"group {free} has {counted(there[free], 'part') if there[free] else 'none'}"
    yield PartFault(
        "parts",
        f"{counted(count, 'part')} of channel {name} are in group {group} ({which}), and {others}.",
        f"stan channel pin {crowd[-1].name} --group {free}",
    )


def position_faults(cursors: Iterable[CursorStatus]) -> Iterator[PartFault]:
    """Yield a fault for durables and durable groups that are in some parts of a channel, but not in all of them."""
    by_name: dict[str, dict[object, list[CursorStatus]]] = {}
    for one in cursors:
        if part_of(one).channel and one.kind in (CursorKind.DURABLE, CursorKind.DURABLE_QUEUE):
            by_name.setdefault(part_of(one).channel, {}).setdefault(_names(one), []).append(one)
    for name, positions in by_name.items():
        singles = {part_of(cursors_of[0]).number for cursors_of in positions.values() if len(cursors_of) == 1}
        for cursors_of in positions.values():
            parts = part_of(cursors_of[0]).parts
            shared = len(cursors_of) == 1 and len(singles) == parts  # a durable of its own for each part
            if len(cursors_of) < parts and not shared:
                yield _incomplete(name, cursors_of, parts)


def _incomplete(name: str, cursors: list[CursorStatus], parts: int) -> PartFault:
    """A passing fault for an online reader of all parts from before a doubling: it comes to the new parts by itself."""
    there = {part_of(one).number for one in cursors}
    missing = [number for number in range(parts) if number not in there]
    behind = all(number >= parts // 2 for number in missing) and all(one.members for one in cursors)
    which = ", ".join(f"~{number}" for number in missing[:8]) + (" and more" if len(missing) > 8 else "")
    kind = "Durable" if cursors[0].kind == CursorKind.DURABLE else "Durable queue group"
    called = cursors[0].durable_name or cursors[0].queue_group
    if cursors[0].kind == CursorKind.DURABLE and cursors[0].client_id:
        called = f"{cursors[0].client_id}/{called}"
    new = " It may still have to read what the others had before the parts were doubled." if behind else ""
    return PartFault(
        "parts read",
        f"{kind} {called} reads {len(cursors)} of the {parts} parts of channel {name}, not {which}.{new}",
        f"Subscribe to all parts: stan sub {name} --durable NAME, subscribe_parts in Python; "
        "old clients subscribe to each of them",
        passing=behind,
    )


def unacked_for(cursor: CursorStatus, now: int) -> int:
    """Nanoseconds without an ack of a position with pending messages, once they are more than UNACKED_WAITS ack waits; else 0.
    *now*: Unix ns."""
    if not cursor.pending or not cursor.oldest_pending:
        return 0
    since = now - max(int(cursor.oldest_pending), int(cursor.last_ack))
    wait = max((int(member.ack_wait_s) for member in cursor.members), default=int(cursor.ack_wait_s))
    return since if since > UNACKED_WAITS * max(wait, 1) * SECOND else 0
