"""What has failed of a cursor's messages: which wait before they are sent again, and which are not sent any more.

A delivery fails when its ack wait is over, or when its client says so (NAK). The policy of the cursor says what follows. With the
default policy a message is sent again at once, for ever, and nothing is kept here.
"""

from collections import deque
from dataclasses import dataclass, field
from zlib import crc32

from stan_protocol.scalars import SECOND, Nanos

from stan import limits
from stan.core.base.causes import Cause
from stan.core.base.delivery_policy import DeliveryPolicy
from stan.core.base.runs import Run, Runs

MINUTE = 60 * SECOND


class Moves:
    """The moves of one cursor's messages into its dead letter channel. It outlives the live view of a cursor, as a move may end
    only after the last member has left."""

    __slots__ = ("busy", "errors", "fault", "picked", "recent", "sealed", "total")

    def __init__(self) -> None:
        self.busy = False  # a move is under way, or the position is about to be paused
        self.picked = Runs()  # being moved: not begun a second time
        self.sealed = Runs()  # of these, the entry that moves them is on its way into the log
        self.recent: deque[tuple[Nanos, int]] = deque()  # of the last minute: when so many were moved
        self.errors: dict[
            int, bytes
        ] = {}  # sequence -> the reason that a client gave last; the oldest ones are forgotten
        self.fault = ""  # why messages cannot be moved now
        self.total = 0  # messages moved

    def note(self, sequence: int, reason: bytes) -> None:
        """A client has failed with a message, or rejects it, and says why."""
        self.errors.pop(sequence, None)
        if reason:
            self.errors[sequence] = reason
            if len(self.errors) > limits.FAILURE_REASONS_MAX:
                del self.errors[next(iter(self.errors))]

    def in_last_minute(self, now: Nanos) -> int:
        """Number of messages moved in the last minute."""
        while self.recent and self.recent[0][0] <= now - MINUTE:
            self.recent.popleft()
        return sum(count for _, count in self.recent)


@dataclass(slots=True)
class Retries:
    """The failed messages of one cursor. `delayed` and `working` lie in the members' windows; `exhausted` ones are nobody's."""

    delayed: Runs = field(default_factory=Runs)  # failed; the deadline in the window is the end of the pause
    working: Runs = field(default_factory=Runs)  # a client works on them; deadline: the latest end of their ack wait
    exhausted: Runs = field(default_factory=Runs)  # delivered as often as the policy allows: not sent any more
    rejected: Runs = field(default_factory=Runs)  # of these, those that a client has rejected, to become dead letters
    granted: Runs = field(default_factory=Runs)  # to be sent once more in any case, as an operator wants
    causes: Runs = field(default_factory=Runs)  # why failed messages are to be sent again: the runs' counts are Causes
    redelivered: int = 0  # number of redeliveries
    rejections: int = 0  # number of messages that clients have rejected
    moves: Moves | None = None  # None: nothing of the cursor was to become a dead letter

    def forget(self, first: int, last: int) -> None:
        """[first, last] have left the windows: they were acked, or somebody else gets them."""
        self.delayed.remove(first, last)
        self.working.remove(first, last)
        self.granted.remove(first, last)
        self.causes.remove(first, last)

    def owe(self, first: int, last: int, cause: Cause) -> None:
        """[first, last] are to be sent again because of *cause*; of those that are already, the cause stays."""
        self.causes.merge(Run(first, last, 0, cause))

    def owe_each(self, firsts: list[int], lasts: list[int], cause: Cause) -> None:
        """As `owe`, of many runs in increasing order."""
        if firsts[0] > self.causes.last:
            self.causes.add_each(firsts, lasts, 0, cause)
            return
        for first, last in zip(firsts, lasts, strict=True):
            self.owe(first, last, cause)

    def causes_of(self, first: int, last: int) -> list[Run]:
        """Why [first, last] are to be sent again, in order: runs with the cause as their count."""
        known = self.causes.within(first, last)
        if len(known) == 1 and known[0].first == first and known[0].last == last:
            return known
        gaps = self.causes.missing(first, last)
        return sorted([*known, *(Run(begin, end, 0, Cause.OWED) for begin, end in gaps)])

    def causes_of_each(self, parts: list[tuple[int, int]]) -> list[Run]:
        """As `causes_of`, of many parts in increasing order."""
        if len(parts) > 1:
            known = self.causes.cut_each(parts)
            if sum([run[1] - run[0] + 1 for run in known]) == sum([last - first + 1 for first, last in parts]):
                return known
        return [run for first, last in parts for run in self.causes_of(first, last)]

    def clear(self) -> None:
        """No message is pending any more."""
        self.delayed.clear()
        self.working.clear()
        self.exhausted.clear()
        self.rejected.clear()
        self.granted.clear()
        self.causes.clear()

    def over(self, run: Run, cursor_id: int, policy: DeliveryPolicy, now: Nanos) -> list[Run]:
        """The deadline of *run* has come, which was taken out of its window. Returns its parts: those with deadline 0 are to be
        sent again now, the others stay in the window, as they have failed just now and the policy wants a pause."""
        first, last, _, count = run
        failed = self.delayed.missing(first, last) if self.delayed.size else [(first, last)]
        rested = self.delayed.remove(first, last)
        self.working.remove(first, last)
        pause = policy.pause_after(count + 1) if policy.backoff and not is_last(policy, count) else 0
        parts = [Run(begin, end, 0, count) for begin, end, *_ in rested]
        for begin, end in failed:
            self.owe(begin, end, Cause.ACK_WAIT_OVER)
            if pause:
                self.delayed.merge(Run(begin, end))
                parts.append(Run(begin, end, now + spread(pause, cursor_id, begin, count), count))
            else:
                parts.append(Run(begin, end, 0, count))
        return parts

    def refused(self, run: Run, cursor_id: int, policy: DeliveryPolicy, sent_at: int, now: Nanos, delay: int) -> Run:
        """A client has failed with a message that was sent to it at *sent_at*: returns *run* with the end of its pause. *delay*:
        the pause that the client asks for, in ns; 0: as the policy says. No message is sent again sooner than NAK_PACE after it
        was sent, so that a handler which always fails burns no attempts."""
        wanted = min(max(delay, 0), limits.NAK_DELAY_MAX)
        if not wanted and policy.backoff:
            wanted = spread(policy.pause_after(run.count + 1), cursor_id, run.first, run.count)
        self.working.remove(run.first, run.last)
        self.delayed.merge(Run(run.first, run.last))
        return Run(run.first, run.last, max(now + wanted, min(sent_at, now) + limits.NAK_PACE), run.count)

    def worked_on(self, run: Run, policy: DeliveryPolicy, ack_wait_ns: int, now: Nanos) -> Run:
        """A client works on *run*: returns it with its new deadline, which is never before the old one. The hold ends `max_hold`
        after the delivery."""
        deadline = now + ack_wait_ns
        if policy.max_hold:
            known = self.working.within(run.first, run.last)
            until = known[0].deadline if known else run.deadline - ack_wait_ns + policy.max_hold
            if not known:
                self.working.add(Run(run.first, run.last, until))
            deadline = min(deadline, until)
        return Run(run.first, run.last, max(deadline, run.deadline), run.count)

    def give_up(self, run: Run) -> None:
        """A client has rejected *run*, which was taken out of wherever it was: it is not sent any more."""
        self.exhausted.add(run)
        self.rejected.merge(Run(run.first, run.last))

    def too_many(self, policy: DeliveryPolicy, now: Nanos) -> bool:
        """True if more messages are given up than the policy allows to become dead letters within a minute."""
        rate, moves = policy.dead_letter_rate, self.moves
        if not policy.dead_letter or not rate or moves is None or moves.fault:
            return False
        return self.exhausted.size + moves.in_last_minute(now) > rate

    def taken_back(self, policy: DeliveryPolicy, run: Run) -> None:
        """*run* is being moved, and was given up before the last member left."""
        if is_last(policy, run.count):
            self.exhausted.add(run)
        else:
            self.give_up(run)

    def again(self, policy: DeliveryPolicy) -> list[Run]:
        """Another *policy* is in force: takes out and returns what was given up and may be sent again. What a client has rejected
        is given up under any policy; what is being moved stays."""
        found = []
        for run in [run for run in self.exhausted if not is_last(policy, run.count)]:
            for first, last in self.rejected.missing(run.first, run.last):
                staying = self.moves.picked.missing(first, last) if self.moves is not None else [(first, last)]
                for part in staying:
                    found += self.exhausted.remove(*part)
        return found

    def spent(self, policy: DeliveryPolicy, to_redeliver: Runs) -> list[Run]:
        """What of *to_redeliver* was delivered as often as the policy allows."""
        if not policy.max_deliver:
            return []
        found = [run for run in to_redeliver if is_last(policy, run.count)]
        if self.granted.size:
            found = [Run(*part, 0, run.count) for run in found for part in self.granted.missing(run.first, run.last)]
        return found


def is_last(policy: DeliveryPolicy, count: int) -> bool:
    """True if the delivery that was the redelivery number *count* (0: the first delivery) is the last one."""
    return 0 < policy.max_deliver <= count + 1


def spread(pause: int, cursor_id: int, sequence: int, count: int) -> int:
    """A pause, in ns, changed by up to a fifth, so that messages which have failed together do not come back together. The same
    message gets the same pause on any leader."""
    return pause * (800 + crc32(b"%d.%d.%d" % (cursor_id, sequence, count)) % 401) // 1000
