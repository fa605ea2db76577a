"""No effect of `exactly_once` is lost, and none happens twice, whatever is killed at whichever await.

More seeds by hand: `STAN_SEEDS=10000 python -m pytest tests/sim/test_exactly_once.py -k twice`.
"""

import gc
import os
import sqlite3

import pytest
from stan_client import ChannelReplacedError, PositionTakenError, everything
from stan_client.reading.databases import PositionTable
from stan_client.reading.exactly_once import PublishedEffects
from stan_client.testing import SeedFailedError, simulated, simulated_test

from tests.sim.once_readers import (
    ORDERS,
    Bills,
    Connection,
    into_an_async_database,
    into_channels,
    into_sqlite,
    into_sqlite_by_batches,
    with_acks,
)

SEEDS = int(os.environ.get("STAN_SEEDS", "40"))


async def in_channel(client, channel):
    return sorted([message.data async for message in client.read(channel, start=everything())])


async def run(client, path, reader, programs):
    path.unlink(missing_ok=True)
    bills = Bills(path)
    await client.publish_many("orders", ORDERS)
    for number in range(programs):
        client.simulation.start(reader(bills), client_id=f"biller{number}")
    await client.simulation.settled()
    if reader is into_channels:
        assert await in_channel(client, "bills") == ORDERS
        assert await in_channel(client, "receipts") == ORDERS
    else:
        assert bills.rows() == ORDERS


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("programs", [1, 2])
@pytest.mark.parametrize("reader", [into_sqlite, into_sqlite_by_batches, into_an_async_database, into_channels])
def test_no_effect_is_lost_or_happens_twice(reader, programs, tmp_path, caplog):
    @simulated_test(SEEDS)
    async def test_each_order_is_billed_once(client):
        await run(client, tmp_path / "bills.db", reader, programs)

    test_each_order_is_billed_once()
    gc.collect()
    assert [
        record for record in caplog.records if record.name == "asyncio"
    ] == []  # killed programs leave nothing behind


def test_the_faults_show_what_is_not_exactly_once(tmp_path):
    @simulated_test(200)
    async def test_each_order_is_billed_once(client):
        await run(client, tmp_path / "bills.db", with_acks, 1)

    with pytest.raises(SeedFailedError):
        test_each_order_is_billed_once()


async def _moves_first(self, before, after):
    connection = await begin(self, before, after)
    await self.commit()
    await self._link.begin()
    return connection


async def _without_fence(self, before, after):
    await self._link.begin()
    await self._link.execute("UPDATE stan_positions SET sequence = ?", after.sequence)
    return self._database


async def _counts_transactions(self, before, after):
    outputs = await begin_outputs(self, before, after)
    self._version = counted[0] = counted[0] + 1
    return outputs


begin, begin_outputs, counted = PositionTable.begin, PublishedEffects.begin, [0]


@pytest.mark.parametrize(
    ("kind", "wrong", "reader", "programs"),
    [
        (PositionTable, _moves_first, into_sqlite, 1),
        (PositionTable, _without_fence, into_sqlite, 2),
        (PublishedEffects, _counts_transactions, into_channels, 1),
    ],
)
def test_a_wrong_transaction_is_found(kind, wrong, reader, programs, tmp_path, monkeypatch):
    monkeypatch.setattr(kind, "begin", wrong)

    @simulated_test(200)
    async def test_each_order_is_billed_once(client):
        counted[0] = 0
        await run(client, tmp_path / "bills.db", reader, programs)

    with pytest.raises(SeedFailedError) as found:
        test_each_order_is_billed_once()
    print(found.value)


@pytest.fixture
def rows():
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("CREATE TABLE bills (number TEXT)")
    yield connection
    connection.close()


async def test_the_message_at_which_the_loop_ends_comes_again(rows):
    async with simulated(faults=None) as client:
        await client.publish_many("orders", ORDERS)
        async with client.exactly_once("billing", "orders", rows, follow=False) as orders:
            async for order, connection in orders:
                connection.execute("INSERT INTO bills VALUES (?)", (order.text,))
                if order.data == ORDERS[3]:
                    break
        assert rows.execute("SELECT count(*) FROM bills").fetchall() == [(3,)]
        async with client.exactly_once("billing", "orders", rows, follow=False) as orders:
            assert orders.position.sequence == 4
            assert [order.data async for order, _ in orders] == ORDERS[3:]
        async with client.exactly_once("billing", "orders", rows, follow=False) as orders:
            assert [order async for order, _ in orders] == []


async def test_an_error_rolls_back(rows):
    async with simulated(faults=None) as client:
        await client.publish_many("orders", ORDERS)
        with pytest.raises(ZeroDivisionError):  # noqa: PT012
            async with client.exactly_once("billing", "orders", rows) as orders:
                async for order, connection in orders:
                    connection.execute("INSERT INTO bills VALUES (?)", (order.text,))
                    raise ZeroDivisionError
        assert not rows.in_transaction
        assert rows.execute("SELECT count(*) FROM bills").fetchall() == [(0,)]


async def test_two_readers_of_one_name_exclude_each_other(tmp_path):
    bills = Bills(tmp_path / "bills.db")
    one, two = bills.connect(), bills.connect()
    async with simulated(faults=None) as client:
        await client.publish_many("orders", ORDERS)
        async with (
            client.exactly_once("billing", "orders", one) as first,
            client.exactly_once("billing", "orders", two) as second,
        ):
            await anext(first)
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                await anext(second)
            await anext(first)  # the first message is committed
            one.rollback()
            with pytest.raises(PositionTakenError, match="another reader 'billing' of channel orders"):
                await anext(second)
            assert not two.in_transaction
    one.close()
    two.close()


async def test_a_connection_in_use_is_refused(rows):
    async with simulated(faults=None) as client:
        await client.publish_many("orders", ORDERS)
        rows.execute("BEGIN")
        with pytest.raises(RuntimeError, match="in a transaction"):
            async with client.exactly_once("billing", "orders", rows):
                pass
        rows.execute("ROLLBACK")
        async with client.exactly_once("billing", "orders", rows) as orders:
            await anext(orders)
            rows.commit()
            with pytest.raises(RuntimeError, match="the program does not"):
                await anext(orders)


@pytest.mark.parametrize("nothing", [object(), 7])
async def test_what_is_no_database_is_refused(nothing):
    async with simulated(faults=None) as client:
        with pytest.raises(TypeError, match="no connection to a database"):
            client.exactly_once("billing", "orders", nothing)


async def test_outputs_are_of_one_message_at_a_time():
    async with simulated(faults=None) as client:
        await client.publish_many("orders", ORDERS)
        async with client.exactly_once("billing", "orders") as orders:
            with pytest.raises(ValueError, match="one message at a time"):
                await anext(orders.batches())


async def test_outputs_keep_headers_and_keys_and_are_seen_together():
    async with simulated(faults=None) as client:
        await client.publish_many("orders", ORDERS)
        async with client.exactly_once("billing", "orders", follow=False) as orders:
            async for order, outputs in orders:
                outputs.publish("bills", order.data, headers={"from": order.channel}, key="k")
        [*bills] = [message async for message in client.read("bills", start=everything())]
        assert [(bill.data, bill.headers, bill.key) for bill in bills] == [
            (one, {"from": b"orders"}, b"k") for one in ORDERS
        ]


async def test_a_channel_made_again_is_not_taken_for_the_old_one(rows):
    async with simulated(faults=None) as client:
        await client.publish_many("orders", ORDERS)
        async with client.exactly_once("billing", "orders", rows, follow=False) as orders:
            async for _ in orders:
                pass
        await client.admin.delete_channel("orders")
        await client.publish_many("orders", ORDERS)
        with pytest.raises(ChannelReplacedError):
            async with client.exactly_once("billing", "orders", rows) as orders:
                await anext(orders)


async def test_a_start_is_for_readers_without_a_position(rows):
    async with simulated(faults=None) as client:
        await client.publish_many("orders", ORDERS)
        for database in (rows, Connection(rows), None):
            name = f"from five {type(database)}"
            async with client.exactly_once(name, "orders", database, start=6, follow=False) as orders:
                assert [order.data async for order, _ in orders] == ORDERS[5:]
            async with client.exactly_once(name, "orders", database, start=1, follow=False) as orders:
                assert [order.data async for order, _ in orders] == []


async def test_it_is_used_inside_its_block():
    async with simulated(faults=None) as client:
        with pytest.raises(RuntimeError, match="async with"):
            await anext(client.exactly_once("billing", "orders"))


async def test_long_names_have_positions(rows):
    channel = "a" * 1000
    async with simulated(faults=None) as client:
        await client.publish_many(channel, ORDERS)
        for database in (rows, None):
            for expected in (ORDERS, []):
                async with client.exactly_once("billing", channel, database, follow=False) as orders:
                    assert [order.data async for order, _ in orders] == expected
