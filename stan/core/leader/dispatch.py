"""Delivery of one channel group, on its leader: windows, redelivery, hand-over, progress.

Everything works on runs and batches. Messages to redeliver (delivered once, held by no member now) go first, oldest first,
inside the window's budget; new messages follow. So a resumed durable gets its unacked messages before new ones, never more
than its window at once, and nothing can be stalled by a stale flag (FIELD 1a). Dispatch never reads a disk: it asks for
messages with a Fetch.
"""

from collections.abc import Callable, Iterable
from functools import partial

from stan_protocol.scalars import ChannelUid, Nanos

from stan import limits
from stan.core.base.causes import Cause
from stan.core.base.delivery_policy import NOT_KNOWN, DeliveryPolicy
from stan.core.base.ready import Delivery, Fetch, Indexes, ReadResult, Ready, Weighing
from stan.core.base.runs import Run, Runs
from stan.core.leader.acks import AckProcessor
from stan.core.leader.cursors import LiveCursor, LiveMember
from stan.core.leader.deliveries import Sending, lost_of, sending_of
from stan.core.leader.member_choice import choose, share
from stan.core.leader.membership import LiveMembership
from stan.core.leader.ordered_delivery import OrderedTurn, answered, next_turn, wanted_of
from stan.core.leader.pending import CAUSE, alike
from stan.core.leader.redelivery import Redelivery
from stan.core.state.cursors import Cursor
from stan.core.state.group_state import GroupState


class Dispatch:
    """Delivers the messages of one channel group on its leader; has no cursors on a follower."""

    def __init__(
        self,
        machine: GroupState,
        indexes: Indexes,
        redelivery: Redelivery,
        policy_of: Callable[[Cursor], DeliveryPolicy],
    ) -> None:
        """*policy_of*: returns the policy in force for a cursor."""
        view = redelivery.view
        self.machine = machine
        self.indexes = indexes
        self.cursors, self.reports, self.stops, self.totals = view.cursors, view.reports, view.stops, view.totals
        self.redelivery = redelivery
        self.acks = AckProcessor(redelivery)
        self.members = LiveMembership(machine, indexes, redelivery, policy_of)
        self.fetches = 0

    # --- events -----------------------------------------------------------------------------------------------------

    def committed(self, uid: ChannelUid, batch: ReadResult) -> None:
        """New messages are visible: cursors at the end of the channel take them from memory."""
        for live in self.cursors.by_channel.get(uid, {}).values():
            batches = live.reads.batches
            end = batches[-1].base_sequence + batches[-1].count if batches else live.last_sent + 1
            few = len(batches) < limits.BATCHES_PER_READ_MAX
            if end == batch.base_sequence and few and any(m.open_slots for m in live.members):
                batches.append(batch)
            self.cursors.schedule(live)

    def uncovered(self, uid: ChannelUid) -> None:
        """Messages that were committed before are visible now."""
        for live in self.cursors.by_channel.get(uid, {}).values():
            self.cursors.schedule(live)

    def fetched(self, fetch: Fetch, batches: list[ReadResult], now: Nanos) -> None:
        """The answer to a Fetch. Redeliveries are made at once, new messages kept in hand; the next pump sends them."""
        live = self.cursors.by_id.get(fetch.cursor_id)
        if live is None or live.reads.fetching != fetch.number:  # an earlier live view of the cursor asked for it
            return
        live.reads.fetching = 0
        self.cursors.schedule(live)
        held = live.cursor.uid in self.stops.expiring or live.cursor.uid in self.stops.departing
        if self.stops.mute or live.cursor.paused or held:
            return
        order = live.pending.order
        if order is not None and fetch.runs[0][0] <= live.last_sent:
            for run in answered(live, order, fetch.runs, batches):
                live.unreported.gone(run.first, run.last)
                self.reports.mark(live)
            return
        if order is None and live.pending.due.size:
            self.redelivery.set_aside(live)
            self.cursors.redeliveries += self._redeliver(live, fetch.runs, batches, now)
            return
        if live.reads.batches:
            return
        if not batches:  # retention was faster than the read, or a lost segment
            self.reports.skip(live, max(last for _, last in fetch.runs))
        live.reads.batches.extend(batches)

    def read_failed(self, fetch: Fetch, retry_at: Nanos) -> None:
        """The log could not answer a Fetch; delivery of this cursor stops until *retry_at* (STAN-SPEC 6.2)."""
        self.redelivery.timers.at(retry_at, partial(self._retry_read, fetch))

    def _retry_read(self, fetch: Fetch, _now: Nanos) -> None:
        live = self.cursors.by_id.get(fetch.cursor_id)
        if live is not None and live.reads.fetching == fetch.number:
            live.reads.fetching = 0
            self.cursors.schedule(live)

    # --- delivery -----------------------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """True if `pump` has cursors to look at."""
        return bool(self.cursors.scheduled) and not self.stops.disconnected and not self.stops.mute

    def pump(self, ready: Ready, now: Nanos, room: int) -> int:
        """Send what the windows allow, until about *room* bytes are out; returns the room left."""
        if self.cursors.redeliveries:
            ready.sends += self.cursors.redeliveries
            self.cursors.redeliveries.clear()
        if self.stops.disconnected or self.stops.mute:
            return room
        for _ in range(len(self.cursors.scheduled)):
            if room <= 0:
                break
            live = self.cursors.scheduled.popleft()
            live.scheduled = False
            self.cursors.keep_batches.discard(live.cursor.cursor_id)
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
        index, pending, fetches, left = (
            self.indexes(self.machine.group, live.cursor.uid),
            live.pending,
            len(ready.fetches),
            room,
        )
        oldest = self.machine.channel(live.cursor.uid).first_sequence  # the index is trimmed only after this turn
        self._settle_removed(live, max(index.first_sequence, oldest) - 1)
        wanted: tuple[tuple[int, int], ...] = ()
        turn, waits = None, False
        if pending.order is not None:
            turn = next_turn(live, pending.order, now, room)
            wanted, waits = wanted_of(pending.order), turn is None
        elif pending.due.size:
            self.redelivery.set_aside(live)
            waits = pending.due.size > 0  # goes before all that is new
            wanted = self.redelivery.oldest_due(live) if waits else ()
        if wanted:
            ready.fetches.append(self._fetch(live, wanted, limits.READ_BYTES_MAX))
        if not waits and not (pending.given_up.size and pending.too_many(live.policy, now)):
            left = self._send_new(live, turn, ready, index.last_sequence, now, room if turn is None else turn.room)
            if left <= 0:
                self.cursors.schedule(live)
        if turn is not None:
            left = turn.room
            self._end_turn(live, turn, ready)
        elif live.members[0].consumer is not None:
            self._end_requests(live, ready, index.last_sequence)
        return room - left + (len(ready.fetches) - fetches) * limits.READ_BYTES_MAX // 4

    def _end_requests(self, live: LiveCursor, ready: Ready, newest: int) -> None:
        """Tell the clients of a consumer whose requests are over."""
        consumer = live.members[0].consumer
        if consumer is None or not (consumer.pulls or consumer.statuses):
            return
        waits = live.reads.fetching or live.cursor.paused
        if not waits and live.last_sent >= newest and not live.pending.due.size:
            consumer.end_impatient()
        if consumer.statuses:
            ready.sends.append(consumer.take_statuses((self.machine.group,)))

    def _settle_removed(self, live: LiveCursor, to: int) -> None:
        """Messages up to *to* were removed by the channel's limits: they are neither sent nor redelivered (STAN-SPEC 6.6). Those
        in a window stay there, with the cause of their failure: a read that is under way may still bring them."""
        pending = live.pending
        if pending.due.size or pending.given_up.size:
            for run in pending.trim(to):
                live.unreported.gone(run.first, run.last)
                self.reports.mark(live)
        if to > live.last_sent:
            self.reports.skip(live, to)

    def _send_new(
        self, live: LiveCursor, turn: OrderedTurn | None, ready: Ready, last: int, now: Nanos, room: int
    ) -> int:
        """Send new messages up to *last*, past those that are skipped, deleted or lost, while a window is open. *turn*: the order
        by key says who gets which; None: each goes to the member with most room. Returns the room left."""
        skip, deleted = live.ahead.skip, self.machine.tombstones.by_channel.get(live.cursor.uid)
        while live.last_sent < last and room > 0:
            end = last if deleted is None and not skip.size else self._pass_over(live, deleted, last)
            first = live.last_sent + 1
            if first > end:
                break
            member = choose(live) if turn is None else turn.taker
            if member is None:
                self._keep_in_hand(live)
                return room
            batch = live.reads.batch_from(first)
            if batch is None:
                if not live.reads.fetching:
                    ready.fetches.append(self._fetch_new(live, first, last, room))
                return room
            if batch.base_sequence > first:  # a hole: retention or a lost segment
                self.reports.skip(live, batch.base_sequence - 1)
                continue
            end = min(end, batch.base_sequence + batch.count - 1)
            if member.consumer is not None and not (end := self._pass_unwanted(live, member, batch, first, end, last)):
                continue
            first = live.last_sent + 1
            if turn is None:
                delivery = self._deliver_new(live, member, batch, (first, end, last), now)
                ready.sends.append(delivery)
                room -= max(1, len(batch.records) * (delivery.last - first + 1) // batch.count)
            elif turn.send_new(batch, first, end):
                room = turn.room
            else:
                self._keep_in_hand(live)
                return room
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
            self.reports.skip(live, reached)
        return last

    def _pass_unwanted(
        self, live: LiveCursor, member: LiveMember, batch: ReadResult, first: int, last: int, newest: int
    ) -> int:
        """Pass over the messages at the beginning of [first, last] that a consumer does not want; returns the last one of those
        behind them that may be sent now, 0 if none may. *newest*: of the channel."""
        consumer = member.consumer
        passed, until = (first - 1, last) if consumer is None else consumer.passing(batch, first, last, newest)
        if passed >= first:
            self.reports.skip(live, passed)
        return until if until > passed else 0

    def _deliver_new(
        self, live: LiveCursor, member: LiveMember, batch: ReadResult, new: tuple[int, int, int], now: Nanos
    ) -> Delivery:
        """Send the beginning of the *new* messages (first, last, newest of the channel): as many up to the last as the member
        gets now, all of them flagged or none."""
        ahead, count, cause, (first, last, newest) = live.ahead, 0, Cause.NEW, new
        last = first + share(live, member, last - first + 1) - 1
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
        return self._send(live, member, batch, (first, last, newest), count, now)

    def _send(
        self,
        live: LiveCursor,
        member: LiveMember,
        batch: ReadResult,
        run: tuple[int, int, int],
        count: int,
        now: Nanos,
    ) -> Delivery:
        """Make one delivery of a *run* (first, last, newest of the channel) and add it to the member's window; *count* is the
        number of redeliveries, this one included."""
        first, last, newest = run
        consumer = member.consumer
        if consumer is None or consumer.config.acks:
            member.window.add(Run(first, last, now + member.ack_wait_ns, count))
        live.unreported.mark(first, last)
        self.reports.mark(live)
        if not member.timer_at:
            self.redelivery.arm(live, member)
        totals, size = self.totals, last - first + 1
        totals.out_messages += size
        totals.out_bytes += len(batch.records) * size // batch.count
        if count:
            totals.redelivered_messages += size
            live.pending.redelivered += size
        sub, group = member.sub, self.machine.group
        inbox, number = sub.settings.inbox, sub.subscription_id
        leaf = None
        if consumer is not None:
            behind = max(last, live.last_sent)
            left = consumer.remaining(behind, newest - behind - live.ahead.skip.size, consumer.sent + size)
            leaf = consumer.parcel(batch, (first, last), left, Weighing(count + 1, newest), now)
        return Delivery(inbox, batch.records, batch.base_sequence, first, last, count, group, number, (), leaf)

    def _end_turn(self, live: LiveCursor, turn: OrderedTurn, ready: Ready) -> None:
        """Let out what a turn of a key-ordered group has given to the members."""
        totals, group = self.totals, self.machine.group
        for run in turn.exhausted:
            self.redelivery.given_up(live, run)
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
                self.redelivery.arm(live, member)
        self.reports.mark(live)

    def _keep_in_hand(self, live: LiveCursor) -> None:
        """All windows are full: keep the batches in hand until one opens, unless too many cursors keep theirs already."""
        if not live.reads.batches:
            return
        if len(self.cursors.keep_batches) < limits.KEEP_BATCHES_CURSORS_MAX:
            self.cursors.keep_batches.add(live.cursor.cursor_id)
        elif live.cursor.cursor_id not in self.cursors.keep_batches:
            live.reads.batches.clear()

    # --- redelivery ---------------------------------------------------------------------------------------------------

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
        first, newest = run.first, self.indexes(self.machine.group, live.cursor.uid).last_sequence
        while first <= run.last:
            member = choose(live, again=True)
            if member is None:
                break
            size = share(live, member, run.last - first + 1)
            if member.consumer is not None:
                size = (
                    member.consumer.weighed(batch, first, first + size - 1, Weighing(run.count + 1, newest)) - first + 1
                )
                if not size:
                    continue  # another request may have room, or there is none any more
            sub, count = member.sub, run.count + 1
            for begin, end, why, _ in live.pending.due.remove(first, first + size - 1):
                live.unreported.sent.append(
                    Sending(sub.subscription_id, sub.client_id, why & CAUSE, count, begin, end, now)
                )
            out.append(self._send(live, member, batch, (first, first + size - 1, newest), count, now))
            first += size
        return out

    # --- reads --------------------------------------------------------------------------------------------------------

    def _fetch_new(self, live: LiveCursor, first: int, last: int, room: int) -> Fetch:
        """Fetch as many new messages as the windows can take, and more for the acks to come."""
        ahead = limits.READ_AHEAD_MESSAGES
        if len(self.cursors.keep_batches) < limits.KEEP_BATCHES_CURSORS_MAX:
            ahead = max(ahead, limits.READ_AHEAD_WINDOWS * sum(m.sub.settings.max_in_flight for m in live.members))
        else:
            ahead = max(ahead, sum(m.open_slots for m in live.members))
        last = min(last, first + ahead - 1)
        return self._fetch(live, ((first, last),), min(limits.READ_BYTES_MAX, max(room, 1)))

    def _fetch(self, live: LiveCursor, runs: tuple[tuple[int, int], ...], bytes_max: int) -> Fetch:
        live.reads.fetching = number = self.fetch_number()
        return Fetch(self.machine.group, live.cursor.uid, live.cursor.cursor_id, runs, bytes_max, number)

    def fetch_number(self) -> int:
        """Return a number for a Fetch of the group that none has, also of earlier leaderships, whose answers may come late."""
        self.fetches += 1
        return self.fetches
