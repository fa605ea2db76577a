"""What the pages see of a node: the metadata, the groups that it leads, and its copies of other groups.

A node tells what it knows: of a group that it leads the live windows, of a copy what the leader has told the log of, of a group
that it does not hold nothing. Reads only, never asks another node, and opens no file.
"""

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from stan import limits
from stan.config import Config
from stan.core.base.ready import Index
from stan.core.boundary.view import BrokerView, GroupView
from stan.core.state.group import Cursor, Subscription
from stan.core.state.meta import ChannelInfo
from stan.core.state.tombstones import deleted_from
from stan.edge.nats.embedded import EmbeddedNats
from stan.types import WallNanos

if TYPE_CHECKING:
    from stan.edge.process import BrokerProcess


class CursorMember(NamedTuple):
    """One subscription, or a cursor without any: what was asked for, how far it is."""

    cursor: Cursor
    sub: Subscription | None  # None: nobody is online
    last_sent: int
    pending: int

    @property
    def max_in_flight(self) -> int:
        """Its window."""
        return self.cursor.max_in_flight if self.sub is None else self.sub.max_in_flight


class NodeView:
    """See the module's docstring. `node` is there once the store is open."""

    def __init__(self, config: Config, server_id: str, embedded: EmbeddedNats | None, started: WallNanos) -> None:
        self.config = config
        self.server_id = server_id
        self.embedded = embedded
        self.started = started
        self.node: BrokerProcess | None = None
        self._waiting: list[Callable[[BrokerProcess], None]] = []
        self.pages = ""  # URL of the pages, if there are any
        self.ft_state = ""  # of a server of a fault tolerance group: FT_STANDBY or FT_ACTIVE

    def when_open(self, call: Callable[["BrokerProcess"], None]) -> None:
        """Call once there is a node, before it listens to anybody."""
        self._waiting.append(call)

    def opened(self, node: "BrokerProcess") -> None:
        """There is a node."""
        self.node = node
        for call in self._waiting:
            call(node)

    def told_ft_state(self, state: str) -> None:
        """A server of a fault tolerance group is in another state."""
        self.ft_state = state

    @property
    def state(self) -> BrokerView | None:
        """What can be read of the broker; None while there is none."""
        return None if self.node is None else self.node.broker.view

    def group(self, info: ChannelInfo) -> GroupView | None:
        """The group of a channel, if this node holds it."""
        return None if self.state is None else self.state.groups.get(info.group)

    def channels(self, *, led: bool = False) -> list[ChannelInfo]:
        """The channels that this node holds, or leads, by name."""
        state = self.state
        if state is None:
            return []
        there = {number for number, group in state.groups.items() if group.leads or not led}
        return sorted(
            (info for info in state.meta.channels.values() if info.group in there), key=lambda info: info.name
        )

    def channel(self, name: str) -> ChannelInfo | None:
        """A channel by its name, if this node holds it."""
        state = self.state
        info = None if state is None else state.meta.channels.get(name.encode("utf-8", "surrogateescape"))
        return None if info is None or self.group(info) is None else info

    def index(self, info: ChannelInfo) -> Index | None:
        """A channel's messages; None if the channel has gone meanwhile."""
        state, group = self.state, self.group(info)
        if state is None or group is None or info.uid in group.machine.dropped:
            return None
        if state.meta.by_uid.get(info.uid) is not info:
            return None
        return state.indexes(info.group, info.uid)

    def messages(self, info: ChannelInfo, index: Index) -> int:
        """How many messages of a channel are kept."""
        if not index.last_sequence:
            return 0
        first, last = index.first_sequence, index.last_sequence
        gone = None if self.state is None else self.state.deleted(info.group, info.uid)
        return last - first + 1 - deleted_from(gone, first, last)


def cursors_of(group: GroupView, info: ChannelInfo) -> list[Cursor]:
    """What is subscribed to a channel, or was and is kept: online, then offline, then queue groups (STAN-SPEC 13.5)."""
    channel = group.machine.channels.get(info.uid)
    found = [] if channel is None else list(channel.cursors.values())
    return sorted(found, key=lambda cursor: (cursor.kind.shared, not cursor.members))


def members_of(group: GroupView, cursor: Cursor) -> list[CursorMember]:
    """The members of a cursor; itself if nobody is online."""
    if not cursor.members:
        return [CursorMember(cursor, None, cursor.last_sent, len(cursor.to_redeliver))]
    live = group.live(cursor.cursor_id)
    windows = {} if live is None else {one.sub.subscription_id: one.window for one in live.members}
    reached = cursor.last_sent if live is None else live.last_sent
    furthest = max(cursor.members, key=lambda sub: sub.last_sent)  # the log is told of the others' places now and then
    to_redeliver = 0 if cursor.kind.shared else len(cursor.to_redeliver if live is None else live.to_redeliver)
    found = []
    for sub in cursor.members:
        window = windows.get(sub.subscription_id, sub.pending)
        last = reached if sub is furthest else max(sub.last_sent, window.last)
        found.append(CursorMember(cursor, sub, last, len(window) + to_redeliver))
    return found


class CooperativeYield:
    """Lets other tasks run now and then during long work; they may change the state that is looked at."""

    def __init__(self) -> None:
        self._since = time.monotonic_ns()

    async def yield_if_due(self) -> None:
        """Let other tasks run if the time slice is used up."""
        if time.monotonic_ns() - self._since >= limits.PAGE_SLICE:
            await asyncio.sleep(0)
            self._since = time.monotonic_ns()
