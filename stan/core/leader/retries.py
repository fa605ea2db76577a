"""What has failed of a cursor's messages: which wait before they are sent again, and which are not sent any more.

A delivery fails when its ack wait is over, or when its client says so (NAK). The policy of the cursor says what follows. With the
default policy a message is sent again at once, for ever, and nothing is kept here.
"""

from dataclasses import dataclass, field
from zlib import crc32

from stan import limits
from stan.core.base.causes import Cause
from stan.core.base.delivery_policy import DeliveryPolicy
from stan.core.base.runs import Run, Runs
from stan.types import Nanos


@dataclass(slots=True)
class Retries:
    """The failed messages of one cursor. `delayed` and `working` lie in the members' windows; `exhausted` ones are nobody's."""

    delayed: Runs = field(default_factory=Runs)  # failed; the deadline in the window is the end of the pause
    working: Runs = field(default_factory=Runs)  # a client works on them; deadline: the latest end of their ack wait
    exhausted: Runs = field(default_factory=Runs)  # delivered as often as the policy allows: not sent any more
    granted: Runs = field(default_factory=Runs)  # to be sent once more in any case, as an operator wants
    causes: Runs = field(default_factory=Runs)  # why failed messages are to be sent again: the runs' counts are Causes
    redelivered: int = 0  # number of redeliveries

    def forget(self, first: int, last: int) -> None:
        """[first, last] have left the windows: they were acked, or somebody else gets them."""
        self.delayed.remove(first, last)
        self.working.remove(first, last)
        self.granted.remove(first, last)
        self.causes.remove(first, last)

    def owe(self, first: int, last: int, cause: Cause) -> None:
        """[first, last] are to be sent again because of *cause*; of those that are already, the cause stays."""
        self.causes.merge(Run(first, last, 0, cause))

    def causes_of(self, first: int, last: int) -> list[Run]:
        """Why [first, last] are to be sent again, in order: runs with the cause as their count."""
        known = self.causes.within(first, last)
        if len(known) == 1 and known[0].first == first and known[0].last == last:
            return known
        gaps = self.causes.missing(first, last)
        return sorted([*known, *(Run(begin, end, 0, Cause.OWED) for begin, end in gaps)])

    def clear(self) -> None:
        """No message is pending any more."""
        self.delayed.clear()
        self.working.clear()
        self.exhausted.clear()
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
