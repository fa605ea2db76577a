"""The places of the messages of a position that were sent, or passed over, and are not settled: one table, on the leader.

    state       kept in                       with each run                      comes again
    sent        the window of a member        end of the ack wait, count         after the ack wait
    paused      that window, and `paused`     end of the pause, count; cause     after the pause
    due         `due`: nobody has it          why (a cause, ANYWAY), count       when a window opens
    given up    `given_up`: nobody has it     why (a cause, REJECTED), count     not by itself

    transition      from            to          when
    (in Dispatch)   new, due        sent        a member gets it
    (OrderedTurn)   new             due         the order by key passes over it: it has the count NEVER_SENT
    work            sent            sent        its client works on it: a later end of the ack wait
    pause           sent            paused      its delivery has failed, and the policy or the client wants a pause
    owe, leave      sent, paused    due         ack wait or pause are over, its member is gone, or it never left
    spend           due             given up    it was delivered as often as the policy allows
    reject          any             given up    its client rejects it, and rejected messages become dead letters
    owe, resume     given up        due         another policy allows more deliveries, or an operator ends a pause
    send_again      any             due         an operator wants it to be sent again
    settle          any             none        it was acked, skipped, removed, or has become a dead letter
    trim            due, given up   none        the limits of the channel have removed it

Each message is in one state: the windows, `due` and `given_up` are disjoint (G1); `paused` and `worked_on` are parts of the
windows, and disjoint. That a message is *being moved* into a dead letter channel is no state: until the entry is committed that
moves it, it stays given up, or an ack or an operator takes it from there.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from stan_protocol.scalars import Nanos

from stan.core.base.causes import Cause
from stan.core.base.delivery_policy import DeliveryPolicy
from stan.core.base.runs import Run, Runs, joined, size_of, without
from stan.core.leader.key_order import KeyOrder
from stan.core.leader.retries import Moves, is_last
from stan.invariant import invariant

CAUSE: Final = 0xFF
"""Of why a message is due or given up, which is kept in place of a deadline: the Cause of its next delivery."""
ANYWAY: Final = 1 << 8
"""Also a part of why: it is sent once more, however often it was, as an operator wants."""
REJECTED: Final = 1 << 9
"""Also a part of why: a client has rejected it."""
NEVER_SENT: Final = -1
"""Count of redeliveries of a message that is held back: its first delivery is number 0."""


@dataclass(slots=True)
class Pending:
    """The messages of one position that are not settled, and the key order that hears of what becomes due or settled."""

    windows: list[Runs] = field(default_factory=list)  # of the members
    paused: Runs = field(default_factory=Runs)  # failed; counts are causes
    worked_on: Runs = field(default_factory=Runs)  # a client works on them; deadline: the latest end of their ack wait
    due: Runs = field(default_factory=Runs)  # in place of a deadline: why
    given_up: Runs = field(default_factory=Runs)  # likewise
    order: KeyOrder | None = None  # of a key-ordered queue group
    moves: Moves | None = None  # None: nothing of the position was to become a dead letter
    redelivered: int = 0  # number of redeliveries
    rejections: int = 0  # number of messages that clients have rejected

    # --- transitions ------------------------------------------------------------------------------------------------------

    def settle(self, first: int, last: int) -> list[Run]:
        """Take [first, last] out, from any member, as an ack counts from any of them; returns the runs that were there."""
        found = self._remove(first, last)
        if self.order is not None:
            for run in found:
                self.order.settled(run.first, run.last)
        return found

    def trim(self, to: int) -> list[Run]:
        """Settle what nobody has up to *to*, and return it: the channel's limits have removed it. What a member has stays, as a
        read that is under way may still bring it."""
        gone = self.due.remove(1, to) + self.given_up.remove(1, to)
        if self.order is not None:
            for run in gone:
                self.order.settled(run.first, run.last)
        return gone

    def owe(self, run: Run, cause: int) -> None:
        """*run* is due, because of *cause*. Whoever calls has taken it out of its window, if it was in one."""
        first, last, _, count = run
        if self.paused.size or self.worked_on.size:
            self.wake(first, last)
        if self.given_up.size:
            self.given_up.remove(first, last)
        self.due.add(Run(first, last, cause, count))
        if self.order is not None:
            self.order.owed(first, last)

    def leave(self, window: Runs) -> None:
        """The member with this window is gone: what it had is due."""
        self.windows = [other for other in self.windows if other is not window]
        for run in window:
            self.owe(run, Cause.MEMBER_GONE)

    def pause(self, window: Runs, run: Run, until: Nanos, cause: Cause) -> None:
        """The delivery of *run*, just taken out of *window*, has failed: it is back there until its pause is over."""
        first, last, _, count = run
        if self.worked_on.size:
            self.worked_on.remove(first, last)
        window.add(Run(first, last, until, count))
        self.paused.add(Run(first, last, 0, cause))

    def wake(self, first: int, last: int) -> list[Run]:
        """[first, last] are not paused and not worked on any more; returns the paused runs, with causes as counts."""
        self.worked_on.remove(first, last)
        return self.paused.remove(first, last)

    def work(self, window: Runs, sequence: int, ack_wait: int, max_hold: int, now: Nanos) -> None:
        """A client works on a message: its ack wait begins again. *max_hold*: how long after the delivery it is over at the
        latest; 0: any time."""
        for run in self.in_hands(window, sequence):
            deadline = now + ack_wait
            if max_hold:
                known = self.worked_on.within(sequence, sequence)
                until = known[0].deadline if known else run.deadline - ack_wait + max_hold
                if not known:
                    self.worked_on.add(Run(sequence, sequence, until))
                deadline = min(deadline, until)
            window.add(Run(sequence, sequence, max(deadline, run.deadline), run.count))

    def in_hands(self, window: Runs, sequence: int) -> list[Run]:
        """Take a message out of a window; nothing if it is not there, or is paused."""
        return [] if sequence in self.paused else window.remove(sequence, sequence)

    def give_up_spent(self, policy: DeliveryPolicy) -> list[Run]:
        """Give up the due messages that were delivered as often as *policy* allows; returns them."""
        if not policy.max_deliver:
            return []
        spent = [run for run in self.due if is_spent(policy, run)]
        for run in self.due.take_each(spent):
            self.given_up.add(run)
        return alike(spent)

    def reject(self, sequence: int) -> list[Run]:
        """A client rejects a message: it is given up under any policy. Returns it; nothing if it is settled."""
        found = self.settle(sequence, sequence)
        for run in found:
            self.given_up.add(Run(sequence, sequence, Cause.NEGATIVE_ACK | REJECTED, run.count))
        self.rejections += len(found)
        return found

    def send_again(self, first: int, last: int, *, counted: bool) -> list[Run]:
        """An operator wants the unsettled messages of [first, last] to be sent again; returns them. *counted*: deliveries are
        limited; they are counted from the first one on again, and at least one is allowed."""
        found = self._remove(first, last)
        why = Cause.MOVED | ANYWAY if counted else Cause.MOVED
        for run in found:
            self.owe(Run(run.first, run.last, 0, 0 if counted else run.count), why)
        return found

    def resume(self, policy: DeliveryPolicy) -> None:
        """An operator lets the position go on: messages that were given up and may be sent again are due, and sent once more
        in any case."""
        for run in self.kept_back():
            cause = run.deadline & CAUSE
            self.owe(run, Cause.MOVED if cause == Cause.OWED else cause)
        self.due = Runs(
            Run(first, last, why | ANYWAY if is_last(policy, count) else why, count)
            for first, last, why, count in self.due
        )

    def take_back(self, policy: DeliveryPolicy) -> None:
        """Give up again the messages that are being moved: they were given up before the last member left."""
        for first, last, *_ in self.moves.picked if self.moves is not None else ():
            for run in self.due.remove(first, last):
                why = run.deadline if is_last(policy, run.count) else Cause.NEGATIVE_ACK | REJECTED
                self.given_up.add(run._replace(deadline=why))

    def clear(self) -> None:
        """Nothing is pending any more."""
        for runs in (*self.windows, self.paused, self.worked_on, self.due, self.given_up):
            runs.clear()
        if self.order is not None:
            self.order = KeyOrder()

    def _remove(self, first: int, last: int) -> list[Run]:
        found = self.due.remove(first, last)
        for window in self.windows:
            found += window.remove(first, last)
        found += self.given_up.remove(first, last)
        self.wake(first, last)
        return found

    # --- what is where ----------------------------------------------------------------------------------------------------

    def __contains__(self, sequence: int) -> bool:
        return any(sequence in runs for runs in self.everywhere)

    @property
    def everywhere(self) -> list[Runs]:
        """All that is not settled, as disjoint sets."""
        return [*self.windows, self.due, self.given_up]

    @property
    def owed(self) -> Runs:
        """The messages that are no member's."""
        return Runs(sorted((*self.due, *self.given_up))) if self.given_up.size else self.due

    @property
    def held_back(self) -> int:
        """How many messages of a key-ordered group were passed over, as earlier ones of their slots are not settled."""
        return 0 if self.order is None else sum(run.size for run in self.due if run.count == NEVER_SENT)

    @property
    def rejected(self) -> list[Run]:
        """The messages that were given up as a client has rejected them."""
        return joined(run for run in self.given_up if run.deadline & REJECTED)

    def is_rejected(self, sequence: int) -> bool:
        """True if a message was given up as a client has rejected it."""
        return any(run.deadline & REJECTED for run in self.given_up.within(sequence, sequence))

    def first_given_up(self, size: int) -> list[Run]:
        """The *size* lowest messages that were given up."""
        return alike(self.given_up.peek(size))

    def kept_back(self) -> list[Run]:
        """The messages that were given up and may be sent again: no client has rejected them, and they are not being moved."""
        found = [run for run in self.given_up if not run.deadline & REJECTED]
        return found if self.moves is None else without(found, self.moves.picked)

    def too_many(self, policy: DeliveryPolicy, now: Nanos) -> bool:
        """True if more messages are given up than *policy* allows to become dead letters within a minute."""
        rate, moves = policy.dead_letter_rate, self.moves
        if not policy.dead_letter or not rate or moves is None or moves.fault:
            return False
        return self.given_up.size + moves.in_last_minute(now) > rate

    def check(self) -> None:
        """Raise InvariantError if a message is in two states, or in a part of one that it is not in."""
        for runs in (*self.everywhere, self.paused, self.worked_on):
            invariant(size_of(run[:2] for run in runs) == runs.size, "a size is that of the runs", runs=runs)
        every = joined(run for runs in self.everywhere for run in runs)
        once = size_of(run[:2] for run in every) == sum(runs.size for runs in self.everywhere)
        invariant(once, "a message is in one state", windows=self.windows, due=self.due, given_up=self.given_up)
        handed = joined(run for window in self.windows for run in window)
        for part in (self.paused, self.worked_on):
            stray = without(list(part), handed)
            invariant(not stray, "what is paused or worked on is in a window", stray=stray)
        twice = self.paused.shared(self.worked_on)
        invariant(not twice, "nothing is paused and worked on", twice=twice)
        wrong = [run for run in self.due if run.deadline & REJECTED or run.count < NEVER_SENT]
        wrong += [run for run in self.given_up if run.deadline & ANYWAY]
        invariant(not wrong, "what nobody has says why", wrong=wrong)


def is_spent(policy: DeliveryPolicy, run: Run) -> bool:
    """True if *run*, which is due, was delivered as often as *policy* allows."""
    return is_last(policy, run.count) and not run.deadline & ANYWAY


def alike(runs: Iterable[Run]) -> list[Run]:
    """Runs that nobody has, without why: those next to each other that have the same count are one."""
    found: list[Run] = []
    for first, last, _, count in runs:
        if found and found[-1].last + 1 == first and found[-1].count == count:
            found[-1] = Run(found[-1].first, last, 0, count)
        else:
            found.append(Run(first, last, 0, count))
    return found
