"""A channel whose messages are values of a class.

The JSON Schema of the class is registered as a version of the channel's schema, and each message names it. It prints:

    a pot 9.5
    two cups 3.0
"""

import asyncio
import os

import pydantic
import stan_client
from stan_client.typed import TypedChannel

SERVERS = os.environ.get("STAN_SERVER", "nats://127.0.0.1:4222")


class Sale(pydantic.BaseModel):
    """A field with a default may be added later; messages without it are read as before."""

    item: str
    price: float
    note: str | None = None


async def main() -> None:
    async with await stan_client.connect(SERVERS, client_id="till") as client:
        sales = TypedChannel(client, "ex.sales", Sale, register="ex.sales")
        await sales.publish(Sale(item="a pot", price=9.5), key="customer 7")
        await sales.publish(Sale(item="two cups", price=3))
        async for sale, _message in sales.read():
            print(sale.item, sale.price)


asyncio.run(main())
