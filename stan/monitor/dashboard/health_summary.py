"""The health of the cluster in one sentence, and its problems, each with the time of its start. Pure.

A problem is `bad` if the cluster does not serve something, `warn` if that is about to happen or if only one durable is affected.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.units import counted, size

from stan.monitor.dashboard.cursor_state import CursorState, name_of
from stan.monitor.dashboard.formatting import listed
from stan.monitor.page_format import shown
from stan.troubles import VOTELESS, Severity, kind_of

DISK_PERCENT_WARN: Final = 10
DISK_PERCENT_BAD: Final = 3
"""Share of free space below which a disk is a problem of this level."""
LEVELS: Final = {Severity.BROKEN: "bad", Severity.ATTENTION: "warn"}
LISTED_MAX: Final = 8
"""Problems of one kind that are listed one by one; one sentence gives the number of the others."""


class HealthProblem(NamedTuple):
    """One problem, with keys that stay the same as long as the problem exists."""

    keys: tuple[str, ...]
    text: str
    level: str  # bad or warn
    link: str = ""  # page with details
    since: int = 0  # Unix ns; 0: the reports do not say when it began


class HealthInputs(NamedTuple):
    """The data from which the health of the cluster is judged."""

    nodes: list[admin.NodeStatus]  # the last status of each node that is not silent
    fresh: list[admin.NodeStatus]  # the status of each node that answered the last round
    members: list[str]  # nodes that hold groups
    silent: dict[str, int]  # member that does not answer -> since when, Unix ns
    deaf: int  # since when this node does not receive its own answer, Unix ns; 0: it does
    own: list[str]  # why this node, which serves the page, is not ready
    pool: int  # number of groups of channels
    stuck: list[tuple[admin.CursorStatus, CursorState]]
    lagging: list[tuple[admin.CursorStatus, CursorState]]  # the largest lag first; empty: no cursor lags
    subscribed: bool | None  # there are cursors; None: not known at the moment
    missing: set[int]  # groups whose leaders do not report their subscriptions


def problems(inputs: HealthInputs) -> list[HealthProblem]:
    """Return all problems, the worst first; consequences of one cause are left out."""
    lost = _lost(inputs)
    if inputs.deaf:
        found = [*_deaf(inputs), *_cursors(inputs)]  # the other nodes' answers are old
    elif lost is not None:
        found = [lost, *_disks(inputs), *_cursors(inputs)]
    else:
        found = [*_nodes(inputs), *_groups(inputs), *_disks(inputs), *_cursors(inputs)]
    return sorted(found, key=lambda problem: problem.level != "bad")


def sentence(inputs: HealthInputs, found: list[HealthProblem]) -> str:
    """Return the health of the cluster in one sentence; *found*: the result of `problems`."""
    answering = len([one for one in inputs.nodes if one.node in inputs.members])
    nodes = f"{answering} of {counted(len(inputs.members), 'node')}"
    if not inputs.nodes:
        return "Nothing is known yet of this cluster" if not found else found[0].text
    if not found:
        groups = f"{'the' if inputs.pool == 0 else f'all {inputs.pool + 1}'} groups have leaders"
        parts = [nodes, groups] if len(inputs.members) > 1 else ["this node is ready"]
        return f"Everything works: {', '.join([*parts, *_worst(inputs)])}."
    worst = found[0].text.rstrip(".")
    others = f" (and {counted(len(found) - 1, 'more problem')})" if len(found) > 1 else ""
    return f"{worst}{others}."


def _worst(inputs: HealthInputs) -> Iterator[str]:
    if inputs.lagging:
        lagging = inputs.lagging[0][0]
        yield f"worst lag {lagging.waiting:,} on {shown(lagging.channel)} / {shown(name_of(lagging))}"
    elif inputs.subscribed is not None:
        yield "nobody lags behind" if inputs.subscribed else "nobody is subscribed"


def _lost(inputs: HealthInputs) -> HealthProblem | None:
    """Return the problem that no group has a majority, because too many nodes are silent; None if any group has one."""
    silent, members = inputs.silent, inputs.members
    voters = [set(group.voters) for status in inputs.fresh for group in status.groups if group.voters]
    if not silent or not voters or any(2 * len(each & silent.keys()) < len(each) for each in voters):
        return None
    names = listed([name for name in members if name in silent])
    verb = "does" if len(silent) == 1 else "do"
    text = f"{len(silent)} of {counted(len(members), 'node')} {verb} not answer ({names}): nothing is accepted"
    enough = len(members) - (len(members) // 2 + 1)  # failures that a majority survives
    since = sorted(silent.values())[min(enough, len(silent) - 1)]
    return HealthProblem(("majority",), text, "bad", "#/cluster", since)


def _deaf(inputs: HealthInputs) -> Iterator[HealthProblem]:
    yield from _own(inputs.own)
    if not inputs.own:
        text = "This node does not hear itself over NATS: nothing is known of the cluster"
        yield HealthProblem(("deaf",), text, "bad", "#/cluster", inputs.deaf)


def _own(reasons: list[str]) -> Iterator[HealthProblem]:
    if reasons:
        text = f"The node you look at is not ready: {listed(reasons[:LISTED_MAX])}"
        yield HealthProblem(tuple(f"own:{reason}" for reason in reasons), text, "bad", "#/cluster")


def _nodes(inputs: HealthInputs) -> Iterator[HealthProblem]:
    yield from _own(_beside_groups(inputs.own) if inputs.fresh else inputs.own)
    for name, since in sorted(inputs.silent.items()):
        yield HealthProblem((f"node:{name}",), f"Node {name} does not answer", "bad", "#/cluster", since)
    for status in inputs.fresh:
        reasons = [reason for reason in _beside_groups(status.not_ready) if reason not in inputs.own]
        if reasons:
            text = f"Node {status.node or '(this one)'} is not ready: {listed(reasons[:LISTED_MAX])}"
            yield HealthProblem((f"ready:{status.node}",), text, "bad", "#/cluster")


def _beside_groups(reasons: Iterable[str]) -> list[str]:
    """Return the reasons why a node is not ready, except those about groups (`stan.monitor.health`), which `_groups` reports."""
    return [reason for reason in reasons if not reason.startswith("group ")]


def _groups(inputs: HealthInputs) -> Iterator[HealthProblem]:
    if not inputs.fresh:
        return
    there = {status.node for status in inputs.nodes}
    led = {
        group.group  # a named leader counts, too: nodes answer one after the other, and leadership may move in between
        for status in inputs.fresh
        for group in status.groups
        if group.role == "leader" or (group.leader and group.leader in there)
    }
    leaderless = sorted(set(range(inputs.pool + 1)) - led)
    if leaderless:
        has = "has no leader" if len(leaderless) == 1 else "have no leaders"
        yield HealthProblem(
            tuple(f"leader:{one}" for one in leaderless), f"{_named(leaderless)} {has}", "bad", "#/cluster"
        )
    for status in inputs.fresh:
        alike: dict[tuple[str, str], list[admin.GroupStatus]] = {}
        for group in status.groups:
            if group.trouble and (group.group not in leaderless or group.trouble_kind == VOTELESS.name):
                alike.setdefault((group.trouble, group.trouble_kind), []).append(group)
        for (trouble, kind), groups in alike.items():
            numbers = [group.group for group in groups]
            text = f"{_named(numbers)}{f' on {status.node}' if status.node else ''}: {trouble}"
            keys = tuple(f"trouble:{status.node}:{number}" for number in numbers)
            since = min(group.trouble_since for group in groups)
            yield HealthProblem(keys, text, LEVELS[kind_of(kind).severity], "#/cluster", since)
    silent = sorted(inputs.missing - set(leaderless))
    if silent:
        who = "leader of group" if len(silent) == 1 else "leaders of groups"
        does = "does" if len(silent) == 1 else "do"
        text = f"The {who} {listed([str(number) for number in silent])} {does} not answer, their channels are not shown"
        yield HealthProblem(tuple(f"missing:{number}" for number in silent), text, "bad", "#/cluster")


def _named(groups: list[int]) -> str:
    return f"Group{'' if len(groups) == 1 else 's'} {listed([str(number) for number in groups])}"


def _disks(inputs: HealthInputs) -> Iterator[HealthProblem]:
    for status in inputs.fresh:
        if not status.disk_total:
            continue
        percent = 100 * status.disk_free / status.disk_total
        if percent < DISK_PERCENT_WARN:
            where = f" of {status.node}" if status.node else ""
            text = f"The disk{where} is nearly full: {size(status.disk_free)} left"
            yield HealthProblem(
                (f"disk:{status.node}",), text, "bad" if percent < DISK_PERCENT_BAD else "warn", "#/cluster"
            )


def _cursors(inputs: HealthInputs) -> Iterator[HealthProblem]:
    stuck = inputs.stuck
    for cursor, state in stuck[:LISTED_MAX]:
        name = f"{shown(name_of(cursor))} on {shown(cursor.channel)}"
        why = state.text[0].lower() + state.text[1:]
        since = max(int(cursor.oldest_pending), int(cursor.last_ack))
        yield HealthProblem((f"stuck:{name}",), f"{name} is {why}", "warn", "#/durables?state=stuck", since)
    if len(stuck) > LISTED_MAX:
        yield HealthProblem(("stuck",), f"{len(stuck) - LISTED_MAX:,} more are stuck", "warn", "#/durables?state=stuck")


class ProblemTimes:
    """Remembers when each problem was first seen."""

    def __init__(self) -> None:
        self._since: dict[str, int] = {}

    def of(self, found: Iterable[HealthProblem], now: int) -> list[HealthProblem]:
        """Return the problems with the times at which they began, or were first seen; *now*: Unix ns."""
        found = list(found)
        before = self._since
        self._since = {key: problem.since or before.get(key, now) for problem in found for key in problem.keys}
        return [problem._replace(since=min(self._since[key] for key in problem.keys)) for problem in found]
