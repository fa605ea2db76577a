"""The leader's live view of a cursor: its members, where its messages are (stan.core.leader.pending), batches in hand.

The replicated state (stan.core.state.group) follows behind through progress entries; this view is ahead of it, exists on the
leader only, and is made from it when leadership begins. There is no flag for "stalled": it is derived from the window each time.
"""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from stan_protocol.scalars import SECOND, ChannelUid

from stan import limits
from stan.core.base.causes import Cause
from stan.core.base.delivery_policy import DEFAULT, DeliveryPolicy
from stan.core.base.ready import Delivery, ReadResult, ReportMoment
from stan.core.base.runs import Run, Runs, counted_of, flat_of, joined, without
from stan.core.leader.adaptive_window import AdaptiveWindow
from stan.core.leader.deliveries import CLIENT_ID_BYTES_MAX, MICROSECOND, Sending, recorded
from stan.core.leader.key_order import KeyOrder
from stan.core.leader.live_consumer import LiveConsumer
from stan.core.leader.pending import ANYWAY, CAUSE, REJECTED, Pending
from stan.core.leader.retries import Moves
from stan.core.state.cursors import Cursor, CursorPast, Subscription
from stan.invariant import invariant
from stan.protocol.kernel import server as kernel
from stan.protocol.proto import entries_pb2 as pb


@dataclass(slots=True)
class LiveMember:
    """One online subscription. Invariant W1: len(window) <= max_in_flight; W2: one deadline per sequence in it."""

    sub: Subscription
    window: Runs = field(default_factory=Runs)
    timer_at: int = 0  # Nanos of the armed ack timer; 0 = none
    failed_heartbeat: bool = False
    leaving: bool = False  # the subscription's end is proposed: nothing more is sent
    handed_over: bool = False  # another node is to serve it: nothing more is sent
    silent: bool = False  # an ack wait is over, and nothing came on the ack inbox since
    doubted: bool = False  # silent while another member is not: it gets one new message at a time, and none again
    adaptive: AdaptiveWindow | None = None  # None: the window is always as large as max in flight
    consumer: LiveConsumer | None = None  # of a consumer of JetStream

    @property
    def open_slots(self) -> int:
        """Messages that may be sent now; 0 means stalled."""
        if self.leaving or self.handed_over:
            return 0
        if self.consumer is not None:
            return self.consumer.open_slots(self.window.size)
        adaptive = self.adaptive
        most = self.sub.settings.max_in_flight if adaptive is None else adaptive.size - adaptive.late
        return max(0, (min(most, 1) if self.doubted else most) - self.window.size)

    @property
    def is_full(self) -> bool:
        """True if nothing is sent before an ack comes; a consumer whose clients do not ask is not full."""
        return not self.open_slots if self.consumer is None else self.window.size >= self.consumer.config.window

    @property
    def rank(self) -> int:
        """Members of a lower rank are preferred: 0 its client acks, 1 it acks nothing in time, 2 its heartbeats fail."""
        return 2 if self.failed_heartbeat else int(self.silent)

    @property
    def window_now(self) -> int:
        """Messages that may be in flight now: max in flight, or what the adaptive window has come to."""
        return self.sub.settings.max_in_flight if self.adaptive is None else self.adaptive.size

    @property
    def looked_at(self) -> int:
        """Nanos at which the member must be looked at: the earliest deadline in its window; 0 = never."""
        at = self.window.earliest
        if self.adaptive is not None and self.adaptive.late:
            at = min(at or self.adaptive.late_until, self.adaptive.late_until)
        return at

    def follow(self, policy: DeliveryPolicy) -> None:
        """The policy of the cursor is *policy* now."""
        if not policy.adaptive_window:
            self.adaptive = None
        elif self.adaptive is None:
            self.adaptive = AdaptiveWindow.open(self.sub.settings.max_in_flight, self.ack_wait_ns)

    @property
    def oldest(self) -> int:
        """Nanos at which the lowest pending message was first sent, about; 0 if none is pending."""
        run = next(iter(self.window), None)
        return 0 if run is None else max(1, run.deadline - (run.count + 1) * self.ack_wait_ns)

    @property
    def ack_wait_ns(self) -> int:
        """Time from a delivery to its redelivery."""
        if self.consumer is not None:
            return max(self.consumer.config.ack_wait, 1)
        return self.sub.settings.ack_wait_s * SECOND


@dataclass(slots=True)
class MessagesAhead:
    """The leader's knowledge of the messages above a cursor's last_sent: which are not to be sent, and which are sent flagged,
    because they were or may have been sent before."""

    skip: Runs = field(default_factory=Runs)  # not to be sent: skipped, or sent by the previous leader and acked
    resend: Runs = field(default_factory=Runs)  # sent before: the cursor was moved back
    maybe_sent_until: int = 0  # sequences up to here may have been sent although no entry records it

    def pass_over(self, first: int, last: int) -> None:
        """[first, last] were acked though this leader has not sent them: do not send them. Except where the cursor was moved
        back: there the ack may predate the move, and the messages are sent again."""
        for gap_first, gap_last in self.resend.missing(first, last):
            self.skip.merge(Run(gap_first, gap_last))

    def sent_before(self, first: int, last: int, flagged: Cause) -> tuple[int, Cause, int]:
        """The beginning of the new messages [first, last] that is sent alike: up to which one, because of what (*flagged*, if it
        may have been sent although no entry records it), and as which redelivery: 1 if it was sent before, or may have been."""
        until, cause = last, Cause.NEW
        if first <= self.maybe_sent_until:
            until, cause = min(last, self.maybe_sent_until), flagged
        parts = self.resend.within(first, until)
        if parts and parts[0].first == first:
            until, cause = parts[0].last, Cause.MOVED
        elif parts:
            until = parts[0].first - 1
        return until, cause, int(cause != Cause.NEW)


@dataclass(slots=True)
class Unreported:
    """Changes of a cursor's messages that no progress entry records yet."""

    last_sent: int  # the cursor's last_sent in the last progress entry; -1: report it in any case
    epoch: int = 0  # epoch of the cursor's override, which progress entries name
    marks: list[tuple[int, int]] = field(default_factory=list)  # their holder changed since the last progress entry
    earlier_epochs: list[pb.Progress] = field(default_factory=list)  # not written yet
    sent: list[Sending] = field(default_factory=list)  # in the order in which it was sent
    rejected: list[int] = field(default_factory=list)  # runs first, last, ... of acked messages that a client rejected
    removed: list[int] = field(default_factory=list)  # the same of those that count as acked because they are gone

    def mark(self, first: int, last: int) -> None:
        """Sequences [first, last] changed their holder: report them in the next progress entry."""
        self.marks.append((first, last))
        if not len(self.marks) % limits.PROGRESS_MARKS_STEP:
            self.marks = [(run.first, run.last) for run in joined(self.marks)]

    def mark_each(self, parts: Iterable[tuple[int, int] | Run]) -> None:
        """As `mark`, of many at once; they begin with first and last."""
        before = len(self.marks)
        self.marks += [(part[0], part[1]) for part in parts]
        if len(self.marks) // limits.PROGRESS_MARKS_STEP > before // limits.PROGRESS_MARKS_STEP:
            self.marks = [(run.first, run.last) for run in joined(self.marks)]

    def settled(self, first: int, last: int) -> None:
        """An entry of another kind has reported [first, last] as settled."""
        self.marks = [(run.first, run.last) for run in without(joined(self.marks), [Run(first, last)])]

    def tell(self, entry: pb.Progress, moment: ReportMoment) -> None:
        """Write the deliveries into a progress entry, and the messages that count as acked though nobody acked them."""
        sent = self.sent
        if len(sent) == 1 and not sent[0][3]:  # as a rule, on the hot path: one delivery of new messages
            subscription_id, client_id, cause, _, first, last, at, until = sent[0]
            made = entry.sent.add(subscription_id=subscription_id, client_id=client_id[:CLIENT_ID_BYTES_MAX])
            made.runs.extend((first, last))
            if cause:
                made.cause = cause
            if at < moment.now:
                made.first_ago = (moment.now - at) // MICROSECOND
                made.last_ago = (moment.now - (until or at)) // MICROSECOND
            sent.clear()
        elif sent:
            entry.sent.extend(recorded(sent, moment))
            sent.clear()
        if self.rejected or self.removed:
            entry.rejected.extend(self.rejected)
            entry.removed.extend(self.removed)
            self.rejected.clear()
            self.removed.clear()

    def forget(self, last_sent: int) -> None:
        """Nothing of this is ever reported."""
        self.marks.clear()
        self.earlier_epochs.clear()
        self.sent.clear()
        self.rejected.clear()
        self.removed.clear()
        self.last_sent = last_sent

    def gone(self, first: int, last: int) -> None:
        """Messages [first, last] are no longer there: report them as acked, though nobody acked them."""
        self.mark(first, last)
        self.removed += (first, last)


@dataclass(slots=True)
class Reads:
    """Batches that were read for a cursor and are not sent yet, and the read under way."""

    batches: deque[ReadResult] = field(default_factory=deque)  # in hand, contiguous, for new messages only
    fetching: int = 0  # number of the Fetch under way; 0 = none

    def batch_from(self, sequence: int) -> ReadResult | None:
        """The first batch in hand that does not end before *sequence*; those before it are forgotten."""
        batches = self.batches
        while batches:
            batch = batches[0]
            if batch.base_sequence + batch.count > sequence:
                return batch
            batches.popleft()
        return None


@dataclass(slots=True)
class LiveCursor:
    """A cursor with at least one online member.

    Invariants: C1 last_sent never decreases, unless an operator moves it; no pending message is above it.
    """

    cursor: Cursor
    last_sent: int
    ahead: MessagesAhead
    unreported: Unreported
    pending: Pending = field(default_factory=Pending)
    members: list[LiveMember] = field(default_factory=list)
    reads: Reads = field(default_factory=Reads)
    scheduled: bool = False  # queued for the next pump
    past: CursorPast = field(default_factory=CursorPast)  # as the leader before knew it, until an ack comes
    policy: DeliveryPolicy = DEFAULT

    def follow(self, policy: DeliveryPolicy) -> None:
        """An operator set or changed the policy; windows that were adaptive already keep their size, and an order by key
        that holds already goes on."""
        self.policy = policy
        if not (policy.ordered_by_key and self.cursor.kind.shared):
            self.pending.order = None
        elif self.pending.order is None:
            self.pending.order = KeyOrder()
        for member in self.members:
            member.follow(policy)
        self.compare()

    def compare(self) -> None:
        """A member came, went, or is no longer of the same rank: see who is doubted."""
        acks = any(not member.rank for member in self.takers) if self.members else False
        for member in self.members:
            member.doubted = acks and member.silent

    def speaks(self, member: LiveMember) -> None:
        """Something came on the ack inbox of a member: there is a client that reads what it gets."""
        if member.silent:
            member.silent = False
            self.compare()

    def fell_silent(self, member: LiveMember) -> None:
        """An ack wait of a member is over: what it held goes to another one, if there is one."""
        member.silent = True
        self.members.remove(member)  # among equal ones it is the last now
        self.members.append(member)
        self.compare()

    @property
    def has_unreported(self) -> bool:
        """True if there is something to report in a progress entry, besides deliveries."""
        return bool(self.unreported.marks) or self.last_sent != self.unreported.last_sent

    def holds(self, sequence: int) -> bool:
        """True if a message was sent, or may have been, and is not settled."""
        return self.last_sent < sequence <= self.ahead.maybe_sent_until or sequence in self.pending

    def check(self) -> None:
        """Raise InvariantError if the table of pending messages is wrong."""
        pending = self.pending
        same = sorted(map(id, pending.windows)) == sorted(id(member.window) for member in self.members)
        invariant(same, "the windows are those of the members", cursor=self.cursor.cursor_id)
        last = max(runs.last for runs in pending.everywhere)
        invariant(last <= self.last_sent, "what is pending was passed", last=last, last_sent=self.last_sent)
        pending.check()

    def report(self, entry: pb.Progress, moment: ReportMoment | None = None) -> pb.Progress:
        """Write into a new progress entry what changed since the last call: for each touched sequence its current holder, or
        acked. *moment*: the entry reports deliveries and their causes, too. Returns the entry."""
        unreported = self.unreported
        touched = kernel.joined(unreported.marks)
        moves = self.pending.moves
        if moves is not None and moves.sealed:  # the entry that settles them is in front of this one
            touched = without(touched, [run[:2] for run in moves.picked])
        entry.cursor_id, entry.last_sent, entry.epoch = self.cursor.cursor_id, self.last_sent, unreported.epoch
        held: list[tuple[int, ...]] = []
        counted = bool(self.policy.max_deliver or self.policy.backoff)
        for member in self.members:
            found: list[Run] | list[tuple[int, int]]
            found = member.window.cut_each(touched) if counted else member.window.shared(touched)
            if found:
                numbers, counts = counted_of(found) if counted else (flat_of(found), [])
                entry.held.add(subscription_id=member.sub.subscription_id, runs=numbers, counts=counts)
                held += found
        given_up = self.pending.given_up
        for runs in (self.pending.due, given_up):
            nobodys = runs.cut_each(touched) if runs.size else []
            for why, parts in _by_why(nobodys).items() if nobodys else ():
                numbers, counts = counted_of(parts) if counted else (flat_of(parts), [])
                one = entry.held.add(runs=numbers, counts=counts)
                if moment is not None:
                    one.cause, one.exhausted, one.rejected = why & CAUSE, runs is given_up, bool(why & REJECTED)
            held += nobodys
        held.sort()
        entry.acked.extend(_without(touched, held))
        unreported.marks.clear()
        unreported.last_sent = self.last_sent
        if moment is not None:
            unreported.tell(entry, moment)
        return entry

    @property
    def takers(self) -> list[LiveMember]:
        """The members that may get messages: all of them, or the active one alone, where the policy is `failover`.

        The active member is the one that joined first. It stays active while its end is proposed, and gets nothing then: the next
        one begins when the log tells that the former one is gone, so that no two are active under any leader.
        """
        if not self.policy.failover or len(self.members) == 1:
            return self.members
        return [min(self.members, key=lambda member: member.sub.joined_at)]


def _by_why(runs: list[Run]) -> dict[int, list[Run]]:
    """Runs that nobody has, by why."""
    found: dict[int, list[Run]] = {}
    for run in runs:
        found.setdefault(run[2] & ~ANYWAY, []).append(run)
    return found


def _without(touched: list[tuple[int, int]], pending: list[tuple[int, ...]]) -> list[int]:
    """The parts of *touched* that are not in *pending*, both in increasing order: first, last, first, last, ..."""
    return kernel.flat(kernel.take(touched, pending)[1])


@dataclass(slots=True)
class LiveCursors:
    """The live cursors of one group and their members, by the keys under which events name them."""

    by_id: dict[int, LiveCursor] = field(default_factory=dict)
    by_channel: dict[ChannelUid, dict[int, LiveCursor]] = field(default_factory=dict)
    by_ack_key: dict[int, tuple[LiveCursor, LiveMember]] = field(default_factory=dict)  # by its Subscription.ack_place
    ack_groups: Counter[int] = field(default_factory=Counter)  # other groups -> members whose ack inboxes name them
    by_subscription: dict[int, tuple[LiveCursor, LiveMember]] = field(default_factory=dict)
    given_up: dict[int, None] = field(default_factory=dict)  # may have messages to be moved into a dead letter channel
    moves: dict[int, Moves] = field(default_factory=dict)  # of cursors that had any
    wishes: set[int] = field(default_factory=set)  # subscriptions that another node than the leader may serve
    scheduled: deque[LiveCursor] = field(default_factory=deque)  # for the next pump
    keep_batches: set[int] = field(default_factory=set)  # cursors that keep batches while their window is full
    redeliveries: list[Delivery] = field(default_factory=list)  # made, for the next pump

    def schedule(self, live: LiveCursor) -> None:
        """Queue a cursor for the next pump."""
        if not live.scheduled:
            live.scheduled = True
            self.scheduled.append(live)

    def add(self, live: LiveCursor) -> None:
        """Add a cursor, which has no members yet."""
        cursor = live.cursor
        live.pending.moves = self.moves.get(cursor.cursor_id)
        live.pending.take_back(live.policy)  # what is being moved is not sent, although no entry tells of it yet
        self.by_id[cursor.cursor_id] = self.by_channel.setdefault(cursor.uid, {})[cursor.cursor_id] = live

    def give_up(self, live: LiveCursor) -> Moves:
        """The cursor has messages that are to become dead letters."""
        number = live.cursor.cursor_id
        moves = live.pending.moves
        if moves is None:
            moves = live.pending.moves = self.moves[number] = Moves()
        self.given_up[number] = None
        return moves

    def add_member(self, live: LiveCursor, sub: Subscription) -> None:
        """Make the live view of a subscription, as the last member of its cursor."""
        member = LiveMember(sub)
        member.follow(live.policy)
        live.members.append(member)
        live.pending.windows.append(member.window)
        live.compare()
        self.by_ack_key[sub.ack_place] = self.by_subscription[sub.subscription_id] = (live, member)
        if sub.ack_group:
            self.ack_groups[sub.ack_group] += 1
        if sub.served.wish:
            self.wishes.add(sub.subscription_id)

    def remove_member(self, live: LiveCursor, member: LiveMember) -> None:
        """Remove one member; the cursor stays, and what the member had is due."""
        self._forget_member(member.sub)
        live.members.remove(member)
        live.pending.leave(member.window)
        live.compare()

    def _forget_member(self, sub: Subscription) -> None:
        del self.by_subscription[sub.subscription_id], self.by_ack_key[sub.ack_place]
        if sub.ack_group:
            self.ack_groups[sub.ack_group] -= 1
        self.wishes.discard(sub.subscription_id)

    def remove(self, live: LiveCursor) -> None:
        """Remove a cursor with all its members."""
        for member in live.members:
            self._forget_member(member.sub)
        live.members.clear()
        self.given_up.pop(live.cursor.cursor_id, None)
        if live.pending.moves is not None and not live.pending.moves.busy and not live.cursor.kind.durable:
            del self.moves[live.cursor.cursor_id]
        del self.by_id[live.cursor.cursor_id]
        of_channel = self.by_channel[live.cursor.uid]
        del of_channel[live.cursor.cursor_id]
        if not of_channel:
            del self.by_channel[live.cursor.uid]

    def clear(self) -> None:
        """Remove all cursors; they have no members afterwards, so that timers that are still armed for them do nothing."""
        for live in self.by_id.values():
            live.members.clear()
        for found in (self.by_id, self.by_channel, self.by_ack_key, self.by_subscription, self.given_up, self.moves):
            found.clear()
        for queued in (self.wishes, self.ack_groups, self.scheduled, self.keep_batches, self.redeliveries):
            queued.clear()
