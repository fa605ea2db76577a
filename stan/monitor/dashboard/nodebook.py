"""What each node has said of itself last, when, and how much went through them: what the overview and the cluster page show.

Knows nothing of requests: it is told the answers. Times are ns of the clock that it is given.
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from stan import limits
from stan.protocol import admin_pb2 as admin
from stan.types import SECOND


class Heard(NamedTuple):
    """The last word of one node."""

    at: int  # ns, monotonic
    status: admin.NodeStatus


class Sample(NamedTuple):
    """What went through the cluster in a second, between two looks."""

    wall: int  # Unix ns
    messages_in: float
    messages_out: float
    bytes_in: float
    bytes_out: float


_COUNTERS = ("messages_in", "messages_out", "bytes_in", "bytes_out")


class NodeBook:
    """See the module's docstring."""

    def __init__(self) -> None:
        self.heard: dict[str, Heard] = {}
        self.samples: deque[Sample] = deque(maxlen=limits.DASHBOARD_SAMPLES_MAX)
        self._looked_since = 0  # 0: never yet

    def note(self, answers: Iterable[admin.NodeStatus], now: int, wall: int) -> None:
        """Nodes have answered; *now* monotonic, *wall* Unix ns."""
        self._looked_since = self._looked_since or now
        rates = dict.fromkeys(_COUNTERS, 0.0)
        sampled = False
        for status in answers:
            before = self.heard.get(status.node)
            self.heard[status.node] = Heard(now, status)
            if before is None or before.status.server_id != status.server_id:
                continue
            span = status.now - before.status.now
            if span > 0:
                sampled = True
                for name in _COUNTERS:
                    grown = max(0, getattr(status, name) - getattr(before.status, name))
                    rates[name] += grown * SECOND / span
        if sampled:
            self.samples.append(Sample(wall, **rates))
        members = set(self.members())
        for name, heard in list(self.heard.items()):
            if name not in members and now - heard.at > limits.NODE_FORGET:
                del self.heard[name]

    def members(self) -> list[str]:
        """The nodes that keep groups, as the newest list says; [""] alone."""
        if not self.heard:
            return []
        newest = max((one.status for one in self.heard.values()), key=lambda status: status.nodes_version)
        return sorted(newest.nodes) or sorted(name for name, one in self.heard.items() if not one.status.replica)

    def silent(self, now: int) -> list[str]:
        """Members that have not answered for so long that they count as missing."""
        oldest = now - limits.NODE_SILENT
        if self._looked_since > oldest:
            return []
        return [name for name in self.members() if name not in self.heard or self.heard[name].at < oldest]

    def present(self, now: int) -> list[admin.NodeStatus]:
        """What those who answer have said last, by name."""
        oldest = now - limits.NODE_SILENT
        return [one.status for _, one in sorted(self.heard.items()) if one.at >= oldest]
