"""`stan delayed`: messages that wait for the time that their publishers have set: list, cancel."""

from typing import Annotated

import stan_client
import typer
from stan_protocol import units
from stan_protocol.units import counted, format_time

from stan.cli.support.args import Channel, checked_channel, parsed
from stan.cli.support.common import CliError, Target, group_of_commands
from stan.cli.support.options import Confirmation, View, injected
from stan.cli.support.output import Table, done
from stan.cli.support.session import look, on_cluster

app = group_of_commands("Messages that wait for their time: list, cancel.")


@app.command("list")
@injected
def list_(channel: Channel, *, target: Target, view: View) -> None:
    """When the messages of a channel are due, those that were published first at the top.

    What waits in a channel with a delay by policy are messages of that channel: stan channel get shows them.
    """
    checked_channel(channel)

    async def table(direct: stan_client.Direct) -> Table:
        messages = await direct.admin.delayed(channel)
        return Table(
            (">ID", "DUE"),
            [(str(one.id), format_time(one.due)) for one in messages],
            {"messages": [{"id": one.id, "due": one.due} for one in messages]},
            [str(one.id) for one in messages],
            foot=f"{counted(len(messages), 'delayed message')}.",
            empty="No delayed messages.",
        )

    look(target, view, table)


@app.command("cancel")
@injected
def cancel(
    channel: Channel,
    ids: Annotated[list[str], typer.Argument(help="As stan delayed list shows them.")],
    *,
    target: Target,
    confirmation: Confirmation,
) -> None:
    """Remove messages before they come. One that is on its way already comes nonetheless."""
    checked_channel(channel)
    numbers = [parsed("IDS", units.number, one) for one in ids]

    async def main(direct: stan_client.Direct) -> None:
        confirmation.require(f"Removes {counted(len(numbers), 'delayed message')} of channel {channel} for good.")
        answer = await direct.admin.cancel_delayed(channel, numbers)
        if not answer.changed:
            raise CliError(f"Nothing was cancelled: channel {channel} has no such delayed messages (any more).")
        done(f"{answer.changed} of {counted(len(numbers), 'delayed message')} of channel {channel} cancelled.")

    on_cluster(target, main)
