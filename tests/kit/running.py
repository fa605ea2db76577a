"""Running a coroutine of a test to its end, with a deadline, and without leaving anything to be finalized later."""

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any

from nats.aio.client import Client


def run_whole(work: Coroutine[Any, Any, Any], seconds: float = 60) -> None:
    """Run *work* in a loop of its own; what it leaves behind is finalized here, and not while another test runs."""
    try:
        asyncio.run(asyncio.wait_for(work, seconds))
    finally:
        gc.collect()


async def settled(link: Client) -> None:
    """Wait until nats-server has handled all that *link* has sent. With `flush` alone the PING may overtake a SUB that waits for
    nats-py's flusher."""
    await asyncio.sleep(0)
    await link.flush()
