"""Messages of one channel group that are sent again: when they are due, and when they are given up instead.

They are due when their ack wait is over, when a client has failed with them, or when they did not leave after all. Those that
were delivered as often as the policy allows are set aside: they become dead letters, or operators hear of them.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from stan_protocol.scalars import Nanos

from stan import limits
from stan.core.base.causes import Cause
from stan.core.base.ready import Delivery
from stan.core.base.runs import Run, Runs
from stan.core.base.timers import GroupTimers
from stan.core.leader.cursors import LiveCursor, LiveMember
from stan.core.leader.deliveries import withdrawn
from stan.core.leader.live_view import LiveView
from stan.core.leader.pending import alike
from stan.core.leader.retries import pause_after_ack_wait
from stan.core.state.consumers import CONSUMERS
from stan.core.state.cursors import Cursor

if TYPE_CHECKING:
    from stan.core.leader.live_consumer import LiveConsumer

OnGivenUp = Callable[[str, Cursor, Run, bytes], None]
"""Called with messages that a cursor has given up: `rejected` or `exhausted`, and the reason that a client gave."""


class Redelivery:
    """Has messages of one group sent again, or given up."""

    def __init__(self, view: LiveView, timers: GroupTimers, on_given_up: OnGivenUp) -> None:
        """*on_given_up*: called when a position gives messages up."""
        self.view = view
        self.cursors, self.reports, self.stops = view.cursors, view.reports, view.stops
        self.timers = timers
        self.on_given_up = on_given_up
        self.on_spent: Callable[[LiveConsumer, Run], None] = lambda _consumer, _run: None
        """Called with messages that a consumer of JetStream has delivered as often as it may; who leads the group sets it."""

    # --- what is due ----------------------------------------------------------------------------------------------------

    def owe(self, live: LiveCursor, run: Run, cause: int) -> None:
        """Messages that are in no window are due."""
        live.pending.owe(run, cause)
        live.unreported.mark(run.first, run.last)
        self.reports.mark(live)
        self.cursors.schedule(live)

    def settle_rejected(self, live: LiveCursor, runs: Iterable[Run], reason: bytes) -> None:
        """Settle messages that a client has rejected: they do not become dead letters."""
        for first, last, *_ in runs:
            live.pending.settle(first, last)
            live.unreported.mark(first, last)
            self.reports.mark(live)
            self.on_given_up("rejected", live.cursor, Run(first, last), reason)

    def oldest_due(self, live: LiveCursor) -> tuple[tuple[int, int], ...]:
        """The oldest messages that are due, as many as the windows take: they are read next, and no new ones are in hand then."""
        slots = sum(m.open_slots for m in live.takers if not m.doubted)
        if slots:
            live.reads.batches.clear()
        return tuple(
            (run.first, run.last) for run in alike(live.pending.due.peek(slots))[: limits.BATCHES_PER_READ_MAX]
        )

    def set_aside(self, live: LiveCursor) -> None:
        """Messages to redeliver that were delivered as often as the policy allows are not sent any more: the position pauses on
        them alone, until they are dead letters, or an operator sends them again or skips them."""
        for run in live.pending.give_up_spent(live.policy):
            self.given_up(live, run)

    def given_up(self, live: LiveCursor, run: Run) -> None:
        """Messages were delivered as often as the policy allows: they become dead letters, or operators hear of them."""
        live.unreported.mark(run.first, run.last)
        self.reports.mark(live)
        consumer = live.members[0].consumer if live.members else None
        if consumer is not None:
            self.on_spent(consumer, run)
        if live.policy.dead_letter:
            self.cursors.give_up(live)
        else:
            self.on_given_up("exhausted", live.cursor, run, b"")
            if live.cursor.client_id == CONSUMERS:  # as with JetStream, nobody waits for it any more
                live.pending.settle(run.first, run.last)

    def not_sent(self, deliveries: Iterable[Delivery]) -> None:
        """Deliveries did not leave after all: their messages are sent again at once, without waiting for the ack wait, and with
        their previous redelivery count: a message that was never sent is not a redelivery."""
        for lost in deliveries:
            found = self.cursors.by_subscription.get(lost.subscription_id)
            if found is None:
                continue
            live, member = found
            taken = [run for part in lost.runs() for run in member.window.remove(*part)]
            if member.consumer is not None and not member.consumer.config.acks:
                taken = [Run(first, last, 0, lost.redelivery_count) for first, last in lost.runs()]
            for first, last, _, count in taken:
                known = Runs(withdrawn(live.unreported.sent, lost.subscription_id, first, last))
                unknown = [Run(*gap, 0, Cause.NOT_SENT) for gap in known.missing(first, last)]
                for part in (*known, *unknown):
                    self.owe(live, Run(part.first, part.last, 0, count - 1), part.count)

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
            self.arm(live, member)
            self.cursors.schedule(live)

    def arm(self, live: LiveCursor, member: LiveMember) -> None:
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
            self.cursors.schedule(live)
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
                self.owe(live, Run(begin, end, 0, count), cause)
            for part in late:
                until = pause_after_ack_wait(live.policy, part, live.cursor.cursor_id, now)
                if until:
                    live.pending.pause(member.window, part, until, Cause.ACK_WAIT_OVER)
                else:
                    self.owe(live, part, Cause.ACK_WAIT_OVER)
        if taken:
            live.fell_silent(member)
        if member.adaptive is not None and taken:
            elsewhere = any(other.open_slots and not other.doubted for other in live.takers if other is not member)
            member.adaptive.taken_back(taken, now, elsewhere=elsewhere)
        self.arm(live, member)
