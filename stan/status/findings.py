"""Findings about a cluster, each with its severity and the next step. Pure.

The only place that judges: `stan doctor`, `stan check` and the dashboard render the result.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from stan_protocol.admin_types import ChannelStatus, ClientStatus, CursorKind, CursorStatus, NodeStatus, PinStatus
from stan_protocol.scalars import SECOND, MiB
from stan_protocol.units import counted, format_age, format_duration, format_size

from stan.errors import NO_LEADER, NO_VOTE
from stan.protocol.part_status import channel_faults, position_faults, summed_channels
from stan.status.groups import (
    GroupSummary,
    NodeReports,
    behind,
    cluster_level,
    format_growth,
    format_moves,
    growth_waits_for,
    labels_of,
    leaderless,
    node_name,
    odd_hashes,
    odd_words,
    pool_of,
)
from stan.status.positions import (
    FULL,
    IN_VAIN,
    KINDS,
    OFFLINE,
    PAUSED,
    STUCK,
    UNACKING,
    command_of,
    full_name,
    given_up_by,
    lag,
    offline_long,
    state_of,
)
from stan.troubles import LEADERLESS, VOTELESS, Severity, kind_of

CLOCK_NS: Final = 2 * SECOND
"""Clocks may differ by this much; more moves ages and starts by time."""
RATIO_MIN: Final = 1.1
"""Compression that makes a channel less smaller than that costs more than it saves."""
COMPRESSED_MIN: Final = MiB
"""Bytes of a channel from which on one can tell."""
AGAIN_MIN: Final = 1000
"""Batches that a node has decompressed again, from which on they are a finding, if they are half of all."""
NODE, DISK, LEADER, GROUP, COPIES = "node", "disk", "leader", "group", "copies"
"""Kinds of findings to which somebody refers; the others are only shown."""
_NEVER: Final[Mapping[str, int]] = MappingProxyType({})


class Finding(NamedTuple):
    """A thing that is wrong or good to know, with the next step."""

    severity: Severity
    kind: str
    text: str
    step: str = ""
    keys: tuple[str, ...] = ()  # stay the same as long as it lasts
    since: int = 0  # Unix ns; 0: the reports do not say when it began


class Threshold(NamedTuple):
    """The values from which on something needs attention, or is broken; None: never."""

    attention: float | None = None
    broken: float | None = None

    def severity(self, value: float, *, below: bool = False) -> Severity:
        """Return how bad a value is; *below*: small ones are."""
        for severity, bound in ((Severity.BROKEN, self.broken), (Severity.ATTENTION, self.attention)):
            if bound is not None and (value <= bound if below else value >= bound):
                return severity
        return Severity.FINE


DISK_PERCENT: Final = Threshold(15, 5)
"""Percent of a disk that are free."""
REPLICA_LAG: Final = Threshold(10_000)
"""Entries that a copy is behind."""


# --- nodes ----------------------------------------------------------------------------------------------------------------


def check_nodes(
    nodes: NodeReports,
    disk: Threshold = DISK_PERCENT,
    since: Mapping[str, int] = _NEVER,
    reported: Collection[str] = (),
) -> Iterator[Finding]:
    """Find nodes that do not answer or are not ready, and disks that are full.

    *since*: when a node began not to answer, Unix ns. *reported*: reasons for not being ready that need not be repeated.
    """
    for name in sorted(nodes.missing):
        step = "Start its stan-server; see its log and its NATS."
        gone = f"Node {name} does not answer."
        yield Finding(Severity.BROKEN, NODE, gone, step, (f"node:{name}",), since.get(name, 0))
    for node in nodes.answers:
        if reasons := [reason for reason in beside_groups(node.not_ready) if reason not in reported]:
            who = f"Node {node.node}" if node.node else "The server"
            unready, step = f"{who} is not ready: {'; '.join(reasons)}.", f"stan node show '{node_name(node)}'"
            yield Finding(Severity.ATTENTION, NODE, unready, step, (f"ready:{node.node}",))
        if not node.disk_total:
            continue
        percent = 100 * node.disk_free / node.disk_total
        if severity := disk.severity(percent, below=True):
            left = f"{percent:.1f}% free, {format_size(node.disk_free)} of {format_size(node.disk_total)}"
            step = "stan channel list --sort bytes; then limits (stan channel limits) or more disk"
            full = f"Disk{_of_node(node)}: {left}."
            yield Finding(severity, DISK, full, step, (f"disk:{node.node}",))


def beside_groups(reasons: Iterable[str]) -> list[str]:
    """Return the reasons why a node is not ready, except for those about groups, which `of_groups` reports."""
    return [reason for reason in reasons if not reason.startswith("group ")]


def _of_node(node: NodeStatus) -> str:
    return f" of node {node.node}" if node.node else ""


def check_settings(nodes: NodeReports) -> Iterator[Finding]:
    """Find settings, versions and levels of nodes that cost safety or speed."""
    for node in nodes.answers:
        name, store = node_name(node), node.store.lower()
        if node.decompressed_again >= max(AGAIN_MIN, node.decompressed_batches // 2):
            again = f"{node.decompressed_again:,} batches again, of {node.decompressed_batches:,} since it started."
            step = "Subscribers far apart in compressed channels share no memory; clients that fetch get batches as they are."
            yield Finding(Severity.NOTE, "decompression", f"Node {name} has decompressed {again}", step)
        if store == "memory":
            lost = f"Node {name} keeps messages in memory: a restart loses them."
            yield Finding(Severity.NOTE, "store", lost, "-st FILE -dir DIR")
        elif node.sync and node.sync != "always":
            lost = f"Node {name} syncs {node.sync}: a loss of power may lose acknowledged messages."
            yield Finding(Severity.ATTENTION, "sync", lost, "--sync always")
        if node.kernel == "python":
            slow = f"Node {name} runs the kernel in plain Python, which is slower."
            yield Finding(Severity.NOTE, "kernel", slow, "Install a C compiler, then install stan again.")
    versions = sorted({node.product for node in nodes.answers})
    if len(versions) > 1:
        differ = f"Nodes run different versions: {', '.join(versions)}."
        yield Finding(Severity.NOTE, "version", differ, "Finish the upgrade.")
    lowest = min((node.level_known for node in nodes.answers), default=0)
    if lowest > (at := cluster_level(nodes)) and not nodes.missing:
        unused = f"The cluster is at level {at}, all nodes know level {lowest}: what came with it is not used yet."
        step = "When no node is to go back to the version before: stan node level --raise"
        yield Finding(Severity.NOTE, "level", unused, step)


def check_clocks(nodes: NodeReports, now_ns: int) -> Iterator[Finding]:
    """Find clocks that do not agree with the one here; the way of the answer is counted in."""
    for node in nodes.answers:
        if node.now and abs(node.now - now_ns) > CLOCK_NS + 3 * SECOND * bool(nodes.missing):
            apart = format_duration(abs(node.now - now_ns))
            differs = f"The clock of node {node_name(node)} differs from the one here by {apart}."
            yield Finding(Severity.ATTENTION, "clock", differs, "Run NTP on both machines.")


# --- groups ---------------------------------------------------------------------------------------------------------------


def check_groups(nodes: NodeReports, groups: list[GroupSummary]) -> Iterator[Finding]:
    """Find groups without a leader, copies that differ or are in trouble, and groups and channels on their way."""
    yield from check_leaders(groups)
    if growing := format_growth(nodes):
        start = growth_waits_for(nodes) and nodes.missing
        step = "Start the node." if start else "If it stays so, see stan group list, and the nodes' logs."
        yield Finding(Severity.NOTE, "pool", growing, step)
    if moving := format_moves(nodes):
        watch = "stan group list --watch; stan cluster spread --pause"
        step = "stan cluster spread --resume" if pool_of(nodes).paused else watch
        yield Finding(Severity.NOTE, "moves", moving, step)
    for group in groups:
        if odd_hashes(group):
            differ = f"Group {group.number}: copies that have applied the same differ ({odd_words(group)})."
            step = "Stop the node that differs (stan group list --json), move its directory away, start it: it is filled anew."
            yield Finding(Severity.BROKEN, COPIES, differ, step, (f"copies:{group.number}",))
    yield from _of_troubles(groups)


def check_leaders(groups: list[GroupSummary]) -> Iterator[Finding]:
    """Find groups without a leader, as one finding, and the nodes of theirs that run and have no vote."""
    without = leaderless(groups)
    if not without:
        return
    copies = [copy for group in without for copy in group.copies]
    emptied = sorted({node for node, status in copies if status.trouble_kind == VOTELESS.name})
    has, their = ("has", "its") if len(without) == 1 else ("have", "their")
    gone = f"{_named(group.number for group in without)} {has} no leader: {their} channels take and deliver nothing."
    if len(emptied) == 1:
        gone += f" Node {emptied[0]} runs and has no vote: its disk has lost what it had."
    elif emptied:
        gone += f" Nodes {listed(emptied)} run and have no vote: their disks have lost what they had."
    step = VOTELESS.step if any(map(_hopeless, without)) else LEADERLESS.step
    yield Finding(Severity.BROKEN, LEADER, gone, step, tuple(f"leader:{group.number}" for group in without))


def _hopeless(group: GroupSummary) -> bool:
    """Return True if no majority of a group is left, even with all its nodes started."""
    voters = {voter for _, status in group.copies for voter in status.voters}
    lost = {node for node, status in group.copies if status.trouble_kind == VOTELESS.name}
    return bool(lost) and 2 * len(voters - lost) <= len(voters)


def _of_troubles(groups: list[GroupSummary]) -> Iterator[Finding]:
    """Find copies in trouble; those of one node that are alike together. A missing leader concerns the whole group."""
    alike: dict[tuple[str, str, str], list[tuple[int, int]]] = {}
    for group in groups:
        known = {""} if group.leader else {"", NO_LEADER, NO_VOTE}
        for node, status in group.copies:
            if status.trouble not in known:
                key = (node, status.trouble, status.trouble_kind)
                alike.setdefault(key, []).append((group.number, status.trouble_since))
    for (node, trouble, name), copies in alike.items():
        kind, numbers = kind_of(name), [number for number, _ in copies]
        text_ = f"{_named(numbers)}{f' on {node}' if node != '(alone)' else ''}: {trouble}."
        keys = tuple(f"trouble:{node}:{number}" for number in numbers)
        yield Finding(kind.severity, GROUP, text_, kind.step, keys, min(since for _, since in copies))


def check_replica_lag(groups: list[GroupSummary], bounds: Threshold = REPLICA_LAG) -> Iterator[Finding]:
    """Find copies that are behind."""
    for group in groups:
        if severity := bounds.severity(behind(group)):
            late = f"Group {group.number}: a copy is {behind(group):,} entries behind."
            yield Finding(severity, COPIES, late, "stan group list --watch: does it catch up?")


def check_places(nodes: NodeReports, groups: list[GroupSummary]) -> Iterator[Finding]:
    """Find groups with two copies in one zone, although a zone has none."""
    places = labels_of(nodes)
    zones = {labels.zone for name, labels in places.items() if labels.zone and name not in nodes.missing}
    for group in groups:
        voters = group.of_leader.voters if group.of_leader else ()
        taken = [places[name].zone for name in voters if name in places and places[name].zone]
        double = sorted({zone for zone in taken if taken.count(zone) > 1})
        if double and (free := sorted(zones - set(taken))):
            uneven = f"Group {group.number} has two copies in zone {double[0]} and none in zone {free[0]}."
            step = "stan group list --watch: it moves by itself; if not, see the leader's log"
            yield Finding(Severity.ATTENTION, "zones", uneven, step)


def _named(numbers: Iterable[int]) -> str:
    names = [str(number) if number else "0 (metadata)" for number in numbers]
    return f"Group{'s' * (len(names) > 1)} {listed(names)}"


def listed(names: list[str]) -> str:
    """Join *names* for a sentence: `a`, `a and b`, `a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


# --- channels -------------------------------------------------------------------------------------------------------------


def check_channels(channels: Iterable[ChannelStatus]) -> Iterator[Finding]:
    """Find channels at their limits, and those whose delayed messages cannot be moved."""
    for channel in channels:
        name, limits = channel.name, channel.limits
        if channel.delay_fault:
            due = f"Delayed messages of channel {name} that are due cannot be moved: {channel.delay_fault}."
            step = f"stan policy show {name}; stan channel show {name}; they are tried again"
            yield Finding(Severity.ATTENTION, "delay", due, step)
        yield from _of_tier(channel)
        yield from _of_compaction(channel)
        yield from _of_compression(channel)
        if limits.max_subs and channel.subscriptions + channel.offline >= limits.max_subs:
            full = f"Channel {name} has all {limits.max_subs:,} subscriptions that it may have."
            step = f"stan channel limits {name} --max-subs N, or stan durable list {name}"
            yield Finding(Severity.ATTENTION, "limit", full, step)


def _of_tier(channel: ChannelStatus) -> Iterator[Finding]:
    """Find a channel whose limits wait for its tier, or have not waited any more."""
    name, tier = channel.name, channel.tier
    step = f"Does `stan lake run … --name {tier}` run? stan channel show {name}; stan policy show {name}"
    if channel.tier_lost:
        lost = counted(channel.tier_lost, "message")
        passed = f"Channel {name}: its limits have removed {lost} that its tier {tier} has not passed."
        yield Finding(Severity.BROKEN, "tier", passed, step)
    elif channel.tier_kept:
        more = f"Channel {name} keeps {counted(channel.tier_kept, 'message')} more than its limits allow, for its tier {tier}."
        yield Finding(Severity.NOTE if channel.tier_next else Severity.ATTENTION, "tier", more, step)


def _of_compaction(channel: ChannelStatus) -> Iterator[Finding]:
    """Find a channel that is compacted by key and waits for something."""
    name, left = channel.name, channel.compacted_until - channel.compacted_here
    if left > 0 and channel.compact:
        far = f"Channel {name} is compacted up to {channel.compacted_here:,} of {channel.compacted_until:,}."
        step = "A node does it when enough is new: stan_compaction_saved_bytes in /metrics"
        yield Finding(Severity.NOTE, "compaction", far, step)
    if channel.tombstone_held:
        stay = f"Channel {name} keeps tombstones up to {channel.tombstone_held:,} for {holder_of(channel)}."
        step = f"stan durable list {name}; they go at last by the policy's tombstone_max"
        yield Finding(Severity.NOTE, "tombstones", stay, step)


def holder_of(channel: ChannelStatus) -> str:
    """Return the position for which tombstones of a channel stay."""
    return channel.held_by or "a subscription without a durable name"


def _of_compression(channel: ChannelStatus) -> Iterator[Finding]:
    """Find a channel whose messages are to be compressed, and hardly get smaller."""
    if not channel.compress or channel.bytes < COMPRESSED_MIN:
        return
    name = channel.name
    if not channel.kept_bytes:
        small = f"Channel {name} is to be compressed, and nothing of its {format_size(channel.bytes)} is."
    elif compression_ratio(channel) < RATIO_MIN:
        small = f"Channel {name} is compressed, and only {compression_ratio(channel):.2f} times smaller."
    else:
        return
    step = f"Messages that come one at a time, or compressed already, get no smaller: stan policy show {name}"
    yield Finding(Severity.NOTE, "compression", small, step)


def compression_ratio(channel: ChannelStatus) -> float:
    """Return how many times smaller a channel is on the disk; only if something is compressed."""
    return channel.clear_bytes / channel.kept_bytes


def check_parts(
    channels: Iterable[ChannelStatus],
    cursors: Iterable[CursorStatus],
    groups: Mapping[int, int],
    now_ns: int,
) -> Iterator[Finding]:
    """Find parts of channels over which messages, groups or readers are badly spread, and doublings.

    *groups*: the groups over which channels are spread, each with what its acks mean (`commit`).
    """
    parted = [parts for _, parts in summed_channels(channels) if parts]
    faults = [fault for parts in parted for fault in channel_faults(parts, groups, now_ns)]
    for fault in (*faults, *position_faults(cursors)):
        severity = Severity.NOTE if fault.passing else Severity.ATTENTION
        yield Finding(severity, fault.kind, fault.text, fault.step)


def check_pins(pins: Iterable[PinStatus]) -> Iterator[Finding]:
    """Find pinned channels that are on their way, or whose move was cancelled."""
    for pin in pins:
        if not pin.exists or pin.group_now == pin.group:
            continue
        name = pin.channel
        if pin.moving:
            moving = f"Channel {name} is being moved from group {pin.group_now} to group {pin.group}."
            step = "If that does not end, the log of the node that leads the new group says what it waits for."
            yield Finding(Severity.NOTE, "move", moving, step)
        else:
            still = f"Channel {name} is pinned to group {pin.group} and still in group {pin.group_now}: a move was cancelled."
            step = f"It is begun anew every ten seconds; stan channel unpin '{name}' gives it up."
            yield Finding(Severity.ATTENTION, "move", still, step)


# --- positions and clients ------------------------------------------------------------------------------------------------


def check_positions(cursors: Iterable[CursorStatus], now_ns: int) -> Iterator[Finding]:
    """Find positions for which messages wait and are not sent, and those with messages that were given up."""
    for cursor in sorted(cursors, key=lag, reverse=True):
        state, channel, name = state_of(cursor, now_ns), cursor.channel, full_name(cursor)
        waits = f"{counted(lag(cursor), 'message')} wait{'s' if lag(cursor) == 1 else ''}"
        command, keys = command_of(cursor), (f"{state.word}:{channel}/{cursor.cursor_id}",)
        step = f"{command} why {channel} {name}" if cursor.kind != CursorKind.PLAIN else f"stan channel show {channel}"
        who = f"{KINDS[cursor.kind].capitalize()} {name} of channel {channel}"
        if cursor.exhausted:
            given_up = f"{counted(cursor.exhausted, 'message')} given up ({given_up_by(cursor)})"
            fails = f", not moved: {cursor.dead_letter_fault}" if cursor.dead_letter_fault else ""
            yield Finding(Severity.ATTENTION, "given up", f"{who}: {given_up}{fails}.", step)
        if state.word == PAUSED and cursor.pause_reason:
            yield Finding(state.severity, PAUSED, f"{who} is paused by the broker: {cursor.pause_reason}.", step, keys)
        elif state.word in IN_VAIN | {UNACKING, PAUSED} and (lag(cursor) or cursor.owed):
            long = f" since {format_age(cursor.last_ack, now_ns)}" * (
                state.word == OFFLINE and offline_long(cursor, now_ns)
            )
            resume = f"{command} resume {channel} {name}"
            began = max(int(cursor.oldest_pending), int(cursor.last_ack)) if state.word in (STUCK, UNACKING) else 0
            is_so = f"{who} {'has a full window' if state.word == FULL else f'is {state.word}'}{long}; {waits}."
            yield Finding(state.severity, state.word, is_so, resume if state.word == PAUSED else step, keys, began)


def check_clients(clients: Iterable[ClientStatus]) -> Iterator[Finding]:
    """Find clients that do not answer heartbeats."""
    for client in clients:
        if client.failing:
            name = client.client_id
            silent = f"Client {name} does not answer heartbeats."
            yield Finding(Severity.ATTENTION, "client", silent, f"stan client show {name}")
