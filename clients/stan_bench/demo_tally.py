"""Counts of messages of the subscribers and the writer of `stan demo`, and the promises that must hold. Pure.

Promises: a figure that should be 0 is 0 only if every message was looked at.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from stan_client import Message, Published, StanClientError
from stan_client.publishing import OnAck


@dataclass(slots=True)
class Tally:
    """Counts of the messages that one subscription received, or all members of a queue group together."""

    seen: dict[int, bytes] = field(default_factory=dict)  # sequence -> data, as it first came
    received: int = 0
    flagged: int = 0  # sent again, and saying so; the first time may have been lost with the broker
    unexplained: int = 0  # repeats that do not
    out_of_order: int = 0  # not sent again, and below an earlier one; means something for a single subscriber only
    last: int = 0
    marked_at: int | None = None  # first sequence since `mark`, 0 while nothing has come

    def note(self, message: Message) -> None:
        """Count a message; a callback of Client.subscribe."""
        sequence = message.sequence
        self.received += 1
        if self.marked_at == 0:
            self.marked_at = sequence
        self.flagged += message.redelivered
        if sequence in self.seen:
            self.unexplained += not message.redelivered
            return
        self.out_of_order += sequence < self.last and not message.redelivered
        self.seen[sequence] = message.data
        self.last = max(self.last, sequence)

    def mark(self) -> None:
        """Remember the next sequence that comes."""
        self.marked_at = 0

    def missing(self, last: int) -> int:
        """Number of the sequences 1 to *last* that have not come."""
        return last - sum(1 for sequence in self.seen if sequence <= last)


@dataclass(slots=True)
class PublishLedger:
    """The writer's messages: how many were published, which were acked, and how many have an unknown outcome."""

    published: int = 0
    acked: list[bytes] = field(default_factory=list)
    unknown: int = 0  # no ack, because the broker was killed: stored or not

    def publish(self) -> tuple[bytes, OnAck]:
        """Return the next message, and the callback for its ack."""
        self.published += 1
        data = b"%d" % self.published

        def settle(_published: Published, error: StanClientError | None) -> None:
            if error is None:
                self.acked.append(data)
            else:
                self.unknown += 1

        return data, settle

    @property
    def in_flight(self) -> int:
        """Number of messages without ack or error yet."""
        return self.published - len(self.acked) - self.unknown


@dataclass(frozen=True, slots=True)
class Figure:
    """A line of the closing table."""

    name: str
    value: int
    holds: bool | None = None  # None: nothing is promised about it


def figures_of_log(ledger: PublishLedger, stored: list[bytes]) -> Iterable[Figure]:
    """Compare acknowledged messages with *stored*, the data of the channel in its order; data counts up as written."""
    numbers = [int(data) for data in stored]
    once = set(numbers)
    lost = len({int(data) for data in ledger.acked} - once)
    inverted = sum(later < earlier for earlier, later in pairwise(numbers))
    yield Figure("acknowledged", len(ledger.acked), len(ledger.acked) > 0)
    yield Figure("no answer (broker killed meanwhile)", ledger.unknown)
    yield Figure("found", len(numbers), len(numbers) >= len(ledger.acked))
    yield Figure("lost", lost, lost == 0)
    yield Figure("out of order", inverted, inverted == 0)
    yield Figure("stored twice", len(numbers) - len(once), len(numbers) == len(once))


def figures_of_reader(name: str, tally: Tally, last: int, *, ordered: bool) -> Iterable[Figure]:
    """Compare the messages of a durable or a group with the channel, which ends with *last*."""
    at, missing = tally.marked_at or 0, tally.missing(last)
    yield Figure(f"{name}: went on at sequence", at, at > 1)
    yield Figure(f"{name}: missing", missing, missing == 0)
    if ordered:
        yield Figure(f"{name}: out of order", tally.out_of_order, tally.out_of_order == 0)
    yield Figure(f"{name}: repeats, flagged", tally.flagged)
    yield Figure(f"{name}: unexplained repeats", tally.unexplained, tally.unexplained == 0)
