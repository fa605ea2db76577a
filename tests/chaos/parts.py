"""A channel with parts in a cluster whose nodes die: its status, a doubling that is asked for as often as it takes, and of how
many parts a message was divided."""

import asyncio
import contextlib

import stan_client
from stan_client.reading.direct import Direct
from stan_protocol.admin_types import PartedStatus

PATIENCE_S = 120.0


async def status(direct: Direct, channel: str) -> PartedStatus:
    """Of the channel, from whoever leads the metadata now."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with contextlib.suppress(stan_client.StanClientError):
                (found,) = await direct.admin.parts(channel)
                return found


async def double(direct: Direct, channel: str, parts: int) -> PartedStatus:
    """Ask for twice as many as *parts*, as often as it takes."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = await status(direct, channel)
            if found.parts > parts:
                return found
            if not found.doubling:
                with contextlib.suppress(stan_client.StanClientError):
                    await direct.admin.double_parts(channel, parts)
            await asyncio.sleep(0.05)


def part_then(found: PartedStatus, number: int, sequence: int) -> int:
    """Of how many parts a message was divided that is in a part at some sequence."""
    ends = (split for split in found.splits if number < split.parts)
    return next((split.parts for split in ends if sequence <= split.last[number]), found.parts)
