"""The newest report of each node, the nodes that fail to answer, since when, and the throughput of the cluster.

Sends no requests: its owner notes the answers of each round. The age of an answer counts for nothing: a node does
not answer if it failed to do so several times in a row. Times are ns, monotonic of the clock it is given, or Unix.
"""

from collections import deque
from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

from stan_protocol.admin_types import GroupStatus, NodeStatus
from stan_protocol.scalars import SECOND

from stan import limits
from stan.monitor.dashboard.measured_history import MeasuredHistory

K = TypeVar("K", str, int)


class NodeReport(NamedTuple):
    """The newest answer of one node."""

    at: int  # ns, monotonic
    wall: int  # Unix ns
    status: NodeStatus


class Throughput(NamedTuple):
    """Messages and bytes per second through the cluster, between two polls."""

    wall: int  # Unix ns
    messages_in: float
    messages_out: float
    bytes_in: float
    bytes_out: float


class NodeNews(NamedTuple):
    """A node has stopped to answer, or answers again."""

    at: int  # Unix ns
    node: str
    answers: bool


class Failures(Generic[K]):
    """Counts for each name the failures to answer since its last answer, with the time of the first of them."""

    def __init__(self) -> None:
        self._of: dict[K, tuple[int, int]] = {}

    def note(self, failed: Iterable[K], wall: int) -> None:
        """Note the names that *failed* in a round that began at *wall* (Unix ns); all others have answered."""
        before = self._of
        self._of = {}
        for name in failed:
            times, since = before.get(name, (0, wall))
            self._of[name] = (times + 1, since)

    def __contains__(self, name: K) -> bool:
        """Return True if *name* failed to answer in the last round."""
        return name in self._of

    def __bool__(self) -> bool:
        return bool(self._of)

    def silent(self) -> dict[K, int]:
        """Return the names with at least DASHBOARD_FAILURES failures in a row, and when these began (Unix ns)."""
        return {name: since for name, (times, since) in self._of.items() if times >= limits.DASHBOARD_FAILURES}


_COUNTERS = ("messages_in", "messages_out", "bytes_in", "bytes_out")


class NodeHistory:
    """The reports of all nodes. *me*: the node that asks. A round without its own answer says nothing about other nodes."""

    def __init__(self, me: str = "") -> None:
        self.reports: dict[str, NodeReport] = {}
        self.measured = MeasuredHistory()
        self.rates: Throughput | None = None  # as of the last round; None: not known
        self._me = me
        self._nodes: Failures[str] = Failures()
        self.news: deque[NodeNews] = deque(maxlen=limits.DASHBOARD_NODE_NEWS_MAX)
        self._rounds: Failures[str] = Failures()  # rounds without an answer of this node itself

    def note(self, answers: Iterable[NodeStatus], refused: Iterable[str], now: int, wall: int) -> None:
        """Note the result of a round that began at *now* (monotonic), *wall* (Unix ns). *refused*: nodes that answered with an
        error, which shows only that they are there."""
        answered = {status.node: status for status in answers}
        present = {status.node for status in self.present()}
        rates = self._rates(answered.values())
        for name, status in answered.items():
            self.reports[name] = NodeReport(now, wall, status)
        for name in [name for name, report in self.reports.items() if now - report.at > limits.NODE_FORGET]:
            if name not in self.members():
                del self.reports[name]
        there = answered.keys() | set(refused)
        self._rounds.note([] if self._me in there else [self._me], wall)
        if self._me in there:
            silent = self.silent()
            self._nodes.note(sorted({*self.members(), *self.reports} - there), wall)
            self._note_news(silent, wall)
        self.rates = None if rates is None else Throughput(wall, **rates)
        if self.rates is not None and present <= answered.keys():
            # Only of rounds that all present nodes answered: otherwise the traffic would seem to drop.
            self.measured.note(wall, _figures(self.rates, self.present(), len(self.silent())))

    def _note_news(self, before: dict[str, int], wall: int) -> None:
        """Note the members that have stopped to answer, or answer again; *before*: those that were silent, and since when."""
        silent = self.silent()
        self.news += [NodeNews(silent[name], name, answers=False) for name in sorted(silent.keys() - before.keys())]
        self.news += [NodeNews(wall, name, answers=True) for name in sorted(before.keys() - silent.keys())]

    def _rates(self, answers: Iterable[NodeStatus]) -> dict[str, float] | None:
        """Sum the traffic per second of the nodes, each since its answer before; None if no node answered twice."""
        rates = dict.fromkeys(_COUNTERS, 0.0)
        known = False
        for status in answers:
            before = self.reports.get(status.node)
            if before is None or before.status.server_id != status.server_id:
                continue
            span = status.now - before.status.now
            if span > 0:
                known = True
                for name in _COUNTERS:
                    grown = max(0, getattr(status, name) - getattr(before.status, name))
                    rates[name] += grown * SECOND / span
        return rates if known else None

    def members(self) -> list[str]:
        """The nodes that hold groups, from the newest node list; [""] for a standalone broker."""
        if not self.reports:
            return []
        newest = max((one.status for one in self.reports.values()), key=lambda status: status.nodes_version)
        return sorted(newest.nodes) or sorted(name for name, one in self.reports.items() if not one.status.replica)

    def silent(self) -> dict[str, int]:
        """Members that do not answer, with the time (Unix ns) of the first round that failed after their last answer."""
        members = set(self.members())
        return {name: since for name, since in self._nodes.silent().items() if name in members}

    def deaf(self) -> int:
        """Time (Unix ns) since when the polling node does not receive its own answer; 0: it does."""
        return self._rounds.silent().get(self._me, 0)

    def doubted(self) -> bool:
        """Return True if any node failed to answer in the last round."""
        return bool(self._nodes) or bool(self._rounds)

    def present(self) -> list[NodeStatus]:
        """The last status of each node that is not silent, ordered by name."""
        silent = self._nodes.silent()
        return [one.status for name, one in sorted(self.reports.items()) if name not in silent]

    def fresh(self) -> list[NodeStatus]:
        """The status of each node that answered the last round with a valid result, ordered by name."""
        return [status for status in self.present() if status.node not in self._nodes]


def _figures(rates: Throughput, nodes: list[NodeStatus], silent: int) -> dict[str, float]:
    """Return the figures of a round for the history. *silent*: number of nodes that do not answer."""
    figures: dict[str, float] = {name: getattr(rates, name) for name in _COUNTERS}
    figures["silent"] = silent
    figures["behind"] = max((_behind(group) for node in nodes for group in node.groups), default=0)
    figures["clients"] = max((node.clients for node in nodes), default=0)
    figures["memory"] = sum(node.rss for node in nodes)
    used = [1 - node.disk_free / node.disk_total for node in nodes if node.disk_total]
    return {**figures, "disk_used": max(used)} if used else figures


def _behind(group: GroupStatus) -> int:
    """Return how many entries the slowest follower of a group lacks; 0 unless the leader reports it."""
    return max((max(0, group.last_index - replica.match) for replica in group.replicas), default=0)
