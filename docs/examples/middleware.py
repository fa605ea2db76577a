"""Do something around every publish and every message that is handled.

Middleware is named once, in `connect`; the first one is the outermost. It prints:

    publish ex.in by packer
    handle ex.in by packer
    publish ex.out by packer
    the same correlation id: True
"""

import asyncio
import os
from typing import Any

import stan_client
from stan_client import Correlation, MiddlewareContext, Retry

SERVERS = os.environ.get("STAN_SERVER", "nats://127.0.0.1:4222")


async def printing(context: MiddlewareContext, message: Any, call_next: Any) -> Any:
    """A middleware of one's own."""
    print(context.kind, context.channel, "by", context.client.client_id)
    return await call_next(message)


async def main() -> None:
    middleware = [Correlation(), printing, Retry(0.1)]
    async with await stan_client.connect(SERVERS, client_id="packer", middleware=middleware) as client:
        seen: asyncio.Queue[str] = asyncio.Queue()

        async def pack(message: stan_client.Message) -> None:
            await client.publish("ex.out", message.data)  # with the correlation id of the message
            await seen.put(message.headers["stan-correlation-id"])

        await client.subscribe("ex.in", pack)
        await client.publish("ex.in", b"a pot")
        came = await asyncio.wait_for(seen.get(), 20)
        (packed,) = await client.fetch("ex.out")
        print("the same correlation id:", packed.headers["stan-correlation-id"] == came)


asyncio.run(main())
