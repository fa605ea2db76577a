"""`stan group`: the groups of channels, who leads each, who has a copy, and how far."""

from collections.abc import Iterable
from typing import Annotated, NamedTuple

import typer
from stan_client.admin import Nodes

from stan.cli import values
from stan.cli.args import parsed
from stan.cli.common import EXIT_USAGE, CliError, Target, run
from stan.cli.facts import facts
from stan.cli.node import name_of
from stan.cli.operating import operating
from stan.cli.options import Sure, View, injected
from stan.cli.output import Sheet, done, present
from stan.protocol import admin_pb2 as pb

app = typer.Typer(
    help="Groups: each holds a share of the channels, has one leader and copies on other nodes. Group 0 is the metadata.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Group(NamedTuple):
    """One group, as all nodes see it."""

    number: int
    leader: str  # "": none
    term: int
    copies: list[tuple[str, pb.GroupStatus]]  # by node

    @property
    def of_leader(self) -> pb.GroupStatus | None:
        """What its leader says."""
        return next((status for node, status in self.copies if node == self.leader), None)


def groups_of(nodes: Nodes) -> list[Group]:
    """The groups, by number. A leader is who says so of itself, in the newest term."""
    numbers = sorted({group.group for one in nodes.answers for group in one.groups})
    found = []
    for number in numbers:
        copies = [(name_of(one), group) for one in nodes.answers for group in one.groups if group.group == number]
        leading = [(group.term, node) for node, group in copies if group.role == "leader"]
        term, leader = max(leading, default=(max(group.term for _, group in copies), ""))
        found.append(Group(number, leader, term, copies))
    return found


def leaderless(groups: Iterable[Group]) -> list[Group]:
    """Those that nobody leads."""
    return [group for group in groups if not group.leader]


def behind(group: Group) -> int:
    """Entries that the copy lacks which is furthest behind."""
    head = group.of_leader
    return max((max(0, head.committed - status.applied) for _, status in group.copies), default=0) if head else 0


def odd_hashes(group: Group) -> bool:
    """Whether copies that have applied the same have another state: that must never be."""
    by_applied: dict[int, set[bytes]] = {}
    for _, status in group.copies:
        if status.state_hash:
            by_applied.setdefault(status.applied, set()).add(status.state_hash)
    return any(len(hashes) > 1 for hashes in by_applied.values())


@app.command("list")
@injected
def list_(*, target: Target, view: View) -> None:
    """Leader, term, copies and their lag of each group."""

    async def main() -> int:
        async with operating(target) as direct:

            async def sheet() -> Sheet:
                return groups_sheet(await direct.admin.nodes())

            return await present(sheet, view)()

    run(main())


def groups_sheet(nodes: Nodes) -> Sheet:
    """One a line."""
    groups = groups_of(nodes)
    rows = []
    for group in groups:
        voters = sorted({voter for _, status in group.copies for voter in status.voters})
        trouble = [f"{node}: {status.trouble}" for node, status in group.copies if status.trouble]
        trouble += ["states differ"] if odd_hashes(group) else []
        rows.append(
            (
                str(group.number) if group.number else "0 (metadata)",
                group.leader or "NONE",
                f"{group.term:,}",
                f"{max(status.committed for _, status in group.copies):,}",
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
                "copies": [{"node": node, **facts(status)} for node, status in group.copies],
            }
            for group in groups
        ],
        "missing": nodes.missing,
    }
    without = len(leaderless(groups))
    told = [f"{without} groups have no leader: their channels take and deliver nothing."] if without else []
    told += [f"Nodes that do not answer: {', '.join(nodes.missing)}."] if nodes.missing else []
    return Sheet(
        columns=("group", "leader", ">term", ">committed", ">lag", "voters", "trouble"),
        rows=rows,
        document=document,
        names=[str(group.number) for group in groups],
        foot=" ".join(told),
    )


@app.command("step-down")
@injected
def step_down(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Number; 0: the metadata.")],
    to: Annotated[str, typer.Option("--to", help="The node that shall lead; without it, whoever is best.")] = "",
    *,
    target: Target,
    sure: Sure,
) -> None:
    """Have a group's leader hand over to another node."""
    number = parsed("GROUP", values.number, group)

    async def main() -> int:
        async with operating(target) as direct:
            groups = {one.number: one for one in groups_of(await direct.admin.nodes())}
            if number not in groups:
                raise CliError(f"There is no group {number}; there are 0 to {max(groups, default=0)}.", EXIT_USAGE)
            found = groups[number]
            if to and to not in {node for node, _ in found.copies}:
                nodes = ", ".join(node for node, _ in found.copies)
                raise CliError(f"Node {to!r} has no copy of group {number}; {nodes} have.", EXIT_USAGE)
            if to and to == found.leader:
                done(f"{to} leads group {number} already.")
                return 0
            if not sure.ask(
                f"{found.leader or 'Nobody'} leads group {number}, and hands over to {to or 'whoever is best'}: its channels "
                "pause for a fraction of a second. Leaderships are spread again by themselves later."
            ):
                return 0
            await direct.admin.step_down(number, to)
        done(f"Group {number} is handed over. Watch it: stan group list --watch")
        return 0

    run(main())
