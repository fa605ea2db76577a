"""`stan check`: the health of a cluster, for Nagios and other users of its exit codes: 0 OK, 1 WARNING, 2 CRITICAL,
3 UNKNOWN (the check failed).

One line, then one for each problem. Thresholds are options; problems without one are reported, too: groups
without leader, nodes that do not answer or are not ready.
"""

import base64
import json
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Final

import stan_client
import typer
from stan_client.requests.admin import Nodes
from stan_protocol import units
from stan_protocol.admin_types import CursorStatus
from stan_protocol.scalars import SECOND
from stan_protocol.units import counted, format_duration

from stan.cli.support.args import checked_pattern, parsed
from stan.cli.support.common import EXIT_NO_ANSWER, CliError, Target, run
from stan.cli.support.options import View, injected
from stan.cli.support.output import Table, show
from stan.cli.support.session import session
from stan.status.findings import DISK_PERCENT, NODE, Threshold, check_groups, check_nodes, check_replica_lag
from stan.status.groups import groups_of, leaderless, node_name
from stan.status.positions import STUCK, full_name, in_vain, lag, state_of
from stan.troubles import Severity

WORDS: Final = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
OK, WARNING, CRITICAL, UNKNOWN = range(4)
LEVELS: Final = {Severity.FINE: OK, Severity.NOTE: OK, Severity.ATTENTION: WARNING, Severity.BROKEN: CRITICAL}
SHOWN_MAX: Final = 50
NO_BOUND: Final = Threshold()
EXPIRY: Final = "14d,2d"
_TOKEN: Final = re.compile(r"BEGIN NATS USER JWT-+\s+[\w-]+\.([\w-]+)\.")
DISK: Final = f"{DISK_PERCENT.attention:g},{DISK_PERCENT.broken:g}"


@dataclass(frozen=True, slots=True)
class Bounds:
    """All thresholds."""

    lag: Threshold = NO_BOUND
    pending: Threshold = NO_BOUND
    oldest_ns: Threshold = NO_BOUND
    replica_lag: Threshold = NO_BOUND
    disk_percent: Threshold = DISK_PERCENT
    expiry_ns: Threshold = NO_BOUND
    nodes: int = 0
    stuck: bool = False


@dataclass(slots=True)
class Result:
    """The things that are not well, and figures."""

    things: list[dict[str, Any]] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)

    def add(self, level: int, what: str, text: str) -> None:
        """Add one thing; nothing if it is well."""
        if level != OK:
            self.things.append({"level": WORDS[level], "what": what, "text": text})

    @property
    def level(self) -> int:
        """The worst of it."""
        return max((WORDS.index(one["level"]) for one in self.things), default=OK)


@partial(injected, usage_exit=UNKNOWN)
def check(
    channel: Annotated[str, typer.Option("--channel", help="Only channels that match: orders.>")] = ">",
    name: Annotated[str, typer.Option("--name", help="Only this durable or queue group.")] = "",
    lag: Annotated[str, typer.Option(metavar="W,C", help="Messages not acked by a durable or group: 1000,10000.")] = "",
    pending: Annotated[str, typer.Option(metavar="W,C", help="Messages sent and not acked.")] = "",
    oldest: Annotated[str, typer.Option(metavar="W,C", help="Age of the oldest unacked one: 5m,1h.")] = "",
    replica_lag: Annotated[str, typer.Option(metavar="W,C", help="Entries that a copy is behind.")] = "",
    disk: Annotated[str, typer.Option(metavar="W,C", help="Minimum free disk, percent.")] = DISK,
    expiry: Annotated[
        str, typer.Option(metavar="W,C", help="Time that the certificate of NATS and --creds are still valid.")
    ] = EXPIRY,
    nodes: Annotated[int, typer.Option(min=0, help="Expected number of nodes.")] = 0,
    stuck: Annotated[bool, typer.Option("--stuck", help="Critical if a durable is stuck or offline.")] = False,  # noqa: FBT002
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
        expiry_ns=_threshold("--expiry", expiry, units.duration_ns, below=True),
        nodes=nodes,
        stuck=stuck,
    )
    run(_check(target, channel, name, bounds, view))


def _threshold(option: str, text: str, parse: Any = units.number, *, below: bool = False) -> Threshold:
    if not text:
        return Threshold()
    try:
        bounds = [parsed(option, parse, part) if part else None for part in text.split(",")]
    except CliError as error:
        raise CliError(str(error), UNKNOWN) from None
    if len(bounds) > 2:
        raise CliError(f"{option} is WARNING,CRITICAL, or the critical one alone.", UNKNOWN)
    known = [bound for bound in bounds if bound is not None]
    if known != sorted(known, reverse=below):
        raise CliError(f"{option} is WARNING,CRITICAL: {text} is critical before it is a warning.", UNKNOWN)
    return Threshold(*bounds) if len(bounds) == 2 else Threshold(broken=bounds[0])


async def _check(target: Target, channel: str, name: str, bounds: Bounds, view: View) -> int:
    result = Result()
    try:
        async with session(target) as direct:
            judge_expiry(expiries(direct, target), bounds, result, time.time_ns())
            await look(direct, channel, name, bounds, result)
    except CliError as error:
        level = CRITICAL if error.code == EXIT_NO_ANSWER else UNKNOWN
        result.add(level, "connection", str(error).replace("\n", "; "))
    except Exception as error:  # noqa: BLE001 - a monitoring system needs a line and UNKNOWN, whatever it is
        result.add(UNKNOWN, "check", f"it could not be looked: {type(error).__name__}: {error}")
    show(result_table(result), view)
    return result.level


async def look(direct: stan_client.Direct, channel: str, name: str, bounds: Bounds, result: Result) -> None:
    """Ask, and compare the answers with the bounds. The nodes first: they answer when groups do not."""
    nodes = await direct.admin.nodes()
    judge_nodes(nodes, bounds, result)
    if leaderless(groups_of(nodes)):
        return  # the next request would time out
    cursors = await direct.admin.subscriptions(channel, name=name)
    if name and not cursors:
        result.add(CRITICAL, "name", f"there is no durable or queue group {name!r} in {channel}")
    judge_cursors(cursors, bounds, result, time.time_ns())


def judge_nodes(nodes: Nodes, bounds: Bounds, result: Result) -> None:
    """Nodes and disks, then groups."""
    groups = groups_of(nodes)
    result.figures["nodes"] = len(nodes.answers)
    if len(nodes.answers) < bounds.nodes:
        result.add(CRITICAL, NODE, f"{len(nodes.answers)} of {bounds.nodes} nodes answer")
    for node in nodes.answers:
        if node.disk_total:
            free = 100 * node.disk_free / node.disk_total
            result.figures[f"disk_free_{node_name(node).strip('()')}"] = round(free, 1)
    result.figures["groups_without_leader"] = len(leaderless(groups))
    lag = check_replica_lag(groups, bounds.replica_lag)
    for one in (*check_nodes(nodes, bounds.disk_percent), *check_groups(nodes, groups), *lag):
        result.add(LEVELS[one.severity], one.kind, one.text.removesuffix("."))


def expiries(direct: stan_client.Direct, target: Target) -> dict[str, int]:
    """Return the ends of logins, Unix ns, by name; those without an end are left out."""
    ends = {"the certificate of NATS": direct.certificate_until_ns}
    if target.creds is not None:
        ends[f"the login in {target.creds}"] = login_until_ns(target.creds.read_text(errors="replace"))
    return {what: until for what, until in ends.items() if until}


def login_until_ns(credentials: str) -> int:
    """Return the end of a credentials file's login, Unix ns; 0: it has none, or it cannot be read."""
    token = _TOKEN.search(credentials)
    try:
        claims = json.loads(base64.urlsafe_b64decode(token[1] + "==")) if token is not None else {}
        return int(claims.get("exp", 0)) * SECOND
    except (ValueError, TypeError, AttributeError):
        return 0


def judge_expiry(ends: dict[str, int], bounds: Bounds, result: Result, now_ns: int) -> None:
    """Certificates and credentials that end soon, or have ended."""
    for what, until in ends.items():
        left = until - now_ns
        text = f"{what} ends in {format_duration(left)}" if left > 0 else f"{what} has ended"
        result.add(LEVELS[bounds.expiry_ns.severity(left, below=True)], "expiry", text)


def judge_cursors(cursors: Iterable[CursorStatus], bounds: Bounds, result: Result, now_ns: int) -> None:
    """Durables, queue groups and subscriptions."""
    worst = {"lag": 0.0, "pending": 0.0, "oldest_s": 0.0}
    for cursor in cursors:
        who = f"{cursor.channel} {full_name(cursor)}"
        state, behind = state_of(cursor, now_ns).word, lag(cursor)
        age = now_ns - cursor.oldest_pending if cursor.oldest_pending else 0
        worst["lag"] = max(worst["lag"], behind)
        worst["pending"] = max(worst["pending"], cursor.pending)
        worst["oldest_s"] = max(worst["oldest_s"], round(age / SECOND, 1))
        unacked = f"{who} has {counted(cursor.pending, 'message')} unacked ({state})"
        oldest = f"{who}: the oldest unacked message was sent {format_duration(age)} ago"
        for what, bound, value, text in (
            ("lag", bounds.lag, behind, f"{who} is {counted(behind, 'message')} behind ({state})"),
            ("pending", bounds.pending, cursor.pending, unacked),
            ("oldest", bounds.oldest_ns, age, oldest),
        ):
            result.add(LEVELS[bound.severity(value)], what, text)
        if bounds.stuck and in_vain(cursor, now_ns):
            result.add(CRITICAL, STUCK, f"{who}: {state}, {counted(behind, 'message')} wait")
    result.figures |= worst


def result_table(result: Result) -> Table:
    """Return one line, then the problems, the worst first; figures after a bar, in Nagios' format."""
    word = WORDS[result.level]
    ordered = sorted(result.things, key=lambda one: -WORDS.index(one["level"]))
    summary = "; ".join(one["text"] for one in ordered[:3]) + ("; ..." if len(ordered) > 3 else "")
    figures = " ".join(f"{key}={value:g}" for key, value in result.figures.items())
    head = f"STAN {word} - {summary or 'all is well'}" + (f" | {figures}" if figures else "")
    rows = [(one["level"], one["text"]) for one in ordered[:SHOWN_MAX]] if len(ordered) > 3 else []
    return Table(
        rows=rows,
        document={"status": word, "found": ordered, "figures": result.figures},
        names=[one["text"] for one in ordered],
        head=head,
        empty="",
    )
