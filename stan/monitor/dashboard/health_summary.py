"""The health of the cluster in one sentence, and its findings without those that are consequences of others. Pure."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from stan_protocol.admin_types import CursorStatus, NodeStatus
from stan_protocol.units import counted

from stan import limits
from stan.status.findings import GROUP, LEADER, NODE, Finding, check_groups, check_nodes, check_positions, listed
from stan.status.groups import groups_of
from stan.status.positions import name_of
from stan.troubles import Severity

LISTED_MAX: Final = 8
"""Findings of one kind that are listed one by one; one sentence gives the number of the others."""


class HealthInputs(NamedTuple):
    """The data from which the health of the cluster is judged."""

    nodes: list[NodeStatus]  # the last status of each node that is not silent
    answers: list[NodeStatus]  # the status of each node that answered the last round
    members: list[str]  # nodes that hold groups
    missing: dict[str, int]  # member that does not answer -> since when, Unix ns
    deaf: int  # since when this node does not receive its own answer, Unix ns; 0: it does
    own: list[str]  # why this node, which serves the page, is not ready
    pool: int  # number of groups of channels
    stuck: list[CursorStatus]
    lagging: list[CursorStatus]  # the largest lag first; empty: no cursor lags
    subscribed: bool | None  # there are cursors; None: not known at the moment
    unreported: set[int]  # groups whose leaders do not report their subscriptions
    now: int  # Unix ns


def problems(inputs: HealthInputs) -> list[Finding]:
    """Return the problems, the worst first; consequences of one cause are left out."""
    findings = list(_deaf(inputs))  # the other nodes' answers are old
    if not inputs.deaf:
        own = [reason for reason in inputs.own if not inputs.answers or not reason.startswith("group ")]
        of_cluster = [*_own(own), *check_nodes(inputs, since=inputs.missing, reported=inputs.own), *_groups(inputs)]
        lost = list(_lost(inputs))
        findings = lost + [one for one in of_cluster if not lost or one.kind not in (NODE, LEADER, GROUP)]
    findings += [*check_positions(inputs.stuck[:LISTED_MAX], inputs.now), *_more(len(inputs.stuck) - LISTED_MAX)]
    return sorted((one for one in findings if one.severity > Severity.NOTE), key=lambda one: -one.severity)


def sentence(inputs: HealthInputs, findings: list[Finding]) -> str:
    """Return the health of the cluster in one sentence; *findings*: the result of `problems`."""
    answering = len([one for one in inputs.nodes if one.node in inputs.members])
    nodes = f"{answering} of {counted(len(inputs.members), 'node')}"
    if not inputs.nodes:
        return "Nothing is known yet of this cluster" if not findings else findings[0].text
    if not findings:
        groups = f"{'the' if inputs.pool == 0 else f'all {inputs.pool + 1}'} groups have leaders"
        parts = [nodes, groups] if len(inputs.members) > 1 else ["this node is ready"]
        return f"Everything works: {', '.join([*parts, *_worst(inputs)])}."
    others = f" (and {counted(len(findings) - 1, 'more problem')})" if len(findings) > 1 else ""
    return f"{findings[0].text.rstrip('.')}{others}."


def _worst(inputs: HealthInputs) -> Iterator[str]:
    if inputs.lagging:
        lagging = inputs.lagging[0]
        yield f"worst lag {lagging.waiting:,} on {lagging.channel} / {name_of(lagging)}"
    elif inputs.subscribed is not None:
        yield "nobody lags behind" if inputs.subscribed else "nobody is subscribed"


def _lost(inputs: HealthInputs) -> Iterator[Finding]:
    """Find that no group has a majority, because too many nodes are silent."""
    silent, members = inputs.missing, inputs.members
    voters = [set(group.voters) for status in inputs.answers for group in status.groups if group.voters]
    if silent and voters and all(2 * len(each & silent.keys()) >= len(each) for each in voters):
        names = listed([name for name in members if name in silent])
        does = "does" if len(silent) == 1 else "do"
        lost = f"{len(silent)} of {counted(len(members), 'node')} {does} not answer ({names}): nothing is accepted."
        enough = len(members) - (len(members) // 2 + 1)  # failures that a majority survives
        since = sorted(silent.values())[min(enough, len(silent) - 1)]
        yield Finding(Severity.BROKEN, "majority", lost, keys=("majority",), since=since)


def _deaf(inputs: HealthInputs) -> Iterator[Finding]:
    yield from _own(inputs.own)
    if not inputs.own:
        deaf = "This node does not hear itself over NATS: nothing is known of the cluster."
        yield Finding(Severity.BROKEN, NODE, deaf, keys=("deaf",), since=inputs.deaf)


def _own(reasons: list[str]) -> Iterator[Finding]:
    if reasons:
        unready = f"The node you look at is not ready: {listed(reasons[:LISTED_MAX])}."
        yield Finding(Severity.BROKEN, "own", unready, keys=tuple(f"own:{reason}" for reason in reasons))


def _groups(inputs: HealthInputs) -> Iterator[Finding]:
    groups = groups_of(inputs, inputs.pool)
    yield from check_groups(inputs, groups)
    silent = sorted(inputs.unreported & {group.number for group in groups if group.leader})
    if silent:
        who, does = ("leader of group", "does") if len(silent) == 1 else ("leaders of groups", "do")
        numbers = listed([str(number) for number in silent])
        gone = f"The {who} {numbers} {does} not answer, their channels are not shown."
        yield Finding(Severity.BROKEN, GROUP, gone, keys=tuple(f"missing:{number}" for number in silent))


def _more(count: int) -> Iterator[Finding]:
    if count > 0:
        yield Finding(Severity.ATTENTION, "stuck", f"{count:,} more are stuck.", keys=("stuck",))


class FindingTimes:
    """Remembers when each finding was first seen."""

    def __init__(self) -> None:
        self._since: dict[str, int] = {}

    def of(self, findings: Iterable[Finding], now: int) -> list[Finding]:
        """Note the findings of *now* (Unix ns), and return them as `settled` does."""
        findings = list(findings)
        before = self._since
        self._since = {key: one.since or before.get(key, now) for one in findings for key in one.keys or (one.text,)}
        return self.settled(findings, now)

    def settled(self, findings: Iterable[Finding], now: int) -> list[Finding]:
        """Return the findings with their times, the worst first; young ones are no worse than ATTENTION."""
        timed = [
            one._replace(severity=min(one.severity, Severity.ATTENTION))
            if now - one.since < limits.DASHBOARD_RED_AFTER
            else one
            for one in self.known(findings, now)
        ]
        return sorted(timed, key=lambda one: -one.severity)

    def known(self, findings: Iterable[Finding], now: int) -> list[Finding]:
        """Return the findings with the times that `of` has noted; *now* for others."""
        return [
            one._replace(since=min(self._since.get(key, one.since or now) for key in one.keys or (one.text,)))
            for one in findings
        ]
