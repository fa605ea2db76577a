"""`stan channel commit`: the meaning of an ack of a publish, changed while the channel is empty."""

import asyncio
import time
from typing import Annotated, Final

import stan_client
import typer
from stan_protocol.ack_levels import AckLevel
from stan_protocol.admin_types import ChannelStatus, Commit

from stan.cli.support.args import Channel, checked_channel
from stan.cli.support.common import EXIT_USAGE, CliError, Target
from stan.cli.support.options import Confirmation, injected
from stan.cli.support.output import done
from stan.cli.support.session import no_channel, on_cluster
from stan.policies import COMMITS, EPHEMERAL, GROUP_COMMITS, SYNCED

PAUSE_S: Final = 0.25
"""The pause between two looks for the channel in a group of the kind."""
PATIENCE_S: Final = 30.0
"""How long that is waited for."""
PROMISES: Final = (
    "synced: acked once a majority has it on disk",
    "replicated: acked once a majority has it in memory",
    "ephemeral: acked once its leader has it in memory, and gone with it",
)


def commit_words(status: ChannelStatus) -> str:
    """Return the meaning of an ack of a publish to a channel, by its policy and by the store of its server."""
    commit, level = status.commit, status.ack_level
    if commit >= len(PROMISES):
        return "in a way that this program does not know"
    if commit != SYNCED:
        return PROMISES[commit]
    if level == AckLevel.SYNCED:
        return "synced: acked once it is on disk, in a cluster on the disks of a majority"
    who = "a majority has" if level == AckLevel.REPLICATED else "the server has"
    return f"synced: acked once {who} it in memory, as the store does not sync it to disk before"


@injected
def commit(
    channel: Channel,
    kind: Annotated[str, typer.Argument(metavar="COMMIT", help=f"{' or '.join(GROUP_COMMITS)}.")],
    *,
    target: Target,
    confirmation: Confirmation,
) -> None:
    """Change what acks of a channel mean; only while it has no messages."""
    checked_channel(channel)
    if kind not in GROUP_COMMITS:
        hint = ": a channel is ephemeral by a policy that is there before it" if kind == COMMITS[EPHEMERAL] else ""
        raise CliError(f"COMMIT is {' or '.join(GROUP_COMMITS)}, not {kind!r}{hint}.", EXIT_USAGE)
    new = Commit(GROUP_COMMITS.index(kind))

    async def main(direct: stan_client.Direct) -> None:
        status = await direct.admin.channel(channel)
        if status is None:
            raise await no_channel(direct, channel)
        if status.commit == new:
            done(f"Channel {channel} is {kind} already.")
            return
        confirmation.require(f"From now on messages of channel {channel} are {PROMISES[new]}.")
        await direct.admin.change_commit(channel, new)
        until = time.monotonic() + PATIENCE_S
        while True:
            status = await direct.admin.channel(channel)
            if status is not None and status.commit == new:
                break
            if time.monotonic() >= until:
                raise CliError(
                    f"Channel {channel} is not {kind} yet: it moves to a group for that as long as no message comes. Look again: "
                    f"stan channel show {channel}"
                )
            await asyncio.sleep(PAUSE_S)
        done(f"Channel {channel} is {kind}.")

    on_cluster(target, main)
