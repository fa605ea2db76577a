"""The next messages of a key-ordered queue group, and the members that get them; stan.core.leader.key_order says which may go.

A slot keeps its member while that one is there and has room. Messages that may not be sent yet are held back: they count as
messages to redeliver that were never sent (count -1), so that `last_sent` may pass them and progress entries tell of them; the
next leader flags them, as any of them may have been sent since the last entry.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate, chain, repeat

from stan_protocol.scalars import Nanos

from stan import limits
from stan.core.base.causes import Cause
from stan.core.base.ready import ReadResult
from stan.core.base.runs import Run, runs_of, without
from stan.core.leader.cursors import LiveCursor, LiveMember
from stan.core.leader.deliveries import lost_of, sending_of
from stan.core.leader.key_order import KeyedBatch, KeyOrder, cut
from stan.core.leader.pending import CAUSE, NEVER_SENT, is_spent
from stan.protocol.kernel.server import HoldLimits, OpenWindows, assign, assign_again, joined


@dataclass(slots=True)
class Parcel:
    """Messages that go to one member in one delivery, as runs in increasing order."""

    member: LiveMember
    cause: int
    count: int  # redeliveries, this one included
    firsts: list[int] = field(default_factory=list)
    lasts: list[int] = field(default_factory=list)
    records: list[bytes] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Number of messages."""
        return sum(self.lasts) - sum(self.firsts) + len(self.lasts)

    @property
    def picked(self) -> tuple[int, ...]:
        """The sequences, as in Delivery."""
        return tuple(chain.from_iterable(zip(self.firsts, self.lasts, strict=True)))


@dataclass(slots=True)
class OrderedTurn:
    """A look at a key-ordered cursor: deliveries to members, and messages that have to be read."""

    live: LiveCursor
    order: KeyOrder
    now: Nanos
    room: int  # bytes
    parcels: dict[tuple[int, int, int], Parcel] = field(default_factory=dict)  # by the member's number, cause and count
    exhausted: list[Run] = field(default_factory=list)
    members: dict[int, LiveMember] = field(init=False)  # by number
    windows: OpenWindows = field(init=False)  # who of them has room

    def __post_init__(self) -> None:
        self.members = {self.order.number_of(member.sub.subscription_id): member for member in self.live.takers}
        self._look()

    def _look(self) -> int:
        """Look which members have room: those whose clients ack and answer heartbeats, or those of the next rank if none of these
        has any. Returns for how many messages."""
        size = len(self.order.numbers) + 1
        room, in_flight = array("q", bytes(8 * size)), array("q", bytes(8 * size))
        for rank in range(3):
            for number, member in self.members.items():
                in_flight[number] = member.window.size
                if member.rank == rank:
                    room[number] = member.open_slots
            if any(room):
                break
        self.windows = OpenWindows(room, in_flight)
        return sum(room)

    def send_owed(self) -> None:
        """Send messages that are due or were held back, as far as their records are at hand; the others go to `order.reading`."""
        due = self.order.due()
        while due and self.room > 0 and (open_slots := sum(self.windows.room) or self._look()):
            left = self._send_due(due[:open_slots])
            due[:open_slots] = left
            if left:
                break
        self.order.candidates += due

    def _send_due(self, due: list[int]) -> list[int]:
        """Send those of the messages *due* that are still owed, for all of which windows are open. Returns those that have to
        wait, as too much was sent, or is to be read."""
        live, order, pending = self.live, self.order, self.live.pending
        # The others are another member's, or given up.
        owed = pending.due.take_each(list(zip(due, due, strict=True)))
        if live.policy.max_deliver:
            owed = self._without_spent(owed)
        records = order.records.take([run.first for run in owed])
        sizes = accumulate([0 if record is None else len(record) for record in records])
        sendable = bisect_right([*sizes], self.room - 1) + 1  # at least one, and the last one that is begun
        wanted_max = min(sum(self.windows.room), limits.BATCHES_PER_READ_MAX)
        alike: dict[tuple[int, int], tuple[list[int], list[bytes]]] = {}
        left: list[int] = []
        for at, (run, record) in enumerate(zip(owed, records, strict=True)):
            sequence, _, why, count = run
            if at < sendable and not left and record is not None:
                cause = why & CAUSE if count > NEVER_SENT else Cause.NEW
                sequences, data = alike.setdefault((cause, count + 1), ([], []))
                sequences.append(sequence)
                data.append(record)
                continue
            if record is not None:
                order.records.keep(sequence, record, needed=True)
            if at < sendable and not left and len(order.reading) < wanted_max:
                order.reading.append(sequence)
            else:
                left.append(sequence)
            pending.due.add(run)
        for (cause, count), (sequences, data) in alike.items():
            for number, mine, joined_data in assign_again(sequences, data, order.tables, self.windows):
                self._send((number, cause, count), mine, mine, joined_data)
            live.unreported.mark_each(zip(sequences, sequences, strict=True))
        return left

    def _without_spent(self, owed: list[Run]) -> list[Run]:
        """Give up those messages that were delivered as often as the policy allows; returns the others. The former stay
        the first of their slots."""
        live, kept = self.live, []
        for run in owed:
            if not is_spent(live.policy, run):
                kept.append(run)
                continue
            live.pending.given_up.add(run)
            self.exhausted.append(run)
        return kept

    @property
    def taker(self) -> LiveMember | None:
        """A member whose window is open; None if there is none."""
        return next((member for member in self.live.takers if member.open_slots), None)

    def send_new(self, batch: ReadResult, first: int, last: int) -> bool:
        """Send the new messages [first, last] of *batch*, or hold them back, while there is room; returns False if no window is
        open any more, or too many messages are held back."""
        live, keyed, ahead = self.live, self.order.batch(batch), self.live.ahead
        while first <= last and self.room > 0:
            few = max(1, self.room * batch.count // max(1, len(batch.records)))
            until, cause, count = ahead.sent_before(first, min(last, first + few - 1), Cause.LEADER_CHANGED)
            reached = self._send_alike(keyed, first, until, cause, count)
            if reached >= first:
                live.last_sent = reached
                live.unreported.mark(first, reached)
                ahead.resend.remove(1, reached)
            if reached < until:
                return False
            first = until + 1
        if first == batch.base_sequence + batch.count:
            self.order.newest = None
        return True

    def _send_alike(self, keyed: KeyedBatch, first: int, last: int, cause: Cause, count: int) -> int:
        """Send new messages that were all sent before or all not, or hold them back; returns the last one that was passed."""
        live, order, base = self.live, self.order, keyed.base_sequence
        hold = HoldLimits(limits.HELD_BACK_FEW, limits.HELD_BACK_MAX, limits.SLOTS_IN_USE_MAX)
        while first <= last and (any(self.windows.room) or self._look()):
            room, in_flight = self.windows
            serving = [number for number, places in enumerate(room) if places]
            level = -(-(sum([in_flight[number] for number in serving]) + last - first + 1) // len(serving))
            start, stop, parts = first - base, last - base + 1, (keyed.slots, keyed.ends, keyed.records)
            done = assign(parts, base, start, stop, order.tables, self.windows, hold, order.turn, level)
            order.turn = done.turn
            for number, firsts, lasts, records in done.parts:
                self._send((number, cause, count), firsts, lasts, records)
            if done.held:
                order.records.keep_each(done.held, done.held_records)
                runs = joined(zip(done.held, done.held, strict=True))
                firsts, lasts = [run[0] for run in runs], [run[1] for run in runs]
                # The next leader flags it, as this one may have sent it and failed before an entry told that.
                why = cause if count else Cause.LEADER_CHANGED
                live.pending.due.add_each(firsts, lasts, why, count + NEVER_SENT)
            first = base + done.stop
            if any(self.windows.room):
                break
        return first - 1

    def sent(self) -> Iterator[Parcel]:
        """The deliveries of the turn. The next progress entry reports them."""
        recorded = self.live.unreported.sent
        for parcel in self.parcels.values():
            sub, firsts = parcel.member.sub, parcel.firsts
            told = zip(
                repeat(sub.subscription_id),
                repeat(sub.client_id),
                repeat(parcel.cause),
                repeat(parcel.count),
                firsts,
                parcel.lasts,
                repeat(self.now, len(firsts)),
                repeat(self.now),
                strict=False,
            )
            recorded += map(sending_of, told)
            yield parcel

    def _send(self, key: tuple[int, int, int], firsts: list[int], lasts: list[int], records: bytes) -> None:
        """Messages go to a member: key is its number, cause and count."""
        number, cause, count = key
        parcel = self.parcels.get(key)
        if parcel is None:
            parcel = self.parcels[key] = Parcel(self.members[number], cause, count)
        parcel.firsts += firsts
        parcel.lasts += lasts
        parcel.records.append(records)
        member = parcel.member
        member.window.add_each(firsts, lasts, self.now + member.ack_wait_ns, count)
        self.room -= len(records)


def acked_together(
    live: LiveCursor, member: LiveMember, ranges: Iterable[tuple[int, int]], now: int
) -> list[tuple[int, int]]:
    """A member has acked messages: settle those that are in its window, in one go. Returns the others, in increasing order."""
    in_flight, wanted = member.window.size, joined(ranges)
    found = member.window.take_each(wanted)
    if member.adaptive is not None:
        member.adaptive.acks(found, 0, in_flight, now)
    live.unreported.mark_each(found)
    pending = live.pending
    if pending.order is not None:
        pending.order.acked(found)
    if pending.paused.size or pending.worked_on.size:
        for run in found:
            pending.wake(run.first, run.last)
    return without(wanted, found)


def next_turn(live: LiveCursor, order: KeyOrder, now: Nanos, room: int) -> OrderedTurn | None:
    """Send the due messages of a key-ordered cursor; None if keys of messages have to be read before anything is sent."""
    order.read_again()
    if order.unread is None:
        order.begin(live.pending.everywhere)
    if order.unread:
        return None
    turn = OrderedTurn(live, order, now, room)
    turn.send_owed()
    return turn


def answered(
    live: LiveCursor, order: KeyOrder, wanted: Iterable[tuple[int, int]], batches: list[ReadResult]
) -> list[Run]:
    """The log has answered a read of messages that were sent or passed before: learn their slots, keep records of due ones.
    Returns due messages that the log has lost; they count as settled now."""
    reading = set(order.reading)
    for batch in batches:
        keyed = cut(batch)
        end = batch.base_sequence + batch.count - 1
        if order.unread:
            for first, last in order.unread.shared([Run(batch.base_sequence, end)]):
                for sequence in range(first, last + 1):
                    order.learn(sequence, keyed.slot(sequence - batch.base_sequence))
        for run in live.pending.due.within(batch.base_sequence, end):
            for sequence in range(run.first, run.last + 1):
                needed = sequence in reading
                order.records.keep(sequence, keyed.record(sequence - batch.base_sequence), needed=needed)
                order.owed(sequence, sequence)
    gone: list[Run] = []
    for first, last in lost_of(wanted, batches):
        order.settled(first, last)
        gone += live.pending.due.remove(first, last)
    return gone


def wanted_of(order: KeyOrder) -> tuple[tuple[int, int], ...]:
    """Messages that were sent or passed before and have to be read from the log now: (first, last) each."""
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
