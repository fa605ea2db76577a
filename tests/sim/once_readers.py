"""Programs that read with `exactly_once`, over each kind of effects, and a sqlite3 whose calls take their time."""

import asyncio
import sqlite3
from contextlib import closing

from stan_client import everything

ORDERS = [b"%d" % number for number in range(8)]


class Cursor:
    """A cursor of an async driver, over one of sqlite3."""

    def __init__(self, cursor):
        self._cursor = cursor

    async def execute(self, statement, values=()):
        await asyncio.to_thread(self._cursor.execute, statement, values)

    async def fetchall(self):
        return await asyncio.to_thread(self._cursor.fetchall)

    async def close(self):
        self._cursor.close()

    @property
    def rowcount(self):
        return self._cursor.rowcount


class Connection:
    """A connection of an async driver: other things happen before and after each statement, and kills, too."""

    def __init__(self, connection):
        self._connection = connection
        self.total_changes = 0  # by which one of SQLite is known

    @property
    def in_transaction(self):
        return self._connection.in_transaction

    async def cursor(self):
        return Cursor(self._connection.cursor())

    async def execute(self, statement, values=()):
        await asyncio.to_thread(self._connection.execute, statement, values)


class Bills:
    """A table without a key, in a file."""

    def __init__(self, path):
        self.path = path
        with closing(self.connect()) as connection:
            connection.execute("CREATE TABLE bills (number TEXT)")

    def connect(self):
        connection = sqlite3.connect(self.path, timeout=0, isolation_level=None)
        connection.execute("PRAGMA synchronous=OFF")
        return connection

    def rows(self):
        with closing(self.connect()) as connection:
            return sorted(number.encode() for (number,) in connection.execute("SELECT number FROM bills"))


def into_sqlite(bills):
    async def program(client):
        with closing(bills.connect()) as connection:
            async with client.exactly_once("billing", "orders", connection) as orders:
                async for order, rows in orders:
                    rows.execute("INSERT INTO bills VALUES (?)", (order.text,))
                    await asyncio.sleep(0.001)

    return program


def into_sqlite_by_batches(bills):
    async def program(client):
        with closing(bills.connect()) as connection:
            async with client.exactly_once("billing", "orders", connection) as orders:
                async for some, rows in orders.batches():
                    for order in some:
                        rows.execute("INSERT INTO bills VALUES (?)", (order.text,))
                        await asyncio.sleep(0.001)

    return program


def into_an_async_database(bills):
    async def program(client):
        with closing(bills.connect()) as connection:
            async with client.exactly_once("billing", "orders", Connection(connection)) as orders:
                async for order, rows in orders:
                    await rows.execute("INSERT INTO bills VALUES (?)", (order.text,))

    return program


def into_channels(_bills):
    async def program(client):
        async with client.exactly_once("billing", "orders") as orders:
            async for order, outputs in orders:
                outputs.publish("bills", order.data)
                outputs.publish("receipts", order.data, key=order.data)

    return program


def with_acks(bills):
    """What others do, which is not exactly once: the position moves after the transaction."""

    async def program(client):
        with closing(bills.connect()) as connection:
            async for order in await client.subscribe("orders", durable="billing", start=everything()):
                connection.execute("INSERT INTO bills VALUES (?)", (order.text,))

    return program
