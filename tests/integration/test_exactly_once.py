"""`exactly_once` over real databases and their drivers: a transaction for each message, rolled back when the block ends early."""

import asyncio
import contextlib
from urllib.parse import quote

import aiosqlite
import psycopg
import pytest
import stan_client

from tests.kit.databases import PASSWORD, USER, postgres
from tests.kit.server import CLUSTER_ID, StanServer

ORDERS = [b"%d" % number for number in range(20)]
CREATE = "CREATE TABLE bills (number VARCHAR(20))"
COUNT = "SELECT count(*) FROM bills"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with StanServer(tmp_path_factory.mktemp("server"), "-mc", "0") as server:
        yield server


@pytest.fixture(scope="module")
def database():
    with postgres() as database:
        yield database


class Psycopg:
    """Plain connections of psycopg."""

    def __init__(self, url, **options):
        self.url, self.options = url, options

    @contextlib.asynccontextmanager
    async def connected(self):
        with psycopg.connect(self.url, **self.options) as connection:
            yield connection

    async def execute(self, connection, statement, *values):
        return connection.execute(statement, values)

    async def count(self, connection):
        (count,) = (await self.execute(connection, COUNT)).fetchone()
        connection.rollback()
        return count

    insert = "INSERT INTO bills VALUES (%s)"


class AsyncPsycopg(Psycopg):
    """Connections of psycopg for asyncio."""

    @contextlib.asynccontextmanager
    async def connected(self):
        async with await psycopg.AsyncConnection.connect(self.url, **self.options) as connection:
            yield connection

    async def execute(self, connection, statement, *values):
        return await connection.execute(statement, values)

    async def count(self, connection):
        (count,) = await (await self.execute(connection, COUNT)).fetchone()
        await connection.rollback()
        return count


class Asyncpg:
    """Connections of asyncpg."""

    insert = "INSERT INTO bills VALUES ($1)"

    def __init__(self, url):
        self.url = url

    @contextlib.asynccontextmanager
    async def connected(self):
        asyncpg = pytest.importorskip("asyncpg")
        connection = await asyncpg.connect(self.url)
        try:
            yield connection
        finally:
            await connection.close()

    async def execute(self, connection, statement, *values):
        await connection.execute(statement, *values)

    async def count(self, connection):
        return await connection.fetchval(COUNT)


class Aiosqlite:
    """Connections of aiosqlite."""

    insert = "INSERT INTO bills VALUES (?)"

    def __init__(self, path):
        self.path = path

    @contextlib.asynccontextmanager
    async def connected(self):
        async with aiosqlite.connect(self.path) as connection:
            yield connection

    async def execute(self, connection, statement, *values):
        return await connection.execute(statement, values)

    async def count(self, connection):
        ((count,),) = await connection.execute_fetchall(COUNT)
        return count


DRIVERS = ("psycopg", "psycopg autocommit", "async psycopg", "async psycopg autocommit", "asyncpg", "aiosqlite")


@pytest.fixture(params=DRIVERS)
def driver(request, tmp_path):
    if request.param == "aiosqlite":
        return Aiosqlite(tmp_path / "bills.db")
    database = request.getfixturevalue("database")
    with database.connected() as connection:
        connection.execute("DROP TABLE IF EXISTS bills")
        connection.execute("DROP TABLE IF EXISTS stan_positions")
    url = database.url.replace(f"{USER}@", f"{USER}:{quote(PASSWORD, safe='')}@")
    if request.param == "asyncpg":
        return Asyncpg(url)
    kind = AsyncPsycopg if request.param.startswith("async") else Psycopg
    return kind(url, autocommit=request.param.endswith("autocommit"))


@pytest.fixture
async def orders(server, request):
    channel = "orders." + "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    async with await stan_client.connect(server.url, client_id="biller", cluster_id=CLUSTER_ID) as client:
        await client.publish_many(channel, ORDERS)
        yield client, channel


async def read(orders, driver, connection, until=None):
    client, channel = orders
    async with client.exactly_once("billing", channel, connection, follow=False) as reader:
        async for order, rows in reader:
            await driver.execute(rows, driver.insert, order.text)
            if order.data == until:
                break


async def test_each_message_has_its_transaction(orders, driver):
    async with driver.connected() as connection:
        await driver.execute(connection, CREATE)
        if hasattr(connection, "commit"):
            committed = connection.commit()
            if committed is not None:
                await committed
        await read(orders, driver, connection, ORDERS[6])
        assert await driver.count(connection) == 6
        await read(orders, driver, connection, ORDERS[12])
        assert await driver.count(connection) == 12
    async with driver.connected() as connection:
        await read(orders, driver, connection)
        assert await driver.count(connection) == 20
        client, channel = orders
        async with client.exactly_once("other", channel, connection, follow=False) as reader:
            async for messages, rows in reader.batches():
                for order in messages:
                    await driver.execute(rows, driver.insert, order.text)
        assert await driver.count(connection) == 40


async def test_two_readers_of_one_name_take_turns(orders, driver):
    if isinstance(driver, Psycopg) and not isinstance(driver, AsyncPsycopg):
        pytest.skip("its calls would wait for each other")
    client, channel = orders
    async with driver.connected() as one, driver.connected() as two:
        first = client.exactly_once("billing", channel, one)
        second = client.exactly_once("billing", channel, two)
        async with first, second:
            await anext(first)
            waiting = asyncio.ensure_future(anext(second))
            done, _ = await asyncio.wait({waiting}, timeout=0.1)
            assert not done
            await first.__aexit__()
            assert (await asyncio.wait_for(waiting, 30))[0].data == ORDERS[0]  # the first one has rolled back
            assert (await anext(second))[0].data == ORDERS[1]
        async with first:
            first._at = stan_client.Position()  # as if it had opened before the other one
            with pytest.raises(stan_client.PositionTakenError):
                await anext(first)
