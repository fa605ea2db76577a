"""Delivery of one channel group, on its leader: windows, redelivery, hand-over, progress.

Everything works on runs and batches. Messages to redeliver (delivered once, held by no member now) go first, oldest first,
inside the window's budget; new messages follow. So a resumed durable gets its unacked messages before new ones, never more
than its window at once, and nothing can be stalled by a stale flag (FIELD 1a). Dispatch never reads a disk: it asks for
messages with a Fetch.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from functools import partial

from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import ChannelUid, Nanos, WallNanos

from stan import limits
from stan.core.base.causes import Cause
from stan.core.base.delivery_policy import NOT_KNOWN, DeliveryPolicy
from stan.core.base.ready import Delivery, Fetch, Index, Indexes, ReadResult, Ready
from stan.core.base.runs import Run, Runs, without
from stan.core.base.timers import GroupTimers
from stan.core.leader.cursor_override_live import adopt_override, begin_anew, follow
from stan.core.leader.cursors import LiveCursor, LiveCursors, LiveMember, MessagesAhead, Unreported
from stan.core.leader.deliveries import Sending, lost_of, sending_of, withdrawn
from stan.core.leader.ordered_delivery import OrderedTurn, acked_together, answered, next_turn, wanted_of
from stan.core.leader.pending import CAUSE, Pending, alike
from stan.core.leader.progress import ProgressReports
from stan.core.leader.retries import Moves, is_last, pause_after_ack_wait, pause_after_nak
from stan.core.state.group import Cursor, CursorPast, GroupMachine, GroupResult, Subscription, removed_runs
from stan.protocol.proto import entries_pb2 as pb

ACKED_TOGETHER = 16
"""Ranges acked in one read above which they are sorted and taken out of the window in one go: each by itself costs a pass over
the window."""
Tell = Callable[[str, Cursor, Run, bytes], None]
"""Tells operators of messages that a cursor has given up: `rejected` or `exhausted`, and the reason that a client gave."""


@dataclass(slots=True)
class DeliveryStops:
    """Why a group may not send messages now."""

    disconnected: bool = False  # the NATS connection is lost: nothing is sent, no ack wait runs
    frozen: bool = False  # the log takes nothing until a restart
    progress_blocked: bool = False  # the log had no room for a progress entry
    lease_lapsed: bool = False  # another node may lead: nothing is sent until that is known
    handed_over: bool = False  # another node is to lead: nothing is sent that the log cannot tell of
    expiring: frozenset[ChannelUid] = frozenset()  # of these nothing is sent until what has expired is removed
    departing: frozenset[ChannelUid] = frozenset()  # the entry that holds them for a move is on its way into the log

    @property
    def mute(self) -> bool:
        """True if nothing may be sent although NATS is there: the log cannot record deliveries, so that they would be repeated
        unflagged, or another node may lead, or is to."""
        return self.frozen or self.progress_blocked or self.lease_lapsed or self.handed_over


@dataclass(slots=True)
class DeliveryTotals:
    """Counters of one group since its state was loaded; they count on when leadership ends."""

    out_messages: int = 0  # sent to subscribers, redeliveries included
    out_bytes: int = 0  # of these messages, as stored
    redelivered_messages: int = 0  # sent again, flagged


class Dispatch:
    """Delivers the messages of one channel group on its leader; has no cursors on a follower."""

    def __init__(
        self,
        machine: GroupMachine,
        indexes: Indexes,
        timers: GroupTimers,
        tell: Tell,
        policy_of: Callable[[Cursor], DeliveryPolicy],
    ) -> None:
        """*tell*: called when a position gives messages up; *policy_of*: returns the policy in force for a cursor."""
        self.machine = machine
        self.tell = tell
        self.policy_of = policy_of
        self.indexes = indexes
        self.timers = timers
        self.cursors = LiveCursors()
        self.reports = ProgressReports()
        self.stops = DeliveryStops()
        self.totals = DeliveryTotals()
        self.scheduled: deque[LiveCursor] = deque()
        self.keep_batches: set[int] = set()  # cursors that keep batches while their window is full
        self.fetches = 0

    # --- members ----------------------------------------------------------------------------------------------------

    def lead(self, now: Nanos, wall: WallNanos, others: Iterable[ChannelUid] = ()) -> None:
        """Make the live view from the replicated state: at start and when leadership begins. *others*: channels that are another
        group's, or nobody's, although the state has them.

        Pending messages stay with their member. Their ack wait counts from the timestamp of the channel's newest message, as the
        time of delivery is not replicated (STAN-SPEC 6.10).
        """
        self._make([cursor for cursor in self.machine.cursors.values() if cursor.uid not in others], now, wall)

    def take(self, uid: ChannelUid, now: Nanos, wall: WallNanos) -> None:
        """A channel is this group's from now on: as `lead`, of its cursors."""
        self._make(self.machine.channel(uid).cursors.values(), now, wall)

    def _make(self, cursors: Collection[Cursor], now: Nanos, wall: WallNanos) -> None:
        for cursor in cursors:
            if not cursor.server:
                for sub in cursor.members:
                    self.join(cursor, sub, Cause.OWED)
        for live in filter(None, [self.cursors.by_id.get(cursor.cursor_id) for cursor in cursors]):
            self._take_up(live, now, wall)
        self.look_at_offline(cursors)

    def _take_up(self, live: LiveCursor, now: Nanos, wall: WallNanos) -> None:
        """Go on where another node has delivered before."""
        age = max(0, wall - self._index(live).last_timestamp)
        for member in live.members:
            deadline = max(now, now + member.ack_wait_ns - age)
            for run in member.sub.pending:
                member.window.add(Run(run.first, run.last, deadline, run.count))
            if member.adaptive is not None:
                member.adaptive.led(now)
            self._arm(live, member)

    def serve(self, cursor: Cursor, now: Nanos, wall: WallNanos, *, unconfirmed: bool) -> None:
        """Deliver the messages of a cursor that another node has served. *unconfirmed*: more may have been sent than the log
        tells."""
        for sub in cursor.members:
            self.join(cursor, sub, Cause.OWED)
        live = self.cursors.by_id[cursor.cursor_id]
        self._take_up(live, now, wall)
        if unconfirmed:
            self._mark_unconfirmed(live)

    def release(self, cursor_id: int) -> None:
        """Another node serves a cursor from now on."""
        live = self.cursors.by_id.get(cursor_id)
        if live is not None:
            self._drop_cursor(live)

    def follow(self) -> None:
        """Leadership ended: forget the live view."""
        self.cursors.clear()
        self.reports.clear()
        self.scheduled.clear()
        self.keep_batches.clear()
        self.stops.progress_blocked = self.stops.handed_over = False
        self.stops.expiring = self.stops.departing = frozenset()

    def mark_unconfirmed(self, uid: ChannelUid | None = None) -> None:
        """After a fail-over or a loss of power: deliveries may be ahead of the replicated position. Those that may have been sent
        are flagged from now on. Offline cursors cannot be ahead: they report before they leave. *uid*: of one channel alone.
        """
        for live in (self.cursors.by_id if uid is None else self.cursors.by_channel.get(uid, {})).values():
            self._mark_unconfirmed(live)

    def _mark_unconfirmed(self, live: LiveCursor) -> None:
        until = self._index(live).last_sequence
        if until > live.last_sent:
            live.ahead.maybe_sent_until = max(live.ahead.maybe_sent_until, until)
            self.reports.unconfirmed += (live.cursor.cursor_id, until)

    def join(self, cursor: Cursor, sub: Subscription, cause: Cause = Cause.RESUMED) -> None:
        """A subscription came online; `pump` sends to it once the response to its request is on the way. *cause*: of what its
        cursor owes, if the subscription is the first one; OWED: the node before has reported it."""
        live = self.cursors.by_id.get(cursor.cursor_id)
        if live is None:
            live = self._view(cursor, cause)
            self.cursors.add(live)
        self.cursors.add_member(live, sub)
        if live.pending.order is not None:
            live.pending.order.forget_takers()  # slots choose members again, so that each gets its share
        self._schedule(live)

    def _view(self, cursor: Cursor, cause: Cause) -> LiveCursor:
        """The live view of a cursor without members, whose messages are due because of *cause*."""
        pending = Pending(due=Runs(run._replace(deadline=cause) for run in cursor.to_redeliver))
        ahead = MessagesAhead(maybe_sent_until=cursor.maybe_sent_until)
        live = LiveCursor(cursor, cursor.last_sent, ahead, Unreported(cursor.last_sent), pending)
        live.past = cursor.past
        live.follow(self.policy_of(cursor))
        adopt_override(live)
        return live

    def offline_view(self, cursor_id: int) -> LiveCursor | None:
        """A view of a durable without members, of which only what it has given up is of use: for the caller to move."""
        cursor = self.machine.cursors.get(cursor_id)
        if cursor is None or cursor.members or cursor_id in self.cursors.by_id:
            return None
        live = self._view(cursor, Cause.RESUMED)
        live.pending.spend(live.policy)
        live.pending.moves = self.cursors.moves.setdefault(cursor_id, Moves())
        return live

    def look_at_offline(self, cursors: Iterable[Cursor]) -> None:
        """Durables without members whose messages were delivered as often as the policy allows give them up now: nobody would set
        them aside before a member comes."""
        for cursor in cursors:
            if cursor.to_redeliver and not cursor.members and cursor.cursor_id in self.machine.cursors:
                policy = self.policy_of(cursor)
                if policy.dead_letter and any(is_last(policy, run.count) for run in cursor.to_redeliver):
                    self.cursors.given_up[cursor.cursor_id] = None

    def leave(self, sub: Subscription, *, gone: bool) -> None:
        """A subscription ended in the replicated state; *gone*: its cursor ended with it or is offline now."""
        found = self.cursors.by_subscription.get(sub.subscription_id)
        if found is None or found[1].sub is not sub:
            return
        live, member = found
        self.cursors.remove_member(live, member)  # its messages are due
        if gone or not live.members:
            self._drop_cursor(live)
            self.look_at_offline((live.cursor,))
            return
        self._schedule(live)

    def removed(self, uid: ChannelUid, removal: pb.Removal) -> None:
        """An operator removed messages: they count as acked, whichever member holds them."""
        for live in self.cursors.by_channel.get(uid, {}).values():
            for first, last in removed_runs(removal):
                for run in live.pending.settle(first, last):
                    live.unreported.gone(run.first, run.last)
            self._skip(live, removal.first_sequence - 1)
            self.reports.mark(live)
            self._schedule(live)

    def begin_epoch(self, uid: ChannelUid) -> None:
        """An epoch of an ephemeral channel has begun: its cursors stand before it, and owe nothing."""
        for live in self.cursors.by_channel.get(uid, {}).values():
            begin_anew(live)
            self.keep_batches.discard(live.cursor.cursor_id)
            self._schedule(live)

    def drop_channel(self, uid: ChannelUid) -> None:
        """The channel is gone: drop all its cursors."""
        for live in list(self.cursors.by_channel.get(uid, {}).values()):
            self._drop_cursor(live)

    def _drop_cursor(self, live: LiveCursor) -> None:
        """The cursor is gone or offline: drop it with all its members."""
        self.cursors.remove(live)
        self.reports.forget(live)
        self.keep_batches.discard(live.cursor.cursor_id)
        live.reads.batches.clear()

    def set_failed_heartbeat(self, incarnation: int, *, failed: bool) -> None:
        """Heartbeats of a client fail, or work again (STAN-SPEC 3.3)."""
        for subscription_id in self.machine.subscriptions.by_incarnation.get(incarnation, ()):
            found = self.cursors.by_subscription.get(subscription_id)
            if found is not None:
                found[1].failed_heartbeat = failed
                found[0].compare()
                self._schedule(found[0])

    # --- events -----------------------------------------------------------------------------------------------------

    def committed(self, uid: ChannelUid, batch: ReadResult) -> None:
        """New messages are visible: cursors at the end of the channel take them from memory."""
        for live in self.cursors.by_channel.get(uid, {}).values():
            batches = live.reads.batches
            end = batches[-1].base_sequence + batches[-1].count if batches else live.last_sent + 1
            few = len(batches) < limits.BATCHES_PER_READ_MAX
            if end == batch.base_sequence and few and any(m.open_slots for m in live.members):
                batches.append(batch)
            self._schedule(live)

    def uncovered(self, uid: ChannelUid) -> None:
        """Messages that were committed before are visible now."""
        for live in self.cursors.by_channel.get(uid, {}).values():
            self._schedule(live)

    def ack(self, key: int, ranges: Seq[tuple[int, int]], now: int, wall: int = 0) -> bool:
        """Sequences were acked on one ack inbox, at *now* (Nanos) and *wall* (Unix ns); False if no online subscription has this
        inbox."""
        found = self.cursors.by_ack_key.get(key)
        if found is None:
            return False
        live, member = found
        live.speaks(member)
        adaptive, in_flight = member.adaptive, member.window.size
        pending = live.pending
        if pending.order is not None or len(ranges) > ACKED_TOGETHER:
            ranges = acked_together(live, member, ranges, now)
        for first, last in ranges:
            missing = last - first + 1
            runs = member.window.remove(first, last)
            for begin, end, *_ in runs:
                missing -= end - begin + 1
            if adaptive is not None:
                adaptive.acks(runs, missing, in_flight, now)
            if missing:
                runs += pending.settle(first, last)  # a late ack: another member holds the message, or none
                if min(last, live.ahead.maybe_sent_until) > live.last_sent:
                    live.ahead.pass_over(max(first, live.last_sent + 1), min(last, live.ahead.maybe_sent_until))
            for begin, end, *_ in runs:
                live.unreported.mark(begin, end)
            if pending.paused.size or pending.worked_on.size:
                pending.wake(first, last)
        live.past = CursorPast(acked_at=wall)
        self.reports.mark(live)
        self._schedule(live)
        return True

    def verdict(self, key: int, said: wire.Ack, now: Nanos, wall: int) -> str:
        """A client says something else about a message than that it is done, or acks all up to a message. What is not pending is
        ignored. Returns why the verdict cannot be taken; "" if it can."""
        found = self.cursors.by_ack_key.get(key)
        if found is None:
            return ""
        live, member = found
        live.speaks(member)
        sequence = said.sequence
        if said.cumulative:
            if live.cursor.kind.shared:
                return "members of a queue group cannot ack all messages up to one"
            if said.kind != wire.ACK:
                return "only acks can be for all messages up to one"
            self.ack(key, [(1, sequence)], now, wall)
        elif said.kind == wire.REJECT:
            if live.policy.dead_letter:
                self._keep_rejected(live, member, said, now)
            elif live.holds(sequence):
                live.pending.rejections += 1
                live.unreported.rejected += (sequence, sequence)
                self.ack(key, [(sequence, sequence)], now, wall)
                self.tell("rejected", live.cursor, Run(sequence, sequence), said.reason)
        elif said.kind == wire.NAK:
            self._failed(live, member, said, now)
        elif said.kind == wire.WORKING:
            live.pending.work(member.window, sequence, member.ack_wait_ns, live.policy.max_hold, now)
        else:
            return f"no verdict {said.kind} is known"
        return ""

    def _keep_rejected(self, live: LiveCursor, member: LiveMember, said: wire.Ack, now: Nanos) -> None:
        """A client rejects a message, which is to become a dead letter; until it is one it stays pending. A message that this
        leader has not sent is sent first, and rejected once more."""
        sequence = said.sequence
        if live.pending.is_rejected(sequence):
            return
        in_flight, own = member.window.size, member.window.within(sequence, sequence)
        found = live.pending.reject(sequence)
        if member.adaptive is not None:
            member.adaptive.acks(own, 1 - len(own), in_flight, now)
        if found:
            live.unreported.mark(sequence, sequence)
            self.cursors.give_up(live).note(sequence, said.reason)
            self.reports.mark(live)
            self._schedule(live)

    def _failed(self, live: LiveCursor, member: LiveMember, said: wire.Ack, now: Nanos) -> None:
        """A member has failed with a message, and has *said* so: it is sent again after the pause that the member asks for, or as
        the policy says."""
        for run in live.pending.in_hands(member.window, said.sequence):
            if said.reason and live.policy.dead_letter:
                self.cursors.give_up(live).note(run.first, said.reason)
            if is_last(live.policy, run.count):
                self._owe(live, run, Cause.NEGATIVE_ACK)  # the pump sets it aside
                continue
            sent_at = run.deadline - member.ack_wait_ns
            until = pause_after_nak(live.policy, run, live.cursor.cursor_id, sent_at, now, said.delay)
            live.pending.pause(member.window, run, until, Cause.NEGATIVE_ACK)
            if not member.timer_at or until < member.timer_at:
                member.timer_at = 0
                self._arm(live, member)

    def _owe(self, live: LiveCursor, run: Run, cause: int) -> None:
        """Messages that are in no window are due."""
        live.pending.owe(run, cause)
        live.unreported.mark(run.first, run.last)
        self.reports.mark(live)
        self._schedule(live)

    def policies_changed(self, uid: ChannelUid | None = None) -> None:
        """Other policies may be in force, for one channel if *uid* is given: messages that they allow to be sent again are sent
        again."""
        channel = None if uid is None else self.machine.channels.get(uid)
        known = self.machine.cursors if uid is None else channel.cursors if channel is not None else {}
        self.look_at_offline(known.values())
        for live in (self.cursors.by_id if uid is None else self.cursors.by_channel.get(uid, {})).values():
            live.follow(self.policy_of(live.cursor))
            pending = live.pending
            for run in pending.kept_back():
                if not is_last(live.policy, run.count):
                    self._owe(live, run, run.deadline & CAUSE)
            if live.policy.dead_letter and pending.given_up.size:
                self.cursors.give_up(live)
            elif rejected := pending.rejected:  # as without dead letters
                moving = pending.moves.picked if pending.moves is not None else ()
                self._settle_rejected(live, without(rejected, moving), b"")
            self._schedule(live)

    def _settle_rejected(self, live: LiveCursor, runs: Iterable[Run], reason: bytes) -> None:
        """Settle messages that a client has rejected: they do not become dead letters."""
        for first, last, *_ in runs:
            live.pending.settle(first, last)
            live.unreported.mark(first, last)
            self.reports.mark(live)
            self.tell("rejected", live.cursor, Run(first, last), reason)

    def fetched(self, fetch: Fetch, batches: list[ReadResult], now: Nanos) -> list[Delivery]:
        """The answer to a Fetch. Returns redeliveries, made at once; new messages are kept in hand for the next pump."""
        live = self.cursors.by_id.get(fetch.cursor_id)
        if live is None or live.reads.fetching != fetch.number:  # an earlier live view of the cursor asked for it
            return []
        live.reads.fetching = 0
        self._schedule(live)
        held = live.cursor.uid in self.stops.expiring or live.cursor.uid in self.stops.departing
        if self.stops.mute or live.cursor.paused or held:
            return []
        order = live.pending.order
        if order is not None and fetch.runs[0][0] <= live.last_sent:
            for run in answered(live, order, fetch.runs, batches):
                live.unreported.gone(run.first, run.last)
                self.reports.mark(live)
            return []
        if order is None and live.pending.due.size:
            self._set_aside(live)
            return self._redeliver(live, fetch.runs, batches, now)
        if live.reads.batches:
            return []
        if not batches:  # retention was faster than the read, or a lost segment
            self._skip(live, max(last for _, last in fetch.runs))
        live.reads.batches.extend(batches)
        return []

    def read_failed(self, fetch: Fetch, retry_at: Nanos) -> None:
        """The log could not answer a Fetch; delivery of this cursor stops until *retry_at* (STAN-SPEC 6.2)."""
        self.timers.at(retry_at, partial(self._retry_read, fetch))

    def _retry_read(self, fetch: Fetch, _now: Nanos) -> None:
        live = self.cursors.by_id.get(fetch.cursor_id)
        if live is not None and live.reads.fetching == fetch.number:
            live.reads.fetching = 0
            self._schedule(live)

    def not_sent(self, deliveries: Iterable[Delivery]) -> None:
        """Deliveries did not leave after all: their messages are sent again at once, without waiting for the ack wait, and with
        their previous redelivery count: a message that was never sent is not a redelivery."""
        for lost in deliveries:
            found = self.cursors.by_subscription.get(lost.subscription_id)
            if found is None:
                continue
            live, member = found
            for first, last, _, count in [run for part in lost.runs() for run in member.window.remove(*part)]:
                known = Runs(withdrawn(live.unreported.sent, lost.subscription_id, first, last))
                unknown = [Run(*gap, 0, Cause.NOT_SENT) for gap in known.missing(first, last)]
                for part in (*known, *unknown):
                    self._owe(live, Run(part.first, part.last, 0, count - 1), part.count)

    def pause(self) -> None:
        """The NATS connection is lost: send nothing until `resume`."""
        self.stops.disconnected = True

    def resume(self, away_ns: int) -> None:
        """The NATS connection is back after *away_ns*: ack waits are extended by that time, so that an outage causes no
        redelivery storm."""
        self.stops.disconnected = False
        for live, member in list(self.cursors.by_subscription.values()):
            member.window.shift(away_ns)
            if member.adaptive is not None:
                member.adaptive.put_off(away_ns)
            member.timer_at = 0
            self._arm(live, member)
            self._schedule(live)

    def cursor_changed(self, result: GroupResult) -> None:
        """An operator's change to a cursor was applied to the replicated state: the live view follows."""
        live = self.cursors.by_id.get(result.cursor.cursor_id) if result.cursor is not None else None
        change = result.operator_change
        if live is None or change is None:
            return
        if change.name == "drop_cursor":
            self._drop_cursor(live)
            return
        follow(live, change)
        if change.name == "move_cursor":
            self.keep_batches.discard(live.cursor.cursor_id)
        if live.policy.dead_letter and live.pending.given_up.size:
            self.cursors.give_up(live)
        self.reports.mark(live)
        self._schedule(live)

    def is_outdated(self, place: int, wall: int) -> bool:
        """True if a replayed ack may predate the cursor's last move and must be ignored. *place*: see
        stan.core.state.group.ack_place."""
        found = self.cursors.by_ack_key.get(place)
        override = found[0].cursor.override if found is not None else None
        return override is not None and override.moved_at > wall - limits.MOVE_MEMORY

    # --- delivery -----------------------------------------------------------------------------------------------------

    def _schedule(self, live: LiveCursor) -> None:
        """Queue a cursor for the next pump."""
        if not live.scheduled:
            live.scheduled = True
            self.scheduled.append(live)

    @property
    def has_work(self) -> bool:
        """True if `pump` has cursors to look at."""
        return bool(self.scheduled) and not self.stops.disconnected and not self.stops.mute

    def pump(self, ready: Ready, now: Nanos, room: int) -> int:
        """Send what the windows allow, until about *room* bytes are out; returns the room left."""
        if self.stops.disconnected or self.stops.mute:
            return room
        for _ in range(len(self.scheduled)):
            if room <= 0:
                break
            live = self.scheduled.popleft()
            live.scheduled = False
            self.keep_batches.discard(live.cursor.cursor_id)
            if live.cursor.override is not None and live.cursor.paused:
                live.reads.batches.clear()
            elif live.cursor.uid in self.stops.expiring or live.cursor.uid in self.stops.departing:
                continue  # scheduled again when it is held no longer
            elif live.members and not live.reads.fetching and live.policy is not NOT_KNOWN:
                room -= self._pump_one(live, ready, now, room)
        return room

    def _pump_one(self, live: LiveCursor, ready: Ready, now: Nanos, room: int) -> int:
        """Send one cursor its due and its new messages, as far as windows are open. Those not in hand are fetched. Returns the
        bytes to count against *room*; a Fetch counts as a quarter of the largest read."""
        index, pending, fetches, left = self._index(live), live.pending, len(ready.fetches), room
        oldest = self.machine.channel(live.cursor.uid).first_sequence  # the index is trimmed only after this turn
        self._settle_removed(live, max(index.first_sequence, oldest) - 1)
        wanted: tuple[tuple[int, int], ...] = ()
        turn, waits = None, False
        if pending.order is not None:
            turn = next_turn(live, pending.order, now, room)
            wanted, waits = wanted_of(pending.order), turn is None
        elif pending.due.size:
            self._set_aside(live)
            waits = pending.due.size > 0  # goes before all that is new
            wanted = self._oldest_due(live) if waits else ()
        if wanted:
            ready.fetches.append(self._fetch(live, wanted, limits.READ_BYTES_MAX))
        if not waits and not (pending.given_up.size and pending.too_many(live.policy, now)):
            left = self._send_new(live, turn, ready, index.last_sequence, now, room)
        if turn is not None:
            left = turn.room
            self._end_turn(live, turn, ready)
        return room - left + (len(ready.fetches) - fetches) * limits.READ_BYTES_MAX // 4

    def _send_new(
        self, live: LiveCursor, turn: OrderedTurn | None, ready: Ready, last: int, now: Nanos, room: int
    ) -> int:
        """Send new messages up to *last*, past those that are skipped, deleted or lost, while a window is open. *turn*: the order
        by key says who gets which; None: each goes to the member with most room. Returns the room left."""
        skip, deleted = live.ahead.skip, self.machine.tombstones.by_channel.get(live.cursor.uid)
        room = room if turn is None else turn.room
        while live.last_sent < last and room > 0:
            end = last if deleted is None and not skip.size else self._pass_over(live, deleted, last)
            first = live.last_sent + 1
            if first > end:
                break
            member = live.choose() if turn is None else turn.taker
            if member is None:
                self._keep_in_hand(live)
                return room
            batch = live.reads.batch_from(first)
            if batch is None:
                if not live.reads.fetching:
                    ready.fetches.append(self._fetch_new(live, first, last, room))
                return room
            if batch.base_sequence > first:  # a hole: retention or a lost segment
                self._skip(live, batch.base_sequence - 1)
                continue
            end = min(end, batch.base_sequence + batch.count - 1)
            if turn is None:
                delivery = self._deliver_new(live, member, batch, first, end, now)
                ready.sends.append(delivery)
                room -= max(1, len(batch.records) * (delivery.last - first + 1) // batch.count)
            elif turn.send_new(batch, first, end):
                room = turn.room
            else:
                self._keep_in_hand(live)
                return room
        if room <= 0:
            self._schedule(live)
        return room

    def _pass_over(self, live: LiveCursor, deleted: Runs | None, last: int) -> int:
        """Pass the next messages if they are skipped or deleted; returns how far those behind them can be sent."""
        skip = live.ahead.skip
        while live.last_sent < last:
            first = live.last_sent + 1
            found = [runs.following(first) for runs in (skip, deleted) if runs is not None]
            gaps = [run for run in found if run is not None]
            reached = max((run.last for run in gaps if run.first <= first), default=0)
            if not reached:
                return min([last, *(run.first - 1 for run in gaps)])
            skip.remove(1, reached)
            self._skip(live, reached)
        return last

    def _deliver_new(
        self, live: LiveCursor, member: LiveMember, batch: ReadResult, first: int, last: int, now: Nanos
    ) -> Delivery:
        """Send the beginning of the new messages [first, last]: as many as the member gets now, all of them flagged or none."""
        ahead, count, cause = live.ahead, 0, Cause.NEW
        last = first + live.share(member, last - first + 1) - 1
        if first <= ahead.maybe_sent_until or ahead.resend.size:
            flagged = Cause.SERVER_CHANGED if member.sub.served.wish else Cause.LEADER_CHANGED
            last, cause, count = ahead.sent_before(first, last, flagged)
            ahead.resend.remove(1, last)
        live.last_sent = last
        sub, sent = member.sub, live.unreported.sent
        begun, at = first, now
        if sent and sent[-1][5] + 1 == first:  # a record goes on, as a rule until the next progress entry
            known, _, why, redeliveries, since, _, when, _ = sent[-1]
            if known == sub.subscription_id and why == cause and redeliveries == count:
                begun, at = since, when
                del sent[-1]
        sent.append(sending_of((sub.subscription_id, sub.client_id, cause, count, begun, last, at, now)))
        return self._send(live, member, batch, first, last, count, now)

    def _send(
        self, live: LiveCursor, member: LiveMember, batch: ReadResult, first: int, last: int, count: int, now: Nanos
    ) -> Delivery:
        """Make one delivery of [first, last] and add it to the member's window; *count* is the number of redeliveries, this one
        included."""
        member.window.add(Run(first, last, now + member.ack_wait_ns, count))
        live.unreported.mark(first, last)
        self.reports.mark(live)
        if not member.timer_at:
            self._arm(live, member)
        totals, size = self.totals, last - first + 1
        totals.out_messages += size
        totals.out_bytes += len(batch.records) * size // batch.count
        if count:
            totals.redelivered_messages += size
            live.pending.redelivered += size
        sub, group = member.sub, self.machine.group
        inbox, number = sub.settings.inbox, sub.subscription_id
        return Delivery(inbox, batch.records, batch.base_sequence, first, last, count, group, number)

    def _end_turn(self, live: LiveCursor, turn: OrderedTurn, ready: Ready) -> None:
        """Let out what a turn of a key-ordered group has given to the members."""
        totals, group = self.totals, self.machine.group
        for run in turn.exhausted:
            self._given_up(live, run)
        for parcel in turn.sent():
            member, count, joined, size = parcel.member, parcel.count, b"".join(parcel.records), parcel.size
            totals.out_messages += size
            totals.out_bytes += len(joined)
            if count:
                totals.redelivered_messages += size
                live.pending.redelivered += size
            inbox, number = member.sub.settings.inbox, member.sub.subscription_id
            ready.sends.append(Delivery(inbox, joined, 1, 1, size, count, group, number, parcel.picked))
            if not member.timer_at:
                self._arm(live, member)
        self.reports.mark(live)

    # --- redelivery ---------------------------------------------------------------------------------------------------

    def _oldest_due(self, live: LiveCursor) -> tuple[tuple[int, int], ...]:
        """The oldest messages that are due, as many as the windows take: they are read next, and no new ones are in hand then."""
        slots = sum(m.open_slots for m in live.takers if not m.doubted)
        if slots:
            live.reads.batches.clear()
        return tuple(
            (run.first, run.last) for run in alike(live.pending.due.peek(slots))[: limits.BATCHES_PER_READ_MAX]
        )

    def _set_aside(self, live: LiveCursor) -> None:
        """Messages to redeliver that were delivered as often as the policy allows are not sent any more: the position pauses on
        them alone, until they are dead letters, or an operator sends them again or skips them."""
        for run in live.pending.spend(live.policy):
            self._given_up(live, run)

    def _given_up(self, live: LiveCursor, run: Run) -> None:
        """Messages were delivered as often as the policy allows: they become dead letters, or operators hear of them."""
        live.unreported.mark(run.first, run.last)
        self.reports.mark(live)
        if live.policy.dead_letter:
            self.cursors.give_up(live)
        else:
            self.tell("exhausted", live.cursor, run, b"")

    def _redeliver(
        self, live: LiveCursor, runs: Iterable[tuple[int, int]], batches: list[ReadResult], now: Nanos
    ) -> list[Delivery]:
        """Send the fetched messages that are still to be redelivered, oldest first; messages of *runs* that no longer exist count
        as acked."""
        out: list[Delivery] = []
        for batch in batches:
            for run in alike(live.pending.due.within(batch.base_sequence, batch.base_sequence + batch.count - 1)):
                out += self._hand_out(live, batch, run, now)
        for first, last in lost_of(runs, batches):
            if live.pending.due.remove(first, last):
                live.unreported.gone(first, last)
                self.reports.mark(live)
        return out

    def _hand_out(self, live: LiveCursor, batch: ReadResult, run: Run, now: Nanos) -> list[Delivery]:
        """Redeliver the messages of *run*, which lie in *batch*, until every window is full."""
        out = []
        first = run.first
        while first <= run.last:
            member = live.choose(again=True)
            if member is None:
                break
            size = live.share(member, run.last - first + 1)
            sub, count = member.sub, run.count + 1
            for begin, end, why, _ in live.pending.due.remove(first, first + size - 1):
                live.unreported.sent.append(
                    Sending(sub.subscription_id, sub.client_id, why & CAUSE, count, begin, end, now)
                )
            out.append(self._send(live, member, batch, first, first + size - 1, count, now))
            first += size
        return out

    def _arm(self, live: LiveCursor, member: LiveMember) -> None:
        """Arm the member's ack timer, one per member, at or before the earliest deadline in its window."""
        if not member.timer_at:
            member.timer_at = member.looked_at
            if member.timer_at:
                self.timers.at(member.timer_at, partial(self._ack_wait_over, live, member))

    def _ack_wait_over(self, live: LiveCursor, member: LiveMember, now: Nanos) -> None:
        """Take messages whose ack wait is over, or the pause after a failure, back for redelivery (STAN-SPEC 6.6); the pump sends
        them again. Where the policy wants a pause after the ack wait, they stay pending until that is over, too. While heartbeats
        of all members fail that could get them, the messages stay pending and their ack wait starts again."""
        if not member.timer_at or member.timer_at > now or self.stops.disconnected or member not in live.members:
            return
        member.timer_at = 0
        if member.adaptive is not None and member.adaptive.give_up(now):
            self._schedule(live)
        taken, paused = [], live.pending.paused
        for run in member.window.due(now + limits.REDELIVERY_SLACK):
            first, last, deadline, count = run
            member.window.remove(first, last)
            if member.failed_heartbeat and all(m.failed_heartbeat for m in live.takers):
                member.window.add(Run(first, last, now + member.ack_wait_ns, count))
                continue
            rested = paused.within(first, last)  # what a client has failed with, and said so, is not late
            late = [Run(*part, deadline, count) for part in paused.missing(first, last)]
            taken += late
            for begin, end, _, cause in rested:
                self._owe(live, Run(begin, end, 0, count), cause)
            for part in late:
                until = pause_after_ack_wait(live.policy, part, live.cursor.cursor_id, now)
                if until:
                    live.pending.pause(member.window, part, until, Cause.ACK_WAIT_OVER)
                else:
                    self._owe(live, part, Cause.ACK_WAIT_OVER)
        if taken:
            live.fell_silent(member)
        if member.adaptive is not None and taken:
            elsewhere = any(other.open_slots and not other.doubted for other in live.takers if other is not member)
            member.adaptive.taken_back(taken, now, elsewhere=elsewhere)
        self._arm(live, member)

    # --- small parts ------------------------------------------------------------------------------------------------

    def _index(self, live: LiveCursor) -> Index:
        return self.indexes(self.machine.group, live.cursor.uid)

    def _fetch(self, live: LiveCursor, runs: tuple[tuple[int, int], ...], bytes_max: int) -> Fetch:
        live.reads.fetching = number = self.fetch_number()
        return Fetch(self.machine.group, live.cursor.uid, live.cursor.cursor_id, runs, bytes_max, number)

    def fetch_number(self) -> int:
        """Return a number for a Fetch of the group that none has, also of earlier leaderships, whose answers may come late."""
        self.fetches += 1
        return self.fetches

    def _settle_removed(self, live: LiveCursor, to: int) -> None:
        """Messages up to *to* were removed by the channel's limits: they are neither sent nor redelivered (STAN-SPEC 6.6). Those
        in a window stay there, with the cause of their failure: a read that is under way may still bring them."""
        pending = live.pending
        if pending.due.size or pending.given_up.size:
            for run in pending.trim(to):
                live.unreported.gone(run.first, run.last)
                self.reports.mark(live)
        if to > live.last_sent:
            self._skip(live, to)

    def _fetch_new(self, live: LiveCursor, first: int, last: int, room: int) -> Fetch:
        """Fetch as many new messages as the windows can take, and more for the acks to come."""
        ahead = limits.READ_AHEAD_MESSAGES
        if len(self.keep_batches) < limits.KEEP_BATCHES_CURSORS_MAX:
            ahead = max(ahead, limits.READ_AHEAD_WINDOWS * sum(m.sub.settings.max_in_flight for m in live.members))
        else:
            ahead = max(ahead, sum(m.open_slots for m in live.members))
        last = min(last, first + ahead - 1)
        return self._fetch(live, ((first, last),), min(limits.READ_BYTES_MAX, max(room, 1)))

    def _keep_in_hand(self, live: LiveCursor) -> None:
        """All windows are full: keep the batches in hand until one opens, unless too many cursors keep theirs already."""
        if not live.reads.batches:
            return
        if len(self.keep_batches) < limits.KEEP_BATCHES_CURSORS_MAX:
            self.keep_batches.add(live.cursor.cursor_id)
        elif live.cursor.cursor_id not in self.keep_batches:
            live.reads.batches.clear()

    def _skip(self, live: LiveCursor, to: int) -> None:
        """Messages up to *to* are gone: move last_sent past them."""
        if to > live.last_sent:
            live.last_sent = to
            self.reports.mark(live)
