"""The part of the cluster that a viewer may see: channels outside its rights are in no list, no search and no count.

A viewer who may see everything needs no such part.
"""

from collections.abc import Callable, Coroutine, Mapping
from heapq import nlargest
from typing import Any, Final, Generic, TypeVar

from stan_protocol.admin_types import ChannelStatus, CursorStatus, Event
from stan_protocol.refusals import UNKNOWN_CHANNEL

from stan.core.base.names import raw
from stan.errors import Unanswered
from stan.monitor.dashboard.cached import Cached
from stan.monitor.dashboard.cluster_snapshot import TOLD, ChannelTable, ClusterSnapshot, CursorTable
from stan.monitor.dashboard.formatting import name_of_key
from stan.monitor.dashboard.health_summary import HealthInputs
from stan.monitor.login.viewer import Viewer
from stan.monitor.pages import UnknownNameError
from stan.monitor.view import CooperativeYield
from stan.status.findings import Finding

T = TypeVar("T")

OF_ONE_CHANNEL: Final = frozenset({"channel", "messages", "explain", "payload", "search"})
"""Questions about the channel that their parameter `name` says."""
OF_ITS_MESSAGES: Final = frozenset({"messages", "payload", "search"})
OF_EVERYTHING: Final = frozenset({"clients", "cluster", "options", "history"})
"""Questions about what belongs to no channel."""


class NotAllowedError(Exception):
    """The viewer lacks a right; the text is for this person."""


def check_question(viewer: Viewer, name: str, query: Mapping[str, str]) -> None:
    """Check a question. Raises UnknownNameError: the channel is not there for *viewer*; NotAllowedError: a right is missing."""
    if name in OF_EVERYTHING and not viewer.sees_all:
        raise NotAllowedError("this page is for people who may see all channels")
    if name not in OF_ONE_CHANNEL:
        return
    channel = name_of_key(query.get("name", ""))
    if not viewer.sees(channel):
        raise UnknownNameError(UNKNOWN_CHANNEL)
    if name in OF_ITS_MESSAGES and not viewer.reads(channel):
        raise NotAllowedError("you may not read the messages of this channel")


def check_action(viewer: Viewer, name: str, fields: Mapping[str, Any]) -> None:
    """Check a change. Raises NotAllowedError: *viewer* may not make it. Of missing fields the change itself complains."""
    channel = name_of_key(given) if isinstance(given := fields.get("channel"), str) and given else None
    if channel is None:
        allowed = viewer.changes_all
    elif name == "publish":
        allowed = viewer.publishes(channel)
    else:
        allowed = viewer.redrives(channel) if name == "redrive" else viewer.changes(channel)
    if not allowed:
        raise NotAllowedError("you may not change this")


def rights_of(viewer: Viewer, channel: bytes) -> dict[str, bool]:
    """Return what *viewer* may do with a channel, for the buttons of its page."""
    return {
        "read": viewer.reads(channel),
        "change": viewer.changes(channel),
        "publish": viewer.publishes(channel),
        "redrive": viewer.redrives(channel),
    }


class VisibleTable(Generic[T]):
    """The part of a cached table, made once for each table. It answers as `Cached` does."""

    def __init__(self, table: Cached[T], part: Callable[[T], Coroutine[Any, Any, T]]) -> None:
        self._table = table
        self._part = part
        self._made: tuple[T, T] | None = None  # a table and its part

    async def get(self) -> T:
        """Return the part of a recent table. Errors as of `Cached.get`."""
        return await self._part_of(await self._table.get())

    async def prepare(self) -> None:
        """Make the part of the table that `recent` gives."""
        if (table := self._table.recent) is not None:
            await self._part_of(table)

    @property
    def recent(self) -> T | None:
        """The part of the recent table; None: not known, or not made yet."""
        table, made = self._table.recent, self._made
        return made[1] if made is not None and table is made[0] else None

    @property
    def last(self) -> T | None:
        """The part of the last table, however old it is; None: not known, or not made yet."""
        table, made = self._table.last, self._made
        return made[1] if made is not None and table is made[0] else None

    async def _part_of(self, table: T) -> T:
        if self._made is None or self._made[0] is not table:
            self._made = (table, await self._part(table))
        return self._made[1]


async def latest(table: Cached[T] | VisibleTable[T]) -> T:
    """Return a recent table, or if the cluster does not answer the last one, whose time the page shows. Errors as of `get`."""
    try:
        return await table.get()
    except Unanswered:
        if table.last is None:
            raise
        return table.last


class VisibleSnapshot:
    """`ClusterSnapshot` as a viewer may see it."""

    def __init__(self, snapshot: ClusterSnapshot, viewer: Viewer) -> None:
        self.cluster_client = snapshot.cluster_client
        self.history = snapshot.history
        self.lag_trends = snapshot.lag_trends
        self.nodes, self.clients, self.options = snapshot.nodes, snapshot.clients, snapshot.options
        self.browsers = snapshot.browsers
        self.cursors = VisibleTable(snapshot.cursors, lambda table: visible_cursors(table, viewer))
        self.channels = VisibleTable(snapshot.channels, lambda table: visible_channels(table, viewer))
        self._snapshot = snapshot

    def outdated(self) -> None:
        """Drop all cached answers, after a change."""
        self._snapshot.outdated()

    async def prepare(self) -> None:
        """Make the visible parts of the newest tables."""
        await self.cursors.prepare()

    def health(self) -> tuple[HealthInputs, list[Finding]]:
        """Return the health of the servers and of the visible channels at this moment."""
        return self._snapshot.health_of(self.cursors.recent)


async def visible_cursors(table: CursorTable, viewer: Viewer) -> CursorTable:
    """Return the durables, queue groups and subscriptions of visible channels."""
    at = await _places(table.listing.rows, lambda row: viewer.sees(raw(row.channel)))
    rows: list[CursorStatus] = [table.listing.rows[place] for place in at]
    return table._replace(
        listing=table.listing._replace(rows=rows),
        states=[table.states[place] for place in at],
        names=[table.names[place] for place in at],
        stuck=[row for row in table.stuck if viewer.sees(raw(row.channel))],
        lagging=nlargest(TOLD, (row for row in rows if row.waiting), key=lambda row: row.waiting),
    )


async def visible_channels(table: ChannelTable, viewer: Viewer) -> ChannelTable:
    """Return the visible channels."""
    at = await _places(table.rows, lambda row: viewer.sees(raw(row.name)))
    rows = [table.rows[place] for place in at]
    listed_at = await _places(table.listing.rows, lambda row: viewer.sees(raw(row.name)))
    listed: list[ChannelStatus] = [table.listing.rows[place] for place in listed_at]
    rates = table.rates
    return table._replace(
        listing=table.listing._replace(rows=listed),
        rows=rows,
        names=[table.names[place] for place in at],
        busiest=nlargest(TOLD, (row for row in rows if rates.get(row.name)), key=lambda row: rates[row.name]),
        messages=sum(row.messages for row in listed),
        bytes=sum(row.bytes for row in listed),
    )


def visible_events(events: list[Event], viewer: Viewer) -> list[Event]:
    """Return the events of visible channels; those of no channel are for viewers of everything."""
    if viewer.sees_all:
        return events
    return [event for event in events if event.channel and viewer.sees(raw(event.channel))]


async def _places(rows: list[Any], sees: Callable[[Any], bool]) -> list[int]:
    time_slice = CooperativeYield()
    places = []
    for place, row in enumerate(rows):
        if sees(row):
            places.append(place)
        await time_slice.yield_if_due()
    return places
