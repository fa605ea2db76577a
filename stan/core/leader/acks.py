"""Acks of one channel group and other verdicts: a client has failed with a message, still works on it, or rejects it."""

from collections.abc import Sequence as Seq
from functools import partial

from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import Nanos

from stan import limits
from stan.core.base.causes import Cause
from stan.core.base.runs import Run
from stan.core.leader.cursors import LiveCursor, LiveMember
from stan.core.leader.ordered_delivery import acked_together
from stan.core.leader.redelivery import Redelivery
from stan.core.leader.retries import is_last, pause_after_nak
from stan.core.state.cursors import CursorPast

ACKED_TOGETHER = 16
"""Ranges acked in one read above which they are sorted and taken out of the window in one go: each by itself costs a pass over
the window."""


class AckProcessor:
    """Takes what clients say about messages that one group has delivered."""

    def __init__(self, redelivery: Redelivery) -> None:
        self.cursors, self.reports = redelivery.cursors, redelivery.reports
        self.redelivery = redelivery
        self._gathering: set[int] = set()  # numbers of cursors whose acks wait for more of them

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
                runs += _settle_late(live, first, last)
            for begin, end, *_ in runs:
                live.unreported.mark(begin, end)
            if pending.paused.size or pending.worked_on.size:
                pending.wake(first, last)
        live.past = CursorPast(acked_at=wall)
        if member.consumer is not None and member.consumer.may_gather(in_flight, member.window.size):
            self._gather(live, now)
            return True
        self.reports.mark(live)
        self.cursors.schedule(live)
        return True

    def _gather(self, live: LiveCursor, now: int) -> None:
        """Let acks wait for more of them: one delivery and one report are for all that come within a moment."""
        number = live.cursor.cursor_id
        if number not in self._gathering:
            self._gathering.add(number)
            self.redelivery.timers.at(now + limits.CONSUMER_GATHER_MAX, partial(self._gathered, number))

    def _gathered(self, number: int, _now: Nanos) -> None:
        """Acks have waited long enough."""
        self._gathering.discard(number)
        live = self.cursors.by_id.get(number)
        if live is not None:
            self.reports.mark(live)
            self.cursors.schedule(live)

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
                self.redelivery.on_given_up("rejected", live.cursor, Run(sequence, sequence), said.reason)
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
            self.cursors.schedule(live)

    def _failed(self, live: LiveCursor, member: LiveMember, said: wire.Ack, now: Nanos) -> None:
        """A member has failed with a message, and has *said* so: it is sent again after the pause that the member asks for, or as
        the policy says. It is sent no sooner than NAK_PACE after it was sent, so that a handler which always fails burns no
        attempts, unless the member gets only what it asks for."""
        asks = member.consumer is not None and not member.consumer.config.pushes
        for run in live.pending.in_hands(member.window, said.sequence):
            if said.reason and live.policy.dead_letter:
                self.cursors.give_up(live).note(run.first, said.reason)
            if is_last(live.policy, run.count):
                self.redelivery.owe(live, run, Cause.NEGATIVE_ACK)  # the pump sets it aside
                continue
            soonest = now if asks else min(run.deadline - member.ack_wait_ns, now) + limits.NAK_PACE
            until = pause_after_nak(live.policy, run, live.cursor.cursor_id, soonest, now, said.delay)
            live.pending.pause(member.window, run, until, Cause.NEGATIVE_ACK)
            if not member.timer_at or until < member.timer_at:
                member.timer_at = 0
                self.redelivery.arm(live, member)

    def is_outdated(self, place: int, wall: int) -> bool:
        """True if a replayed ack may predate the cursor's last move and must be ignored. *place*: see
        stan.core.state.group.ack_place."""
        found = self.cursors.by_ack_key.get(place)
        override = found[0].cursor.override if found is not None else None
        return override is not None and override.moved_at > wall - limits.MOVE_MEMORY


def _settle_late(live: LiveCursor, first: int, last: int) -> list[Run]:
    """An ack that is late: another member holds the messages [first, last], or none. Returns those that were pending."""
    if min(last, live.ahead.maybe_sent_until) > live.last_sent:
        live.ahead.pass_over(max(first, live.last_sent + 1), min(last, live.ahead.maybe_sent_until))
    return live.pending.settle(first, last)
