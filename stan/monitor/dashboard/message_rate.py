"""The message rate of a channel over the last minutes, computed from the sequences at regular moments.

So a chart is complete at once, even at the first look at the channel. Messages that were removed are not counted.
"""

import asyncio
from collections import OrderedDict
from itertools import pairwise

from stan_protocol.proto import extension_pb2 as pb
from stan_protocol.scalars import SECOND

from stan import limits
from stan.edge.nats.cluster_client import ClusterClient

STEP = 5 * SECOND
"""Distance of two points of the chart."""
POINTS = 60
SETTLED = 2 * SECOND
"""Smallest age of the newest point: all messages with older timestamps are in the log by then."""


class MessageRates:
    """Computes rates, and remembers the sequences at past moments, which do not change, for a few channels."""

    def __init__(self, cluster_client: ClusterClient) -> None:
        self._cluster_client = cluster_client
        self._known: OrderedDict[tuple[bytes, int], dict[int, int]] = OrderedDict()

    async def of(self, channel: bytes, uid: int, now: int) -> list[tuple[int, float]]:
        """Return for each moment (Unix ns), oldest first, the messages a second in the STEP before it; *now*: Unix ns. Errors as
        of `ClusterClient.ask`."""
        key = (channel, uid)
        known = self._known.setdefault(key, {})
        self._known.move_to_end(key)
        if len(self._known) > limits.DASHBOARD_RATED_CHANNELS_MAX:
            self._known.popitem(last=False)
        newest = (now - SETTLED) // STEP * STEP
        moments = [newest - step * STEP for step in range(POINTS, -1, -1)]
        for moment in [moment for moment in known if moment < moments[0]]:
            del known[moment]
        lacking = [moment for moment in moments if moment not in known]
        for moment, sequence in zip(
            lacking, await asyncio.gather(*(self._sequence(channel, moment) for moment in lacking)), strict=True
        ):
            known[moment] = sequence
        pairs = pairwise(moments)
        return [(end, max(0, known[end] - known[begin]) * SECOND / STEP) for begin, end in pairs]

    async def _sequence(self, channel: bytes, moment: int) -> int:
        request = pb.SeqAtTimeRequest(channel=channel, time=moment)
        return int((await self._cluster_client.ask("seq_at_time", request, pb.SeqAtTimeResponse)).sequence)
