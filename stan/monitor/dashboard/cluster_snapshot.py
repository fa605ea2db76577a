"""The dashboard's view of the cluster: requested when a browser looks, cached for a short time, shared by all browsers.

While a browser watches, nodes and subscriptions are polled every two seconds (less often where that costs more than 1 % of the
time). Without browsers only the nodes are polled, every ten seconds, or every two if one has failed to answer, so that the
dashboard knows when a problem began. Answers that are too old are not shown. The snapshot only reads.
"""

import contextlib
import time
from collections.abc import Callable
from heapq import nlargest
from typing import Any, NamedTuple

from stan_protocol.admin_types import ChannelStatus, CursorStatus, NodeStatus
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.scalars import SECOND

from stan import limits
from stan.edge.nats.cluster_client import ClusterClient
from stan.errors import StanError
from stan.monitor.dashboard import listing
from stan.monitor.dashboard.browser_presence import BrowserPresence
from stan.monitor.dashboard.cached import Cached
from stan.monitor.dashboard.health_summary import FindingTimes, HealthInputs, problems
from stan.monitor.dashboard.lag_trend import LagTrends
from stan.monitor.dashboard.listing import Listing
from stan.monitor.dashboard.node_history import Failures, NodeHistory
from stan.monitor.view import CooperativeYield
from stan.protocol.part_status import summed_channels
from stan.status.findings import Finding
from stan.status.positions import STUCK, PositionState, state_of

SEARCHED_MEMBERS_MAX = 8
"""Members of a queue group by whose clients a search finds it."""
TOLD = 5
"""Rows of the short lists of the overview."""
NODES_WAIT_S = limits.DASHBOARD_NODES_WAIT / SECOND
"""Time that all nodes have to answer."""


class ChannelTable(NamedTuple):
    """All channels with their rates and lags; the parts of one are one row with their sums, called after it."""

    listing: Listing
    at: int  # when it was made, Unix ns
    rows: list[ChannelStatus]  # by name
    parts: dict[str, list[ChannelStatus]]  # of the rows that have any, by number
    names: list[str]  # the texts that a search looks at, one for each row
    rates: dict[str, float]  # name -> messages a second; of parts, too
    lags: dict[str, int]  # name -> largest lag of its cursors, in messages
    counts: dict[str, int]  # name -> number of durables, queue groups and subscriptions
    compared: bool  # there was a recent table before it, so that rates are known
    busiest: list[ChannelStatus]  # with the highest rates
    messages: int  # of all channels
    bytes: int  # of all channels


class CursorTable(NamedTuple):
    """All durables, queue groups and subscriptions, with their states."""

    listing: Listing
    at: int  # when it was made, Unix ns
    states: list[PositionState]  # one for each row
    names: list[str]  # the texts that a search looks at, one for each row
    stuck: list[CursorStatus]
    lagging: list[CursorStatus]  # with the largest lags, the largest first


class ClusterHealth:
    """Judges the cluster by the facts known at a moment, and remembers the beginning of each problem."""

    def __init__(self, own: Callable[[], list[str]], pool: int) -> None:
        """*own*: returns why the node that serves the pages is not ready; *pool*: number of groups of channels, unless a
        node reports a larger one."""
        self.unreported: Failures[int] = Failures()
        """Groups whose leaders did not report their subscriptions."""
        self._own = own
        self._pool = pool
        self._since = FindingTimes()

    def judge(self, history: NodeHistory, cursors: CursorTable | None, now: int) -> tuple[HealthInputs, list[Finding]]:
        """Return the inputs of the health summary, and the problems in them with the time of their beginning.

        Args:
            history: of the nodes.
            cursors: the newest table; None: not known at the moment.
            now: Unix ns.
        """
        inputs = self._inputs(history, cursors, now)
        return inputs, self._since.of(problems(inputs), now)

    def judge_part(
        self, history: NodeHistory, cursors: CursorTable | None, now: int
    ) -> tuple[HealthInputs, list[Finding]]:
        """Return the same for a part of the cursors; the beginnings of problems are those that `judge` has noted."""
        inputs = self._inputs(history, cursors, now)
        return inputs, self._since.settled(problems(inputs), now)

    def _inputs(self, history: NodeHistory, cursors: CursorTable | None, now: int) -> HealthInputs:
        return HealthInputs(
            nodes=history.present(),
            answers=history.fresh(),
            members=history.members(),
            missing=history.silent(),
            deaf=history.deaf(),
            own=self._own(),
            pool=max([self._pool, *(status.pool_open for status in history.fresh())]),
            stuck=cursors.stuck if cursors else [],
            lagging=cursors.lagging if cursors else [],
            subscribed=bool(cursors.states) if cursors else None,
            unreported=set(self.unreported.silent()) if cursors else set(),
            now=now,
        )


class ClusterSnapshot:
    """The shared, cached view of the cluster."""

    def __init__(
        self,
        cluster_client: ClusterClient,
        health: ClusterHealth,
        me: str = "",
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """*me*: name of the node that serves the pages, "" for a standalone broker; *clock*: monotonic ns."""
        self.cluster_client = cluster_client
        self.history = NodeHistory(me)
        self.lag_trends = LagTrends()
        self.nodes = Cached(self._nodes, clock=clock)
        self.cursors = Cached(self._cursors, clock=clock)
        self.channels = Cached(self._channels, clock=clock)
        self.clients = Cached(lambda: listing.clients(cluster_client), clock=clock)
        self.options = Cached(self._options, 10 * SECOND, clock)
        self.browsers = BrowserPresence(clock)
        self._health = health
        self._clock = clock
        self._before: tuple[int, dict[int, int]] = (0, {})
        """Time of the last table of channels, and uid -> last sequence in it."""

    # --- looking ------------------------------------------------------------------------------------------------------

    def outdated(self) -> None:
        """Drop all cached answers but the options, after a change."""
        for cached in (self.nodes, self.cursors, self.channels, self.clients):
            cached.outdated()

    async def run(self) -> None:
        """Poll the cluster for ever: often while a browser watches or a node has failed to answer, else seldom."""
        while True:
            watched = self.browsers.begin_round()
            lag_due = self.cursors.age >= limits.DASHBOARD_LAG_IDLE_TICK
            for cached in (self.nodes, self.cursors) if watched or lag_due else (self.nodes,):
                with contextlib.suppress(StanError):
                    await cached.get()
            self.health()
            often = watched or self.history.doubted()
            await self.browsers.pause(limits.DASHBOARD_TICK if often else limits.DASHBOARD_IDLE_TICK)

    def health(self) -> tuple[HealthInputs, list[Finding]]:
        """Return the result of `ClusterHealth.judge` for this moment."""
        return self._health.judge(self.history, self.cursors.recent, time.time_ns())

    def health_of(self, cursors: CursorTable | None) -> tuple[HealthInputs, list[Finding]]:
        """Return the health of the servers and of a part of the cursors."""
        return self._health.judge_part(self.history, cursors, time.time_ns())

    async def prepare(self) -> None:
        """Do nothing: the tables of the whole cluster need no further work."""

    # --- asking -------------------------------------------------------------------------------------------------------

    async def _nodes(self) -> list[NodeStatus]:
        begun, wall = self._clock(), time.time_ns()
        expected = set(self.history.members()) | {status.node for status in self.history.present()}
        refused: list[admin.NodeStatus] = []

        def enough(answers: list[admin.NodeStatus]) -> bool:
            there = {answer.node for answer in (*answers, *refused)}
            return bool(there) and there >= expected | {name for answer in answers for name in answer.nodes}

        reports = await self.cluster_client.ask_each(
            "admin.nodes", admin.NodesRequest(version=1), admin.NodeStatus, enough, NODES_WAIT_S, refused
        )
        answers = [NodeStatus.from_pb(one) for one in reports]
        self.history.note(answers, [one.node for one in refused], begun, wall)
        return answers

    async def _cursors(self) -> CursorTable:
        begun = time.time_ns()
        cursors = await listing.cursors(self.cluster_client)
        self._health.unreported.note(cursors.missing, begun)
        now = time.time_ns()
        self.lag_trends.note(cursors.rows, now)
        if not cursors.missing:
            self.lag_trends.history.note(cursors.rows, now)
        states: list[PositionState] = []
        names: list[str] = []
        time_slice = CooperativeYield()
        for row in cursors.rows:
            states.append(state_of(row, now))
            clients = [member.client_id for member in row.members[:SEARCHED_MEMBERS_MAX]]
            names.append(searched(row.channel, row.durable_name, row.queue_group, row.client_id, *clients))
            await time_slice.yield_if_due()
        stuck = [row for row, state in zip(cursors.rows, states, strict=True) if state.word == STUCK]
        if not cursors.missing:
            self.history.measured.note(now, _figures(cursors.rows, len(stuck)))
        lagging = nlargest(TOLD, (row for row in cursors.rows if row.waiting), key=lambda row: row.waiting)
        return CursorTable(cursors, now, states, names, stuck, lagging)

    async def _channels(self) -> ChannelTable:
        channels = await listing.channels(self.cluster_client)
        at, before = self._before
        now = self._clock()
        compared = bool(at) and now - at <= 2 * limits.DASHBOARD_AGE_MAX  # else the rates would not be those of now
        rates: dict[str, float] = {}
        own: list[ChannelStatus] = []
        of_parts: list[ChannelStatus] = []
        time_slice = CooperativeYield()
        for row in channels.rows:
            if compared and row.uid in before and now > at:
                rates[row.name] = max(0, row.last_sequence - before[row.uid]) * SECOND / (now - at)
            (of_parts if row.part_of is not None else own).append(row)
            await time_slice.yield_if_due()
        self._before = (now, {row.uid: row.last_sequence for row in channels.rows})
        lags: dict[str, int] = {}
        counts: dict[str, int] = {}
        table = self.cursors.recent
        for cursor in table.listing.rows if table is not None else ():
            lags[cursor.channel] = max(lags.get(cursor.channel, 0), int(cursor.waiting))
            counts[cursor.channel] = counts.get(cursor.channel, 0) + 1
            await time_slice.yield_if_due()
        parts: dict[str, list[ChannelStatus]] = {}
        for total, each in summed_channels(of_parts):
            own.append(total)
            if each:
                names_of = [row.name for row in each]
                parts[total.name] = each
                lags[total.name] = max(lags.get(name, 0) for name in names_of)
                counts[total.name] = sum(counts.get(name, 0) for name in names_of)
                if known := [rates[name] for name in names_of if name in rates]:
                    rates[total.name] = sum(known)
        if of_parts:
            own.sort(key=lambda row: row.name)
        busy = nlargest(TOLD, (row for row in own if rates.get(row.name)), key=lambda row: rates[row.name])
        sums = sum(row.messages for row in channels.rows), sum(row.bytes for row in channels.rows)
        names = [searched(row.name) for row in own]
        return ChannelTable(channels, time.time_ns(), own, parts, names, rates, lags, counts, compared, busy, *sums)

    async def _options(self) -> list[Any]:
        expected = len(self.history.members()) or 1
        return await self.cluster_client.ask_each(
            "admin.options",
            admin.OptionsRequest(version=1),
            admin.OptionsResponse,
            lambda answers: len(answers) >= expected,
            NODES_WAIT_S,
        )


def searched(*names: str) -> str:
    """Return the text that a search looks at: *names* in lower case."""
    return " ".join(filter(None, names)).lower()


def _figures(rows: list[CursorStatus], stuck: int) -> dict[str, float]:
    """Return the figures of all positions for the history."""
    lags = [row.waiting for row in rows]
    pending = sum(row.pending for row in rows)
    return {"lag": sum(lags), "worst_lag": max(lags, default=0), "pending": pending, "stuck": stuck}
