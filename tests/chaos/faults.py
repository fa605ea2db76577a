"""What may happen to a cluster under load, each as one call that leaves all nodes running again.

Every fault tells the load when it begins and when the cluster serves again, so that the checkers know which acks it may have
cost. The dice decide the details.
"""

import asyncio
import contextlib
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Callable

from tests.chaos.load import Load
from tests.kit.cluster import StanCluster, flip
from tests.kit.network import Network
from tests.kit.server import NatsServer

ENDED_IN_ORDER = 128 + signal.SIGTERM
POLL_S = 0.1
BRIEFLY_S = (0.0, 1.5)  # how long a killed node is down
FROZEN_S = (0.3, 4.0)  # shorter and longer than an election takes
PAUSED_S = (0.1, 2.0)
PAUSES = (1, 4)
STARVED_S = (3.0, 8.0)
HOGS = 6
NEWEST = (1, 20)  # entries that are lost with the end of a log
CUT_S = (0.5, 3.0)


class Faults:
    """The faults; the name of a method is the name of the fault."""

    def __init__(
        self,
        cluster: StanCluster,
        load: Load,
        dice: random.Random,
        *,
        nats: NatsServer | None = None,
        network: Network | None = None,
    ) -> None:
        self._cluster, self._load, self._dice = cluster, load, dice
        self._nats, self._network = nats, network

    def names(self) -> list[str]:
        """Those that can happen here."""
        everywhere = [
            *("kill_leader", "kill_follower", "kill_leader_of_clients", "kill_two", "kill_all", "freeze_leader"),
            *("freeze_all", "restart_in_turn", "restart_leader", "wipe", "damage"),
            *("pause_one", "pause_two", "starve", "damage_tail", "damage_tail_beside_sleeper", "damage_state"),
        ]
        of_nats = ["kill_nats", "freeze_nats"] if self._nats else []
        of_network = ["cut_leader_off", "cut_leader_half_off", "cut_in_two_and_back"] if self._network else []
        return everywhere + of_nats + of_network

    @property
    def ended(self) -> list[str]:
        """Nodes whose process is gone although every fault leaves all of them running."""
        return self._cluster.down

    async def happen(self, name: str) -> None:
        """Let one happen, and wait until the load flows again."""
        self._load.note(f"{name} begins")
        async with self._load.fault():
            await getattr(self, name)()
            self._load.note(f"{name} is done")
        self._load.note(f"{name} is over")

    # --- processes --------------------------------------------------------------------------------------------------------

    async def kill_leader(self) -> None:
        """SIGKILL of the node that leads a channel's group."""
        await self._kill(await self._leader())

    async def kill_follower(self) -> None:
        """SIGKILL of a node that does not."""
        await self._kill(await self._follower())

    async def kill_leader_of_clients(self) -> None:
        """SIGKILL of the node that answers connects and heartbeats."""
        await self._kill(await asyncio.to_thread(self._cluster.leader, 0))

    async def kill_two(self) -> None:
        """SIGKILL of two nodes: no majority is left."""
        await self._kill(*self._dice.sample(self._cluster.names, 2))

    async def kill_all(self) -> None:
        """SIGKILL of all nodes at once."""
        await self._kill(*self._cluster.running)

    async def freeze_leader(self) -> None:
        """SIGSTOP for a while: the others may elect another, and the old one wakes up thinking that it still leads."""
        await self._freeze(await self._leader())

    async def freeze_all(self) -> None:
        """All nodes stand still: nothing is lost, all of it is late."""
        await self._freeze(*self._cluster.running)

    async def restart_in_turn(self) -> None:
        """SIGTERM and a new process, one node after the other."""
        for name in self._dice.sample(self._cluster.names, len(self._cluster.names)):
            await self._restart(name)
            await self._load.acknowledged(1)

    async def restart_leader(self) -> None:
        """SIGTERM and a new process for the node that leads a channel's group."""
        await self._restart(await self._leader())

    async def _restart(self, name: str) -> None:
        self._load.note(f"stop {name}")
        code = await asyncio.to_thread(self._cluster.terminate, name)
        assert code == ENDED_IN_ORDER, f"{name} ended with {code}\n{self._cluster.log()}"
        await asyncio.to_thread(self._cluster.start, name)

    async def _kill(self, *names: str) -> None:
        self._load.note(f"kill {' '.join(names)}")
        await asyncio.to_thread(self._cluster.kill9, *names)
        await asyncio.sleep(self._dice.uniform(*BRIEFLY_S))
        await asyncio.to_thread(self._cluster.start, *names)

    async def _freeze(self, *names: str) -> None:
        await self._stand_still(FROZEN_S, *names)

    async def _stand_still(self, seconds: tuple[float, float], *names: str) -> None:
        self._load.note(f"freeze {' '.join(names)}")
        self._cluster.stop(*names)
        await asyncio.sleep(self._dice.uniform(*seconds))
        self._cluster.cont(*names)
        self._load.note(f"let {' '.join(names)} go on")

    async def pause_one(self) -> None:
        """Short stops of one node, one after the other: it does not know of them when it goes on."""
        await self._pause(self._dice.choice(self._cluster.names))

    async def pause_two(self) -> None:
        """The same with two nodes at once, so that none of the three has a majority meanwhile."""
        await self._pause(*self._dice.sample(self._cluster.names, 2))

    async def _pause(self, *names: str) -> None:
        for _ in range(self._dice.randint(*PAUSES)):
            await self._stand_still(PAUSED_S, *names)
            await asyncio.sleep(self._dice.uniform(0, 0.5))

    async def starve(self) -> None:
        """Other processes take nearly all of the machine's time."""
        async with hogs(HOGS):
            await asyncio.sleep(self._dice.uniform(*STARVED_S))

    # --- disks --------------------------------------------------------------------------------------------------------------

    async def wipe(self) -> None:
        """A node comes back with an empty disk."""
        await self._with_another_disk(self._cluster.wipe)

    async def damage(self) -> None:
        """A node comes back with flipped bytes in the log of a channel's group."""
        group = self._cluster.group_of(self._channel())
        await self._with_another_disk(lambda name: self._cluster.damage(name, group))

    async def damage_tail(self) -> None:
        """A node comes back without the newest entries of a channel's log, or with a flipped bit in the newest."""
        await self._with_another_disk(self._damage_tail)

    async def damage_tail_beside_sleeper(self) -> None:
        """The same while another node has missed the newest messages: these two alone must not elect a leader that lacks them.

        One follower sleeps, the others acknowledge and are killed; the damaged one and the sleeper are there first.
        """
        leader, sleeper = await self._leader(), await self._follower()
        third = next(name for name in self._cluster.names if name not in {leader, sleeper})
        damaged, whole = self._dice.sample([leader, third], 2)
        self._cluster.stop(sleeper)
        await self._load.acknowledged(20)
        await asyncio.to_thread(self._cluster.kill9, leader, third)
        self._damage_tail(damaged)
        self._cluster.cont(sleeper)
        await asyncio.to_thread(self._cluster.start, damaged)
        await asyncio.sleep(self._dice.uniform(*PAUSED_S))
        await asyncio.to_thread(self._cluster.start, whole)
        await self._load.until(lambda: self._cluster.whole(damaged), f"{damaged} has everything again")

    async def damage_state(self) -> None:
        """A node comes back with flipped bits in its state, or with a part of it."""
        await self._with_another_disk(self._damage_state)

    def _damage_tail(self, name: str) -> None:
        group, dice = self._cluster.group_of(self._channel()), self._dice
        place = dice.choice(
            (
                lambda: self._cluster.cut_entries(name, group, dice.randint(*NEWEST)),
                lambda: self._cluster.cut_inside(name, group, dice.randint(1, 100)),
                lambda: self._cluster.flip_in_newest(name, group, dice.randint(0, 400)),
            )
        )()
        self._load.note(f"damaged {place}")

    def _damage_state(self, name: str) -> None:
        store, dice = self._cluster.store(name), self._dice
        path = dice.choice(
            [path for path in (store / "state.db", store / "state.db-wal") if path.exists() and path.stat().st_size]
        )
        size = path.stat().st_size
        if dice.random() < 0.3:
            os.truncate(path, dice.randint(0, size))
        else:
            for _ in range(dice.randint(1, 8)):
                flip(path, dice.randrange(size), 1, 1 << dice.randrange(8))
        self._load.note(f"damaged {path} of {size} bytes")

    async def _with_another_disk(self, change: Callable[[str], object]) -> None:
        """Only while the others have all they once acknowledged, and until this one has it too: two lost disks are too many."""
        name = self._dice.choice(self._cluster.names)
        self._load.note(f"another disk for {name}")
        await asyncio.to_thread(self._cluster.kill9, name)
        change(name)
        await asyncio.to_thread(self._cluster.start, name)
        await self._load.until(lambda: self._cluster.whole(name), f"{name} has everything again")

    # --- network ------------------------------------------------------------------------------------------------------------

    async def kill_nats(self) -> None:
        """SIGKILL of the nats-server of all, and a new one."""
        assert self._nats
        self._nats.kill()
        await asyncio.sleep(self._dice.uniform(*BRIEFLY_S))
        await asyncio.to_thread(self._nats.start)

    async def freeze_nats(self) -> None:
        """Nothing is lost on the way, all of it is late."""
        assert self._nats
        self._nats.signal(signal.SIGSTOP)
        await asyncio.sleep(self._dice.uniform(*FROZEN_S))
        self._nats.signal(signal.SIGCONT)
        self._load.joined()

    async def cut_leader_off(self) -> None:
        """No packet passes between a leader and the others."""
        assert self._network
        self._network.isolate(await self._leader())
        await self._join_after(CUT_S)

    async def cut_leader_half_off(self) -> None:
        """The others hear a leader, and it does not hear them."""
        assert self._network
        leader = await self._leader()
        for name in self._cluster.names:
            if name != leader:
                self._network.cut(name, leader)
        await self._join_after(CUT_S)

    async def cut_in_two_and_back(self) -> None:
        """One cut after the other, without time to recover."""
        assert self._network
        for name in self._dice.sample(self._cluster.names, 2):
            self._network.isolate(name)
            await self._join_after(BRIEFLY_S)

    async def _join_after(self, seconds: tuple[float, float]) -> None:
        assert self._network
        await asyncio.sleep(self._dice.uniform(*seconds))
        self._network.join()
        self._load.joined()

    # --- who ------------------------------------------------------------------------------------------------------------------

    def _channel(self) -> str:
        return self._dice.choice(self._load.lanes).channel

    async def _leader(self) -> str:
        return await asyncio.to_thread(self._cluster.leader_of, self._channel())

    async def _follower(self) -> str:
        return await asyncio.to_thread(self._cluster.follower_of, self._channel())


@contextlib.asynccontextmanager
async def hogs(count: int) -> AsyncIterator[None]:
    """Processes that do nothing but use time of the machine; they end with this, and by themselves after a minute."""
    busy = "import time\nend = time.monotonic() + 60\nwhile time.monotonic() < end: pass"
    running = [await asyncio.create_subprocess_exec(sys.executable, "-c", busy) for _ in range(count)]
    try:
        yield
    finally:
        for hog in running:
            hog.kill()
        for hog in running:
            await hog.wait()


@contextlib.asynccontextmanager
async def elections_watched(cluster: StanCluster, load: Load) -> AsyncIterator[list[str]]:
    """Changes of leaders while it is open; those that come by themselves may cost acks as well, and are told to the load."""
    seen: list[str] = []

    async def watch() -> None:
        before = await asyncio.to_thread(cluster.leaders)
        while True:
            await asyncio.sleep(POLL_S)
            now = await asyncio.to_thread(cluster.leaders)
            changed = [
                f"group {group}: {name} in term {term}"
                for group, (term, name) in now.items()
                if before.get(group) != (term, name)
            ]
            if changed:
                seen.extend(changed)
                load.note(", ".join(changed))
                load.moved()
            before = now

    watching: asyncio.Task[None] = asyncio.create_task(watch())
    try:
        yield seen
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
