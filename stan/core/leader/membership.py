"""The cursors that one channel group delivers, and their members, as they follow the replicated state."""

from collections.abc import Callable, Collection, Iterable

from stan_protocol.scalars import ChannelUid, Nanos, WallNanos

from stan.core.base.causes import Cause
from stan.core.base.delivery_policy import DeliveryPolicy
from stan.core.base.ready import Indexes
from stan.core.base.runs import Run, Runs, removed_runs, without
from stan.core.leader.cursor_override_live import adopt_override, begin_anew, follow
from stan.core.leader.cursors import LiveCursor, MessagesAhead, Unreported
from stan.core.leader.live_consumer import LiveConsumer
from stan.core.leader.pending import CAUSE, Pending
from stan.core.leader.redelivery import Redelivery
from stan.core.leader.retries import Moves, is_last
from stan.core.state.consumers import CONSUMERS
from stan.core.state.cursors import Cursor, Subscription
from stan.core.state.group_state import GroupResult, GroupState
from stan.protocol.proto import entries_pb2 as pb


class LiveMembership:
    """Makes the live cursors of one group and their members, changes and drops them."""

    def __init__(
        self,
        machine: GroupState,
        indexes: Indexes,
        redelivery: Redelivery,
        policy_of: Callable[[Cursor], DeliveryPolicy],
    ) -> None:
        self.machine = machine
        self.indexes = indexes
        self.cursors, self.reports = redelivery.cursors, redelivery.reports
        self.redelivery = redelivery
        self.leaves = redelivery.view.leaves
        self.policy_of = policy_of

    # --- leadership -----------------------------------------------------------------------------------------------------

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
        age = max(0, wall - self.indexes(self.machine.group, live.cursor.uid).last_timestamp)
        for member in live.members:
            deadline = max(now, now + member.ack_wait_ns - age)
            for run in member.sub.pending:
                member.window.add(Run(run.first, run.last, deadline, run.count))
            if member.adaptive is not None:
                member.adaptive.led(now)
            self.redelivery.arm(live, member)

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
        """Forget a cursor that another node serves from now on."""
        live = self.cursors.by_id.get(cursor_id)
        if live is not None:
            self._drop_cursor(live)

    def follow(self) -> None:
        """Leadership ended: forget the live view."""
        self.cursors.clear()
        self.reports.clear()
        stops = self.redelivery.stops
        stops.progress_blocked = stops.handed_over = False
        stops.expiring = stops.departing = frozenset()

    def mark_unconfirmed(self, uid: ChannelUid | None = None) -> None:
        """After a fail-over or a loss of power: deliveries may be ahead of the replicated position. Those that may have been sent
        are flagged from now on. Offline cursors cannot be ahead: they report before they leave. *uid*: of one channel alone.
        """
        for live in (self.cursors.by_id if uid is None else self.cursors.by_channel.get(uid, {})).values():
            self._mark_unconfirmed(live)

    def _mark_unconfirmed(self, live: LiveCursor) -> None:
        until = self.indexes(self.machine.group, live.cursor.uid).last_sequence
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
        if cursor.client_id == CONSUMERS:
            self._open_consumer(live)
        if live.pending.order is not None:
            live.pending.order.forget_takers()  # slots choose members again, so that each gets its share
        self.cursors.schedule(live)

    def _open_consumer(self, live: LiveCursor) -> None:
        """The only member of a cursor is a consumer of JetStream."""
        cursor, member = live.cursor, live.members[0]
        consumer = self.machine.consumers.of(cursor.uid).get(cursor.name)
        if consumer is not None:
            again = sum(run.size * run.count for run in (*cursor.to_redeliver, *member.sub.pending))
            sent = max(0, cursor.last_sent - max(cursor.past.start_sequence, 1) + 1) + again
            prefix = member.sub.settings.ack_inbox + b"."
            leaf = self.leaves.of(cursor.user)
            member.consumer = LiveConsumer(leaf, consumer.config, prefix, consumer.subject, sent)

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
        live.pending.give_up_spent(live.policy)
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
        self.cursors.schedule(live)

    def set_failed_heartbeat(self, incarnation: int, *, failed: bool) -> None:
        """Heartbeats of a client fail, or work again (STAN-SPEC 3.3)."""
        for subscription_id in self.machine.subscriptions.by_incarnation.get(incarnation, ()):
            found = self.cursors.by_subscription.get(subscription_id)
            if found is not None:
                found[1].failed_heartbeat = failed
                found[0].compare()
                self.cursors.schedule(found[0])

    def removed(self, uid: ChannelUid, removal: pb.Removal) -> None:
        """An operator removed messages: they count as acked, whichever member holds them."""
        for live in self.cursors.by_channel.get(uid, {}).values():
            for first, last in removed_runs(removal.first_sequence, removal.deleted):
                for run in live.pending.settle(first, last):
                    live.unreported.gone(run.first, run.last)
            self.reports.skip(live, removal.first_sequence - 1)
            self.reports.mark(live)
            self.cursors.schedule(live)

    def begin_epoch(self, uid: ChannelUid) -> None:
        """An epoch of an ephemeral channel has begun: its cursors stand before it, and owe nothing."""
        for live in self.cursors.by_channel.get(uid, {}).values():
            begin_anew(live)
            self.cursors.keep_batches.discard(live.cursor.cursor_id)
            self.cursors.schedule(live)

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
            self.cursors.keep_batches.discard(live.cursor.cursor_id)
        if live.policy.dead_letter and live.pending.given_up.size:
            self.cursors.give_up(live)
        self.reports.mark(live)
        self.cursors.schedule(live)

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
                    self.redelivery.owe(live, run, run.deadline & CAUSE)
            if live.policy.dead_letter and pending.given_up.size:
                self.cursors.give_up(live)
            elif rejected := pending.rejected:  # as without dead letters
                moving = pending.moves.picked if pending.moves is not None else ()
                self.redelivery.settle_rejected(live, without(rejected, moving), b"")
            self.cursors.schedule(live)

    def drop_channel(self, uid: ChannelUid) -> None:
        """The channel is gone: drop all its cursors."""
        for live in list(self.cursors.by_channel.get(uid, {}).values()):
            self._drop_cursor(live)

    def _drop_cursor(self, live: LiveCursor) -> None:
        """The cursor is gone or offline: drop it with all its members."""
        self.cursors.remove(live)
        self.reports.forget(live)
        self.cursors.keep_batches.discard(live.cursor.cursor_id)
        live.reads.batches.clear()
