"""`stan consumer-group`: members that divide the channels of a pattern among themselves: list, show."""

from typing import Annotated

import stan_client
import typer
from stan_protocol.admin_types import ConsumerGroupStatus
from stan_protocol.scalars import MILLISECOND
from stan_protocol.units import counted, format_duration

from stan.cli.support.common import Target, group_of_commands
from stan.cli.support.options import View, injected
from stan.cli.support.output import Table
from stan.cli.support.proto_json import document_of
from stan.cli.support.session import look

app = group_of_commands("Consumer groups: members that pull, each from its share of the channels: list, show.")


@app.command("list")
@injected
def list_(*, target: Target, view: View) -> None:
    """The groups that have members. Positions of the others are kept: a member that joins goes on there."""

    async def table(direct: stan_client.Direct) -> Table:
        return groups_table(await direct.admin.consumer_groups())

    look(target, view, table)


def groups_table(groups: list[ConsumerGroupStatus]) -> Table:
    """Return groups, one a line."""
    return Table(
        columns=("consumer group", "user", ">members", ">channels", ">without owner", ">releasing"),
        rows=[
            (
                one.group,
                one.user,
                f"{one.members:,}",
                f"{one.channels:,}",
                f"{one.unowned:,}",
                f"{one.releasing:,}",
            )
            for one in groups
        ],
        document={"consumer_groups": [document_of(one) for one in groups]},
        names=[one.group for one in groups],
        foot=f"{counted(len(groups), 'consumer group')}." if groups else "",
        empty="No consumer group has members.",
    )


@app.command("show")
@injected
def show(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Name of the consumer group.")],
    *,
    owner: Annotated[
        str, typer.Option("--owner", help="Whose group it is, if several users have one of that name.")
    ] = "",
    target: Target,
    view: View,
) -> None:
    """The channels of a group, who owns each, and how far behind it is."""

    async def table(direct: stan_client.Direct) -> Table:
        (status,) = await direct.admin.consumer_groups(group, user=owner)
        return group_table(status, (await direct.bookmarks.all(group, user=status.user)).get(group, {}))

    look(target, view, table)


def group_table(status: ConsumerGroupStatus, positions: dict[str, stan_client.Bookmark]) -> Table:
    """Return the members of a group, and a line for each channel."""
    names = ["NONE", *(member.name for member in status.member_list)]
    rows = []
    for one in status.channel_list:
        at = positions.get(one.channel)
        lag = f"{max(0, at.last + 1 - at.sequence):,}" if at is not None else "not begun"
        state = "to be released" if one.releasing else ""
        rows.append((one.channel, names[one.member], lag, f"{one.generation:,}", state))
    members = [
        f"{one.name}: {counted(one.channels, 'channel')} of {one.pattern}, "
        f"lease {format_duration(one.lease_ms * MILLISECOND)}" + (f", user {one.user}" if one.user else "")
        for one in status.member_list
    ]
    return Table(
        columns=("channel", "owner", ">lag", ">generation", "state"),
        rows=rows,
        document={
            **document_of(status),
            "positions": {name: {"sequence": at.sequence, "last": at.last} for name, at in positions.items()},
        },
        names=[one.channel for one in status.channel_list],
        head="\n".join(members),
        empty="No channel matches the patterns of its members.",
    )
