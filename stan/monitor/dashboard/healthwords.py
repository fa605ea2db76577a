"""Whether the cluster is well, in one sentence, and if not what is wrong and since when. Pure.

A problem is `bad` if something is not served, `warn` if it will be, or if nobody but one durable suffers.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from stan.monitor.dashboard.states import State, name_of
from stan.monitor.dashboard.wording import count, listed, size
from stan.protocol import admin_pb2 as admin

DISK_PERCENT_WARN: Final = 10
DISK_PERCENT_BAD: Final = 3
"""Room left on a disk."""
TOLD_MAX: Final = 8
"""Problems of one kind that are told one by one."""


class Problem(NamedTuple):
    """Something that is not as it should be; *key* stays the same while it is."""

    key: str
    text: str
    level: str
    link: str = ""  # page that tells more
    since: int = 0  # Unix ns; 0: since when is not in what was seen


class Picture(NamedTuple):
    """What health is judged by."""

    nodes: list[admin.NodeStatus]  # that answer
    members: list[str]
    silent: list[str]
    own: list[str]  # why the node that is asked is not ready itself
    pool: int  # groups of channels
    stuck: list[tuple[admin.CursorStatus, State]]
    lagging: list[tuple[admin.CursorStatus, State]]  # furthest behind first; empty: nobody is
    subscribed: bool  # whether there is anybody at all
    missing: set[int]  # groups without an answer when their channels were asked for


def problems(picture: Picture) -> list[Problem]:
    """Everything that is wrong, worst first."""
    found = [*_nodes(picture), *_groups(picture), *_disks(picture), *_cursors(picture)]
    return sorted(found, key=lambda problem: problem.level != "bad")


def sentence(picture: Picture, found: list[Problem]) -> str:
    """What people read first."""
    answering = len([one for one in picture.nodes if one.node in picture.members])
    nodes = f"{answering} of {count(len(picture.members), 'node')}"
    if not picture.nodes:
        return "Nothing is known yet of this cluster" if not found else found[0].text
    if not found:
        groups = f"{'the' if picture.pool == 0 else f'all {picture.pool + 1}'} groups have leaders"
        parts = [nodes, groups] if len(picture.members) > 1 else ["this node is ready"]
        return f"Everything works: {', '.join([*parts, _worst(picture)])}."
    worst = found[0].text.rstrip(".")
    others = f" (and {count(len(found) - 1, 'more problem')})" if len(found) > 1 else ""
    return f"{worst}{others}."


def _worst(picture: Picture) -> str:
    if not picture.lagging:
        return "nobody lags behind" if picture.subscribed else "nobody is subscribed"
    lagging = picture.lagging[0][0]
    return f"worst lag {lagging.waiting:,} on {_text(lagging.channel)} / {_text(name_of(lagging))}"


def _nodes(picture: Picture) -> Iterator[Problem]:
    for text in picture.own:
        yield Problem(f"own:{text}", f"The node you look at is not ready: {text}", "bad", "#/cluster")
    for name in picture.silent:
        yield Problem(f"node:{name}", f"Node {name or '(this one)'} does not answer", "bad", "#/cluster")
    for status in picture.nodes:
        if status.not_ready and not (picture.own and len(picture.nodes) == 1):
            text = f"Node {status.node or '(this one)'} is not ready: {listed(list(status.not_ready)[:TOLD_MAX])}"
            yield Problem(f"ready:{status.node}", text, "bad", "#/cluster")


def _groups(picture: Picture) -> Iterator[Problem]:
    if not picture.nodes:
        return
    led = {group.group for status in picture.nodes for group in status.groups if group.role == "leader"}
    leaderless = sorted(set(range(picture.pool + 1)) - led)
    if leaderless:
        numbers = listed([f"{number}" for number in leaderless])
        text = f"Group {numbers} has no leader" if len(leaderless) == 1 else f"Groups {numbers} have no leaders"
        yield Problem(f"leader:{numbers}", text, "bad", "#/cluster")
    for status in picture.nodes:
        for group in status.groups:
            if group.trouble:
                where = f"Group {group.group}" + (f" on {status.node}" if status.node else "")
                yield Problem(f"trouble:{status.node}:{group.group}", f"{where}: {group.trouble}", "bad", "#/cluster")
    silent = sorted(picture.missing - set(leaderless))
    if silent:
        text = (
            f"The {'leader of group' if len(silent) == 1 else 'leaders of groups'} {listed([str(n) for n in silent])}"
        )
        text += f" {'does' if len(silent) == 1 else 'do'} not answer, their channels are not shown"
        yield Problem("missing", text, "bad", "#/cluster")


def _disks(picture: Picture) -> Iterator[Problem]:
    for status in picture.nodes:
        if not status.disk_total:
            continue
        percent = 100 * status.disk_free / status.disk_total
        if percent < DISK_PERCENT_WARN:
            where = f" of {status.node}" if status.node else ""
            text = f"The disk{where} is nearly full: {size(status.disk_free)} left"
            yield Problem(f"disk:{status.node}", text, "bad" if percent < DISK_PERCENT_BAD else "warn", "#/cluster")


def _cursors(picture: Picture) -> Iterator[Problem]:
    stuck = picture.stuck
    for cursor, state in stuck[:TOLD_MAX]:
        name = f"{_text(name_of(cursor))} on {_text(cursor.channel)}"
        why = state.text[0].lower() + state.text[1:]
        since = max(int(cursor.oldest_pending), int(cursor.last_ack))
        yield Problem(f"stuck:{name}", f"{name} is {why}", "warn", "#/durables?state=stuck", since)
    if len(stuck) > TOLD_MAX:
        yield Problem("stuck", f"{len(stuck) - TOLD_MAX:,} more are stuck", "warn", "#/durables?state=stuck")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


class Since:
    """Since when each problem is there, as far as it was looked at."""

    def __init__(self) -> None:
        self._since: dict[str, int] = {}

    def of(self, found: Iterable[Problem], now: int) -> list[Problem]:
        """The same with moments; *now* Unix ns."""
        found = list(found)
        self._since = {problem.key: problem.since or self._since.get(problem.key, now) for problem in found}
        return [problem._replace(since=self._since[problem.key]) for problem in found]
