"""`stan cluster grow`, `stan cluster spread`: more groups of channels, and the moves of channels to them."""

import asyncio
import time
from typing import Annotated, Final

import stan_client
import typer
from stan_protocol.admin_types import Commit
from stan_protocol.units import counted

from stan.cli.support.common import EXIT_USAGE, CliError, Target
from stan.cli.support.options import Confirmation, injected
from stan.cli.support.output import done
from stan.cli.support.session import on_cluster
from stan.limits import RAFT_GROUPS_MAX
from stan.policies import GROUP_COMMITS, SYNCED
from stan.status.groups import growth_waits_for, pool_of

GROWTH_PAUSE_S: Final = 0.25
"""The pause between two requests for the leaders of new groups."""
GROWTH_PATIENCE_S: Final = 30.0
"""How long leaders of new groups are waited for."""
MOVES: Final = "Channels whose names belong to a new one move there one by one."
UNSYNCED: Final = "An ack of the channels in them means that a majority has the message in memory, not on disk. "
STAYS: Final = "Channels that are there stay where they are while moves are paused."


@injected
def grow(
    groups: Annotated[int, typer.Option("--groups", min=1, max=RAFT_GROUPS_MAX, help="How many there shall be.")],
    commit: Annotated[
        str,
        typer.Option(
            "--commit", help=f"What an ack of the channels in the new groups means: {' or '.join(GROUP_COMMITS)}."
        ),
    ] = GROUP_COMMITS[SYNCED],
    *,
    target: Target,
    confirmation: Confirmation,
) -> None:
    """Have more groups of channels: all channels are spread over them, those that are there move one by one."""
    if commit not in GROUP_COMMITS:
        raise CliError(f"--commit is {' or '.join(GROUP_COMMITS)}, not {commit!r}.", EXIT_USAGE)
    kind = Commit(GROUP_COMMITS.index(commit))
    unsynced = UNSYNCED if kind != SYNCED else ""

    async def main(direct: stan_client.Direct) -> None:
        nodes = await direct.admin.nodes()
        there, opened, _, paused = pool_of(nodes)
        if nodes.missing:
            raise CliError(f"New groups are made when all nodes answer. These do not: {', '.join(nodes.missing)}.")
        if groups < there or (groups == there == opened):
            raise CliError(f"There are {there} groups already: their number only grows.", EXIT_USAGE)
        if groups > there:
            confirmation.require(
                f"Makes {groups - there} new groups of channels; there are {there}. {unsynced}{STAYS if paused else MOVES} The "
                "number of groups cannot be made smaller again."
            )
            await direct.admin.grow_pool(groups, kind)
        until = time.monotonic() + GROWTH_PATIENCE_S
        while pool_of(await direct.admin.nodes()).opened < groups:
            if time.monotonic() >= until:
                waits_for = growth_waits_for(await direct.admin.nodes())
                raise CliError(
                    f"It is decided, but not all new groups have leaders yet.{waits_for and ' '}{waits_for} Watch it: "
                    "stan group list --watch"
                )
            await asyncio.sleep(GROWTH_PAUSE_S)
        done(f"There are {groups} groups of channels. See them: stan group list")

    on_cluster(target, main)


@injected
def spread(
    *,
    pause: Annotated[bool, typer.Option("--pause/--resume", help="Let no channel go by itself, or let them go again.")],
    target: Target,
) -> None:
    """Pause moves of channels to the groups where they belong, or go on with them; one that is under way ends."""

    async def main(direct: stan_client.Direct) -> None:
        await (direct.admin.pause_moves() if pause else direct.admin.resume_moves())
        left = pool_of(await direct.admin.nodes()).to_move
        state = "No channel moves by itself" if pause else "Channels move by themselves"
        done(f"{state}; {counted(left, 'channel')} to move.")

    on_cluster(target, main)
