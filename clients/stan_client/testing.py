"""Tests of programs that use this package: the real broker in the test's own process, under virtual time, with faults.

@simulated_test(seeds=200)
async def test_each_bill_is_paid_once(client):
    await client.publish_many("bills", [b"1", b"2"])
    paid = []
    client.simulation.start(biller(paid), client_id="biller")  # is cut off, killed and started again
    await client.simulation.settled()
    assert sorted(paid) == [b"1", b"2"]

Everything follows from the seed: the times of what happens, the faults, `random`. A sleep takes no time. The broker is the
distribution `stan-broker`, which this one does not need otherwise.
"""

import asyncio
import inspect
import os
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from stan_client.client import Client, connect
from stan_client.errors import StanClientError

if TYPE_CHECKING:
    from stan_protocol.admin_types import CursorStatus

SERVERS: Final = "nats://127.0.0.1:4222"
"""URL of the simulated NATS, on any host."""
TEST_CLIENT_ID: Final = "test"
SEED_VARIABLE: Final = "STAN_SEED"
"""Environment variable with the one seed that `simulated_test` runs."""
SETTLE_TIMEOUT_S: Final = 300.0
"""Virtual seconds in which the programs have to settle all messages once there are no more faults."""
FAULTS_S: Final = 20.0
"""Virtual seconds that faults go on while a test waits for the end."""
LOOK_S: Final = 0.25
"""Virtual seconds between two looks at the positions."""
QUIET_S: Final = 10.0
"""Virtual seconds without a delivery, an ack, or the start or end of a program, after which the programs are at rest."""
DELIVERIES_MAX: Final = 5_000
"""Deliveries meanwhile, more than which are an endless loop."""
LINES_SHOWN: Final = 12
"""Lines of the account of a run in the message of a failed seed, the last ones."""
PASSED_ON: Final = ("CancelledError", "Exit", "KeyboardInterrupt", "Skipped", "SystemExit")
"""Classes of what ends a test without its failure; a failure of pytest's own is no Exception, either."""
MISSING: Final = "stan_client.testing needs the broker: pip install stan-broker"

Program = Callable[[Client], Awaitable[object]]
"""A program: it gets a connected client, and runs until it is done, or for ever."""
Test = Callable[..., Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Faults:
    """The kinds of faults that may happen to programs; how many, and when, follows from the seed."""

    kills: bool = True
    """The broker dies and starts again from its log."""
    cuts: bool = True
    """A program loses its connection, for 3 s at most."""
    delays: bool = True
    """What a program sends and gets takes longer, 40 s at most."""
    lost_acks: bool = True
    """Acks of messages are lost, so that the messages come again."""
    ends: bool = True
    """A program is killed, or cancelled, at one of its awaits, and starts again within half a second."""


ALL_FAULTS: Final = Faults()


class NotSettledError(AssertionError):
    """Messages are not settled, although there are no more faults."""


class SeedFailedError(AssertionError):
    """A simulated test has failed; its cause is the error of the test."""

    def __init__(self, test: str, seed: int, error: BaseException, account: list[str]) -> None:
        """*account*: the lines of `Simulation.account`."""
        self.seed = seed
        what = f"{type(error).__name__}: {error}".rstrip(": ")
        shown = "".join(f"\n  {line}" for line in account[-LINES_SHOWN:]) or "\n  no fault"
        again = f"{SEED_VARIABLE}={seed} pytest -k {test}"
        super().__init__(f"seed {seed}: {what}\nreplay with: {again}\nwhat happened, at which second:{shown}")


class Simulation:
    """The world around the client of a test: programs, faults, and the end of the faults."""

    def __init__(self, client: Client, seed: int, simulator: Any) -> None:
        self._client = client
        self.seed = seed
        self._simulator = simulator

    @property
    def account(self) -> list[str]:
        """A line for each fault until now, and for each start and end of a program, with its second of virtual time."""
        return list(self._simulator.account)

    def start(self, program: Program, *, client_id: str, **options: Any) -> None:
        """Start a program with a client of its own. It is started again when a fault has ended it, or an error of its own, but
        not when it returns. The first start is where the faults begin.

        Args:
            program: an async function that gets the client.
            client_id: of its client; one program at a time has it.
            options: as of `connect`.
        """

        async def life() -> None:
            async with await connect(SERVERS, client_id=client_id, **options) as client:
                await program(client)

        self._simulator.start(client_id, life)

    async def settled(self, *, timeout_s: float = SETTLE_TIMEOUT_S) -> None:
        """Let the faults go on until the programs are at rest, for FAULTS_S at most; then end the faults, and wait until all
        messages of all positions are acknowledged or rejected, and the programs are at rest. *timeout_s*: virtual seconds from
        the end of the faults on.

        Raises:
            NotSettledError: after *timeout_s*, or when messages come again and again.
        """
        simulator, clock = self._simulator, asyncio.get_running_loop().time
        peace_at = clock() + FAULTS_S
        while clock() < peace_at and (simulator.quiet_s < QUIET_S or await self._unsettled()):  # noqa: ASYNC110 - it asks
            await asyncio.sleep(LOOK_S)
        simulator.end_faults()
        until, deliveries_max = clock() + timeout_s, simulator.deliveries + DELIVERIES_MAX
        while (unsettled := await self._unsettled()) or simulator.quiet_s < QUIET_S:
            if clock() >= until or simulator.deliveries > deliveries_max:
                raise NotSettledError("; ".join([*unsettled, *self._crashed()]) or "the programs do not come to rest")
            await asyncio.sleep(LOOK_S)

    async def _unsettled(self) -> list[str]:
        try:
            cursors = await self._client.admin.subscriptions()
        except StanClientError as error:
            return [f"the broker does not answer: {error}"]
        return [_owed(one) for one in cursors if one.pending or one.waiting or one.delayed]

    def _crashed(self) -> list[str]:
        return [
            f"{one.name} failed {one.crashes} times, at last with {one.error!r}"
            for one in self._simulator.programs
            if one.crashes
        ]


class SimulatedClient(Client):
    """The client of a test in a simulation; no fault but the broker's happens to it."""

    def __init__(self, client: Client, seed: int, simulator: Any) -> None:
        """Take the place of a client."""
        super().__init__(client._sessions)  # noqa: SLF001 - the same client, with more
        self.simulation = Simulation(self, seed, simulator)


def _owed(cursor: "CursorStatus") -> str:
    name = cursor.durable_name or cursor.queue_group or cursor.client_id or cursor.inbox
    runs = ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in cursor.pending_runs)
    sent = f"{cursor.pending} sent and not settled ({runs})"
    return f"{name} of channel {cursor.channel}: {sent}, {cursor.waiting} not sent, {cursor.redelivered} deliveries came again"


@asynccontextmanager
async def simulated(seed: int = 0, *, faults: Faults | None = ALL_FAULTS) -> AsyncGenerator[SimulatedClient]:
    """Put the running event loop under virtual time, with a broker of its own, and return a client of it.

    Args:
        seed: the run follows from it.
        faults: that may happen to the programs of `client.simulation.start`; None: none, for tests of what a program does.

    Raises:
        ImportError: the broker is not installed. RuntimeError: the loop is not asyncio's own, or is simulated already.
    """
    try:
        simulators = import_module("stan.testing.simulator")
    except ModuleNotFoundError as error:
        raise ImportError(MISSING) from error
    before = random.getstate()
    random.seed(seed)
    try:
        with simulators.Simulator(seed, faults) as simulator:
            made = await connect(SERVERS, client_id=TEST_CLIENT_ID, republish=True)
            client = SimulatedClient(made, seed, simulator)
            async with client:
                try:
                    yield client
                finally:
                    simulator.stop()
            await asyncio.sleep(LOOK_S)  # what the programs have left behind ends
    finally:
        random.setstate(before)


def simulated_test(
    seeds: int | Iterable[int] = 200, *, faults: Faults | None = ALL_FAULTS
) -> Callable[[Test], Callable[..., None]]:
    """Run a test, an async function whose first argument is the client, in one simulation for each seed. Its other arguments are
    fixtures of pytest, which are made once for all seeds.

    Args:
        seeds: how many, from 0 on, or which. With the environment variable STAN_SEED it is that one alone.
        faults: as of `simulated`.

    Raises:
        SeedFailedError: by the decorated test, for the first seed with which the test raises an error.
    """
    numbers = range(seeds) if isinstance(seeds, int) else tuple(seeds)

    def decorate(test: Test) -> Callable[..., None]:
        def run(*args: Any, **fixtures: Any) -> None:
            chosen = os.environ.get(SEED_VARIABLE)
            for seed in numbers if chosen is None else (int(chosen),):
                with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                    runner.run(_run(test, seed, faults, args, fixtures))

        parameters = list(inspect.signature(test).parameters.values())
        del parameters[parameters[0].name == "self"]  # the client
        wraps(test)(run)
        del run.__wrapped__  # type: ignore[attr-defined] # pytest would ask for a fixture `client`, and await the test
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run

    return decorate


async def _run(test: Test, seed: int, faults: Faults | None, args: tuple[Any, ...], fixtures: dict[str, Any]) -> None:
    account: list[str] = []
    try:
        async with simulated(seed, faults=faults) as client:
            try:
                await test(*args, client, **fixtures)
            finally:
                account = client.simulation.account
    except BaseException as error:
        if type(error).__name__ in PASSED_ON:
            raise
        raise SeedFailedError(test.__name__, seed, error, account) from error
