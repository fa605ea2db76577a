"""A load on a cluster with failing nodes: a writer and a durable on one channel, a kill -9, and its cost.

For `stan bench failover` and `stan demo --cluster`. Every message has a number; acknowledged and received messages are
counted by PublishLedger and Tally, pauses by Pauses. Counts only messages that have come back.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from stan_client import Client, Message, Published, StanClientError, everything

from stan_bench.demo_tally import Figure, PublishLedger, Tally, figures_of_log, figures_of_reader
from stan_bench.local_cluster import LocalCluster, group_of

TURN_S: Final = 0.001
BURST: Final = 200
"""Messages published before acks and deliveries get their turn."""
WINDOW: Final = 2_000
"""Publishes without ack when there is no rate to keep."""
PACED_WINDOW: Final = 16_384
"""The same with a rate: unacknowledged publishes while no server answers."""
ACK_TIMEOUT_S: Final = 5.0
ACK_WAIT_S: Final = 5
STEADY_S: Final = 0.5
"""The load runs this long, undisturbed, before a node is killed."""
STEADY_ACKS_MIN: Final = 100


@dataclass(slots=True)
class Pauses:
    """The longest time without an event since `begin`; it counts from the last event before that."""

    longest_ns: int = 0
    last_ns: int = 0

    def begin(self) -> None:
        """Forget the longest, not the last event."""
        self.longest_ns = 0

    def note(self, now_ns: int) -> None:
        """An event."""
        if self.last_ns:
            self.longest_ns = max(self.longest_ns, now_ns - self.last_ns)
        self.last_ns = now_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A kill, and the return of the killed node; times in milliseconds."""

    killed: str
    led: bool  # it led the channel's group
    leader: str  # the leader afterwards
    gap_ms: float  # longest time without an ack, from the last one before the kill
    latency_ms: float  # longest time from a publish to its ack
    delivery_gap_ms: float  # longest time without a delivery
    back_ms: float  # from the second start of the killed node until it has the messages of the others
    back_gap_ms: float  # longest time without an ack meanwhile

    def to_json(self) -> dict[str, Any]:
        """Return the figures as numbers, rounded to a tenth of a millisecond."""
        return {key: round(value, 1) if isinstance(value, float) else value for key, value in asdict(self).items()}


@dataclass(slots=True)
class FailoverLoad:
    """Messages that the writer and the durable of one channel have seen so far."""

    cluster: LocalCluster
    channel: str
    rate: float  # messages a second, 0 for as many as the window lets
    size: int  # payload bytes, at least the digits of the number
    ledger: PublishLedger = field(default_factory=PublishLedger)
    durable: Tally = field(default_factory=Tally)
    errors: Counter[str] = field(default_factory=Counter)
    acks: Pauses = field(default_factory=Pauses)
    deliveries: Pauses = field(default_factory=Pauses)
    latency_ns: int = 0  # longest since it was set to 0
    received: int = 0  # newest number that the durable has
    _unsettled: dict[int, int] = field(default_factory=dict)  # number -> when published, ns

    def publish(self, client: Client) -> None:
        """The next message."""
        data, settle = self.ledger.publish()
        number = self.ledger.published
        self._unsettled[number] = time.monotonic_ns()

        def on_ack(acked: Published, error: StanClientError | None) -> None:
            settle(acked, error)
            now, published = time.monotonic_ns(), self._unsettled.pop(number)
            if error is not None:
                self.errors[str(error)] += 1
                return
            self.acks.note(now)
            self.latency_ns = max(self.latency_ns, now - published)

        client.window.publish(self.channel, data.ljust(self.size), on_ack=on_ack)

    def note(self, message: Message) -> None:
        """Count a delivery to the durable."""
        self.deliveries.note(time.monotonic_ns())
        self.durable.note(message)
        self.received = max(self.received, int(message.data))

    def settled(self, number: int) -> bool:
        """Return True if all messages up to *number* have their ack or an error."""
        return next(iter(self._unsettled), number + 1) > number

    def measure(self) -> None:
        """Begin a new search for the longest pauses."""
        self.acks.begin()
        self.deliveries.begin()
        self.latency_ns = 0

    async def write(self, client: Client) -> None:
        """Publish 1, 2, 3, ... until cancelled; publishes delayed by a pause follow at once."""
        began, before = time.monotonic(), self.ledger.published
        while True:
            due = int((time.monotonic() - began) * self.rate) - (self.ledger.published - before) if self.rate else BURST
            for _ in range(min(due, await client.window.room(), BURST)):
                self.publish(client)
            await asyncio.sleep(TURN_S if self.rate else 0)

    async def flow(self) -> None:
        """Wait until the load has run undisturbed for a moment."""
        target = len(self.ledger.acked) + max(STEADY_ACKS_MIN, int(self.rate * STEADY_S))
        await self.cluster.until(lambda: len(self.ledger.acked) >= target, "the load")

    async def pass_over(self) -> None:
        """Wait until all that was published by now is settled, and a later message is acknowledged and delivered."""
        number, acked = self.ledger.published, len(self.ledger.acked)
        await self.cluster.until(
            lambda: self.settled(number) and len(self.ledger.acked) > acked and self.received > number,
            "publishes and deliveries to go on",
        )


@contextlib.asynccontextmanager
async def running_load(load: FailoverLoad, name: str) -> AsyncIterator[list[Figure]]:
    """Run writer and durable within the block; after its end the list has the figures."""
    figures: list[Figure] = []
    window = PACED_WINDOW if load.rate else WINDOW
    async with (
        load.cluster.client(f"{name}-writer", ACK_TIMEOUT_S, window) as writer,
        load.cluster.client(f"{name}-reader", ACK_TIMEOUT_S, WINDOW) as reader,
    ):
        await reader.subscribe(load.channel, load.note, durable="ledger", start=everything(), ack_wait_s=ACK_WAIT_S)
        writing = asyncio.ensure_future(load.write(writer))
        try:
            yield figures
        finally:
            writing.cancel()
            await asyncio.wait([writing])
            if not writing.cancelled():
                writing.result()  # it has failed before
        figures += await _count(load, reader, writer)


async def _count(load: FailoverLoad, reader: Client, writer: Client) -> list[Figure]:
    """Read the channel back up to a message that is published last, and hold everything against it."""
    until = load.cluster.until
    await until(lambda: load.ledger.in_flight == 0, "the last acks")
    end = b"0"
    await writer.publish(load.channel, end)
    back = Tally()
    await reader.subscribe(load.channel, back.note, start=everything())
    await until(lambda: back.seen.get(back.last) == end and not back.missing(back.last), "the whole channel")
    stored = [back.seen[sequence] for sequence in range(1, back.last)]
    await until(lambda: load.durable.missing(back.last) == 0, "the durable to catch up")
    return [
        *figures_of_log(load.ledger, stored),
        *figures_of_reader("durable", load.durable, back.last, ordered=True),
    ]


async def outage(load: FailoverLoad, victim: str) -> Round:
    """Kill *victim* under the load, see it go on, start the node again."""
    cluster, group = load.cluster, group_of(load.channel)
    led = cluster.leader(group) == victim
    load.durable.mark()
    load.measure()
    await cluster.kill(victim)
    leader = await cluster.leader_of(load.channel)
    await load.pass_over()
    cost = load.acks.longest_ns, load.latency_ns, load.deliveries.longest_ns
    load.measure()
    started = time.monotonic_ns()
    await cluster.start(victim)
    await cluster.caught_up(victim, group)
    back = time.monotonic_ns() - started
    await load.flow()
    return Round(
        killed=victim,
        led=led,
        leader=leader,
        gap_ms=cost[0] / 1e6,
        latency_ms=cost[1] / 1e6,
        delivery_gap_ms=cost[2] / 1e6,
        back_ms=back / 1e6,
        back_gap_ms=load.acks.longest_ns / 1e6,
    )
