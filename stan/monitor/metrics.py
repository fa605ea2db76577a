"""Metrics for Prometheus, made from the broker's state at each request.

Only the node that leads a channel reports the channel, its durables and its queue groups, so that a sum over all nodes counts
nothing twice; the numbers that every node knows (clients, channels) are reported by all nodes. With many channels or durables
there are no series per channel or durable unless channels are requested by name, so that the number of series stays bounded.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from stan_protocol.scalars import SECOND, WallNanos
from stan_protocol.scalars import Sequence as Number

from stan import limits
from stan.core.base.ready import Index
from stan.core.base.shares import of_whom
from stan.core.boundary.group_view import CursorTotals, GroupView
from stan.core.metadata.meta import ChannelInfo
from stan.core.publishing.compressing import CompressedTotals
from stan.edge.histogram import Histogram
from stan.edge.process import BrokerProcess
from stan.monitor.page_format import shown
from stan.monitor.view import CooperativeYield, NodeView
from stan.product import VERSION
from stan.raft.group import RaftGroup


class _One(Collector):
    """A collector of one family, for `generate_latest`."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        return (self._family,)


async def metrics(view: NodeView, names: Sequence[str], now: WallNanos) -> bytes:
    """Return the text of /metrics. *names*: channels (or with parts) that get series of their own; none: all, if not too many."""
    return await exposition(await _families(view, names, now))


async def exposition(families: Iterable[Metric]) -> bytes:
    """The text of families, made in slices."""
    out = []
    for family in families:
        out.append(generate_latest(_One(family)))
        await asyncio.sleep(0)
    return b"".join(out)


async def _families(view: NodeView, names: Sequence[str], now: WallNanos) -> list[Metric]:
    node = view.node
    families: list[Metric] = [*_server(view), *await _disk(view)]
    if node is None:
        return families
    led = view.channels(led=True)
    families += [*_totals(node), *_groups(node), *await _stored(view, led)]
    if names:
        named = set(names)
        whole = node.broker.view.meta.whole
        led = [info for info in led if shown(info.name) in named or shown(whole(info.name)) in named]
    groups = [group for group in node.broker.view.groups.values() if group.leads]
    waiting = sum(group.delayed for group in groups)
    families.append(
        _gauge("delayed_messages", "Messages that wait for the time which their publishers have told", waiting)
    )
    families += _consumer_groups(node)
    many = len(led) > limits.METRICS_CHANNELS_MAX
    many_cursors = not names and sum(group.cursors for group in groups) > limits.METRICS_CURSORS_MAX
    left_out = _gauge("left_out", "1: too many to be told of one by one; ask with ?channel=", labels=("what",))
    left_out.add_metric(("channels",), float(many))
    left_out.add_metric(("durables",), float(many or many_cursors))
    channels, cursors = _ChannelSeries(), _CursorSeries()
    time_slice = CooperativeYield()
    for info in [] if many else led:
        index, group = view.index(info), view.group(info)
        if index is not None and group is not None:
            channels.add(info, index, view.messages(info, index))
            if not many_cursors:
                cursors.add_all(node, info, group, index, now)
        await time_slice.yield_if_due()
    return [*families, left_out, *channels.families, *cursors.families]


async def _stored(view: NodeView, led: list[ChannelInfo]) -> tuple[Metric, ...]:
    messages = size = 0
    time_slice = CooperativeYield()
    for info in led:
        index = view.index(info)
        if index is not None:
            messages += view.messages(info, index)
            size += index.bytes
        await time_slice.yield_if_due()
    return (
        _gauge("stored_messages", "Messages kept in the channels that this node leads", messages),
        _gauge("stored_bytes", "Their bytes", size),
    )


# --- the node -----------------------------------------------------------------------------------------------------------


def _server(view: NodeView) -> Iterator[Metric]:
    node = view.node
    facts = {
        "version": VERSION,
        "cluster_id": view.config.cluster_id,
        "server_id": view.server_id,
        "node_id": "" if node is None or view.config.cluster is None else node.storage.node_id,
        "store": view.config.store.kind,
    }
    yield InfoMetricFamily("stan_server", "What this node is", facts)
    yield _gauge("start_time_seconds", "When it was started, seconds since 1970", view.started / SECOND)


async def _disk(view: NodeView) -> tuple[Metric, ...]:
    """Return metrics of the disk; none for a store in memory, or before the disk has answered."""
    space = await view.disk.look()
    if not space.total:
        return ()
    return (
        _gauge("disk_free_bytes", "Bytes that the server may still write to the disk of its store", space.free),
        _gauge("disk_bytes", "Bytes of that disk in all", space.total),
    )


def _totals(node: BrokerProcess) -> Iterator[Metric]:
    state, totals = node.broker.view, node.broker.view.totals()
    up = node.connection is not None and node.connection.up
    yield _gauge("nats_connected", "1: connected to NATS", float(up))
    yield _gauge("clients", "Registered clients, as every node knows them", state.meta.client_count)
    yield _gauge("channels", "Channels, as every node knows them", len(state.meta.channels))
    yield _gauge(
        "channels_to_move",
        "Channels that are not in the group where they belong yet, as the leader of the metadata knows; 0 on other nodes",
        state.channels_to_move,
    )
    subscriptions = sum(group.subscriptions for group in state.groups.values() if group.leads)
    yield _gauge("subscriptions", "Subscriptions and offline durables that this node leads", subscriptions)
    yield _counter("in_messages", "Messages received from publishers, also those refused", totals.in_messages)
    yield _counter("in_bytes", "Their bytes", totals.in_bytes)
    yield _counter(
        "unanswered_messages", "Messages whose publishers want no ack, of in_messages", totals.unanswered_messages
    )
    acked = CounterMetricFamily(
        "stan_acked_messages", "Messages stored and acknowledged, by what the ack has meant", labels=("level",)
    )
    for level, count in totals.acked_messages.items():
        acked.add_metric((level.word,), count)
    yield acked
    yield _counter("out_messages", "Messages sent to subscribers, redeliveries included", totals.out_messages)
    yield _counter("out_bytes", "Their bytes", totals.out_bytes)
    done = [group.log.compaction for group in node.driver.groups.values()]
    yield _counter("compaction_passes", "Passes of compaction by key over a log", sum(one.passes for one in done))
    saved = sum(one.saved_bytes for one in done)
    yield _counter("compaction_saved_bytes", "Bytes by which compaction has made files smaller", saved)
    yield from _compression(node, totals.compressed)
    yield _counter(
        "tier_lost_messages",
        "Messages removed by limits before the tier of their channel had them",
        totals.tier_lost_messages,
    )
    yield _counter("expired_messages", "Messages removed because their time to live was over", totals.expired_messages)
    yield _counter(
        "schema_refused_messages", "Messages refused: they did not fit their channel's schema", totals.refused_by_schema
    )
    yield _counter("late_messages", "Delayed messages given up, later than max_late", totals.late_messages)
    yield _gauge(
        "served_subscriptions",
        "Subscriptions that this node serves although another one leads their group",
        totals.served_subscriptions,
    )
    yield _counter("redelivered_messages", "Messages sent again, flagged", totals.redelivered_messages)
    yield _gauge("unsealed_bytes", "Received, and not on their way into the log yet", totals.unsealed_bytes)
    yield _gauge("uncommitted_bytes", "On their way into the log", totals.uncommitted_bytes)
    yield _gauge(
        "unsent_bytes", "Written to NATS, and still in this process", node.connection.unsent if node.connection else 0
    )
    yield _histogram("sync_seconds", "How long syncs of a log to its disk take", node.runtime.syncs)
    if node.tracing is not None:
        yield _counter("trace_spans", "Spans of traces that their receiver has taken", node.tracing.export.sent)
        yield _counter("trace_spans_dropped", "Spans that found no room, or no receiver", node.tracing.export.dropped)


def _compression(node: BrokerProcess, compressed: Mapping[str, CompressedTotals]) -> Iterator[Metric]:
    about = "by who compressed them: client, leader; nobody: they came compressed or a policy wants it, and are kept in clear"
    batches = CounterMetricFamily(
        "stan_compressed_batches", f"Batches that this node has stored, {about}", labels=("by",)
    )
    clear = CounterMetricFamily("stan_compressed_clear_bytes", "Their bytes in clear", labels=("by",))
    stored = CounterMetricFamily("stan_compressed_kept_bytes", "Their bytes as the log has them", labels=("by",))
    for by, totals in compressed.items():
        batches.add_metric((by,), totals.batches)
        clear.add_metric((by,), totals.clear_bytes)
        stored.add_metric((by,), totals.kept_bytes)
    yield from (batches, clear, stored)
    made = [group.log.decompression for group in node.driver.groups.values()]
    count = sum(one.batches for one in made)
    yield _counter("decompressed_batches", "Batches decompressed for who reads messages in clear", count)
    yield _counter("decompressed_clear_bytes", "Their bytes in clear", sum(one.clear_bytes for one in made))
    again = sum(one.again for one in made)
    yield _counter(
        "decompressed_again_batches", "Of them, those decompressed before, which did not stay in memory", again
    )
    spent = sum(one.cpu for one in made)
    yield _counter("decompression_cpu_seconds", "Time of the processor that it took", spent / SECOND)


def _consumer_groups(node: BrokerProcess) -> Iterator[Metric]:
    """Yield the members and channels of consumer groups, as every node knows them."""
    members = _gauge("consumers", "Members of a consumer group, as every node knows them", labels=("consumer_group",))
    owned = _gauge("consumed_channels", "Channels that they own", labels=("consumer_group",))
    for name, member_count, owned_count in node.broker.view.meta.consumer_groups():
        shown_name = shown(b"/".join(filter(None, of_whom(name))))
        members.add_metric((shown_name,), member_count)
        owned.add_metric((shown_name,), owned_count)
    yield members
    yield owned


def _groups(node: BrokerProcess) -> Iterator[Metric]:
    leads = _gauge("group_leads", "1: this node leads the group; 0 is the group of the metadata", labels=("group",))
    leader = _gauge("group_leader", "1: who leads the group, as far as this node knows", labels=("group", "node"))
    frozen = _gauge(
        "group_frozen",
        "1: it failed, and does nothing on this node until a restart",
        labels=("group",),
    )
    differs = _gauge(
        "group_state_differs",
        "1: the state here is not that of another node as of the same entry, which must never be",
        labels=("group",),
    )
    written = _gauge("group_log_entries", "Number of the newest entry of the group's log", labels=("group",))
    durable = _gauge("group_durable_entries", "Number of the newest entry that is on stable storage", labels=("group",))
    commit = _gauge(
        "group_commit",
        "What an ack of the group's channels means, 0: a majority has synced the message, 1: it has it in memory",
        labels=("group",),
    )
    lag = _gauge(
        "replica_lag_entries", "Entries that another node has not acknowledged to this leader", labels=("group", "node")
    )
    failed = node.driver.faults.frozen
    for number, group in sorted(node.driver.groups.items()):
        label = (str(number),)
        leads.add_metric(label, float(group.leads))
        frozen.add_metric(label, float(number in failed))
        differs.add_metric(label, float(number in node.storage.differs))
        written.add_metric(label, group.log.last_index)
        durable.add_metric(label, group.log.durable_index)
        commit.add_metric(label, node.broker.view.meta.commit_of(number))
        if isinstance(group, RaftGroup):
            if group.leader is not None:
                leader.add_metric((*label, group.leader), 1)
            for peer, missing in group.lag().items() if group.leads else ():
                lag.add_metric((*label, peer), missing)
    yield from (leads, leader, frozen, differs, written, durable, commit, lag)


# --- channels, durables and queue groups --------------------------------------------------------------------------------


class _ChannelSeries:
    """Series of single channels."""

    def __init__(self) -> None:
        self._messages = _gauge("channel_messages", "Messages kept", labels=("channel",))
        self._bytes = _gauge("channel_bytes", "Their bytes", labels=("channel",))
        self._first = _gauge("channel_first_sequence", "Oldest message kept", labels=("channel",))
        self._last = _gauge("channel_last_sequence", "Newest message", labels=("channel",))
        self._clear = _gauge(
            "channel_clear_bytes", "Bytes of the messages in clear, if some are kept compressed", labels=("channel",)
        )
        self._kept = _gauge("channel_kept_bytes", "Bytes that the log has of them", labels=("channel",))
        self.families = (self._messages, self._bytes, self._first, self._last, self._clear, self._kept)

    def add(self, info: ChannelInfo, index: Index, messages: int) -> None:
        """Add the series of one channel."""
        label = (shown(info.name),)
        self._messages.add_metric(label, messages)
        self._bytes.add_metric(label, index.bytes)
        self._first.add_metric(label, index.first_sequence)
        self._last.add_metric(label, index.last_sequence)
        clear, stored = index.compression
        if stored:
            self._clear.add_metric(label, clear)
            self._kept.add_metric(label, stored)


class _CursorSeries:
    """Series of single durables and queue groups."""

    def __init__(self) -> None:
        def of(name: str, text: str) -> GaugeMetricFamily:
            return _gauge(f"durable_{name}", text, labels=("channel", "name", "kind", "client"))

        self._lag = of("lag_messages", "Messages in the channel that it was never sent")
        self._pending = of("pending_messages", "Messages sent, and not acknowledged")
        self._window = of("window_messages", "Max in flight of its online members")
        self._window_now = of("window_now_messages", "Messages its online members may have in flight now")
        self._members = of("members", "Subscriptions that are online")
        self._oldest = of("oldest_unacked_seconds", "Age of the oldest message that was sent and not acknowledged")
        self._exhausted = of("exhausted_messages", "Messages given up that are still pending")
        self._rejected = of("rejected_messages", "Messages that clients have rejected, since this node leads")
        self._dead_letters = of("dead_letters", "Messages moved into a dead letter channel, since this node leads")
        self._paused = of("paused_by_broker", "1: paused because too many messages became dead letters")
        self.families = (
            *(self._lag, self._pending, self._window, self._window_now, self._members, self._oldest),
            *(self._exhausted, self._rejected, self._dead_letters, self._paused),
        )

    def add_all(self, node: BrokerProcess, info: ChannelInfo, group: GroupView, index: Index, now: WallNanos) -> None:
        """Add the series of one channel's named cursors: durables and queue groups."""
        for position in group.totals_of(info.uid):
            self._add(node, info, position, index, now)

    def _add(
        self, node: BrokerProcess, info: ChannelInfo, position: CursorTotals, index: Index, now: WallNanos
    ) -> None:
        client = "" if position.kind.shared else shown(position.client_id)
        label = (shown(info.name), shown(position.name), position.kind.name.lower(), client)
        unsent = max(0, index.last_sequence - max(position.last_sent, index.first_sequence - 1))
        self._lag.add_metric(label, position.held_back + unsent)
        self._pending.add_metric(label, position.pending)
        self._window.add_metric(label, position.window)
        self._window_now.add_metric(label, position.window_now)
        self._members.add_metric(label, position.members)
        self._exhausted.add_metric(label, position.exhausted)
        self._rejected.add_metric(label, position.rejected)
        self._dead_letters.add_metric(label, position.dead_letters)
        self._paused.add_metric(label, float(position.paused_by_broker))
        at = Number(position.oldest)
        refs = node.storage.logs[info.group].channel(info.uid).refs(at, at, 1, 1) if at else ()
        age = max(0, now - refs[0].timestamp) if refs else 0
        self._oldest.add_metric(label, age / SECOND)


# --- small parts ----------------------------------------------------------------------------------------------------------


def _gauge(name: str, text: str, value: float | None = None, labels: Sequence[str] = ()) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"stan_{name}", text, value, labels or None)


def _counter(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(f"stan_{name}", text, value)


def _histogram(name: str, text: str, times: Histogram) -> HistogramMetricFamily:
    counts = times.cumulative()
    bounds = [str(bound / SECOND) for bound in times.bounds] + ["+Inf"]
    buckets: list[Any] = list(zip(bounds, counts, strict=True))
    return HistogramMetricFamily(f"stan_{name}", text, buckets=buckets, sum_value=times.sum / SECOND)
