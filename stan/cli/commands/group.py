"""`stan group`: the groups of channels, their leaders, their copies, and how far these are."""

from typing import Annotated

import stan_client
import typer
from stan_client.requests.admin import Nodes
from stan_protocol import units

from stan.cli.support.args import parsed
from stan.cli.support.common import EXIT_USAGE, CliError, Target, group_of_commands
from stan.cli.support.options import Confirmation, View, injected
from stan.cli.support.output import Table, done
from stan.cli.support.proto_json import document_of
from stan.cli.support.session import look, on_cluster
from stan.policies import COMMITS, SYNCED
from stan.status.findings import check_leaders
from stan.status.groups import (
    GroupSummary,
    behind,
    format_growth,
    format_moves,
    groups_of,
    odd_hashes,
    pool_of,
)

app = group_of_commands(
    "Groups: each holds a share of the channels, has one leader and copies on other nodes. Group 0 is the metadata."
)


@app.command("list")
@injected
def list_(*, target: Target, view: View) -> None:
    """Leader, term, copies and their lag of each group."""

    async def table(direct: stan_client.Direct) -> Table:
        return groups_table(await direct.admin.nodes())

    look(target, view, table)


def _kind(group: GroupSummary) -> str:
    commit = max((status.commit for _, status in group.copies), default=0)
    kind = "metadata" if not group.number else COMMITS[commit] if SYNCED < commit < len(COMMITS) else ""
    return f" ({kind})" if kind else ""


def groups_table(nodes: Nodes) -> Table:
    """Return groups, one a line."""
    groups = groups_of(nodes)
    rows = []
    for group in groups:
        voters = sorted({voter for _, status in group.copies for voter in status.voters})
        trouble = [f"{node}: {status.trouble}" for node, status in group.copies if status.trouble]
        trouble += ["states differ"] if odd_hashes(group) else []
        rows.append(
            (
                f"{group.number}{_kind(group)}",
                group.leader or "NONE",
                f"{group.term:,}",
                f"{max((status.committed for _, status in group.copies), default=0):,}",
                f"{behind(group):,}",
                ", ".join(voters or [node for node, _ in group.copies]),
                "; ".join(trouble),
            )
        )
    document = {
        "groups": [
            {
                "group": group.number,
                "leader": group.leader,
                "term": group.term,
                "lag": behind(group),
                "copies": [{"node": node, **document_of(status)} for node, status in group.copies],
            }
            for group in groups
        ],
        "pool": pool_of(nodes).groups,
        "pool_open": pool_of(nodes).opened,
        "channels_to_move": pool_of(nodes).to_move,
        "moves_paused": pool_of(nodes).paused,
        "missing": nodes.missing,
    }
    foot = [line for leaders in check_leaders(groups) for line in (leaders.text, leaders.step)]
    foot += [line for line in (format_growth(nodes), format_moves(nodes)) if line]
    foot += [f"Nodes that do not answer: {', '.join(nodes.missing)}."] if nodes.missing else []
    return Table(
        columns=("group", "leader", ">term", ">committed", ">lag", "voters", "trouble"),
        rows=rows,
        document=document,
        names=[str(group.number) for group in groups],
        foot=" ".join(foot),
    )


@app.command("step-down")
@injected
def step_down(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Number; 0: the metadata.")],
    to: Annotated[str, typer.Option("--to", help="The node that shall lead; without it, whoever is best.")] = "",
    *,
    target: Target,
    confirmation: Confirmation,
) -> None:
    """Have a group's leader hand over to another node."""
    number = parsed("GROUP", units.number, group)

    async def main(direct: stan_client.Direct) -> None:
        groups = {one.number: one for one in groups_of(await direct.admin.nodes())}
        if number not in groups:
            raise CliError(f"There is no group {number}; there are 0 to {max(groups, default=0)}.", EXIT_USAGE)
        status = groups[number]
        if to and to not in {node for node, _ in status.copies}:
            nodes = ", ".join(node for node, _ in status.copies)
            raise CliError(f"Node {to!r} has no copy of group {number}; {nodes} have.", EXIT_USAGE)
        if to and to == status.leader:
            done(f"{to} leads group {number} already.")
            return
        confirmation.require(
            f"{status.leader or 'Nobody'} leads group {number}, and hands over to {to or 'whoever is best'}: its channels "
            "pause for a fraction of a second. Leaderships are spread again by themselves later."
        )
        await direct.admin.step_down(number, to)
        done(f"Group {number} is handed over. Watch it: stan group list --watch")

    on_cluster(target, main)
