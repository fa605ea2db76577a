"""`stan subscription`: everything that is subscribed now, member by member."""

import time
from typing import Annotated

import stan_client
import typer
from stan_protocol import units
from stan_protocol.admin_types import CursorKind, CursorStatus
from stan_protocol.units import counted

from stan.cli.commands.cursor_tables import cursor_document
from stan.cli.support.args import Channel, Pattern, checked_channel, checked_pattern, parsed
from stan.cli.support.common import CliError, Target, group_of_commands
from stan.cli.support.options import Confirmation, View, injected
from stan.cli.support.output import Table, done
from stan.cli.support.session import look, no_channel, on_cluster
from stan.status.positions import KINDS, full_name, state_of

app = group_of_commands("Subscriptions that are online, of all kinds.")


@app.command("list")
@injected
def list_(
    pattern: Pattern = ">",
    client: Annotated[str, typer.Option("--client", help="Only those of this client.")] = "",
    *,
    target: Target,
    view: View,
) -> None:
    """Each subscription with its number, client and window."""
    checked_pattern(pattern)

    async def table(direct: stan_client.Direct) -> Table:
        cursors = await direct.admin.subscriptions(pattern, client_id=client)
        return members_table(cursors, client, time.time_ns())

    look(target, view, table)


def members_table(cursors: list[CursorStatus], client: str, now_ns: int) -> Table:
    """Return members, one a line."""
    online = [(cursor, member) for cursor in cursors for member in cursor.members if client in ("", member.client_id)]
    rows = [
        (
            cursor.channel,
            str(member.subscription_id),
            member.client_id,
            KINDS[cursor.kind],
            full_name(cursor),
            state_of(cursor, now_ns).word,
            f"{cursor.waiting:,}",
            f"{member.pending:,}/{member.max_in_flight:,}",
            cursor.served_by or "-",
        )
        for cursor, member in online
    ]
    return Table(
        columns=("channel", ">number", "client", "kind", "name or inbox", "state", ">waiting", ">unacked", "served by"),
        rows=rows,
        document={"cursors": [cursor_document(cursor, now_ns) for cursor in cursors if cursor.members]},
        names=[str(member.subscription_id) for _, member in online],
        foot=counted(len(online), "subscription") if online else "",
        empty="Nobody is subscribed.",
    )


@app.command("evict")
@injected
def evict(
    channel: Channel,
    number: Annotated[str, typer.Argument(metavar="NUMBER", help="As `stan subscription list` tells it.")],
    *,
    target: Target,
    confirmation: Confirmation,
) -> None:
    """Close one subscription; a durable keeps its position."""
    id_ = parsed("NUMBER", units.number, number)
    checked_channel(channel)

    async def main(direct: stan_client.Direct) -> None:
        cursors = await direct.admin.subscriptions(channel)
        of = next(((one, member) for one in cursors for member in one.members if member.subscription_id == id_), None)
        if of is None:
            if not cursors and await direct.admin.channel(channel) is None:
                raise await no_channel(direct, channel)
            raise CliError(f"Channel {channel} has no subscription {id_}. All: stan subscription list {channel}")
        cursor, member = of
        position = "; its position is kept" if cursor.kind in (CursorKind.DURABLE, CursorKind.DURABLE_QUEUE) else ""
        confirmation.require(
            f"Closes subscription {id_} of client {member.client_id} on channel {channel} "
            f"({KINDS[cursor.kind]} {full_name(cursor)}), with {member.pending:,} unacked messages{position}. "
            "The client is not told; it gets nothing more."
        )
        await direct.admin.evict_member(channel, id_)
        done(f"Subscription {id_} is closed.")

    on_cluster(target, main)
