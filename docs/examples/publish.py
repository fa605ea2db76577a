"""Publish, and know that the message is stored.

`publish` returns once the message is on stable storage. `publish_many` sends many at a time and waits for all of their acks.
It prints:

    stored as number 1
    3 messages in the channel
"""

import asyncio
import os

import stan_client

SERVERS = os.environ.get("STAN_SERVER", "nats://127.0.0.1:4222")


async def main() -> None:
    async with await stan_client.connect(SERVERS, client_id="publisher") as client:
        stored = await client.publish("ex.publish", b"two teapots", headers={"shop": "north"}, key="customer 7")
        print("stored as number", stored.sequence)
        await client.publish_many("ex.publish", [b"a kettle", b"six cups"])
        info = await client.channels.info(["ex.publish"])
        print(info["ex.publish"].last, "messages in the channel")


asyncio.run(main())
