"""A channel as a table: the newest message of each key.

A message with a key replaces what the key had, a tombstone deletes it. The table follows the channel. It prints:

    EURGBP = 0.85
    EURUSD = 1.08
    after the deletion: ['EURUSD']
"""

import asyncio
import os

import stan_client

SERVERS = os.environ.get("STAN_SERVER", "nats://127.0.0.1:4222")


async def main() -> None:
    async with await stan_client.connect(SERVERS, client_id="quotes") as client:
        for pair, price in (("EURUSD", b"1.07"), ("EURGBP", b"0.85"), ("EURUSD", b"1.08")):
            await client.publish("ex.prices", price, key=pair)
        async with stan_client.Table(client, "ex.prices") as prices:
            for key, message in sorted(prices.items()):
                print(key.decode(), "=", message.data.decode())
            deleted = await client.publish_tombstone("ex.prices", "EURGBP")
            await prices.reached(deleted.sequence)  # our own write
            print("after the deletion:", [key.decode() for key, _ in prices.items()])


asyncio.run(main())
