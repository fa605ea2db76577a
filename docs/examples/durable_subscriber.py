"""A durable subscription goes on where it was.

The server keeps the position of a durable by client id, channel and durable name. What was acked does not come again, and what
was not acked does. It prints:

    first time: [b'1', b'2', b'3']
    second time: [b'4', b'5']
"""

import asyncio
import os

import stan_client

SERVERS = os.environ.get("STAN_SERVER", "nats://127.0.0.1:4222")


async def take(count: int) -> list[bytes]:
    """Take and ack some messages, and go away."""
    async with await stan_client.connect("test-cluster", "ledger", servers=SERVERS) as client:
        start = stan_client.everything()  # of a durable that is new; later ones go on
        orders = await client.subscribe("ex.durable", durable="ledger", start=start, manual_acks=True)
        taken = []
        for _ in range(count):
            message = await orders.next(timeout_s=10)
            taken.append(message.data)
            await message.ack()
        return taken


async def main() -> None:
    async with await stan_client.connect("test-cluster", "shop", servers=SERVERS) as client:
        for number in range(1, 6):
            await client.publish("ex.durable", b"%d" % number)
    print("first time:", await take(3))
    print("second time:", await take(2))


asyncio.run(main())
