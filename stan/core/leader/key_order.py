"""The order of messages in a key-ordered queue group: of each slot only the oldest message may be sent that is not settled.

A slot is a hash of a message's key. All messages of a slot that were sent or passed over stand in its queue until they are
settled, in the order of their sequences, and only the first one is ever sent, first or again. So a message that comes again, or
rests after a failure, holds its own slot back and nothing else, and the order of a key outlives members and leaders. Messages
without a key are in no slot, and wait for nobody. Lives on the leader only: a new one reads the keys of unsettled messages
before it sends anything. What is done for each message is done by the kernel, on the tables that are kept here.
"""

from array import array
from bisect import insort
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import repeat
from struct import Struct
from typing import NamedTuple

from stan import limits
from stan.core.base.ready import ReadResult
from stan.core.base.runs import Run, Runs
from stan.protocol.kernel import server as kernel

_SLOT = Struct("<H")
_END = Struct("<I")


class KeyedBatch(NamedTuple):
    """A record batch cut into its messages."""

    base_sequence: int
    slots: bytes  # as the kernel gives them
    ends: bytes  # likewise
    records: bytes | memoryview

    def slot(self, at: int) -> int:
        """The slot of the message at place *at*; NO_SLOT: it has no key."""
        found: int = _SLOT.unpack_from(self.slots, 2 * at)[0]
        return found

    def record(self, at: int) -> bytes:
        """The record at place *at*, with its length in front."""
        begin = _END.unpack_from(self.ends, 4 * at - 4)[0] if at else 0
        return bytes(self.records[begin : _END.unpack_from(self.ends, 4 * at)[0]])


def cut(batch: ReadResult) -> KeyedBatch:
    """Cut a batch into its messages."""
    return KeyedBatch(batch.base_sequence, *kernel.slots(batch.records), batch.records)


@dataclass(slots=True)
class HeldRecords:
    """The records of messages that are to be sent, as far as memory for them goes; the others are read again."""

    by_sequence: dict[int, bytes] = field(default_factory=dict)
    size: int = 0  # bytes

    def keep(self, sequence: int, record: bytes, *, needed: bool = False) -> None:
        """Keep a record whose turn may come. *needed*: it was read as its turn has come."""
        room = needed or self.size + len(record) <= limits.HELD_BACK_BYTES_MAX
        if room and sequence not in self.by_sequence:
            self.by_sequence[sequence] = record
            self.size += len(record)

    def keep_each(self, sequences: list[int], records: list[bytes]) -> None:
        """Keep many new records, as `keep` does one."""
        size = sum(map(len, records))
        if self.size + size > limits.HELD_BACK_BYTES_MAX:
            for sequence, record in zip(sequences, records, strict=True):
                self.keep(sequence, record)
            return
        self.by_sequence.update(zip(sequences, records, strict=True))
        self.size += size

    def take(self, sequences: list[int]) -> list[bytes | None]:
        """Give records up; None for those that were not kept."""
        records = [*map(self.by_sequence.pop, sequences, repeat(None))]
        self.size -= sum([len(record) for record in records if record is not None])
        return records

    def forget(self, first: int, last: int) -> None:
        """The messages [first, last] will not be sent."""
        many = last - first >= len(self.by_sequence)
        self.take([s for s in self.by_sequence if first <= s <= last] if many else [*range(first, last + 1)])


def _nobody() -> "array[int]":
    return array("H", bytes(_SLOT.size * kernel.SLOTS))


def _empty_tables() -> kernel.SlotTables:
    return kernel.SlotTables({}, {}, {}, _nobody())


@dataclass(slots=True)
class KeyOrder:
    """The slots of one cursor. Invariants: K1 `tables` hold the unsettled messages of each slot, the first one and its
    successors, in increasing order; K2 of each slot at most the first one is in flight, but for those in flight when
    the order began."""

    tables: kernel.SlotTables = field(default_factory=_empty_tables)
    numbers: dict[int, int] = field(default_factory=dict)  # by subscription id: the member's number in the tables
    turn: int = 0  # number of the member that got a message last which belonged to nobody
    candidates: list[int] = field(default_factory=list)  # messages that may be sent, if they are still owed; any order
    reading: list[int] = field(default_factory=list)  # candidates that are being read from the log
    unread: Runs | None = None  # unsettled messages whose slots are not known yet; None: nobody has looked yet
    records: HeldRecords = field(default_factory=HeldRecords)
    newest: KeyedBatch | None = None  # the batch that is being sent

    def begin(self, held: Iterable[Runs]) -> None:
        """The messages in *held* are not settled: their slots have to be read first."""
        self.unread = Runs()
        for runs in held:
            for run in runs:
                self.unread.merge(Run(run.first, run.last))

    def batch(self, batch: ReadResult) -> KeyedBatch:
        """Cut the batch that is being sent; it is cut once."""
        newest = self.newest
        if newest is None or newest.base_sequence != batch.base_sequence or newest.records is not batch.records:
            newest = self.newest = cut(batch)
        return newest

    def number_of(self, subscription_id: int) -> int:
        """The number of a member in the tables, from 1 on."""
        return self.numbers.setdefault(subscription_id, len(self.numbers) + 1)

    def forget_takers(self) -> None:
        """Forget the members that got the last messages of the slots: they do not count any more."""
        self.numbers.clear()
        self.tables = self.tables._replace(takers=_nobody())

    def learn(self, sequence: int, slot: int) -> None:
        """The slot of an unread message is known now."""
        if self.unread is None or not self.unread.remove(sequence, sequence) or slot == kernel.NO_SLOT:
            return
        slot_of, heads, behind, _ = self.tables
        slot_of[sequence] = slot
        head = heads.setdefault(slot, sequence)
        if head == sequence:
            return
        heads[slot] = min(head, sequence)
        queue = [*behind.get(slot, ())]
        insort(queue, max(head, sequence))
        behind[slot] = deque(queue)

    def is_first(self, sequence: int) -> bool:
        """True if a message may be sent: it is the first one of its slot, or has no key."""
        slot = self.tables.slot_of.get(sequence)
        return slot is None or self.tables.heads[slot] == sequence

    def owed(self, first: int, last: int) -> None:
        """Messages came back to be sent again: those that are the first of their slots may go."""
        self.candidates += range(first, last + 1)

    def acked(self, runs: list[Run]) -> None:
        """Messages that were in flight were acked: those behind them may go."""
        if self.unread:
            self.unread.take_each(runs)
        self.candidates += kernel.settle(runs, self.tables)

    def settled(self, first: int, last: int) -> None:
        """Messages were acked or are gone, wherever they were: those behind them may go."""
        if self.records.by_sequence:
            self.records.forget(first, last)
        self.acked([Run(first, last)])

    def due(self) -> list[int]:
        """Takes the candidates out that may be sent, if they are still owed: in increasing order."""
        found = [sequence for sequence in sorted(set(self.candidates)) if self.is_first(sequence)]
        self.candidates.clear()
        return found

    def read_again(self) -> None:
        """No read is under way: what was wanted of the last one may be sent, or is wanted again."""
        self.candidates += self.reading
        self.reading.clear()
