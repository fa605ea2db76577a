"""Channels with parts: made, listed, doubled, deleted (of `stan channel`)."""

from typing import Annotated

import stan_client
import typer
from stan_client.transport.session import text_of

from stan.cli.support.args import Channel, checked_channel
from stan.cli.support.common import EXIT_USAGE, CliError, Target
from stan.cli.support.options import Confirmation, View, injected
from stan.cli.support.output import Table, done
from stan.cli.support.proto_json import document_of
from stan.cli.support.session import look, on_cluster
from stan.limits import PARTS_MAX
from stan.protocol.parted import key_path
from stan.protocol.proto import admin_pb2 as pb
from stan.units import counted


@injected
def create(
    channel: Channel,
    count: Annotated[
        int, typer.Option("--parts", min=0, max=PARTS_MAX, help="In so many parts, by key; 0: one channel.")
    ] = 0,
    key: Annotated[
        str, typer.Option("--key", help="Where JSON data has the key of a message without one: '$.customer'.")
    ] = "",
    *,
    target: Target,
) -> None:
    """Make a channel, empty; one that is there stays as it is."""
    checked_channel(channel)
    wrong = ["--parts is 2 or more."] if count == 1 else []
    wrong += ["--key is for a channel with --parts."] if key and not count else []
    wrong += ["--key is told as $.name or $.name.name."] if key_path(key.encode()) is None else []
    if wrong:
        raise CliError("\n".join(wrong), EXIT_USAGE)

    async def main(direct: stan_client.Direct) -> None:
        if count:
            answer = await direct.admin.create_parts(channel, count, key=key)
            what = f"Channel {channel} with {count} parts, {channel}.~0 to {channel}.~{count - 1},"
        else:
            answer = await direct.admin.create_channel(channel)
            what = f"Channel {channel}"
        done(f"{what} is {'made' if answer.changed else 'there already'}.")

    on_cluster(target, main)


@injected
def double(channel: Channel, *, target: Target, confirmation: Confirmation) -> None:
    """Give a channel twice as many parts; for a few seconds publishes to it are refused."""

    async def main(direct: stan_client.Direct) -> None:
        found = await direct.admin.parts(checked_channel(channel))
        if not found:
            raise CliError(f"Channel {channel} has no parts: stan channel parts")
        count = found[0].parts
        confirmation.require(
            f"Channel {channel} gets {2 * count} parts instead of {count}, for good. For a few seconds publishes to it are "
            f"refused. Half of the keys go to a new part: readers of part p read it to its end, and then part p + {count} too."
        )
        await direct.admin.double_parts(channel, count)
        done(f"Channel {channel} has {2 * count} parts.")

    on_cluster(target, main)


@injected
def parts(*, target: Target, view: View) -> None:
    """The channels that have parts."""

    async def table(direct: stan_client.Direct) -> Table:
        return parts_table(await direct.admin.parts())

    look(target, view, table)


def parts_table(found: list[pb.PartedStatus]) -> Table:
    """One a line."""
    return Table(
        columns=("channel", ">parts", "called", "key in JSON", "state"),
        rows=[
            (
                text_of(one.channel),
                str(one.parts),
                f"{text_of(one.channel)}.~0 to ~{one.parts - 1}",
                text_of(one.key),
                "being deleted" if one.deleting else "being doubled" if one.doubling else "there",
            )
            for one in found
        ],
        document={"channels": [document_of(one) for one in found]},
        names=[text_of(one.channel) for one in found],
        empty="No channel has parts: stan channel create CHANNEL --parts N",
    )


async def deleted_with_parts(direct: stan_client.Direct, channel: str, confirmation: Confirmation) -> bool:
    """Delete a channel that has parts; False if this one has none."""
    found = await direct.admin.parts(channel)
    if not found:
        return False
    names = stan_client.part_names(channel, found[0].parts)
    status = [one for one in await direct.admin.channels(f"{channel}.*") if text_of(one.name) in names]
    confirmation.require(
        f"Removes channel {channel} for good, with its {found[0].parts} parts: "
        f"{counted(sum(one.messages for one in status), 'message')}, "
        f"{counted(sum(one.subscriptions for one in status), 'subscription')}, "
        f"{counted(sum(one.offline for one in status), 'offline durable or group', 'offline durables and groups')}."
    )
    await direct.admin.delete_parts(channel)
    done(f"Channel {channel} is deleted, with its parts.")
    return True
