"""The answer about one channel: how full and how fast it is, and its positions; of one with parts its parts and their faults."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from stan_protocol.channels import is_channel_name
from stan_protocol.refusals import UNKNOWN_CHANNEL

from stan import limits
from stan.core.base.names import text
from stan.errors import Refused
from stan.monitor.dashboard import listing, rows
from stan.monitor.dashboard.cluster_snapshot import ClusterSnapshot
from stan.monitor.dashboard.formatting import millis, name_of_key
from stan.monitor.dashboard.message_rate import MessageRates
from stan.monitor.dashboard.visible import VisibleSnapshot
from stan.monitor.pages import UnknownNameError
from stan.protocol.part_status import channel_faults, part_of, position_faults, summed_channels, summed_positions
from stan.status.groups import commits_of, groups_of
from stan.status.positions import worst_of

Json = dict[str, Any]
Query = Mapping[str, str]


class ChannelAnswer:
    """Answers about a channel. *wall*: Unix ns."""

    def __init__(
        self, snapshot: ClusterSnapshot | VisibleSnapshot, rates: MessageRates, wall: Callable[[], int]
    ) -> None:
        self._snapshot = snapshot
        self._rates = rates
        self._wall = wall

    async def answer(self, query: Query) -> Json:
        """Return one channel by its key, its message rate over the last minutes, and its cursors with their lag trends."""
        name = name_of_key(query.get("name", ""))
        asking = self._snapshot.cluster_client
        if not is_channel_name(name):
            raise UnknownNameError(UNKNOWN_CHANNEL)
        try:
            channels, cursors = await asyncio.gather(listing.channels(asking, name), listing.cursors(asking, name))
        except Refused as error:  # the servers do not accept the name
            raise UnknownNameError(str(error)) from None
        row = next((row for row in channels.rows if row.name == text(name)), None)
        if row is None:
            return await self._parted(name)
        now, lag_trends = self._wall(), self._snapshot.lag_trends
        lag_trends.note(cursors.rows, now)
        pace = await self._rates.of(name, row.uid, now)
        document = rows.channel(row, None, max([one.waiting for one in cursors.rows], default=0), len(cursors.rows))
        document["pace"] = [[millis(at), round(rate, 1)] for at, rate in pace]
        document["rate"] = document["pace"][-1][1]
        document["durables"] = [
            rows.cursor(one, now, lag_trends.left_s(one))
            | {
                "trend": [[millis(at), lag] for at, lag in lag_trends.points(one)],
                "week": [[millis(at), lag] for at, lag in lag_trends.history.points(one)],
                "windows": [[millis(at), window] for at, window in lag_trends.windows(one)],
            }
            for one in cursors.rows[: limits.DASHBOARD_ROWS_MAX]
        ]
        return document

    async def _parted(self, name: bytes) -> Json:
        """Return a channel that has parts: sums, its parts with their leaders, their faults, and their positions."""
        asking, pattern, channel = self._snapshot.cluster_client, name + b".*", text(name)
        channels, cursors = await asyncio.gather(listing.channels(asking, pattern), listing.cursors(asking, pattern))
        parts = sorted(
            (row for row in channels.rows if part_of(row).channel == channel), key=lambda row: int(part_of(row).number)
        )
        if not parts:
            raise UnknownNameError(UNKNOWN_CHANNEL)
        positions = [one for one in cursors.rows if part_of(one).channel == channel]
        groups = groups_of(self._snapshot.health()[0])
        leaders = {group.number: group.leader.replace("(alone)", "this node") for group in groups}
        now, table = self._wall(), self._snapshot.channels.recent
        rates = table.rates if table else {}
        lags = {
            row.name: max([one.waiting for one in positions if one.channel == row.name], default=0) for row in parts
        }
        total = summed_channels(parts)[0].total
        document = rows.channel(total, rates.get(channel), max(lags.values()), len(positions))
        document["parts"] = [
            rows.channel(row, rates.get(row.name), lags[row.name], 0) | {"leader": leaders.get(row.group, "")}
            for row in parts
        ]
        document["of"] = int(part_of(parts[0]).parts)
        faults = (*channel_faults(parts, commits_of(groups), now), *position_faults(positions))
        document["faults"] = [{"text": fault.text, "level": "busy" if fault.passing else "warn"} for fault in faults]
        document["durables"] = [
            rows.cursor(one.total, now, of=worst_of(one.parts or [one.total], now)) | {"parts": len(one.parts) or 1}
            for one in summed_positions(positions)[: limits.DASHBOARD_ROWS_MAX]
        ]
        return document
