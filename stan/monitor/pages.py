"""The JSON of NATS Streaming Server's pages: same fields in the same order, same values as far as they exist here (STAN-SPEC 13).

`go` tells the Python. In a cluster `role` is that in the metadata's group, and channels are those whose group this node holds.
Long pages are built in slices. Knows nothing of HTTP.
"""

import platform
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from stan_protocol.scalars import WallNanos
from stan_protocol.units import INT64_MAX, INT64_MIN

from stan import limits
from stan.config import ChannelLimits
from stan.core.boundary.group_view import CursorMember
from stan.core.boundary.meta_view import ClientFacts
from stan.core.metadata.meta import ChannelInfo
from stan.core.services.node import META_GROUP
from stan.core.state.cursors import CursorKind
from stan.monitor.page_format import array, extended, flat, moment, pretty, quoted, shown, uptime
from stan.monitor.view import CooperativeYield, NodeView
from stan.product import COMPATIBLE_VERSION
from stan.protocol.user_subjects import is_of_user
from stan.raft.group import RaftGroup

LENGTH_BYTES: Final = 4
"""Bytes in front of a stored message, which are not sent."""
Query = Mapping[str, str]
Json = dict[str, object]


class UnknownNameError(Exception):
    """There is no such client or channel; the text is for the requester."""


class PageWindow(NamedTuple):
    """The requested part of a list."""

    offset: int
    limit: int

    @classmethod
    def of(cls, query: Query) -> "PageWindow":
        """Parse the window as the original does: a value that is not a number counts as 0, one out of range as the bound."""
        offset, limit = _number(query.get("offset", "")), _number(query.get("limit", ""))
        return cls(max(offset, 0), limit if limit > 0 else limits.PAGE_ITEMS)


def _number(text: str) -> int:
    number = int(text) if re.fullmatch(r"[+-]?[0-9]{1,4000}", text, re.ASCII) else 0
    return min(max(number, INT64_MIN), INT64_MAX)


class Pages:
    """Builds the JSON of each page."""

    def __init__(self, view: NodeView) -> None:
        self._view = view

    # --- server and store ---------------------------------------------------------------------------------------------

    async def serverz(self, _query: Query, now: WallNanos) -> str:
        """The server as a whole."""
        view, state = self._view, self._view.state
        totals = await self._totals()
        counted = None if state is None else state.totals()
        return pretty(
            {
                "cluster_id": view.config.cluster_id,
                "server_id": view.server_id,
                "version": COMPATIBLE_VERSION,
                "go": f"python{platform.python_version()}",
                "state": self.state(),
                **self._role(),
                "now": moment(now),
                "start_time": moment(view.started),
                "uptime": uptime(max(0, now - view.started)),
                "clients": 0 if state is None else state.meta.client_count,
                "subscriptions": 0 if state is None else sum(one.subscriptions for one in state.groups.values()),
                "channels": 0 if state is None else len(state.meta.channels),
                **totals,
                "in_msgs": 0 if counted is None else counted.in_messages,
                "in_bytes": 0 if counted is None else counted.in_bytes,
                "out_msgs": 0 if counted is None else counted.out_messages,
                "out_bytes": 0 if counted is None else counted.out_bytes - LENGTH_BYTES * counted.out_messages,
                **_descriptors(),
            }
        )

    def state(self) -> str:
        """The server's role, or that it has failed or stops."""
        node = self._view.node
        if node is not None and node.crash.done():
            return "FAILED"
        if node is not None and node.driver.turns.stopped:
            return "SHUTDOWN"
        if self._view.ft_state:
            return self._view.ft_state
        return "STANDALONE" if self._view.config.cluster is None else "CLUSTERED"

    def _role(self) -> Json:
        node = self._view.node
        if node is None or self._view.config.cluster is None:
            return {}
        meta = node.driver.groups.get(META_GROUP)
        known = isinstance(meta, RaftGroup) and meta.leader is not None
        role = "Leader" if node.broker.view.leads_meta else "Follower" if known else "Candidate"
        return {"role": role, "node_id": node.storage.node_id}

    async def _totals(self) -> Json:
        messages = size = 0
        time_slice = CooperativeYield()
        for info in self._view.channels():
            index = self._view.index(info)
            if index is not None:
                messages += self._view.messages(info, index)
                size += index.bytes
            await time_slice.yield_if_due()
        return {"total_msgs": messages, "total_bytes": size}

    async def storez(self, _query: Query, now: WallNanos) -> str:
        """The store and its limits, those of single channels as inherited."""
        config = self._view.config
        kind = config.store.kind.upper()
        channels = {name: _limits(of_name) for name, of_name in sorted(config.limits.resolved().items())}
        return pretty(
            {
                **self._head(now),
                "type": kind if config.cluster is None else f"RAFT_{kind}",
                "limits": {
                    "max_channels": config.limits.channels,
                    **_limits(config.limits.default),
                    **({"channels": channels} if channels else {}),
                },
                **await self._totals(),
            }
        )

    def _head(self, now: WallNanos) -> Json:
        return {
            "cluster_id": self._view.config.cluster_id,
            "server_id": self._view.server_id,
            "now": moment(now),
        }

    # --- clients --------------------------------------------------------------------------------------------------------

    async def clientsz(self, query: Query, now: WallNanos) -> str:
        """Return one client, or a part of all by id."""
        meta = None if self._view.state is None else self._view.state.meta
        with_subs = query.get("subs") == "1"
        name = query.get("client", "")
        time_slice = CooperativeYield()
        if name:
            client = None if meta is None else meta.client(name.encode("utf-8", "surrogateescape"))
            if client is None:
                raise UnknownNameError(f"Client {name} not found")
            return await self._client(client, 0, time_slice, with_subs=with_subs)
        window = PageWindow.of(query)
        ids = [] if meta is None else meta.client_ids()
        items: list[str] = []
        for client_id in ids[window.offset : window.offset + window.limit]:
            client = None if meta is None else meta.client(client_id)
            if client is not None:
                items.append(await self._client(client, 2, time_slice, with_subs=with_subs))
            await time_slice.yield_if_due()
        head = self._envelope(now, window, len(items), len(ids))
        return extended(flat(head), {"clients": array(items, 1)})

    def _envelope(self, now: WallNanos, window: PageWindow, count: int, total: int) -> Json:
        part = {"offset": window.offset, "limit": window.limit, "count": count, "total": total}
        return {**self._head(now), **part}

    async def _client(self, client: ClientFacts, depth: int, time_slice: CooperativeYield, *, with_subs: bool) -> str:
        members = await self._online(client, time_slice)
        head = {
            "id": shown(client.client_id),
            "hb_inbox": shown(client.heartbeat_inbox),
            "subs_count": sum(map(len, members.values())),
        }
        text = flat(head, depth)
        if not (with_subs and members):
            return text
        lists: dict[str, str] = {}
        for channel, of_channel in sorted(members.items()):
            lists[channel] = array(await _subscriptions(of_channel, depth + 3, time_slice), depth + 2)
        return extended(text, {"subscriptions": extended("{}", lists, depth + 1)}, depth)

    async def _online(self, client: ClientFacts, time_slice: CooperativeYield) -> dict[str, list[CursorMember]]:
        """The subscriptions of a client, by channel."""
        state = self._view.state
        by_channel: dict[str, list[CursorMember]] = {}
        for group in [] if state is None else list(state.groups.values()):
            for uid, mine in group.members_of_client(client.incarnation):
                info = None if state is None else state.meta.by_uid.get(uid)
                if info is not None:
                    by_channel.setdefault(shown(info.name), []).extend(mine)
                await time_slice.yield_if_due()
        return by_channel

    # --- channels -------------------------------------------------------------------------------------------------------

    async def channelsz(self, query: Query, now: WallNanos) -> str:
        """Return one channel, or a part of all by name."""
        view = self._view
        with_subs = query.get("subs") == "1"
        name = query.get("channel", "")
        time_slice = CooperativeYield()
        if name:
            info = view.channel(name)
            one = None if info is None else await self._channel(info, 0, time_slice, with_subs=with_subs)
            if one is None:
                raise UnknownNameError(f"Channel {name} not found")
            return one
        window = PageWindow.of(query)
        channels = view.channels()
        items: list[str] = []
        for info in channels[window.offset : window.offset + window.limit]:
            item = await self._channel(info, 2, time_slice, with_subs=True) if with_subs else quoted(shown(info.name))
            items += [] if item is None else [item]
            await time_slice.yield_if_due()
        head = flat(self._envelope(now, window, len(items), len(channels)))
        return extended(head, {"channels" if with_subs else "names": array(items, 1)} if items else {})

    async def _channel(
        self, info: ChannelInfo, depth: int, time_slice: CooperativeYield, *, with_subs: bool
    ) -> str | None:
        """Return a channel; None: it is gone."""
        index, group = self._view.index(info), self._view.group(info)
        if index is None or group is None:
            return None
        count = group.subscriptions_of(info.uid)
        head = {
            "name": shown(info.name),
            "msgs": self._view.messages(info, index),
            "bytes": index.bytes,
            "first_seq": index.first_sequence,
            "last_seq": index.last_sequence,
            "subs_count": count,
        }
        text = flat(head, depth)
        if not (with_subs and count):
            return text
        members = group.members_of(info.uid)
        return extended(
            text, {"subscriptions": array(await _subscriptions(members, depth + 2, time_slice), depth + 1)}, depth
        )


async def _subscriptions(members: list[CursorMember], depth: int, time_slice: CooperativeYield) -> list[str]:
    texts = []
    for member in members:
        texts.append(flat(_subscription(member), depth))
        await time_slice.yield_if_due()
    return texts


def _subscription(member: CursorMember) -> Json:
    kind, given = member.kind, member.settings
    page: Json = {
        "client_id": shown(member.client_id),
        "inbox": shown(given.inbox),
        "ack_inbox": "" if is_of_user(given.ack_inbox) else shown(given.ack_inbox),  # a page has no user to show it to
    }
    if kind is CursorKind.DURABLE:
        page["durable_name"] = shown(member.name)
    elif kind.shared:
        page["queue_name"] = shown(member.name)
    return {
        **page,
        "is_durable": kind.durable,
        "is_offline": not member.subscription_id,
        "max_inflight": given.max_in_flight,
        "ack_wait": given.ack_wait_s,
        "last_sent": member.last_sent,
        "pending_count": member.pending,
        "is_stalled": member.pending >= given.max_in_flight > 0,
    }


def _limits(lim: ChannelLimits) -> Json:
    return {
        "max_msgs": lim.msgs,
        "max_bytes": lim.bytes,
        "max_age": lim.age_ns,
        "max_subscriptions": lim.subscriptions,
        "max_inactivity": lim.inactivity_ns,
    }


def _descriptors() -> Json:
    """The number of open files and its limit; only Linux reports them."""
    if sys.platform != "linux":
        return {}
    import resource  # noqa: PLC0415 - Unix only

    opened = sum(1 for _ in Path("/proc/self/fd").iterdir())
    return {"open_fds": opened, "max_fds": resource.getrlimit(resource.RLIMIT_NOFILE)[0]}
