"""What clients saw of a broker under faults, and checkers that say what of it breaks the broker's promises.

Modelled on Jepsen's histories: the workload only records, the checkers only read. A checker gives one line per violation and
nothing if all is well; each is proven by histories that it must catch (tests/unit/kit/test_history.py).
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

SHOWN_MAX = 5
"""Violations of one kind that are shown."""

POSITIONS_BEHIND_MAX = 5_000
"""Acked messages that a durable may get once more after a crash; the broker promises 1,000 and in-flight entries."""


class What(Enum):
    """Kinds of events."""

    DELIVERED = "delivered"
    ACKED = "acked"
    CRASHED = "crashed"  # the broker or its NATS was killed, or serves again: acks sent around or between are lost


class Event(NamedTuple):
    """One event of a reader; members are named by their place in the group, a single subscriber is 0."""

    what: What
    member: int = 0
    sequence: int = 0
    data: bytes = b""
    redelivered: bool = False
    at: float = 0.0  # seconds, by the reader's clock


@dataclass
class Reader:
    """A subscription, a durable, or all members of a queue group."""

    name: str
    max_in_flight: int
    members: int = 1
    events: list[Event] = field(default_factory=list)
    clock: Callable[[], float] = float  # for those who judge by time; by default there is none

    def delivered(self, member: int, sequence: int, data: bytes, *, redelivered: bool) -> None:
        """A message arrived at a member."""
        self.events.append(Event(What.DELIVERED, member, sequence, data, redelivered, self.clock()))

    def acked(self, member: int, sequence: int) -> None:
        """A member acknowledged it; call it before the ack leaves."""
        self.events.append(Event(What.ACKED, member, sequence, at=self.clock()))

    def deliveries(self) -> Iterator[Event]:
        """Only what arrived, in the order of arrival."""
        return (event for event in self.events if event.what is What.DELIVERED)


@dataclass
class History:
    """All that writers and readers saw; messages are `writer-number`, numbers count up from 1 for each writer."""

    acked: set[bytes] = field(default_factory=set)
    published: set[bytes] = field(default_factory=set)
    refused: set[bytes] = field(default_factory=set)
    loose: Counter[bytes] = field(
        default_factory=Counter
    )  # how many connections of its writer ended before its ack came
    stored: list[tuple[int, bytes]] = field(default_factory=list)  # the channel, read back at the end
    readers: list[Reader] = field(default_factory=list)
    crashes: int = 0

    def disconnected(self, unacked: Iterable[bytes]) -> None:
        """A writer's NATS connection has ended; what it had published and no ack had come for may arrive later."""
        self.loose.update(unacked)

    def crashed(self) -> None:
        """A fault was injected."""
        self.crashes += 1
        for reader in self.readers:
            reader.events.append(Event(What.CRASHED))

    def healed(self) -> None:
        """The broker serves again: what was sent since the fault went into the void, and the next acks will not."""
        for reader in self.readers:
            reader.events.append(Event(What.CRASHED))

    def violations(self) -> list[str]:
        """Everything that breaks a promise."""
        found = [*acked_once(self), *refused_kept_out(self), *dense(self), *writers_in_order(self)]
        for reader in self.readers:
            for check in (complete, same_data, in_order, repeats_flagged, window_kept, position_kept):
                lines = list(check(self, reader))
                found += lines[:SHOWN_MAX]
                if len(lines) > SHOWN_MAX:
                    found.append(f"{reader.name}: ... and {len(lines) - SHOWN_MAX} more of {check.__name__}")
        return found

    def summary(self) -> str:
        """Figures for the log of a test."""
        repeats = {reader.name: sum(event.redelivered for event in reader.deliveries()) for reader in self.readers}
        return (
            f"{len(self.acked)} acked of {len(self.published)} published, {len(self.stored)} stored, "
            f"{self.crashes} crashes, flagged redelivered: {repeats}"
        )


# --- what is stored -------------------------------------------------------------------------------------------------


def acked_once(history: History) -> Iterator[str]:
    """What was acknowledged is stored once; what was not, at most once; and nothing else is stored."""
    times = Counter(data for _, data in history.stored)
    for data in sorted(history.acked - times.keys())[:SHOWN_MAX]:
        yield f"lost: {data!r} was acknowledged and is not stored"
    for data, count in times.items():
        if count > 1:
            yield f"stored {count} times: {data!r}"
        if data not in history.published:
            yield f"stored but never published: {data!r}"


def refused_kept_out(history: History) -> Iterator[str]:
    """What the broker refused is not stored: a refusal is a promise too."""
    for sequence, data in history.stored:
        if data in history.refused:
            yield f"{data!r} was refused and is stored as {sequence}"


def dense(history: History) -> Iterator[str]:
    """Sequences are 1, 2, 3, ... without a gap."""
    for expected, (sequence, _) in enumerate(history.stored, 1):
        if sequence != expected:
            yield f"sequence {sequence} where {expected} was expected"
            return


def writers_in_order(history: History) -> Iterator[str]:
    """The messages of each writer are stored in the order in which it published them over one NATS connection.

    NATS gives no order over two: what was on its way when a connection ended, and has no ack yet ("loose"), may arrive behind
    what came over the next one. What came over one connection is in order. So messages that are stored backwards, of any number,
    came each over another connection, and the last of k + 1 of them was loose k times.
    """
    tops: dict[
        bytes, list[int]
    ] = {}  # of each writer: the highest number that is the last of 1, 2, ... stored backwards
    for _, data in history.stored:
        writer, _, text = data.rpartition(b"-")
        highest, number = tops.setdefault(writer, []), int(text)
        behind = sum(top > number for top in highest)
        if behind > history.loose[data]:
            yield f"writer {writer.decode()}: {number} is stored behind {highest[0]}"
        highest[behind : behind + 1] = [number]


# --- what readers get -----------------------------------------------------------------------------------------------


def complete(history: History, reader: Reader) -> Iterator[str]:
    """Every stored message was delivered."""
    seen = {event.sequence for event in reader.deliveries()}
    for sequence, _ in history.stored:
        if sequence not in seen:
            yield f"{reader.name}: {sequence} was never delivered"


def same_data(history: History, reader: Reader) -> Iterator[str]:
    """A sequence is the same message for everybody, each time."""
    stored = dict(history.stored)
    for event in reader.deliveries():
        if stored.get(event.sequence) != event.data:
            yield f"{reader.name}: {event.sequence} is {event.data!r}, stored is {stored.get(event.sequence)!r}"


def in_order(_history: History, reader: Reader) -> Iterator[str]:
    """First deliveries come in the order of the channel, to each member; only redeliveries go back."""
    highest = [0] * reader.members
    for event in reader.deliveries():
        if event.sequence < highest[event.member] and not event.redelivered:
            yield f"{reader.name}: {event.sequence} came behind {highest[event.member]}"
        highest[event.member] = max(highest[event.member], event.sequence)


def repeats_flagged(_history: History, reader: Reader) -> Iterator[str]:
    """What comes a second time to the same durable or group says so.

    Each member has a connection of its own: a first copy to one of them may be overtaken by the flagged one that another got
    later, where a nats-server or the clients' process stood still meanwhile. A second copy without a flag is wrong anywhere.
    """
    seen: set[tuple[int, int]] = set()  # member, sequence
    unflagged: set[int] = set()
    for event in reader.deliveries():
        arrived = event.member, event.sequence
        if not event.redelivered:
            if event.sequence in unflagged or arrived in seen:
                yield f"{reader.name}: {event.sequence} came again and is not flagged"
            unflagged.add(event.sequence)
        seen.add(arrived)


def window_kept(_history: History, reader: Reader) -> Iterator[str]:
    """Nobody has more unacknowledged messages than fit its window, redelivered ones included.

    A member that has got a message takes it over from the one that had it. A crash empties the windows as the client sees
    them: a message that the broker no longer knows it has sent may go to another member.
    """
    held: list[set[int]] = [set() for _ in range(reader.members)]
    for event in reader.events:
        for window in held:
            if event.what is What.CRASHED:
                window.clear()
            else:
                window.discard(event.sequence)
        if event.what is What.DELIVERED:
            held[event.member].add(event.sequence)
            size = len(held[event.member])
            if size > reader.max_in_flight:
                yield f"{reader.name}: {event.sequence} is number {size} of {reader.max_in_flight} unacknowledged"


def position_kept(_history: History, reader: Reader) -> Iterator[str]:
    """What was acknowledged long before a crash does not come again: an ack that was kept once is kept for ever."""
    acked: dict[int, int] = {}  # sequence -> how many acks came before its first
    crashes: list[int] = []  # how many acks came before each
    for event in reader.events:
        if event.what is What.CRASHED:
            crashes.append(len(acked))
        elif event.what is What.ACKED:
            acked.setdefault(event.sequence, len(acked))
        elif event.sequence in acked:
            next_crash = bisect_right(crashes, acked[event.sequence])
            if next_crash < len(crashes) and crashes[next_crash] - acked[event.sequence] > POSITIONS_BEHIND_MAX:
                behind = crashes[next_crash] - acked[event.sequence]
                yield f"{reader.name}: {event.sequence} came again, acknowledged {behind} acks before a crash"
