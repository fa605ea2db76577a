"""A node's state as the monitoring pages read it: the metadata, the groups that it leads, and its copies of other groups.

A node reports what it knows: for a group that it leads, the live windows; for a copy, the positions that the leader has written
to the log; for a group without a copy here, nothing. The view only reads, never asks another node, and opens no file.
"""

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from stan_protocol.scalars import WallNanos

from stan import limits
from stan.config import Config
from stan.core.base.ready import Index
from stan.core.boundary.group_view import GroupView
from stan.core.boundary.view import BrokerView
from stan.core.metadata.meta import ChannelInfo
from stan.core.state.tombstones import deleted_from
from stan.edge.nats.embedded import EmbeddedNats
from stan.monitor.disk_space import DiskSpace

if TYPE_CHECKING:
    from stan.edge.process import BrokerProcess


class NodeView:
    """Read access to one node for the pages and administration. `node` is None until the store is open."""

    def __init__(self, config: Config, server_id: str, embedded: EmbeddedNats | None, started: WallNanos) -> None:
        self.config = config
        self.server_id = server_id
        self.embedded = embedded
        self.started = started
        self.disk = DiskSpace(config.store.place)
        self.node: BrokerProcess | None = None
        self._waiting: list[Callable[[BrokerProcess], None]] = []
        self.pages = ""  # URL of the monitoring pages; "" without them
        self.ft_state = ""  # of a server of a fault tolerance group: FT_STANDBY or FT_ACTIVE

    def when_open(self, call: Callable[["BrokerProcess"], None]) -> None:
        """Call *call* once the node exists, before it subscribes to any requests."""
        self._waiting.append(call)

    def opened(self, node: "BrokerProcess") -> None:
        """Set the node and run the callbacks of `when_open`."""
        self.node = node
        for call in self._waiting:
            call(node)

    def told_ft_state(self, state: str) -> None:
        """Set the state of a server of a fault tolerance group: FT_STANDBY or FT_ACTIVE."""
        self.ft_state = state

    @property
    def state(self) -> BrokerView | None:
        """The broker's state, read-only; None before the node exists."""
        return None if self.node is None else self.node.broker.view

    def group(self, info: ChannelInfo) -> GroupView | None:
        """Return the group of a channel; None if this node does not hold it."""
        return None if self.state is None else self.state.group(info.group)

    def channels(self, *, led: bool = False) -> list[ChannelInfo]:
        """Return the channels whose group this node holds (*led*: leads), ordered by name."""
        state = self.state
        if state is None:
            return []
        there = {number for number, group in state.groups.items() if group.leads or not led}
        return sorted(
            (info for info in state.meta.channels.values() if info.group in there), key=lambda info: info.name
        )

    def channel(self, name: str) -> ChannelInfo | None:
        """Return a channel by its name; None if this node does not hold it."""
        state = self.state
        info = None if state is None else state.meta.channels.get(name.encode("utf-8", "surrogateescape"))
        return None if info is None or self.group(info) is None else info

    def index(self, info: ChannelInfo) -> Index | None:
        """Return the index of a channel's messages; None if the channel has been deleted meanwhile."""
        state, group = self.state, self.group(info)
        if state is None or group is None or group.is_dropped(info.uid):
            return None
        if state.meta.by_uid.get(info.uid) is not info:
            return None
        return state.indexes(info.group, info.uid)

    def messages(self, info: ChannelInfo, index: Index) -> int:
        """Return the number of messages that a channel keeps."""
        if not index.last_sequence:
            return 0
        first, last = index.first_sequence, index.last_sequence
        gone = None if self.state is None else self.state.deleted(info.group, info.uid)
        return last - first + 1 - deleted_from(gone, first, last)


class CooperativeYield:
    """Lets other tasks run now and then during long work; they may change the state that the work reads."""

    def __init__(self) -> None:
        self._since = time.monotonic_ns()

    async def yield_if_due(self) -> None:
        """Let other tasks run if the time slice is used up."""
        if time.monotonic_ns() - self._since >= limits.PAGE_SLICE:
            await asyncio.sleep(0)
            self._since = time.monotonic_ns()
