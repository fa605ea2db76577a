"""Programs that handle bills, one right and five with a fault each: whoever tests them under faults has to find the five."""

import asyncio

from stan_client import everything

BILLS = [b"%d" % number for number in range(8)]
POISON = BILLS[3]
NAME = "bank"


class Ledger:
    """A table without a key: what is inserted twice is in it twice."""

    def __init__(self):
        self.rows = []

    async def insert(self, row):
        await asyncio.sleep(0.002)
        self.rows.append(row)
        await asyncio.sleep(0.002)

    async def insert_once(self, row):
        if row not in self.rows:
            await self.insert(row)


def _bills(client):
    return client.subscribe("bills", durable=NAME, start=everything(), manual_acks=True)


def right(ledger):
    async def program(client):
        async for bill in await _bills(client):
            await ledger.insert_once(bill.data)
            await bill.ack()

    return program


def right_with_a_callback(ledger):
    async def program(client):
        async def pay(bill):
            await ledger.insert_once(bill.data)

        await client.subscribe("bills", pay, durable=NAME, start=everything(), on_error="nak")
        await asyncio.Event().wait()

    return program


def right_in_a_group(ledger):
    async def program(client):
        async def pay(bill):
            await ledger.insert_once(bill.data)

        await client.subscribe("bills", pay, queue=NAME, durable=NAME, start=everything())
        await asyncio.Event().wait()

    return program


def not_idempotent(ledger):
    async def program(client):
        async for bill in await _bills(client):
            await ledger.insert(bill.data)
            await bill.ack()

    return program


def acks_before_it_writes(ledger):
    async def program(client):
        async for bill in await _bills(client):
            await bill.ack()
            await ledger.insert_once(bill.data)

    return program


def loses_when_cancelled(ledger):
    async def program(client):
        async for bill in await _bills(client):
            try:
                await ledger.insert_once(bill.data)
            finally:
                await bill.ack()

    return program


def assumes_order(ledger):
    """In a queue group, and with repeats, a smaller number may come later."""

    async def program(client):
        async def pay(bill):
            if not ledger.rows or int(bill.data) > int(ledger.rows[-1]):
                await ledger.insert_once(bill.data)

        await client.subscribe("bills", pay, queue=NAME, durable=NAME, start=everything())
        await asyncio.Event().wait()

    return program


def retries_poison_for_ever(ledger):
    async def program(client):
        async def pay(bill):
            if bill.data == POISON:
                raise ValueError("no bill")
            await ledger.insert_once(bill.data)

        await client.subscribe("bills", pay, durable=NAME, start=everything(), on_error="nak")
        await asyncio.Event().wait()

    return program


RIGHT = {right: 1, right_with_a_callback: 1, right_in_a_group: 2}
"""Programs, and how many of each run."""
WRONG = {
    not_idempotent: 1,
    acks_before_it_writes: 1,
    loses_when_cancelled: 1,
    assumes_order: 2,
    retries_poison_for_ever: 1,
}
