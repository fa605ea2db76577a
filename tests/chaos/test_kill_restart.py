"""One real server under load, killed at random moments; what the clients saw is judged by the checkers of tests.kit.history."""

import asyncio
import random
import signal

import psutil
import pytest

from tests.chaos.load import Load
from tests.chaos.seeds import chaos_dice
from tests.kit.server import StanServer

LOAD_S = (0.2, 1.0)  # between two faults
FROZEN_S = (0.1, 0.5)


class Faults:
    """What may happen to a server; each leaves it running again."""

    def __init__(self, server: StanServer, load: Load, dice: random.Random) -> None:
        self._server, self._load, self._dice = server, load, dice

    async def kill_broker(self) -> None:
        """SIGKILL, then a new process on the same port and files."""
        self._server.signal(signal.SIGKILL)  # at once: what is awaited first would let the load drain
        self._load.crashed()
        await asyncio.to_thread(self._server.kill9)
        await asyncio.to_thread(self._server.start)

    async def kill_nats(self) -> None:
        """SIGKILL of nats-server only; the broker starts another."""
        self._nats().kill()
        self._load.crashed()

    async def freeze_nats(self) -> None:
        """Stop nats-server for a while, then let it go on: nothing is lost on the way, all of it is late."""
        nats = self._nats()
        nats.send_signal(signal.SIGSTOP)
        await asyncio.sleep(self._dice.uniform(*FROZEN_S))
        nats.send_signal(signal.SIGCONT)

    async def freeze_broker(self) -> None:
        """The same with the broker itself."""
        self._server.signal(signal.SIGSTOP)
        await asyncio.sleep(self._dice.uniform(*FROZEN_S))
        self._server.signal(signal.SIGCONT)

    async def restart_in_order(self) -> None:
        """SIGTERM and a new process."""
        self._load.crashed()
        await asyncio.to_thread(self._server.restart)

    def _nats(self) -> psutil.Process:
        children = psutil.Process(self._server.pid).children()
        (nats,) = [child for child in children if child.name() == "nats-server"]
        return nats

    async def happen(self, names: list[str]) -> None:
        """One after the other, each at a random moment of the load."""
        await self._load.acknowledged(1)
        for name in names:
            await asyncio.sleep(self._dice.uniform(*LOAD_S))
            await getattr(self, name)()
            await self._load.acknowledged(1)
            self._load.healed()
        await self._load.acknowledged(100)


async def run(server: StanServer, names: list[str], dice: random.Random) -> Load:
    """Load, faults, the end; what became of it."""
    async with Load(server) as load:
        await Faults(server, load, dice).happen(names)
        await load.finish()
        return load


async def test_broker_killed_under_load_keeps_its_promises(stan_server):
    load = await run(stan_server, 3 * ["kill_broker"], chaos_dice())
    assert not load.violations()
    (lane,) = load.lanes
    assert lane.history.crashes == 3
    assert 500 < len(lane.history.acked) < len(lane.history.published), "the broker was not killed under load"


async def test_nats_server_killed_and_frozen_under_load_loses_nothing(stan_server):
    pid = stan_server.pid
    load = await run(stan_server, ["freeze_nats", "kill_nats", "freeze_nats", "kill_nats"], chaos_dice())
    assert not load.violations()
    assert (stan_server.pid, stan_server.running) == (pid, True)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_broker_under_many_faults_keeps_its_promises(stan_server):
    dice = chaos_dice()
    names = ["kill_broker", "kill_broker", "kill_nats", "freeze_nats", "freeze_broker", "restart_in_order"]
    load = await run(stan_server, dice.choices(names, k=40), dice)
    assert not load.violations()
