"""A keyword that old programs give nats-py, and that it takes no more: the event loop of a connection."""

import functools
from typing import Any

from nats.aio.client import Client


def let_nats_take_loops() -> None:
    """Let nats-py's `connect` ignore `loop` and `io_loop`: since Python 3.10 there is one loop to run in, the one that runs.

    Nearly every program for the original has `await nc.connect(io_loop=loop)` in front of its own connect.
    """
    connect = Client.connect
    if hasattr(connect, "ignores_loops"):
        return

    @functools.wraps(connect)
    async def without_loop(self: Client, *args: Any, loop: Any = None, io_loop: Any = None, **options: Any) -> None:
        del loop, io_loop
        await connect(self, *args, **options)

    without_loop.ignores_loops = True  # type: ignore[attr-defined]
    Client.connect = without_loop  # type: ignore[method-assign]
