"""`stan doctor`: one page of problems, with remedies; the worst first.

Exit code 0: no problem. 1: some problem. 3, 4: NATS, or the servers, cannot be reached.
"""

import time
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Final

import stan_client
import typer
from stan_protocol.secure import without_secrets
from stan_protocol.units import counted, format_age, format_size

from stan.cli.commands.bug_report import write_bundle
from stan.cli.support.common import EXIT_FAILED, EXIT_USAGE, CliError, Target, run
from stan.cli.support.options import View, injected
from stan.cli.support.output import Table, show
from stan.cli.support.proto_json import set_time
from stan.cli.support.session import session
from stan.status import findings
from stan.status.findings import Finding
from stan.status.groups import commits_of, groups_of, leaderless
from stan.troubles import Severity

LEVELS: Final = {Severity.BROKEN: "broken", Severity.ATTENTION: "attention", Severity.NOTE: "note"}
SHOWN_EACH: Final = 5
"""Of the same kind; the rest is counted."""


@injected
def doctor(
    bundle: Annotated[
        Path | None,
        typer.Option("--bundle", dir_okay=False, help="Also write what a bug report needs into this file, a .zip."),
    ] = None,
    *,
    target: Target,
    view: View,
) -> None:
    """Look at everything, and say what is wrong and what to do.

    The file of --bundle has answers of the servers: names of channels, clients and durables, and options without passwords, but
    no message and no key of one.
    """
    if bundle is not None and bundle.exists():
        raise CliError(f"--bundle: {bundle} exists.", EXIT_USAGE)

    async def main() -> int:
        began = time.monotonic()
        async with session(target) as direct:
            connected_ms = 1000 * (time.monotonic() - began)
            well = [f"NATS answers at {without_secrets(target.server)} ({connected_ms:.0f} ms)"]
            what = await _findings(direct, target, well)
            table = doctor_table(what, well, time.time_ns())
            if bundle is not None:
                await write_bundle(direct, bundle, document_of_findings(what, well))
        show(table, view)
        return EXIT_FAILED if any(one.severity > Severity.NOTE for one in what) else 0

    run(main())


async def _findings(direct: stan_client.Direct, target: Target, well: list[str]) -> list[Finding]:
    nodes = await direct.admin.nodes()
    groups, now = groups_of(nodes), time.time_ns()
    what = [*findings.check_nodes(nodes), *findings.check_settings(nodes), *findings.check_groups(nodes, groups)]
    what += [
        *findings.check_replica_lag(groups),
        *findings.check_places(nodes, groups),
        *findings.check_clocks(nodes, now),
    ]
    if leaderless(groups):
        well.append("channels and durables were not looked at: groups have no leader")
    else:
        channels = await direct.admin.channels()
        cursors = await direct.admin.subscriptions()
        clients = await direct.admin.clients()
        messages, size = sum(one.messages for one in channels), sum(one.bytes for one in channels)
        well.append(f"{counted(len(channels), 'channel')}, {counted(messages, 'message')}, {format_size(size)}")
        positions = counted(len(cursors), "subscription, durable or group", "subscriptions, durables and groups")
        well.append(f"{counted(len(clients), 'client')}, {positions}")
        now = time.time_ns()
        what += [*findings.check_channels(channels), *findings.check_parts(channels, cursors, commits_of(groups), now)]
        what += [*findings.check_positions(cursors, now), *findings.check_clients(clients)]
        what += findings.check_pins(await direct.admin.pins())
    answer = "answers" if len(nodes.answers) == 1 else "answer"
    well.append(f"{counted(len(nodes.answers), 'node')} of cluster {target.cluster_id} {answer}")
    return sorted(what, key=lambda one: -one.severity)


def doctor_table(what: list[Finding], well: list[str], now_ns: int) -> Table:
    """Return the page."""
    counts: Counter[str] = Counter()
    rows: list[tuple[str, ...]] = []
    for one in what:
        counts[one.kind] += 1
        if counts[one.kind] <= SHOWN_EACH:
            since = f" (since {format_age(one.since, now_ns)})" if one.since else ""
            rows.append((LEVELS[one.severity], f"{one.text.removesuffix('.')}{since}."))
            rows += [("", f"-> {one.step}")] if one.step else []
    rows += [("", f"and {count - SHOWN_EACH} more: {kind}") for kind, count in counts.items() if count > SHOWN_EACH]
    rows += [("ok", line) for line in well]
    needs = sum(one.severity > Severity.NOTE for one in what)
    return Table(
        rows=rows,
        document=document_of_findings(what, well),
        names=[one.text for one in what],
        head=f"{counted(needs, 'thing needs', 'things need')} attention." if needs else "All is well.",
    )


def document_of_findings(what: list[Finding], well: list[str]) -> dict[str, Any]:
    """Return the page as a JSON document."""
    findings = []
    for one in what:
        found = {"level": LEVELS[one.severity], "kind": one.kind, "text": one.text, "step": one.step}
        set_time(found, "since", one.since)
        findings.append(found)
    return {"well": not any(one.severity > Severity.NOTE for one in what), "findings": findings, "looked_at": well}
