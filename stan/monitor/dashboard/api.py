"""Answers the requests of the dashboard's pages. It gets the parameters of an HTTP request, and nothing else of it.

All answers cover the whole cluster. Errors of all: BadQuestionError: a parameter is invalid. UnknownNameError: no such channel or
message. Others as of `ClusterClient.ask`.
"""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, Final

from stan_protocol.admin_types import ChannelStatus, CursorStatus, Event, NodeStatus
from stan_protocol.scalars import SECOND

from stan import limits
from stan.config import Config
from stan.core.base.names import raw, text
from stan.errors import StanError
from stan.monitor.dashboard import actions, rows
from stan.monitor.dashboard.channel_answer import ChannelAnswer
from stan.monitor.dashboard.cluster_snapshot import ChannelTable, ClusterSnapshot, CursorTable, searched
from stan.monitor.dashboard.formatting import millis, name_of_key
from stan.monitor.dashboard.health_summary import sentence
from stan.monitor.dashboard.history_answers import history_answer, lately
from stan.monitor.dashboard.message_answers import OF_MESSAGES, MessageAnswers
from stan.monitor.dashboard.message_rate import MessageRates
from stan.monitor.dashboard.schemas import SchemaRegistry
from stan.monitor.dashboard.tables import TableQuery, chosen
from stan.monitor.dashboard.visible import (
    VisibleSnapshot,
    check_action,
    check_question,
    latest,
    rights_of,
    visible_events,
)
from stan.monitor.login.viewer import Viewer, everybody
from stan.product import COMPATIBLE_VERSION, VERSION
from stan.protocol.part_status import part_of
from stan.status.positions import WORST_FIRST

Json = dict[str, Any]
Query = Mapping[str, str]

CHANNEL_ORDERS: Final[dict[str, Callable[[ChannelTable, int], Any]]] = {
    "name": lambda _table, at: at,
    "messages": lambda table, at: table.rows[at].messages,
    "bytes": lambda table, at: table.rows[at].bytes,
    "last": lambda table, at: table.rows[at].last_sequence,
    "rate": lambda table, at: table.rates.get(table.rows[at].name, 0),
    "lag": lambda table, at: table.lags.get(table.rows[at].name, 0),
    "active": lambda table, at: table.rows[at].last_timestamp,
}
CURSOR_ORDERS: Final[dict[str, Callable[[CursorTable, int], Any]]] = {
    "state": lambda table, at: (WORST_FIRST.index(table.states[at].word), -table.listing.rows[at].waiting),
    "name": lambda table, at: table.names[at],
    "lag": lambda table, at: table.listing.rows[at].waiting,
    "pending": lambda table, at: table.listing.rows[at].pending,
}
EVENTS_TOLD: Final = 40
SOURCES_TOLD: Final = 20
WHOLE_WAIT_S: Final = limits.DASHBOARD_WHOLE_WAIT / SECOND
CLIENT_ORDERS: Final = ("name", "subscriptions", "lag")


class Api:
    """Answers the requests of the dashboard's pages."""

    def __init__(self, snapshot: ClusterSnapshot, config: Config, wall: Callable[[], int] = time.time_ns) -> None:
        self.snapshot: ClusterSnapshot | VisibleSnapshot = snapshot
        self.events: deque[Event] = deque(maxlen=limits.DASHBOARD_EVENTS_MAX)
        self._config = config
        self._wall = wall
        self._message_rates = MessageRates(snapshot.cluster_client)
        self._registry = SchemaRegistry(snapshot.cluster_client)
        self._viewer = everybody(acts=True)
        self.of_messages = MessageAnswers(snapshot.cluster_client, self._registry, self._viewer)
        self._whole = snapshot
        self._of_viewers: OrderedDict[str, Api] = OrderedDict()

    def seen_by(self, viewer: Viewer) -> "Api":
        """Return what answers *viewer*, with the channels that are there for it. It is remembered for the viewers of late."""
        own = self._of_viewers.pop(viewer.name, None)
        if own is None:
            own = copy(self)
            own.snapshot = self._whole if viewer.sees_all else VisibleSnapshot(self._whole, viewer)
        own._viewer = viewer  # noqa: SLF001 - of this class
        own.of_messages = MessageAnswers(self._whole.cluster_client, self._registry, viewer)
        self._of_viewers[viewer.name] = own
        if len(self._of_viewers) > limits.DASHBOARD_VIEWERS_MAX:
            self._of_viewers.popitem(last=False)
        return own

    async def answer(self, name: str, query: Query) -> Json:
        """Return the answer to the question *name*. Raises NotAllowedError: the viewer lacks a right."""
        check_question(self._viewer, name, query)
        document: Json = await getattr(self.of_messages if name in OF_MESSAGES else self, name)(query)
        return document

    # --- as a whole ---------------------------------------------------------------------------------------------------

    async def overview(self, _query: Query) -> Json:
        """Return the overview: health, rates, totals, busiest channels, cursors with the largest lags, and newest events."""
        snapshot = self.snapshot
        requests = (snapshot.nodes.get(), snapshot.cursors.get(), snapshot.channels.get())
        asking = [asyncio.ensure_future(one) for one in requests]
        for one in asking:
            one.add_done_callback(_over)
        for one in (await asyncio.wait(asking, timeout=WHOLE_WAIT_S))[0]:
            failed = one.exception()
            if failed is not None and not isinstance(failed, StanError):
                raise failed  # a missing answer is only shown among the problems
        table, cursors = snapshot.channels.last, snapshot.cursors.last
        current = snapshot.channels.recent is not None and snapshot.cursors.recent is not None
        old = [one.at for one in (table, cursors) if one is not None and not current]
        all_seen, events = self._viewer.sees_all, visible_events(list(self.events), self._viewer)
        return {
            **self.known(),
            "old": millis(min(old, default=0)),
            "version": VERSION,
            "compatible": COMPATIBLE_VERSION,
            "cluster_id": self._config.cluster_id,
            "channels": len(table.listing.rows) if table else None,
            "messages": table.messages if table else None,
            "bytes": table.bytes if table else None,
            "durables": len(cursors.names) if cursors else None,
            "clients": max((node.clients for node in snapshot.history.present()), default=0) if all_seen else None,
            "history": lately(snapshot.history.measured, self._wall()) if all_seen else [],
            "worst": [rows.cursor(row, cursors.at) for row in cursors.lagging] if cursors else None,
            "busiest": [_channel(table, row) for row in table.busiest] if table and table.compared else None,
            "events": self._happened(events),
        }

    async def channel(self, query: Query) -> Json:
        """Return one channel by its key, its message rate over the last minutes, and its cursors with their lag trends."""
        document = await ChannelAnswer(self.snapshot, self._message_rates, self._wall).answer(query)
        return document | {"may": rights_of(self._viewer, name_of_key(query.get("name", "")))}

    def _happened(self, events: list[Event]) -> list[Json]:
        """Return the newest events, the newest first, with those of nodes that this one has seen itself."""
        told = [rows.event(event) for event in events[: -EVENTS_TOLD - 1 : -1]]
        told += [rows.node_news(news) for news in self.snapshot.history.news] if self._viewer.sees_all else []
        return sorted(told, key=lambda event: -(event["time"] or 0))[:EVENTS_TOLD]

    async def history(self, query: Query) -> Json:
        """Return the figures of the cluster over `span`: hour or week."""
        return history_answer(self.snapshot.history.measured, query, self._wall())

    async def news(self, _query: Query) -> Json:
        """Return health and rates as `known` does, for pages that cannot use the stream of events."""
        await self.snapshot.prepare()
        return self.known()

    def known(self) -> Json:
        """Return health and rates as known at this moment, without a request to the cluster."""
        inputs, problems = self.snapshot.health()
        rates = self.snapshot.history.rates if self._viewer.sees_all else None
        return {
            "now": millis(self._wall()),
            "state": rows.LEVELS[problems[0].severity] if problems else "ok" if inputs.nodes else "unknown",
            "sentence": sentence(inputs, problems),
            "problems": [rows.problem(problem) for problem in problems],
            "rates": rows.sample(rates) if rates else None,
        }

    # --- tables -------------------------------------------------------------------------------------------------------

    async def channels(self, query: Query) -> Json:
        """Return a page of the table of channels; parameters: `search`, `sort` (descending with `-`), `offset`, `limit`."""
        page = TableQuery.of(query, CHANNEL_ORDERS, "name")
        table = await latest(self.snapshot.channels)
        order = CHANNEL_ORDERS[page.order]
        shown, matching = chosen(table.names, page, lambda at: order(table, at))
        listed = [_channel(table, table.rows[at]) for at in shown]
        return _page(page, listed, matching, len(table.names), table)

    async def durables(self, query: Query) -> Json:
        """Return a page of the table of durables, queue groups and subscriptions; parameters as of `channels`, and `state` (a
        state's word) and `channel` (a channel's key) to filter by."""
        page = TableQuery.of(query, CURSOR_ORDERS, "state")
        table = await latest(self.snapshot.cursors)
        state, channel = query.get("state", ""), text(name_of_key(query.get("channel", "")))
        words: dict[str, int] = {}
        for each in table.states:
            words[each.word] = words.get(each.word, 0) + 1

        def keep(at: int) -> bool:
            return state in ("", table.states[at].word) and channel in ("", table.listing.rows[at].channel)

        order = CURSOR_ORDERS[page.order]
        shown, matching = chosen(table.names, page, lambda at: order(table, at), keep)
        left_s = self.snapshot.lag_trends.left_s
        listed = [
            rows.cursor(row, table.at, left_s(row)) | {"may": self._viewer.changes(raw(row.channel))}
            for row in map(table.listing.rows.__getitem__, shown)
        ]
        return {**_page(page, listed, matching, len(table.names), table), "states": words}

    async def dead_letters(self, query: Query) -> Json:
        """Return a page of the table of dead letter channels: those that a position names, and all that end in `.dlq`; parameters
        as of `channels`."""
        page = TableQuery.of(query, CHANNEL_ORDERS, "name")
        table, cursors = await asyncio.gather(self.snapshot.channels.get(), self.snapshot.cursors.get())
        sources: dict[str, list[CursorStatus]] = {}
        for cursor in cursors.listing.rows:
            if cursor.dead_letter_channel:
                sources.setdefault(cursor.dead_letter_channel, []).append(cursor)

        def keep(at: int) -> bool:
            name = table.rows[at].name
            return name in sources or name.endswith(".dlq")

        order = CHANNEL_ORDERS[page.order]
        shown, matching = chosen(table.names, page, lambda at: order(table, at), keep)
        listed = [
            {
                **_channel(table, row),
                "may": self._viewer.redrives(raw(row.name)),
                "sources": [rows.source(one) for one in sources.get(row.name, [])[:SOURCES_TOLD]],
            }
            for row in (table.rows[at] for at in shown)
        ]
        total = sum(map(keep, range(len(table.names))))
        return _page(page, listed, matching, total, table)

    async def clients(self, query: Query) -> Json:
        """Return a page of the table of registered clients, each with its number of subscriptions and the largest lag of them."""
        page = TableQuery.of(query, dict.fromkeys(CLIENT_ORDERS), "name")
        clients, table = await asyncio.gather(self.snapshot.clients.get(), self.snapshot.cursors.get())
        counts: dict[str, int] = {}
        lags: dict[str, int] = {}
        for cursor in table.listing.rows:
            for member in cursor.members:
                counts[member.client_id] = counts.get(member.client_id, 0) + 1
                lags[member.client_id] = max(lags.get(member.client_id, 0), cursor.waiting)
        orders = {
            "name": lambda at: clients.rows[at].client_id,
            "subscriptions": lambda at: counts.get(clients.rows[at].client_id, 0),
            "lag": lambda at: lags.get(clients.rows[at].client_id, 0),
        }
        names = [searched(row.client_id) for row in clients.rows]
        shown, matching = chosen(names, page, orders[page.order])
        listed = [
            rows.client(row, counts.get(row.client_id, 0), lags.get(row.client_id, 0))
            for row in (clients.rows[at] for at in shown)
        ]
        return {**_page(page, listed, matching, len(names), table), "missing": [], "cut": clients.cut}

    # --- servers ------------------------------------------------------------------------------------------------------

    async def cluster(self, _query: Query) -> Json:
        """Return the nodes of the cluster with their groups, silent nodes included."""
        await self.snapshot.nodes.get()
        history = self.snapshot.history
        silent = history.silent()
        nodes = [rows.node(status, history.reports[status.node].wall) for status in history.present()]
        for name in sorted(silent):
            report = history.reports.get(name)
            status, wall = (NodeStatus(node=name), 0) if report is None else (report.status, report.wall)
            nodes.append(rows.node(status, wall, silent[name]))
        return {
            "now": millis(self._wall()),
            "groups": max([self._config.store.raft_groups, *(status.pool_groups for status in history.present())]),
            "nodes": sorted(nodes, key=lambda node: str(node["id"])),
            "clustered": self._config.cluster is not None,
        }

    async def options(self, _query: Query) -> Json:
        """Return the configuration in force on each node; the nodes themselves leave secrets out."""
        answers = await self.snapshot.options.get()
        return {
            "nodes": [
                {
                    "name": answer.node or "this node",
                    "options": [[option.name, option.value, option.source] for option in answer.options],
                }
                for answer in sorted(answers, key=lambda answer: str(answer.node))
            ]
        }

    # --- changes ------------------------------------------------------------------------------------------------------

    async def act(self, name: str, fields: Mapping[str, Any]) -> Json:
        """Run an action of the operator; returns the sentence to show, as `text`. Cached answers are dropped. Raises
        NotAllowedError: the viewer lacks the right."""
        check_action(self._viewer, name, fields)
        try:
            sentence = await actions.act(self.snapshot.cluster_client, name, fields)
        finally:
            self.snapshot.outdated()
        return {"text": sentence}


def _channel(table: ChannelTable, row: ChannelStatus) -> Json:
    document = rows.channel(row, table.rates.get(row.name), table.lags.get(row.name, 0), table.counts.get(row.name, 0))
    parts = table.parts.get(row.name)
    return (
        document
        if parts is None
        else {**document, "parts": [_channel(table, part) for part in parts], "of": part_of(parts[0]).parts}
    )


def _page(query: TableQuery, shown: list[Json], matching: int, total: int, of: ChannelTable | CursorTable) -> Json:
    return {
        "rows": shown,
        "offset": query.offset,
        "matching": matching,
        "total": total,
        "missing": sorted(of.listing.missing),
        "cut": of.listing.cut,
        "at": millis(of.at),
    }


def _over(task: "asyncio.Future[Any]") -> None:
    """Mark the error of a request that has ended as retrieved, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()
