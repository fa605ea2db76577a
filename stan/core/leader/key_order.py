"""Which messages of a key-ordered queue group may be sent: of each slot one, the oldest that is not settled.

A slot is a hash of a message's key. All messages of a slot that were sent or passed over stand in its queue until they are
settled, in the order of their sequences, and only the first one is ever sent, first or again. So a message that comes again, or
rests after a failure, holds its own slot back and nothing else, and the order of a key outlives members and leaders. Messages
without a key are in no slot, and wait for nobody. Lives on the leader only: a new one reads the keys of what is not settled
before it sends anything.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from struct import unpack
from typing import NamedTuple

from stan import limits
from stan.core.base.ready import ReadResult
from stan.core.base.runs import Run, Runs
from stan.protocol.kernel import server as kernel


class KeyedBatch(NamedTuple):
    """A record batch cut into its messages."""

    base_sequence: int
    slots: tuple[int, ...]  # NO_SLOT: without a key
    places: tuple[int, ...]  # where each record begins, and where the last one ends
    records: bytes | memoryview

    def record(self, at: int) -> bytes:
        """The record at place *at*, with its length in front."""
        return bytes(self.records[self.places[at] : self.places[at + 1]])


def cut(batch: ReadResult) -> KeyedBatch:
    """Cut a batch into its messages."""
    slots, ends = kernel.slots(batch.records)
    count = len(slots) // 2
    places = (0, *unpack(f"<{count}I", ends))
    return KeyedBatch(batch.base_sequence, unpack(f"<{count}H", slots), places, batch.records)


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

    def __contains__(self, sequence: int) -> bool:
        return sequence in self.by_sequence

    def take(self, sequence: int) -> bytes | None:
        """Give a record up; None if it was not kept."""
        record = self.by_sequence.pop(sequence, None)
        if record is not None:
            self.size -= len(record)
        return record


@dataclass(slots=True)
class KeyOrder:
    """The slots of one cursor. Invariants: K1 a queue holds the unsettled messages of its slot in increasing order; K2 of each
    slot at most the first message is in flight, but for what was in flight when the order began."""

    queues: dict[int, deque[int]] = field(default_factory=dict)  # by slot; never empty ones
    slot_of: dict[int, int] = field(default_factory=dict)  # by sequence, of all messages in the queues
    candidates: list[int] = field(default_factory=list)  # a heap: messages that may be sent, if they are still owed
    reading: list[int] = field(default_factory=list)  # candidates that are being read from the log
    takers: dict[int, int] = field(default_factory=dict)  # slot -> id of the subscription that got its last message
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

    def enters(self, sequence: int, slot: int) -> bool:
        """A message that is newer than all others enters its slot. Returns True if it is the first one there."""
        self.slot_of[sequence] = slot
        queue = self.queues.get(slot)
        if queue is None:
            self.queues[slot] = deque((sequence,))
            return True
        queue.append(sequence)
        return False

    def learn(self, sequence: int, slot: int) -> None:
        """The slot of an unread message is known now."""
        if self.unread is not None and self.unread.remove(sequence, sequence) and slot != kernel.NO_SLOT:
            self.slot_of[sequence] = slot
            queue = self.queues.setdefault(slot, deque())
            queue.append(sequence)
            if len(queue) > 1 and queue[-2] > sequence:
                self.queues[slot] = deque(sorted(queue))

    def is_first(self, sequence: int) -> bool:
        """True if a message may be sent: it is the first one of its slot, or has no key."""
        slot = self.slot_of.get(sequence)
        return slot is None or self.queues[slot][0] == sequence

    def owed(self, first: int, last: int) -> None:
        """Messages came back to be sent again: those that are the first of their slots may go."""
        for sequence in range(first, last + 1):
            heappush(self.candidates, sequence)

    def acked(self, runs: Iterable[Run]) -> None:
        """Messages were acked: those behind them may go."""
        for first, last, *_ in runs:
            self.settled(first, last)

    def settled(self, first: int, last: int) -> None:
        """Messages were acked or are gone: those behind them may go."""
        if self.unread:
            self.unread.remove(first, last)
        slot_of = self.slot_of
        many = last - first >= len(slot_of)
        for sequence in [s for s in slot_of if first <= s <= last] if many else range(first, last + 1):
            slot = slot_of.pop(sequence, None)
            if slot is None:
                continue
            self.records.take(sequence)
            queue = self.queues[slot]
            if queue[0] != sequence:
                queue.remove(sequence)
                continue
            queue.popleft()
            if queue:
                heappush(self.candidates, queue[0])
            else:
                del self.queues[slot]

    def next_owed(self) -> int:
        """The oldest candidate that is the first of its slot, 0 if there is none; those before it are forgotten."""
        candidates = self.candidates
        while candidates:
            if self.is_first(candidates[0]):
                return candidates[0]
            heappop(candidates)
        return 0

    def take_owed(self) -> None:
        """What `next_owed` has told is sent, given up or read."""
        heappop(self.candidates)

    def read_again(self) -> None:
        """No read is under way: what was wanted of the last one may be sent, or is wanted again."""
        for sequence in self.reading:
            heappush(self.candidates, sequence)
        self.reading.clear()
