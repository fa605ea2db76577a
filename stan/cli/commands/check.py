"""`stan check`: whether all is well, for Nagios and everything that understands its exit codes: 0 OK, 1 WARNING, 2 CRITICAL,
3 UNKNOWN (it could not be looked).

One line, then one for each thing that is not well. Thresholds are options; what has none is looked at all the same: groups
without leader, nodes that do not answer or are not ready.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Final

import stan_client
import typer
from stan_client.requests.admin import Nodes
from stan_client.transport.session import text_of
from stan_protocol import units
from stan_protocol.proto import admin_pb2 as pb
from stan_protocol.scalars import SECOND
from stan_protocol.units import counted, format_duration

from stan.cli.commands.cursors import full_name, in_vain, lag, state_of
from stan.cli.support.args import checked_pattern, parsed
from stan.cli.support.common import EXIT_NO_ANSWER, CliError, Target, run
from stan.cli.support.groups import (
    GroupSummary,
    behind,
    format_leaderless,
    groups_of,
    leaderless,
    name_of,
    odd_hashes,
    reasons,
    troubles,
    without_vote,
)
from stan.cli.support.options import View, injected
from stan.cli.support.output import Table, show
from stan.cli.support.session import session
from stan.troubles import Severity

WORDS: Final = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
OK, WARNING, CRITICAL, UNKNOWN = range(4)
SEVERITIES: Final = {Severity.BROKEN: CRITICAL, Severity.ATTENTION: WARNING}
SHOWN_MAX: Final = 50


@dataclass(frozen=True, slots=True)
class Threshold:
    """From where on it is a warning, and from where on critical; None: never."""

    warning: float | None = None
    critical: float | None = None

    def level(self, value: float, *, below: bool = False) -> int:
        """How bad a value is; *below*: small ones are."""
        for level, bound in ((CRITICAL, self.critical), (WARNING, self.warning)):
            if bound is not None and (value <= bound if below else value >= bound):
                return level
        return OK


@dataclass(frozen=True, slots=True)
class Bounds:
    """All thresholds."""

    lag: Threshold = Threshold()
    pending: Threshold = Threshold()
    oldest_ns: Threshold = Threshold()
    replica_lag: Threshold = Threshold()
    disk_percent: Threshold = Threshold()
    nodes: int = 0
    stuck: bool = False


@dataclass(slots=True)
class Findings:
    """What was found."""

    found: list[dict[str, Any]] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)

    def add(self, level: int, what: str, text: str) -> None:
        """One thing; nothing if it is well."""
        if level != OK:
            self.found.append({"level": WORDS[level], "what": what, "text": text})

    @property
    def level(self) -> int:
        """The worst of it."""
        return max((WORDS.index(one["level"]) for one in self.found), default=OK)


@partial(injected, usage_exit=UNKNOWN)
def check(
    channel: Annotated[str, typer.Option("--channel", help="Only channels that match: orders.>")] = ">",
    name: Annotated[str, typer.Option("--name", help="Only this durable or queue group.")] = "",
    lag: Annotated[str, typer.Option(metavar="W,C", help="Messages not acked by a durable or group: 1000,10000.")] = "",
    pending: Annotated[str, typer.Option(metavar="W,C", help="Messages sent and not acked.")] = "",
    oldest: Annotated[str, typer.Option(metavar="W,C", help="Age of the oldest unacked one: 5m,1h.")] = "",
    replica_lag: Annotated[str, typer.Option(metavar="W,C", help="Entries that a copy is behind.")] = "",
    disk: Annotated[str, typer.Option(metavar="W,C", help="Percent of the disk that are free, at least.")] = "15,5",
    nodes: Annotated[int, typer.Option(min=0, help="So many nodes there should be.")] = 0,
    stuck: Annotated[bool, typer.Option("--stuck", help="Critical if messages wait in vain for somebody.")] = False,  # noqa: FBT002
    *,
    target: Target,
    view: View,
) -> None:
    """Whether all is well: exit code 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.

    Thresholds are WARNING,CRITICAL; one number is the critical one: stan check --lag 1000,10000 --oldest 5m,1h --nodes 3
    """
    checked_pattern(channel)
    bounds = Bounds(
        lag=_threshold("--lag", lag),
        pending=_threshold("--pending", pending),
        oldest_ns=_threshold("--oldest", oldest, units.duration_ns),
        replica_lag=_threshold("--replica-lag", replica_lag),
        disk_percent=_threshold("--disk", disk, below=True),
        nodes=nodes,
        stuck=stuck,
    )
    run(_check(target, channel, name, bounds, view))


def _threshold(option: str, text: str, parse: Any = units.number, *, below: bool = False) -> Threshold:
    if not text:
        return Threshold()
    try:
        found = [parsed(option, parse, part) if part else None for part in text.split(",")]
    except CliError as error:
        raise CliError(str(error), UNKNOWN) from None
    if len(found) > 2:
        raise CliError(f"{option} is WARNING,CRITICAL, or the critical one alone.", UNKNOWN)
    known = [bound for bound in found if bound is not None]
    if known != sorted(known, reverse=below):
        raise CliError(f"{option} is WARNING,CRITICAL: {text} is critical before it is a warning.", UNKNOWN)
    return Threshold(*found) if len(found) == 2 else Threshold(critical=found[0])


async def _check(target: Target, channel: str, name: str, bounds: Bounds, view: View) -> int:
    findings = Findings()
    try:
        async with session(target) as direct:
            await look(direct, channel, name, bounds, findings)
    except CliError as error:
        level = CRITICAL if error.code == EXIT_NO_ANSWER else UNKNOWN
        findings.add(level, "connection", str(error).replace("\n", "; "))
    except Exception as error:  # noqa: BLE001 - a monitoring system needs a line and UNKNOWN, whatever it is
        findings.add(UNKNOWN, "check", f"it could not be looked: {type(error).__name__}: {error}")
    show(findings_table(findings), view)
    return findings.level


async def look(direct: stan_client.Direct, channel: str, name: str, bounds: Bounds, findings: Findings) -> None:
    """Ask, and hold what is answered against the bounds. The nodes first: they answer when groups do not."""
    nodes = await direct.admin.nodes()
    judge_nodes(nodes, bounds, findings)
    if leaderless(groups_of(nodes)):
        return  # who leads nothing does not answer
    cursors = await direct.admin.subscriptions(channel, name=name)
    if name and not cursors:
        findings.add(CRITICAL, "name", f"there is no durable or queue group {name!r} in {channel}")
    judge_cursors(cursors, bounds, findings, time.time_ns())


def judge_nodes(nodes: Nodes, bounds: Bounds, findings: Findings) -> None:
    """Nodes and disks, then groups."""
    findings.figures["nodes"] = len(nodes.answers)
    for missing in nodes.missing:
        findings.add(CRITICAL, "nodes", f"node {missing} does not answer")
    if len(nodes.answers) < bounds.nodes:
        findings.add(CRITICAL, "nodes", f"{len(nodes.answers)} of {bounds.nodes} nodes answer")
    for node in nodes.answers:
        for reason in reasons(node):
            findings.add(WARNING, "nodes", f"node {name_of(node)} is not ready: {reason}")
        if node.disk_total:
            free = 100 * node.disk_free / node.disk_total
            findings.figures[f"disk_free_{name_of(node).strip('()')}"] = round(free, 1)
            findings.add(
                bounds.disk_percent.level(free, below=True),
                "disk",
                f"node {name_of(node)}: {free:.1f}% of the disk is free",
            )
    judge_groups(groups_of(nodes), bounds, findings)


def judge_groups(groups: list[GroupSummary], bounds: Bounds, findings: Findings) -> None:
    """Leaders and copies."""
    without = leaderless(groups)
    findings.figures["groups_without_leader"] = len(without)
    if without:
        findings.add(CRITICAL, "groups", f"{format_leaderless(groups)}. {without_vote(groups)}".rstrip(". "))
    for group in groups:
        missing = behind(group)
        findings.add(
            bounds.replica_lag.level(missing), "replicas", f"group {group.number}: a copy is {missing:,} entries behind"
        )
        if odd_hashes(group):
            findings.add(CRITICAL, "replicas", f"group {group.number}: copies that applied the same differ")
        for node_name, trouble in troubles(group):
            level = SEVERITIES[trouble.kind.severity]
            findings.add(level, "groups", f"group {group.number} on {node_name}: {trouble.text}")


def judge_cursors(found: Iterable[pb.CursorStatus], bounds: Bounds, findings: Findings, now_ns: int) -> None:
    """Durables, queue groups and subscriptions."""
    worst = {"lag": 0.0, "pending": 0.0, "oldest_s": 0.0}
    for cursor in found:
        who = f"{text_of(cursor.channel)} {full_name(cursor)}"
        state, behind_by = state_of(cursor, now_ns), lag(cursor)
        age = now_ns - cursor.oldest_pending if cursor.oldest_pending else 0
        worst["lag"] = max(worst["lag"], behind_by)
        worst["pending"] = max(worst["pending"], cursor.pending)
        worst["oldest_s"] = max(worst["oldest_s"], round(age / SECOND, 1))
        findings.add(bounds.lag.level(behind_by), "lag", f"{who} is {counted(behind_by, 'message')} behind ({state})")
        findings.add(
            bounds.pending.level(cursor.pending),
            "pending",
            f"{who} has {counted(cursor.pending, 'message')} unacked ({state})",
        )
        findings.add(
            bounds.oldest_ns.level(age),
            "oldest",
            f"{who}: the oldest unacked message was sent {format_duration(age)} ago",
        )
        if bounds.stuck and in_vain(cursor, now_ns):
            findings.add(CRITICAL, "stuck", f"{who} is {state}, {counted(behind_by, 'message')} wait")
    findings.figures |= worst


def findings_table(findings: Findings) -> Table:
    """One line, then what is not well, the worst first; figures behind a bar, as Nagios wants them."""
    word = WORDS[findings.level]
    ordered = sorted(findings.found, key=lambda one: -WORDS.index(one["level"]))
    told = "; ".join(one["text"] for one in ordered[:3]) + ("; ..." if len(ordered) > 3 else "")
    figures = " ".join(f"{key}={value:g}" for key, value in findings.figures.items())
    head = f"STAN {word} - {told or 'all is well'}" + (f" | {figures}" if figures else "")
    rows = [(one["level"], one["text"]) for one in ordered[:SHOWN_MAX]] if len(ordered) > 3 else []
    return Table(
        rows=rows,
        document={"status": word, "found": ordered, "figures": findings.figures},
        names=[one["text"] for one in ordered],
        head=head,
        empty="",
    )
