"""Clients under chaos: writers and readers on a few channels, and the history that they write for the checkers.

Each channel is a lane: a history of its own, judged alone. Writers publish numbered messages and note what became of each;
readers are plain, durable and queue subscriptions that ack by hand. Nothing here knows which faults there are.
"""

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest
import stan_client

from tests.chaos.repeats import late_ones_flagged, unexplained
from tests.kit.guids import SHAPES, guids
from tests.kit.history import History, Reader

TURN_S = 0.05
STALL_S = 0.5
ON_ITS_WAY_S = 1.0  # around the moment in which a move of leadership is seen: what both leaders sent arrives
ONE_WAY_S = 0.2  # the same over one nats-server, which both have reached
HELD_S = (
    5.0  # a connection that is joined again gives out what it held by then; TCP tries again after longer and longer
)


class Target(Protocol):
    """What the clients talk to: one server or a cluster."""

    url: str
    cluster_id: str

    @property
    def running(self) -> object:
        """Falsy when no process runs any more."""

    def log(self) -> str:
        """What it has written."""


@dataclass(frozen=True)
class Kind:
    """One subscription, durable, or queue group that reads a channel."""

    name: str
    max_in_flight: int
    members: int = 1
    late_every: int = 0  # each message of such a number is left for its redelivery
    how: dict[str, Any] = field(default_factory=dict)


ALL_KINDS = (
    Kind("plain", 128),
    Kind("durable", 64, how={"durable": "one"}),
    Kind("late acker", 64, late_every=211, how={"durable": "late"}),
    Kind("group", 32, members=3, how={"queue": "three"}),
    Kind("durable group", 16, members=3, how={"queue": "three", "durable": "kept"}),
)
LASTING_KINDS = (
    Kind("durable", 64, how={"durable": "one"}),
    Kind("durable group", 32, members=2, how={"queue": "two", "durable": "kept"}),
)


@dataclass(frozen=True)
class Pace:
    """How much the clients do, and how patient they are."""

    writers: int = 3  # of each channel
    burst: int = 16  # messages that a writer publishes in one turn
    pause_s: float = 0.004
    in_flight_max: int = 256
    ack_wait_s: int = 1
    ack_timeout_s: float = 1.0
    catch_up_s: float = 40.0
    kinds: tuple[Kind, ...] = ALL_KINDS


class Lane:
    """One channel under load."""

    def __init__(self, channel: str) -> None:
        self.channel = channel
        self.history = History()
        self.errors: Counter[str] = Counter()  # of publishes that were not acked
        self.in_flight = 0
        self.longest_gap = 0.0  # seconds in which writers wrote and nothing was acked
        self.longest_wait = 0.0  # seconds from a publish to its ack, by the turns of this process
        self._lived = 0.0  # seconds by the turns of this process, so that a machine that stands still makes no gap
        self._last_ack: float | None = None
        self._unacked: dict[bytes, set[bytes]] = {}  # of each writer, what its client has given up included

    def publish(self, client: stan_client.Client, data: bytes) -> None:
        """Publish and note what becomes of it."""

        def settle(_guid: str, error: stan_client.StanClientError | None) -> None:
            self.in_flight -= 1
            if error is None:
                unacked.discard(data)
                self.longest_wait = max(self.longest_wait, self._lived - begun)
                self._acked(data)
            else:
                self.errors[f"{type(error).__name__}: {error}"] += 1
                if isinstance(error, stan_client.ServerError):
                    unacked.discard(data)
                    self.history.refused.add(data)

        self.in_flight += 1
        begun = self._lived
        self.history.published.add(data)
        unacked = self._unacked.setdefault(data.rpartition(b"-")[0], set())
        unacked.add(data)
        client.window.publish(self.channel, data, on_ack=settle)

    def disconnected(self, writer: bytes) -> None:
        """The NATS connection of a writer has ended; what it publishes until there is another one leaves over that, in order."""
        self.history.disconnected(self._unacked.get(writer, ()))

    def _acked(self, data: bytes) -> None:
        if self._last_ack is not None:
            self.longest_gap = max(self.longest_gap, self._lived - self._last_ack)
        self._last_ack = self._lived
        self.history.acked.add(data)

    def live(self, seconds: float) -> None:
        """Time passes, in which the writers can write."""
        self._lived += seconds

    def is_read_back(self) -> bool:
        """Whether each reader has seen what was read back, and nothing else."""
        last = self.history.stored[-1][0]
        seen = [{event.sequence for event in reader.deliveries()} for reader in self.history.readers]
        return all(len(sequences) == max(sequences) == last for sequences in seen)

    def close_history(self) -> None:
        """Keep it as it is now, whatever comes to readers that are still there."""
        readers = [replace(reader, events=[*reader.events]) for reader in self.history.readers]
        self.history = replace(self.history, stored=[*self.history.stored], readers=readers)

    def forget_gap(self) -> None:
        """Measure the longest gap from now on."""
        self.longest_gap = 0.0


class Load:
    """Writers and readers on some channels of a server or a cluster."""

    def __init__(self, target: Target, channels: tuple[str, ...] = ("chaos",), pace: Pace = Pace()) -> None:
        """Nothing is connected yet."""
        self.lanes = [Lane(channel) for channel in channels]
        self.pace = pace
        self.faults: list[tuple[float, float]] = []  # begin and end of each, and of our own stalls
        self._target = target
        self.diary: list[tuple[float, str]] = []  # what happened when, for whoever looks for the reason of a finding
        self.windows: list[tuple[float, float]] = []  # in which something may arrive that was sent long before
        self.on_its_way_s = ON_ITS_WAY_S
        self.stood_still = 0.0  # seconds in which this process did not run, the machine with it perhaps
        self._fault_since: float | None = None
        self._clients = contextlib.AsyncExitStack()
        self._writers: list[asyncio.Task[None]] = []
        self._watch: asyncio.Task[None] | None = None
        self._lost_sessions: list[stan_client.StanClientError] = []

    # --- begin and end ---------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> "Load":
        try:
            await self._begin()
        except BaseException:
            await self._clients.aclose()
            raise
        return self

    async def __aexit__(self, *_exc: object) -> None:
        tasks = [*self._writers, *([self._watch] if self._watch else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._clients.aclose()

    async def _begin(self) -> None:
        for lane in self.lanes:
            for kind in self.pace.kinds:
                await self._subscribe(lane, kind)
        for lane in self.lanes:
            for number in range(self.pace.writers):
                name = b"%d" % number
                client_id = f"{lane.channel}-writer-{number}"
                client = await self.client(client_id, partial(lane.disconnected, name))
                shape = random.choice(sorted(SHAPES))
                client._publisher._guids = (guid.decode("latin-1") for guid in guids(random, shape))
                self.note(f"{client_id} gives {shape} guids")
                self._writers.append(asyncio.create_task(self._write(lane, client, name)))
        self._watch = asyncio.create_task(self._watch_ourselves())

    async def client(self, client_id: str, on_disconnect: Callable[[], None] | None = None) -> stan_client.Client:
        """A client that ends with the load."""

        async def disconnected() -> None:
            if on_disconnect is not None:
                on_disconnect()

        client = await stan_client.connect(
            self._target.url,
            client_id=client_id,
            cluster_id=self._target.cluster_id,
            nats_options={"disconnected_cb": disconnected},
            connect_timeout_s=10,
            ack_timeout_s=self.pace.ack_timeout_s,
            max_pub_acks_in_flight=self.pace.in_flight_max,
            ping_interval_s=1,
            connection_lost=self._lost_sessions.append,
        )
        self._clients.push_async_callback(_close, client)
        return client

    async def _subscribe(self, lane: Lane, kind: Kind) -> None:
        reader = Reader(f"{lane.channel} {kind.name}", kind.max_in_flight, kind.members, clock=time.monotonic)
        lane.history.readers.append(reader)
        for member in range(kind.members):
            client = await self.client(f"{lane.channel}-{kind.name.replace(' ', '-')}-{member}")
            await client.subscribe(
                lane.channel,
                _taker(reader, member, kind.late_every),
                start=stan_client.everything(),
                max_in_flight=kind.max_in_flight,
                ack_wait_s=self.pace.ack_wait_s,
                manual_acks=True,
                **kind.how,
            )

    async def _write(self, lane: Lane, client: stan_client.Client, name: bytes) -> None:
        number = 0
        while True:
            for _ in range(min(self.pace.burst, await client.window.room())):
                number += 1
                lane.publish(client, b"%b-%d" % (name, number))
            await asyncio.sleep(self.pace.pause_s)

    async def _watch_ourselves(self) -> None:
        """While this process stalls, acks are late by no fault of the broker."""
        before = time.monotonic()
        while True:
            await asyncio.sleep(TURN_S)
            begin, before = before, time.monotonic()
            took = before - begin
            if took > STALL_S:
                self.faults.append((begin, before))
                self.note(f"stood still for {took:.1f} s")
                self.stood_still += took
            for lane in self.lanes:
                lane.live(min(took, STALL_S))

    # --- faults ----------------------------------------------------------------------------------------------------------

    def crashed(self) -> None:
        """A fault was injected."""
        if self._fault_since is None:
            self._fault_since = time.monotonic()
        for lane in self.lanes:
            lane.history.crashed()

    def healed(self) -> None:
        """The broker serves again: what was sent since the fault went into the void, and the next acks will not."""
        if self._fault_since is not None:
            self.faults.append((self._fault_since, time.monotonic()))
            self._fault_since = None
        for lane in self.lanes:
            lane.history.healed()

    def note(self, text: str) -> None:
        """Write into the diary."""
        self.diary.append((time.monotonic(), text))

    def write_down(self, path: Path) -> None:
        """The diary and all that the readers saw, in one order of time."""
        lines = [(at, f"--- {text}") for at, text in self.diary]
        for lane in self.lanes:
            lines += [
                (
                    event.at,
                    f"{reader.name} {event.member} {event.what.value} {event.sequence} {event.data.decode()}"
                    + " again" * event.redelivered,
                )
                for reader in lane.history.readers
                for event in reader.events
                if event.at
            ]
        origin = time.time() - time.monotonic()
        with path.open("w", encoding="utf-8") as file:
            for at, text in sorted(lines):
                file.write(f"{datetime.fromtimestamp(origin + at, UTC).astimezone():%H:%M:%S.%f} {text}\n")

    def moved(self) -> None:
        """Leadership has moved, by a fault or by itself: acks on their way to the old leader may be lost."""
        now = time.monotonic()
        self.faults.append((now, now))
        self.windows.append((now - self.on_its_way_s, now + self.on_its_way_s))
        for lane in self.lanes:
            lane.history.healed()

    def joined(self) -> None:
        """Connections that were cut are whole again: what they held is on its way now."""
        self.windows.append((time.monotonic(), time.monotonic() + HELD_S))

    @contextlib.asynccontextmanager
    async def fault(self) -> AsyncIterator[None]:
        """What happens inside is a fault; it ends when messages are acknowledged again."""
        self.crashed()
        yield
        await self.acknowledged(1)
        self.healed()

    async def acknowledged(self, more: int) -> None:
        """Wait until *more* messages than now are acknowledged in each channel: the load flows."""
        wanted = [(lane, len(lane.history.acked) + more) for lane in self.lanes]
        for lane, count in wanted:
            await self.until(
                lambda lane=lane, count=count: len(lane.history.acked) >= count, f"{more} {lane.channel} acks"
            )

    # --- the end ---------------------------------------------------------------------------------------------------------

    async def finish(self) -> None:
        """Stop the writers, read the channels back, wait for the readers.

        A publish that nobody acknowledged may be stored late: a connection that was cut sends it again when it pleases. So what
        comes behind the last message is read back, too, and what comes after this has ended is not looked at.
        """
        for writer in self._writers:
            writer.cancel()
        await asyncio.wait(self._writers)
        assert all(writer.cancelled() for writer in self._writers), self._writers
        await self.until(lambda: not any(lane.in_flight for lane in self.lanes), "the last acks")
        for lane in self.lanes:
            await self._read_back(lane)
        for lane in self.lanes:
            last = lane.history.stored[-1][0]
            for reader in lane.history.readers:
                await self.until(
                    lambda reader=reader, last=last: len({event.sequence for event in reader.deliveries()}) >= last,
                    f"all {last} messages for {reader.name}",
                )
        await self.until(lambda: all(lane.is_read_back() for lane in self.lanes), "what came behind the end")
        for lane in self.lanes:
            lane.close_history()
            print(
                f"{lane.channel}: {lane.history.summary()}, longest gap {lane.longest_gap:.1f} s, {dict(lane.errors)}"
            )

    async def _read_back(self, lane: Lane) -> None:
        end = b"end-1"
        client = await self.client(f"{lane.channel}-reader")
        lane.publish(client, end)
        stored = lane.history.stored
        seen: set[tuple[int, bytes]] = set()

        def take(message: stan_client.Message) -> None:
            """A leader that has just taken over may send some of them again."""
            found = message.sequence, message.data
            if found not in seen:
                seen.add(found)
                stored.append(found)

        await client.subscribe(
            lane.channel,
            take,
            start=stan_client.everything(),
            ack_wait_s=60,
        )
        await self.until(lambda: stored and stored[-1][1] == end, f"the whole channel {lane.channel}")

    def violations(self) -> list[str]:
        """Everything that breaks a promise, in any channel."""
        found = []
        for lane in self.lanes:
            readers = [late_ones_flagged(reader, self.windows) for reader in lane.history.readers]
            found += replace(lane.history, readers=readers).violations()
        return found

    def unexplained_repeats(self) -> list[str]:
        """Messages that came again for no reason: neither a fault nor an ack that was late."""
        return [
            line
            for lane in self.lanes
            for reader in lane.history.readers
            for line in unexplained(reader, self.faults, self.pace.ack_wait_s)
        ]

    async def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait for a condition; fails with all that is known if it does not come."""
        deadline = asyncio.get_running_loop().time() + self.pace.catch_up_s
        while not condition():
            assert self._target.running, self._target.log()[-4000:]
            if asyncio.get_running_loop().time() > deadline:
                pytest.fail(
                    f"{what}: not within {self.pace.catch_up_s} s; sessions lost: {self._lost_sessions}\n"
                    f"{[lane.history.summary() for lane in self.lanes]}\n{[lane.errors for lane in self.lanes]}\n"
                    f"{self.violations()[:20]}\n{self._target.log()[-12000:]}"
                )
            await asyncio.sleep(0.01)


def _taker(reader: Reader, member: int, late_every: int) -> Callable[[stan_client.Message], None]:
    def take(message: stan_client.Message) -> None:
        reader.delivered(member, message.sequence, message.data, redelivered=message.redelivered)
        if not late_every or message.redelivered or message.sequence % late_every:
            reader.acked(member, message.sequence)
            message.ack()

    return take


async def _close(client: stan_client.Client) -> None:
    with contextlib.suppress(stan_client.StanClientError):
        await client.close()
