"""Ask through a channel, and wait for the answer.

The question is a stored message that one member of a queue group handles. The answer goes straight back over NATS, and is not
stored. It prints:

    [b'0', b'1', b'4', b'9']
"""

import asyncio
import os

import stan_client

SERVERS = os.environ.get("STAN_SERVER", "nats://127.0.0.1:4222")


async def main() -> None:
    async with await stan_client.connect(SERVERS, client_id="squares") as client:

        async def work(message: stan_client.Message) -> None:
            message.respond(b"%d" % int(message.data) ** 2)  # before the ack, which comes when this returns

        await client.subscribe("ex.squares", work, queue="workers", durable="workers")
        print(
            await asyncio.gather(*[client.request("ex.squares", b"%d" % number, timeout_s=20) for number in range(4)])
        )


asyncio.run(main())
