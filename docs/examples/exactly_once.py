"""Bills are written exactly once, although the program fails between two of them.

The position in the channel is a row of the same database, and moves in the transaction of the bill. It prints:

    the program fails at: 3
    bills: 1 2 3 4 5
"""

import asyncio
import os
import sqlite3

import stan_client

SERVERS = os.environ.get("STAN_SERVER", "nats://127.0.0.1:4222")


async def bill(client: stan_client.Client, database: sqlite3.Connection, fails_at: bytes = b"") -> None:
    async with client.exactly_once("billing", "ex.sales", database, follow=False) as sales:
        async for sale, rows in sales:
            rows.execute("INSERT INTO bills VALUES (?)", (sale.text,))
            if sale.data == fails_at:
                raise RuntimeError(sale.text)  # the row of this sale is rolled back


async def main() -> None:
    database = sqlite3.connect("bills.db")
    database.execute("CREATE TABLE bills (number TEXT)")
    async with await stan_client.connect(SERVERS, client_id="bookkeeper") as client:
        await client.publish_many("ex.sales", [b"%d" % number for number in range(1, 6)])
        try:
            await bill(client, database, fails_at=b"3")
        except RuntimeError as error:
            print("the program fails at:", error)
        await bill(client, database)  # goes on behind the last bill that was committed
    print("bills:", *(number for (number,) in database.execute("SELECT number FROM bills")))
    database.close()


asyncio.run(main())
