"""A handler is tried under faults, in the process of the test: the broker dies, connections break, acks are lost.

Nothing else has to run. A handler that acknowledges before it writes loses a bill with one of the seeds; the one that writes
first loses none. It prints:

    acks first, then writes: loses bills
    writes, then acks: 50 seeds, all bills are paid
"""

from collections.abc import Callable

import stan_client
from stan_client.testing import SeedFailedError, SimulatedClient, simulated_test

BILLS = [b"1", b"2", b"3", b"4"]
Program = Callable[[stan_client.Client], object]


def careless(paid: set[bytes]) -> Program:
    async def biller(client: stan_client.Client) -> None:
        bills = await client.subscribe("bills", durable="bank", start=stan_client.everything(), manual_acks=True)
        async for bill in bills:
            await bill.ack()
            await client.publish("receipts", bill.data)
            paid.add(bill.data)

    return biller


def careful(paid: set[bytes]) -> Program:
    async def biller(client: stan_client.Client) -> None:
        bills = await client.subscribe("bills", durable="bank", start=stan_client.everything(), manual_acks=True)
        async for bill in bills:
            await client.publish("receipts", bill.data)
            paid.add(bill.data)
            await bill.ack()

    return biller


def tried(biller: Callable[[set[bytes]], Program]) -> Callable[[], None]:
    @simulated_test(seeds=50)
    async def test_all_bills_are_paid(client: SimulatedClient) -> None:
        paid: set[bytes] = set()
        await client.publish_many("bills", BILLS)
        client.simulation.start(biller(paid), client_id="biller")
        await client.simulation.settled()
        assert paid == set(BILLS)

    return test_all_bills_are_paid


try:
    tried(careless)()
except SeedFailedError:  # its text has the seed, the faults, and how to replay it
    print("acks first, then writes: loses bills")
tried(careful)()
print("writes, then acks: 50 seeds, all bills are paid")
