"""Real processes under load, killed at random moments; what the clients saw is judged by the checkers of tests.kit.history.

One line replays a run: STAN_CHAOS_SEED=<seed> pytest tests/chaos. The seed decides the faults and their moments; how the
processes interleave is up to the machine.
"""

import asyncio
import contextlib
import os
import random
import secrets
import signal

import psutil
import pytest
import stan_client

from tests.kit.history import History, Reader
from tests.kit.server import StanServer

CHANNEL = "chaos"
WRITERS = 3
GROUP = 3
BURST = 16  # messages that a writer publishes in one turn
BURST_PAUSE_S = 0.004
IN_FLIGHT_MAX = 256
ACK_WAIT_S = 1
ACK_TIMEOUT_S = 1.0
LOAD_S = (0.2, 1.0)  # between two faults
FROZEN_S = (0.1, 0.5)
CATCH_UP_S = 40.0
LATE_EVERY = 211  # the late acker leaves each 211th message for its redelivery, a second later


def chaos_seed() -> int:
    """Of the environment, or a new one; printed, so that a failure shows it."""
    seed = int(os.environ.get("STAN_CHAOS_SEED") or secrets.randbits(32))
    print(f"STAN_CHAOS_SEED={seed}")
    return seed


class Load:
    """Writers and readers on one channel, and the history that they write."""

    def __init__(self, server: StanServer) -> None:
        self.history = History()
        self._server = server
        self._clients = contextlib.AsyncExitStack()
        self._writers: list[asyncio.Task[None]] = []
        self._in_flight = 0
        self._lost_sessions: list[stan_client.StanClientError] = []

    async def __aenter__(self) -> "Load":
        try:
            await self._begin()
        except BaseException:
            await self._clients.aclose()
            raise
        return self

    async def __aexit__(self, *_exc: object) -> None:
        for writer in self._writers:
            writer.cancel()
        await asyncio.gather(*self._writers, return_exceptions=True)
        await self._clients.aclose()

    async def _begin(self) -> None:
        await self._subscribe("plain", max_in_flight=128)
        await self._subscribe("durable", max_in_flight=64, durable="one")
        await self._subscribe("late acker", max_in_flight=64, durable="late", late=True)
        await self._subscribe("group", max_in_flight=32, members=GROUP, queue="three")
        await self._subscribe("durable group", max_in_flight=16, members=GROUP, queue="three", durable="kept")
        for number in range(WRITERS):
            client = await self._client(f"writer-{number}")
            self._writers.append(asyncio.create_task(self._write(client, b"%d" % number)))

    async def _client(self, client_id: str) -> stan_client.Client:
        client = await stan_client.connect(
            self._server.cluster_id,
            client_id,
            servers=self._server.url,
            ack_timeout_s=ACK_TIMEOUT_S,
            max_pub_acks_in_flight=IN_FLIGHT_MAX,
            ping_interval_s=1,
            connection_lost=self._lost_sessions.append,
        )
        self._clients.push_async_callback(_close, client)
        return client

    async def _subscribe(self, name: str, *, max_in_flight: int, members: int = 1, late: bool = False, **how) -> None:
        reader = Reader(name, max_in_flight, members)
        self.history.readers.append(reader)
        for member in range(members):
            client = await self._client(f"{name.replace(' ', '-')}-{member}")
            await client.subscribe(
                CHANNEL,
                self._taker(reader, member, late=late),
                start=stan_client.everything(),
                max_in_flight=max_in_flight,
                ack_wait_s=ACK_WAIT_S,
                manual_acks=True,
                **how,
            )

    @staticmethod
    def _taker(reader: Reader, member: int, *, late: bool):
        def take(message: stan_client.Message) -> None:
            reader.delivered(member, message.sequence, message.data, redelivered=message.redelivered)
            if not late or message.redelivered or message.sequence % LATE_EVERY:
                reader.acked(member, message.sequence)
                message.ack()

        return take

    async def _write(self, client: stan_client.Client, name: bytes) -> None:
        number = 0
        while True:
            for _ in range(min(BURST, await client.room())):
                number += 1
                self._publish(client, b"%b-%d" % (name, number))
            await asyncio.sleep(BURST_PAUSE_S)

    def _publish(self, client: stan_client.Client, data: bytes) -> None:
        def settle(_guid: str, error: stan_client.StanClientError | None) -> None:
            self._in_flight -= 1
            if error is None:
                self.history.acked.add(data)

        self._in_flight += 1
        self.history.published.add(data)
        client.publish_async(CHANNEL, data, on_ack=settle)

    async def acknowledged(self, more: int) -> None:
        """Wait until *more* messages than now are acknowledged: the load flows."""
        wanted = len(self.history.acked) + more
        await self._until(lambda: len(self.history.acked) >= wanted, f"{more} acks")

    async def finish(self) -> None:
        """Stop the writers, read the channel back, wait for the readers."""
        for writer in self._writers:
            writer.cancel()
        await asyncio.wait(self._writers)
        assert all(writer.cancelled() for writer in self._writers), self._writers
        await self._until(lambda: not self._in_flight, "the last acks")
        await self._read_back()
        last = self.history.stored[-1][0]
        for reader in self.history.readers:
            await self._until(
                lambda reader=reader: len({event.sequence for event in reader.deliveries()}) >= last, reader.name
            )
        print(self.history.summary())

    async def _read_back(self) -> None:
        end = b"end-1"
        client = await self._client("reader")
        self.history.published.add(end)
        await client.publish(CHANNEL, end)
        stored = self.history.stored
        await client.subscribe(
            CHANNEL, lambda message: stored.append((message.sequence, message.data)), start=stan_client.everything()
        )
        await self._until(lambda: stored and stored[-1][1] == end, "the whole channel")

    async def _until(self, condition, what: str) -> None:
        deadline = asyncio.get_running_loop().time() + CATCH_UP_S
        while not condition():
            assert self._server.running, self._server.log()[-4000:]
            if asyncio.get_running_loop().time() > deadline:
                pytest.fail(
                    f"{what}: not within {CATCH_UP_S} s; {self.history.summary()}; sessions lost: {self._lost_sessions}\n"
                    f"{self.history.violations()}\n{self._server.log()[-4000:]}"
                )
            await asyncio.sleep(0.01)


async def _close(client: stan_client.Client) -> None:
    with contextlib.suppress(stan_client.StanClientError):
        await client.close()


class Faults:
    """What may happen to a server; each leaves it running again."""

    def __init__(self, server: StanServer, load: Load, dice: random.Random) -> None:
        self._server, self._load, self._dice = server, load, dice

    async def kill_broker(self) -> None:
        """SIGKILL, then a new process on the same port and files."""
        process = psutil.Process(self._server.pid)
        process.kill()  # at once: what is awaited first would let the load drain
        self._load.history.crashed()
        await asyncio.to_thread(self._server.kill9)
        await asyncio.to_thread(self._server.start)

    async def kill_nats(self) -> None:
        """SIGKILL of nats-server only; the broker starts another."""
        self._nats().kill()
        self._load.history.crashed()

    async def freeze_nats(self) -> None:
        """Stop nats-server for a while, then let it go on: nothing is lost on the way, all of it is late."""
        nats = self._nats()
        nats.send_signal(signal.SIGSTOP)
        await asyncio.sleep(self._dice.uniform(*FROZEN_S))
        nats.send_signal(signal.SIGCONT)

    async def freeze_broker(self) -> None:
        """The same with the broker itself."""
        broker = psutil.Process(self._server.pid)
        broker.send_signal(signal.SIGSTOP)
        await asyncio.sleep(self._dice.uniform(*FROZEN_S))
        broker.send_signal(signal.SIGCONT)

    async def restart_in_order(self) -> None:
        """SIGTERM and a new process."""
        self._load.history.crashed()
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
            self._load.history.healed()
        await self._load.acknowledged(100)


async def run(server: StanServer, names: list[str], dice: random.Random) -> History:
    """Load, faults, the end; the history of it."""
    async with Load(server) as load:
        await Faults(server, load, dice).happen(names)
        await load.finish()
        return load.history


async def test_broker_killed_under_load_keeps_its_promises(stan_server):
    history = await run(stan_server, 5 * ["kill_broker"], random.Random(chaos_seed()))
    assert not history.violations()
    assert history.crashes == 5
    assert 1_000 < len(history.acked) < len(history.published), "the broker was not killed under load"


async def test_nats_server_killed_and_frozen_under_load_loses_nothing(stan_server):
    pid = stan_server.pid
    history = await run(
        stan_server, ["freeze_nats", "kill_nats", "freeze_nats", "kill_nats"], random.Random(chaos_seed())
    )
    assert not history.violations()
    assert (stan_server.pid, stan_server.running) == (pid, True)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_broker_under_many_faults_keeps_its_promises(stan_server):
    dice = random.Random(chaos_seed())
    names = ["kill_broker", "kill_broker", "kill_nats", "freeze_nats", "freeze_broker", "restart_in_order"]
    history = await run(stan_server, dice.choices(names, k=40), dice)
    assert not history.violations()
