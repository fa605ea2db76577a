"""A durable subscription goes on where it was.

The server keeps the position of a durable by client id, channel and durable name. Acked messages do not come again, others
do. It prints:

    first time: [b'1', b'2', b'3']
    second time: [b'4', b'5']
"""

import asyncio
import os

import stan_client

SERVERS = os.environ.get("STAN_SERVER", "nats://127.0.0.1:4222")


async def received(count: int) -> list[bytes]:
    """Ack some messages, return their data, and go away."""
    async with await stan_client.connect(SERVERS, client_id="ledger") as client:
        start = stan_client.everything()  # of a durable that is new; later ones go on
        orders = await client.subscribe("ex.durable", durable="ledger", start=start, manual_acks=True)
        messages = []
        for _ in range(count):
            message = await orders.next(timeout_s=10)
            messages.append(message.data)
            await message.ack()
        return messages


async def main() -> None:
    async with await stan_client.connect(SERVERS, client_id="shop") as client:
        for number in range(1, 6):
            await client.publish("ex.durable", b"%d" % number)
    print("first time:", await received(3))
    print("second time:", await received(2))


asyncio.run(main())
