"""The health of the cluster in one sentence, and its problems with the time since when each is there. Pure.

A problem is `bad` if something is not served, `warn` if it will be, or if nobody but one durable suffers.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from stan.monitor.dashboard.cursor_state import CursorState, name_of
from stan.monitor.dashboard.formatting import listed
from stan.protocol.proto import admin_pb2 as admin
from stan.units import counted, size

DISK_PERCENT_WARN: Final = 10
DISK_PERCENT_BAD: Final = 3
"""Room left on a disk."""
LISTED_MAX: Final = 8
"""Problems of one kind that are listed one by one; a sentence sums up the rest."""


class HealthProblem(NamedTuple):
    """Something that is not as it should be; each of *keys* stays the same while it is."""

    keys: tuple[str, ...]
    text: str
    level: str
    link: str = ""  # page that tells more
    since: int = 0  # Unix ns; 0: since when is not in what was seen


class HealthInputs(NamedTuple):
    """Everything that the health of the cluster is judged by."""

    nodes: list[admin.NodeStatus]  # that answer
    fresh: list[admin.NodeStatus]  # of these, who answered when asked last
    members: list[str]
    silent: dict[str, int]  # members that do not answer, and since when, Unix ns
    deaf: int  # since when the node that asks does not hear itself, Unix ns; 0: it does
    own: list[str]  # why the node that is asked is not ready itself
    pool: int  # groups of channels
    stuck: list[tuple[admin.CursorStatus, CursorState]]
    lagging: list[tuple[admin.CursorStatus, CursorState]]  # furthest behind first; empty: nobody is
    subscribed: bool | None  # whether there is anybody at all; None: not known at the moment
    missing: set[int]  # groups that do not answer when their channels are asked for


def problems(inputs: HealthInputs) -> list[HealthProblem]:
    """Everything that is wrong, worst first; what one cause explains is told once."""
    lost = _lost(inputs)
    if inputs.deaf:
        found = [*_deaf(inputs), *_cursors(inputs)]  # what others said is from before
    elif lost is not None:
        found = [lost, *_disks(inputs), *_cursors(inputs)]
    else:
        found = [*_nodes(inputs), *_groups(inputs), *_disks(inputs), *_cursors(inputs)]
    return sorted(found, key=lambda problem: problem.level != "bad")


def sentence(inputs: HealthInputs, found: list[HealthProblem]) -> str:
    """What people read first."""
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
        yield f"worst lag {lagging.waiting:,} on {_text(lagging.channel)} / {_text(name_of(lagging))}"
    elif inputs.subscribed is not None:
        yield "nobody lags behind" if inputs.subscribed else "nobody is subscribed"


def _lost(inputs: HealthInputs) -> HealthProblem | None:
    """So many nodes are silent that no group has a majority."""
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
    """Why a node is not ready, without what is told of its groups anyway (`stan.monitor.health`)."""
    return [reason for reason in reasons if not reason.startswith("group ")]


def _groups(inputs: HealthInputs) -> Iterator[HealthProblem]:
    if not inputs.fresh:
        return
    there = {status.node for status in inputs.nodes}
    led = {
        group.group  # of two that answer one after the other neither leads if leadership went over meanwhile
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
        troubles: dict[str, list[int]] = {}
        for group in status.groups:
            if group.trouble and group.group not in leaderless:
                troubles.setdefault(group.trouble, []).append(group.group)
        for trouble, numbers in troubles.items():
            text = f"{_named(numbers)}{f' on {status.node}' if status.node else ''}: {trouble}"
            keys = tuple(f"trouble:{status.node}:{number}" for number in numbers)
            yield HealthProblem(keys, text, "bad", "#/cluster")
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
        name = f"{_text(name_of(cursor))} on {_text(cursor.channel)}"
        why = state.text[0].lower() + state.text[1:]
        since = max(int(cursor.oldest_pending), int(cursor.last_ack))
        yield HealthProblem((f"stuck:{name}",), f"{name} is {why}", "warn", "#/durables?state=stuck", since)
    if len(stuck) > LISTED_MAX:
        yield HealthProblem(("stuck",), f"{len(stuck) - LISTED_MAX:,} more are stuck", "warn", "#/durables?state=stuck")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


class ProblemTimes:
    """Since when each problem is there, as far as it was looked at."""

    def __init__(self) -> None:
        self._since: dict[str, int] = {}

    def of(self, found: Iterable[HealthProblem], now: int) -> list[HealthProblem]:
        """The same with moments; *now* Unix ns."""
        found = list(found)
        before = self._since
        self._since = {key: problem.since or before.get(key, now) for problem in found for key in problem.keys}
        return [problem._replace(since=min(self._since[key] for key in problem.keys)) for problem in found]
