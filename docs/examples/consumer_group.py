"""Divide many channels among processes that pull.

The servers give each channel of the pattern to one member of the group. The group's position in a channel is committed with
each batch. It prints:

    ex.shop.north: [b'a pot']
    ex.shop.south: [b'two cups', b'a plate']
"""

import asyncio
import os

import stan_client
from stan_client import Direct, GroupConsumer

SERVERS = os.environ.get("STAN_SERVER", "nats://127.0.0.1:4222")
ORDERS = {"ex.shop.north": [b"a pot"], "ex.shop.south": [b"two cups", b"a plate"]}


async def main() -> None:
    async with await stan_client.connect(SERVERS, client_id="shops") as client:
        for channel, messages in ORDERS.items():
            await client.publish_many(channel, messages)
    taken: dict[str, list[bytes]] = {}
    async with (
        Direct(SERVERS) as direct,
        GroupConsumer(direct, "ex.shop.*", group="ledger") as consumer,
        asyncio.timeout(30),
    ):
        async for batch in consumer:
            taken.setdefault(batch.channel, []).extend(message.data for message in batch.messages())
            await batch.commit()
            if taken == ORDERS:
                break  # a worker goes on instead
    for channel, data in sorted(taken.items()):
        print(f"{channel}: {data}")


asyncio.run(main())
