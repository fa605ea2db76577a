"""`stan cluster grow`: more groups of channels."""

import asyncio
import time
from typing import Annotated, Final

import stan_client
import typer

from stan.cli.support.common import EXIT_USAGE, CliError, Target
from stan.cli.support.groups import pool_of
from stan.cli.support.options import Confirmation, injected
from stan.cli.support.output import done
from stan.cli.support.session import on_cluster
from stan.limits import RAFT_GROUPS_MAX

GROWTH_PAUSE_S: Final = 0.25
"""The pause between two questions whether new groups have leaders."""
GROWTH_PATIENCE_S: Final = 30.0
"""How long leaders of new groups are waited for."""


@injected
def grow(
    groups: Annotated[int, typer.Option("--groups", min=1, max=RAFT_GROUPS_MAX, help="How many there shall be.")],
    *,
    target: Target,
    confirmation: Confirmation,
) -> None:
    """Have more groups of channels: new channels are spread over all of them, those that are there stay where they are."""

    async def main(direct: stan_client.Direct) -> None:
        nodes = await direct.admin.nodes()
        there, opened = pool_of(nodes)
        if nodes.missing:
            raise CliError(f"New groups are made when all nodes answer. These do not: {', '.join(nodes.missing)}.")
        if groups < there or (groups == there == opened):
            raise CliError(f"There are {there} groups already: their number only grows.", EXIT_USAGE)
        if groups > there:
            confirmation.require(
                f"Makes {groups - there} new groups of channels; there are {there}. Channels that are there stay where they "
                "are. The number of groups cannot be made smaller again."
            )
            await direct.admin.grow_pool(groups)
        until = time.monotonic() + GROWTH_PATIENCE_S
        while pool_of(await direct.admin.nodes()).opened < groups:
            if time.monotonic() >= until:
                raise CliError(
                    "It is decided, but not all new groups have leaders yet. Watch it: stan group list --watch"
                )
            await asyncio.sleep(GROWTH_PAUSE_S)
        done(f"There are {groups} groups of channels. See them: stan group list")

    on_cluster(target, main)
