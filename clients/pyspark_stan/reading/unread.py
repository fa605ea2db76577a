"""How far a stream is behind: where the channels end, how long messages have been waiting, by the times of the channels' newest
messages at each look (no request more), and how many bytes they have.

    looks: ends at 101, newest of 10:00 · ends at 140, newest of 10:01        the query is at 120: it waits since 10:01 or before

Promises that no message is said to be older than it is.
"""

import time
from collections.abc import Mapping
from typing import Any, Final

from stan_client.reading.channels import ChannelInfo

from pyspark_stan.reading.offsets import AGES, BYTES, CLUSTER, behind, cluster_of, oldest, packed, row_bytes

LOOKS_MAX: Final = 256
"""Of a channel, an even number; of more every second one is forgotten, and ages of what came between are told shorter."""


class Unread:
    """The messages of each channel that a stream has not read."""

    def __init__(self) -> None:
        self._ends: dict[str, int] = {}  # next sequence of each channel
        self._cluster = ""  # whose channels they are
        self._looks: dict[str, list[tuple[int, int]]] = {}  # next sequence and newest time in ns, of unread messages
        self.bytes: dict[str, int] = {}  # of unread messages, by the average size of those that there are

    def note_ends(self, infos: Mapping[str, ChannelInfo]) -> None:
        """Note where the channels end at a look, of which no batch may come: a loss can be an error."""
        self._ends, self._cluster = {name: behind(info) for name, info in infos.items()}, cluster_of(infos)

    def note(self, infos: Mapping[str, ChannelInfo], positions: Mapping[str, int]) -> None:
        """Note a look at the channels, and the next sequence to read of each after the batch that was planned then."""
        before, self._looks, self.bytes = self._looks, {}, {}
        for name, info in infos.items():
            position, end = positions.get(name, 1), behind(info)
            if position >= end:
                continue
            looks = [look for look in before.get(name, ()) if position < look[0] < end]
            if not looks and position <= oldest(info):
                looks.append((oldest(info) + 1, info.first_time_ns))
            looks.append((end, info.last_time_ns))
            self.bytes[name] = int(row_bytes(info) * (end - max(position, oldest(info))))
            self._looks[name] = looks if len(looks) <= LOOKS_MAX else [looks[0], *looks[2::2]]

    def seconds(self) -> dict[str, float]:
        """Return for each channel with unread messages how old the oldest one is now at least, in seconds to the millisecond."""
        now = time.time_ns()
        return {name: max(0, now - looks[0][1]) // 1_000_000 / 1000 for name, looks in self._looks.items()}

    def report(self) -> dict[str, Any]:
        """Return the next sequence of each channel, the cluster, and ages and bytes of unread messages, for Spark's progress
        report; nothing before the first look, or without channels."""
        cluster = {CLUSTER: self._cluster} if self._ends and self._cluster else {}
        seconds = self.seconds()
        unread = {AGES: seconds, BYTES: self.bytes} if seconds else {}
        return packed(dict(sorted({**self._ends, **cluster, **unread}.items())), len(self._ends))
