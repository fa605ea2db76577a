"""`stan doctor`: one page that says what is wrong, and what to do about it; the worst first.

Exit code 0: nothing that needs doing. 1: something does. 3, 4: NATS, or the servers, cannot be reached.
"""

import time
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import stan_client
from stan_client.requests.admin import Nodes
from stan_client.transport.session import text_of
from stan_protocol.proto import admin_pb2 as pb
from stan_protocol.scalars import SECOND, MiB
from stan_protocol.secure import without_secrets
from stan_protocol.units import counted, format_age, format_duration, format_size

from stan.cli.commands.channel import compression_ratio, holder_of
from stan.cli.commands.cursors import KINDS, OFFLINE, PAUSED, QUEUES, full_name, given_up_by, in_vain, lag, state_of
from stan.cli.commands.node import cluster_level, known_level, places_told
from stan.cli.support.common import EXIT_FAILED, Target, run
from stan.cli.support.groups import (
    behind,
    format_growth,
    format_leaderless,
    format_moves,
    groups_of,
    growth_waits_for,
    leader_step,
    leaderless,
    name_of,
    odd_hashes,
    odd_words,
    pool_of,
    reasons,
    troubles,
    without_vote,
)
from stan.cli.support.options import View, injected
from stan.cli.support.output import Table, show
from stan.cli.support.session import session
from stan.level import SCALE
from stan.protocol.part_status import channel_faults, position_faults, summed_channels
from stan.troubles import Severity

DISK_LOW: Final = 10
"""Percent of a disk that should be free."""
CLOCK_NS: Final = 2 * SECOND
"""Clocks may differ by this much; more moves ages and starts by time."""
REPLICA_LAG: Final = 10_000
"""Entries that a copy may be behind."""
RATIO_MIN: Final = 1.1
"""Compression that makes a channel less smaller than that costs more than it saves."""
COMPRESSED_MIN: Final = MiB
"""Bytes of a channel from which on one can tell."""
AGAIN_MIN: Final = 1000
"""Batches that a node has decompressed again, from which on it is told, if they are half of all."""
OFFLINE_NS: Final = 7 * 24 * 3600 * SECOND
WORST, BAD, NOTE = "broken", "attention", "note"
SEVERITIES: Final = {Severity.BROKEN: WORST, Severity.ATTENTION: BAD}
SHOWN_EACH: Final = 5
"""Of the same kind; the rest is counted."""


class Finding(NamedTuple):
    """One thing, and what to do about it."""

    level: str
    kind: str
    text: str
    step: str = ""


@injected
def doctor(*, target: Target, view: View) -> None:
    """Look at everything, and say what is wrong and what to do."""

    async def main() -> int:
        began = time.monotonic()
        async with session(target) as direct:
            connected_ms = 1000 * (time.monotonic() - began)
            nodes = await direct.admin.nodes()
            found = [
                *of_nodes(nodes),
                *of_groups(nodes, time.time_ns()),
                *of_places(nodes),
                *of_clocks(nodes, time.time_ns()),
            ]
            well = [f"NATS answers at {without_secrets(target.server)} ({connected_ms:.0f} ms)"]
            if leaderless(groups_of(nodes)):
                well.append("channels and durables were not looked at: groups have no leader")
            else:
                found += await _of_channels(direct, nodes, well)
                if cluster_level(nodes) >= SCALE:
                    found += of_pins(await direct.admin.pins())
        answer = "answers" if len(nodes.answers) == 1 else "answer"
        well.append(f"{counted(len(nodes.answers), 'node')} of cluster {target.cluster_id} {answer}")
        order = (WORST, BAD, NOTE)
        found.sort(key=lambda one: order.index(one.level))
        show(doctor_table(found, well), view)
        return EXIT_FAILED if any(one.level != NOTE for one in found) else 0

    run(main())


async def _of_channels(direct: stan_client.Direct, nodes: Nodes, well: list[str]) -> list[Finding]:
    now = time.time_ns()
    channels = await direct.admin.channels()
    cursors = await direct.admin.subscriptions()
    clients = await direct.admin.clients()
    messages, size = sum(one.messages for one in channels), sum(one.bytes for one in channels)
    well.append(f"{counted(len(channels), 'channel')}, {counted(messages, 'message')}, {format_size(size)}")
    positions = counted(len(cursors), "subscription, durable or group", "subscriptions, durables and groups")
    well.append(f"{counted(len(clients), 'client')}, {positions}")
    parts = of_parts(channels, cursors, nodes, now)
    return [*of_channels(channels), *parts, *of_cursors(cursors, now), *of_clients(clients)]


def of_parts(
    channels: list[pb.ChannelStatus], cursors: list[pb.CursorStatus], nodes: Nodes, now_ns: int
) -> Iterator[Finding]:
    """Channels with parts: how messages, groups and readers are spread over them, and doublings."""
    groups = {
        one.number: one.of_leader.commit if one.of_leader else 0
        for one in groups_of(nodes)
        if one.number and one.is_open
    }
    faults = [
        fault for _, parts in summed_channels(channels) if parts for fault in channel_faults(parts, groups, now_ns)
    ]
    for fault in (*faults, *position_faults(cursors)):
        yield Finding(NOTE if fault.passing else BAD, fault.kind, fault.text, fault.step)


def of_pins(pins: Iterable[pb.PinStatus]) -> Iterator[Finding]:
    """Channels that are on their way to the group to which they are pinned, or do not get there."""
    for pin in pins:
        if not pin.exists or pin.group_now in (0, pin.group):
            continue
        name = text_of(pin.channel)
        if pin.moving:
            text = f"Channel {name} is being moved from group {pin.group_now} to group {pin.group}."
            step = "If that does not end, the log of the node that leads the new group says what it waits for."
            yield Finding(NOTE, "move", text, step)
        else:
            text = f"Channel {name} is pinned to group {pin.group} and still in group {pin.group_now}: a move was cancelled."
            step = f"It is begun anew every ten seconds; stan channel unpin '{name}' gives it up."
            yield Finding(BAD, "move", text, step)


def of_nodes(nodes: Nodes) -> Iterator[Finding]:
    """Nodes one by one, and whether they fit together."""
    for name in nodes.missing:
        yield Finding(
            WORST, "node", f"Node {name} does not answer.", "Start its stan-server; see its log and its NATS."
        )
    for node in nodes.answers:
        name = name_of(node)
        for reason in reasons(node):
            yield Finding(BAD, "node", f"Node {name} is not ready: {reason}.", f"stan node show '{name}'")
        if node.disk_total and 100 * node.disk_free < DISK_LOW * node.disk_total:
            left = f"{format_size(node.disk_free)} of {format_size(node.disk_total)}"
            step = "stan channel list --sort bytes; then limits (stan channel limits) or more disk"
            yield Finding(BAD, "disk", f"Node {name}: {left} of the disk are free.", step)
        if node.decompressed_again >= max(AGAIN_MIN, node.decompressed_batches // 2):
            text = (
                f"Node {name} has decompressed {node.decompressed_again:,} batches again, "
                f"of {node.decompressed_batches:,} since it started."
            )
            step = "Subscribers far apart in compressed channels share no memory; clients that fetch get batches as they are."
            yield Finding(NOTE, "decompression", text, step)
        yield from _of_settings(node)
    versions = sorted({node.product for node in nodes.answers})
    if len(versions) > 1:
        yield Finding(NOTE, "version", f"Nodes run different versions: {', '.join(versions)}.", "Finish the upgrade.")
    lowest = min((known_level(node) for node in nodes.answers), default=0)
    if lowest > (at := cluster_level(nodes)) and not nodes.missing:
        text = f"The cluster is at level {at}, all nodes know level {lowest}: what came with it is not used yet."
        yield Finding(NOTE, "level", text, "When no node is to go back to the version before: stan node level --raise")


def _of_settings(node: pb.NodeStatus) -> Iterator[Finding]:
    name, store = name_of(node), node.store.lower()
    if store == "memory":
        yield Finding(
            NOTE, "store", f"Node {name} keeps messages in memory: a restart loses them.", "-st FILE -dir DIR"
        )
    elif node.sync and node.sync != "always":
        text = f"Node {name} syncs {node.sync}: a loss of power may lose acknowledged messages."
        yield Finding(BAD, "sync", text, "--sync always")
    if node.kernel == "python":
        text = f"Node {name} runs the kernel in plain Python, which is slower."
        yield Finding(NOTE, "kernel", text, "Install a C compiler, then install stan again.")


def of_groups(nodes: Nodes, now_ns: int) -> Iterator[Finding]:
    """Leaders and copies."""
    groups = groups_of(nodes)
    if told := format_leaderless(groups):
        whose = "its" if len(leaderless(groups)) == 1 else "their"
        text = f"{told[0].upper()}{told[1:]}: {whose} channels take and deliver nothing. {without_vote(groups)}"
        yield Finding(WORST, "leader", text.rstrip(), leader_step(nodes))
    if growing := format_growth(nodes):
        waits = growth_waits_for(nodes)
        step = (
            "Start the node."
            if waits and nodes.missing
            else "If it stays so, see stan group list, and the nodes' logs."
        )
        yield Finding(NOTE, "pool", growing, step)
    if moving := format_moves(nodes):
        step = (
            "stan cluster spread --resume"
            if pool_of(nodes).paused
            else "stan group list --watch; stan cluster spread --pause"
        )
        yield Finding(NOTE, "moves", moving, step)
    for group in groups:
        if odd_hashes(group):
            text = f"Group {group.number}: copies that have applied the same differ ({odd_words(group)})."
            step = "Stop the node that differs (stan group list --json), move its directory away, start it: it is filled anew."
            yield Finding(WORST, "copies", text, step)
        if behind(group) > REPLICA_LAG:
            text = f"Group {group.number}: a copy is {behind(group):,} entries behind."
            yield Finding(BAD, "copies", text, "stan group list --watch: does it catch up?")
        for node, trouble in troubles(group):
            since = f" (since {format_age(trouble.since, now_ns)})" if trouble.since else ""
            text = f"Group {group.number} on node {node}: {trouble.text}{since}."
            yield Finding(SEVERITIES[trouble.kind.severity], "group", text, trouble.kind.step)


def of_places(nodes: Nodes) -> Iterator[Finding]:
    """Groups with two copies in one zone, although a zone has none."""
    places, missing = places_told(nodes), set(nodes.missing)
    zones = {labels.zone for name, labels in places.items() if labels.zone and name not in missing}
    for group in groups_of(nodes):
        voters = group.of_leader.voters if group.of_leader else ()
        told = [places[name].zone for name in voters if name in places and places[name].zone]
        double = sorted({zone for zone in told if told.count(zone) > 1})
        if double and (free := sorted(zones - set(told))):
            text = f"Group {group.number} has two copies in zone {double[0]} and none in zone {free[0]}."
            yield Finding(
                BAD, "zones", text, "stan group list --watch: it moves by itself; if not, see the leader's log"
            )


def of_clocks(nodes: Nodes, now_ns: int) -> Iterator[Finding]:
    """Clocks that do not agree with the one here; the way of the answer is counted in."""
    for node in nodes.answers:
        if node.now and abs(node.now - now_ns) > CLOCK_NS + 3 * SECOND * bool(nodes.missing):
            text = f"The clock of node {name_of(node)} differs from the one here by {format_duration(abs(node.now - now_ns))}."
            yield Finding(BAD, "clock", text, "Run NTP on both machines.")


def of_channels(channels: list[pb.ChannelStatus]) -> Iterator[Finding]:
    """Channels at their limits, and those whose delayed messages cannot be moved."""
    for channel in channels:
        limits = channel.limits
        if channel.delay_fault:
            name = text_of(channel.name)
            text = f"Delayed messages of channel {name} that are due cannot be moved: {text_of(channel.delay_fault)}."
            yield Finding(
                BAD, "delay", text, f"stan policy show {name}; stan channel show {name}; they are tried again"
            )
        yield from _of_tier(channel)
        yield from _of_compaction(channel)
        yield from _of_compression(channel)
        if limits.max_subs and channel.subscriptions + channel.offline >= limits.max_subs:
            name = text_of(channel.name)
            text = f"Channel {name} has all {limits.max_subs:,} subscriptions that it may have."
            yield Finding(BAD, "limit", text, f"stan channel limits {name} --max-subs N, or stan durable list {name}")


def _of_compaction(channel: pb.ChannelStatus) -> Iterator[Finding]:
    """A channel that is compacted by key: what waits there, and for whom."""
    name, left = text_of(channel.name), channel.compacted_until - channel.compacted_here
    if left > 0 and channel.compact:
        text = f"Channel {name} is compacted up to {channel.compacted_here:,} of {channel.compacted_until:,}."
        yield Finding(
            NOTE, "compaction", text, "A node does it when enough is new: stan_compaction_saved_bytes in /metrics"
        )
    if channel.tombstone_held:
        text = f"Channel {name} keeps tombstones up to {channel.tombstone_held:,} for {holder_of(channel)}."
        yield Finding(
            NOTE, "tombstones", text, f"stan durable list {name}; they go at last by the policy's tombstone_max"
        )


def _of_compression(channel: pb.ChannelStatus) -> Iterator[Finding]:
    """A channel whose messages are to be compressed, and hardly get smaller."""
    if not channel.compress or channel.bytes < COMPRESSED_MIN:
        return
    name = text_of(channel.name)
    if not channel.kept_bytes:
        text = f"Channel {name} is to be compressed, and nothing of its {format_size(channel.bytes)} is."
    elif compression_ratio(channel) < RATIO_MIN:
        text = f"Channel {name} is compressed, and only {compression_ratio(channel):.2f} times smaller."
    else:
        return
    step = f"Messages that come one at a time, or compressed already, get no smaller: stan policy show {name}"
    yield Finding(NOTE, "compression", text, step)


def _of_tier(channel: pb.ChannelStatus) -> Iterator[Finding]:
    """A channel whose limits wait for its tier, or have not waited any more."""
    name, tier = text_of(channel.name), text_of(channel.tier)
    step = f"Does `stan lake run … --name {tier}` run? stan channel show {name}; stan policy show {name}"
    if channel.tier_lost:
        lost = counted(channel.tier_lost, "message")
        text = f"Channel {name}: its limits have removed {lost} that its tier {tier} has not passed."
        yield Finding(WORST, "tier", text, step)
    elif channel.tier_kept:
        kept = counted(channel.tier_kept, "message")
        text = f"Channel {name} keeps {kept} more than its limits allow, for its tier {tier}."
        yield Finding(NOTE if channel.tier_next else BAD, "tier", text, step)


def of_cursors(cursors: list[pb.CursorStatus], now_ns: int) -> Iterator[Finding]:
    """Whoever waits in vain."""
    for cursor in sorted(cursors, key=lag, reverse=True):
        state, channel = state_of(cursor, now_ns), text_of(cursor.channel)
        kind = KINDS[cursor.kind]
        word = "queue" if cursor.kind in QUEUES else "durable"
        waits = f"{counted(lag(cursor), 'message')} wait{'s' if lag(cursor) == 1 else ''}"
        step = f"stan {word} why {channel} {full_name(cursor)}" if kind != "plain" else f"stan channel show {channel}"
        who = f"{kind.capitalize()} {full_name(cursor)} of channel {channel}"
        if cursor.exhausted:
            given_up = f"{counted(cursor.exhausted, 'message')} given up ({given_up_by(cursor)})"
            if cursor.dead_letter_fault:
                given_up += f", not moved: {text_of(cursor.dead_letter_fault)}"
            yield Finding(BAD, "given up", f"{who}: {given_up}.", step)
        if state == PAUSED and cursor.pause_reason:
            yield Finding(BAD, "paused", f"{who} is paused by the broker: {text_of(cursor.pause_reason)}.", step)
        elif state == PAUSED and lag(cursor):
            yield Finding(
                NOTE, "paused", f"{who} is paused; {waits}.", f"stan {word} resume {channel} {full_name(cursor)}"
            )
        elif state == OFFLINE:
            old = bool(cursor.last_ack) and now_ns - cursor.last_ack > OFFLINE_NS
            since = f" since {format_age(cursor.last_ack, now_ns)}" if old else ""
            yield Finding(BAD if old else NOTE, "offline", f"{who} is offline{since}; {waits}.", step)
        elif in_vain(cursor, now_ns):
            yield Finding(BAD, state, f"{who}: {state}; {waits}.", step)


def of_clients(clients: list[pb.ClientStatus]) -> Iterator[Finding]:
    """Clients that do not answer."""
    for client in clients:
        if client.failing:
            name = text_of(client.client_id)
            yield Finding(BAD, "client", f"Client {name} does not answer heartbeats.", f"stan client show {name}")


def doctor_table(found: list[Finding], well: list[str]) -> Table:
    """One page."""
    shown: list[Finding] = []
    counts: dict[str, int] = {}
    for one in found:
        counts[one.kind] = counts.get(one.kind, 0) + 1
        if counts[one.kind] <= SHOWN_EACH:
            shown.append(one)
    rows: list[tuple[str, ...]] = []
    for one in shown:
        rows.append((one.level, one.text))
        if one.step:
            rows.append(("", f"-> {one.step}"))
    rows += [("", f"and {count - SHOWN_EACH} more: {kind}") for kind, count in counts.items() if count > SHOWN_EACH]
    rows += [("ok", line) for line in well]
    needs = sum(one.level != NOTE for one in found)
    head = f"{counted(needs, 'thing needs', 'things need')} attention." if needs else "All is well."
    return Table(
        rows=rows,
        document={"well": not needs, "findings": [one._asdict() for one in found], "looked_at": well},
        names=[one.text for one in found],
        head=head,
    )
