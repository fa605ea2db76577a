"""`stan_client.testing` finds the faults of programs, and only those; one seed gives one run.

More seeds by hand: `STAN_SEEDS=5000 python -m pytest tests/sim/test_programs.py -k right`.
"""

import asyncio
import contextlib
import os
import random
import subprocess
import sys
import time

import pytest
import stan_client
from stan_client.testing import Faults, NotSettledError, SeedFailedError, simulated, simulated_test

from tests.sim.bill_handlers import BILLS, RIGHT, WRONG, Ledger, not_idempotent, retries_poison_for_ever, right

SEEDS = int(os.environ.get("STAN_SEEDS", "40"))
HOUR_S = 3600


async def pay_all(client, handler, programs):
    ledger = Ledger()
    await client.publish_many("bills", BILLS)
    for number in range(programs):
        client.simulation.start(handler(ledger), client_id=f"biller{number}")
    await client.simulation.settled()
    assert sorted(ledger.rows) == BILLS


def bills_test(handler, programs, seeds, **options):
    @simulated_test(seeds, **options)
    async def test_each_bill_is_paid_once(client):
        await pay_all(client, handler, programs)

    return test_each_bill_is_paid_once


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("handler", RIGHT)
def test_right_programs_pass(handler):
    bills_test(handler, RIGHT[handler], SEEDS)()


@pytest.mark.parametrize("handler", WRONG)
def test_a_planted_fault_is_found_and_its_seed_finds_it_again(handler):
    with pytest.raises(SeedFailedError) as found:
        bills_test(handler, WRONG[handler], 200)()

    seed = found.value.seed
    assert f"STAN_SEED={seed} pytest -k test_each_bill_is_paid_once" in str(found.value)
    with pytest.raises(SeedFailedError) as again:
        bills_test(handler, WRONG[handler], [seed])()
    assert str(again.value) == str(found.value)
    print(handler.__name__, found.value)


def test_the_environment_names_the_only_seed(monkeypatch):
    seeds = []

    @simulated_test(seeds=3, faults=None)
    async def note(client):
        seeds.append(client.simulation.seed)

    note()
    monkeypatch.setenv("STAN_SEED", "12")
    note()
    assert seeds == [0, 1, 2, 12]


def test_failures_of_pytest_have_their_seed_and_skips_are_skips():
    @simulated_test(seeds=[4], faults=None)
    async def fails(client):
        with pytest.raises(KeyError):
            await client.publish("a", b"no error")

    @simulated_test(seeds=[4], faults=None)
    async def skips(_client):
        pytest.skip("not here")

    with pytest.raises(SeedFailedError, match=r"^seed 4: Failed: DID NOT RAISE"):
        fails()
    with pytest.raises(pytest.skip.Exception):
        skips()


@simulated_test(seeds=[1], faults=None)
async def test_other_arguments_are_fixtures(client, tmp_path):
    assert tmp_path.is_dir()
    assert client.client_id == "test"


class TestOfAClass:
    @simulated_test(seeds=[1], faults=None)
    async def test_a_method_has_its_object(self, client):
        assert isinstance(self, TestOfAClass)
        assert client.connected


async def test_without_faults_it_is_a_broker_in_memory():
    async with simulated(faults=None) as client:
        await client.publish_many("orders", [b"one", b"two"])
        published = await client.publish("orders", b"three", headers={"shop": "north"})
        assert (published.sequence, published.acked_as) == (3, "synced")
        read = [message.data async for message in client.read("orders", start=stan_client.everything())]
        assert read == [b"one", b"two", b"three"]


async def test_an_hour_takes_no_time():
    began = time.time()
    async with simulated(faults=None) as client:
        loop = asyncio.get_running_loop()
        at, wall = loop.time(), time.time()
        await client.publish("later", b"now", delay_s=HOUR_S)
        message = await (await client.subscribe("later")).next(timeout_s=2 * HOUR_S)
        assert message.data == b"now"
        assert HOUR_S <= loop.time() - at < HOUR_S + 60
        assert HOUR_S <= time.time() - wall < HOUR_S + 60
    assert time.time() - began < HOUR_S


async def test_threads_of_the_loop_are_part_of_the_simulation():
    async with simulated(faults=None):
        assert await asyncio.gather(*(asyncio.to_thread(pow, 2, n) for n in range(4))) == [1, 2, 4, 8]
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 / 0)


async def test_nothing_but_nats_can_be_reached():
    async with simulated(faults=None):
        with pytest.raises(ConnectionRefusedError, match="port 5432"):
            await asyncio.open_connection("127.0.0.1", 5432)


async def test_one_loop_has_one_simulation():
    async with simulated(faults=None):
        with pytest.raises(RuntimeError, match="one simulation"):
            async with simulated(faults=None):
                pass


async def test_randomness_is_the_seeds_and_comes_back():
    random.seed(5)
    expected = random.random()
    random.seed(5)
    drawn = []
    for _ in range(2):
        async with simulated(7, faults=None):
            drawn.append(random.random())
    assert drawn[0] == drawn[1]
    assert random.random() == expected


async def test_the_loop_is_itself_again_afterwards():
    loop = asyncio.get_running_loop()
    before, monotonic, made = loop.time(), time.monotonic, loop.create_connection
    with contextlib.suppress(KeyError):
        async with simulated(3) as client:
            client.simulation.start(right(Ledger()), client_id="biller")
            raise KeyError
    assert time.monotonic is monotonic
    assert loop.create_connection == made
    assert before <= loop.time() < before + HOUR_S
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_program_that_fails_is_named():
    async with simulated(faults=None) as client:
        await client.publish("bills", b"no number")

        async def pay(own):
            async for bill in await own.subscribe("bills", durable="bank", start=stan_client.everything()):
                int(bill.data)

        client.simulation.start(pay, client_id="biller")
        with pytest.raises(
            NotSettledError, match=r"bank of channel bills: 1 sent .* biller failed \d+ times.*ValueError"
        ):
            await client.simulation.settled(timeout_s=20)


def test_poison_is_told_with_its_sequence():
    with pytest.raises(SeedFailedError, match=r"bank of channel bills: 1 sent and not settled \(4\), 0 not sent"):
        bills_test(retries_poison_for_ever, 1, [0], faults=None)()


def test_only_the_wanted_faults_happen():
    accounts = []

    @simulated_test(seeds=15, faults=Faults(kills=False, cuts=False, delays=False, lost_acks=False))
    async def note(client):
        ledger = Ledger()
        await client.publish_many("bills", BILLS)
        client.simulation.start(not_idempotent(ledger), client_id="biller")
        await client.simulation.settled()
        accounts.append(" ".join(client.simulation.account))

    note()
    account = " ".join(accounts)
    assert "biller is killed" in account
    assert "biller is cancelled" in account
    assert "the broker dies" not in account
    assert "no connection" not in account
    assert "ack" not in account


def test_without_the_broker_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "stan.testing.simulator", None)

    async def enter():
        async with simulated():
            pass

    with pytest.raises(ImportError, match="pip install stan-broker"):
        asyncio.run(enter())


RUN = """
import asyncio
from stan_client.testing import simulated
from tests.sim.bill_handlers import BILLS, Ledger, assumes_order

async def run(seed):
    async with simulated(seed) as client:
        ledger = Ledger()
        await client.publish_many("bills", BILLS)
        for number in range(2):
            client.simulation.start(assumes_order(ledger), client_id=f"biller{number}")
        await client.simulation.settled()
        print(ledger.rows, client.simulation.account)

for seed in range(5):
    asyncio.run(run(seed))
"""


def test_one_seed_gives_one_run_in_two_processes():
    runs = {
        subprocess.run(
            [sys.executable, "-c", RUN],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }

    assert len(runs) == 1
    assert "biller" in runs.pop()
