"""What a key-ordered queue group sends next (stan.core.leader.key_order says what may be sent), and to which member.

A slot keeps its member while that one is there and has room. Messages that may not be sent yet are held back: they count as
messages to redeliver that were never sent (count -1), so that `last_sent` may pass them and progress entries tell of them; the
next leader flags them, as any of them may have been sent since the last entry.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from stan import limits
from stan.core.base.causes import Cause
from stan.core.base.ready import ReadResult
from stan.core.base.runs import Run, Runs, runs_of
from stan.core.leader.cursors import LiveCursor, LiveMember
from stan.core.leader.deliveries import Sending
from stan.core.leader.key_order import KeyOrder
from stan.core.leader.retries import is_last
from stan.protocol.kernel.server import NO_SLOT
from stan.types import Nanos

NEVER_SENT: Final = -1
"""Count of redeliveries of a message that is held back: its first delivery is number 0."""


@dataclass(slots=True)
class Parcel:
    """Messages that go to one member in one delivery."""

    member: LiveMember
    cause: int
    count: int  # redeliveries, this one included
    sequences: list[int] = field(default_factory=list)
    records: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class OrderedTurn:
    """One look at a key-ordered cursor: what is sent to whom, and what has to be read."""

    live: LiveCursor
    order: KeyOrder
    now: Nanos
    room: int  # bytes
    parcels: dict[tuple[int, int, int], Parcel] = field(default_factory=dict)  # by subscription id, cause and count
    exhausted: list[Run] = field(default_factory=list)
    members: dict[int, LiveMember] = field(init=False)  # by subscription id

    def __post_init__(self) -> None:
        self.members = {member.sub.subscription_id: member for member in self.live.members}

    def send_owed(self) -> None:
        """Send what is to be sent again or was held back, as far as its records are at hand; the others go to `order.reading`."""
        live, order = self.live, self.order
        wanted_max = min(sum(member.open_slots for member in live.takers), limits.BATCHES_PER_READ_MAX)
        to_redeliver, granted, policy = live.to_redeliver, live.retries.granted, live.policy
        while self.room > 0 and (sequence := order.next_owed()):
            found = to_redeliver.remove(sequence, sequence)
            if not found:  # another member has it, or it is exhausted
                order.take_owed()
                continue
            count = found[0].count
            if is_last(policy, count) and sequence not in granted:
                order.take_owed()
                self._give_up(found[0])
                continue
            slot = order.slot_of.get(sequence, NO_SLOT)
            member = self._taker(slot)
            if member is None or (sequence not in order.records and len(order.reading) >= wanted_max):
                to_redeliver.add(found[0])
                return
            order.take_owed()
            record = order.records.take(sequence)
            if record is None:
                to_redeliver.add(found[0])
                order.reading.append(sequence)
                continue
            if granted.size:
                granted.remove(sequence, sequence)
            live.unreported.mark(sequence, sequence)
            cause = live.retries.causes_of(sequence, sequence)[0].count if count > NEVER_SENT else Cause.NEW
            live.retries.causes.remove(sequence, sequence)
            self._send(member, slot, sequence, record, cause, count + 1)

    def send_new(self, batch: ReadResult, first: int, last: int) -> bool:
        """Send the new messages [first, last] of *batch*, or hold them back; returns False if they were not all passed, as no
        window is open, or too many messages are held back."""
        live, order = self.live, self.order
        keyed = order.batch(batch)
        passed, sequence = True, first
        held_back, queues = len(order.slot_of), order.queues
        few, most = limits.HELD_BACK_FEW, limits.HELD_BACK_MAX
        maybe_sent_until, resend = live.ahead.maybe_sent_until, live.ahead.resend
        for at in range(first - batch.base_sequence, last - batch.base_sequence + 1):
            slot = keyed.slots[at]
            moved = resend.size > 0 and sequence in resend
            count = int(moved or sequence <= maybe_sent_until)
            cause = Cause.MOVED if moved else Cause.LEADER_CHANGED if count else Cause.NEW
            if slot != NO_SLOT and slot in queues:
                if held_back >= few and (held_back >= most or len(queues) > limits.SLOTS_IN_USE_MAX):
                    passed = False
                    break
                held_back += 1
                order.enters(sequence, slot)
                order.records.keep(sequence, keyed.record(at))
                live.to_redeliver.add(Run(sequence, sequence, 0, count + NEVER_SENT))
                # The next leader flags it, as this one may have sent it and failed before an entry told that.
                live.retries.owe(sequence, sequence, cause if count else Cause.LEADER_CHANGED)
            else:
                member = self._taker(slot)
                if member is None or self.room <= 0:
                    passed = False
                    break
                if slot != NO_SLOT:
                    order.enters(sequence, slot)
                self._send(member, slot, sequence, keyed.record(at), cause, count)
            sequence += 1
        if sequence > first:
            live.last_sent = sequence - 1
            live.unreported.mark(first, sequence - 1)
            resend.remove(1, live.last_sent)
        return passed

    def sent(self) -> Iterator[tuple[LiveMember, int, list[int], list[bytes]]]:
        """What goes out: member, count of redeliveries, sequences and records. The next progress entry tells of it."""
        recorded = self.live.unreported.sent
        for parcel in self.parcels.values():
            sub = parcel.member.sub
            for first, last in runs_of(parcel.sequences):
                recorded.append(
                    Sending(sub.subscription_id, sub.client_id, parcel.cause, parcel.count, first, last, self.now)
                )
            yield parcel.member, parcel.count, parcel.sequences, parcel.records

    def _taker(self, slot: int) -> LiveMember | None:
        """The member that gets the next message of a slot: the one of its last message if it has room, or else any."""
        if slot != NO_SLOT and not self.live.policy.failover:
            member = self.members.get(self.order.takers.get(slot, 0))
            if member is not None and not member.failed_heartbeat and member.open_slots:
                return member
        return self.live.choose()

    def _send(self, member: LiveMember, slot: int, sequence: int, record: bytes, cause: int, count: int) -> None:
        subscription_id = member.sub.subscription_id
        if slot != NO_SLOT:
            self.order.takers[slot] = subscription_id
        key = subscription_id, cause, count
        parcel = self.parcels.get(key)
        if parcel is None:
            parcel = self.parcels[key] = Parcel(member, cause, count)
        parcel.sequences.append(sequence)
        parcel.records.append(record)
        member.window.add(Run(sequence, sequence, self.now + member.ack_wait_ns, count))
        self.room -= len(record)

    def _give_up(self, run: Run) -> None:
        """A message was delivered as often as the policy allows: it stays the first of its slot."""
        live = self.live
        live.to_redeliver.remove(run.first, run.last)
        live.retries.exhausted.add(run)
        live.unreported.mark(run.first, run.last)
        self.exhausted.append(run)


def unread_of(live: LiveCursor, order: KeyOrder) -> Runs:
    """The messages whose keys have to be read before anything is sent."""
    if order.unread is None:
        order.begin((live.to_redeliver, live.retries.exhausted, *(member.window for member in live.members)))
    return order.unread or Runs()


def answered(
    live: LiveCursor, order: KeyOrder, wanted: Iterable[tuple[int, int]], batches: list[ReadResult]
) -> list[Run]:
    """The log has answered a read of messages that were sent or passed before: learn their slots, keep what is to be sent.
    Returns messages to redeliver that are no more; they count as settled now."""
    found, reading = Runs(), set(order.reading)
    for batch in batches:
        keyed = order.batch(batch)
        end = batch.base_sequence + batch.count - 1
        found.merge(Run(batch.base_sequence, end))
        if order.unread:
            for first, last in order.unread.shared([Run(batch.base_sequence, end)]):
                for sequence in range(first, last + 1):
                    order.learn(sequence, keyed.slots[sequence - batch.base_sequence])
        for run in live.to_redeliver.within(batch.base_sequence, end):
            for sequence in range(run.first, run.last + 1):
                needed = sequence in reading
                order.records.keep(sequence, keyed.record(sequence - batch.base_sequence), needed=needed)
                order.owed(sequence, sequence)
    reached = found.last
    gone: list[Run] = []
    for first, last in wanted:  # a bounded read may end early: only gaps below its end are missing
        for gap_first, gap_last in found.missing(first, min(last, reached) if batches else last):
            order.settled(gap_first, gap_last)
            gone += live.to_redeliver.remove(gap_first, gap_last)
    return gone


def wanted_of(order: KeyOrder) -> tuple[tuple[int, int], ...]:
    """What has to be read of the log now, of messages that were sent or passed before: (first, last) each."""
    if not order.unread:
        return runs_of(order.reading)
    spans: list[tuple[int, int]] = []
    for first, last, *_ in order.unread:
        if spans and first - spans[-1][1] <= limits.READ_AHEAD_MESSAGES:
            spans[-1] = (spans[-1][0], last)
        elif len(spans) < limits.BATCHES_PER_READ_MAX:
            spans.append((first, last))
        else:
            break
    return tuple(spans)
