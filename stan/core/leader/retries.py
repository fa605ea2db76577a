"""The policy of a cursor for deliveries that have failed: how long a message is paused, and when it is given up.

A delivery fails when its ack wait is over, or when its client says so (NAK). With the default policy a message is sent again at
once after its ack wait, for ever.
"""

from collections import deque
from dataclasses import dataclass, field
from zlib import crc32

from stan_protocol.scalars import SECOND, Nanos

from stan import limits
from stan.core.base.delivery_policy import DeliveryPolicy
from stan.core.base.runs import Run, Runs

MINUTE = 60 * SECOND


@dataclass(slots=True)
class Moves:
    """The moves of one cursor's messages into its dead letter channel. It outlives the live view of a cursor, as a move may end
    only after the last member has left."""

    busy: bool = False  # a move is under way, or the position is about to be paused
    picked: Runs = field(default_factory=Runs)  # being moved: not begun a second time
    sealed: bool = False  # the entry that moves them is on its way into the log
    recent: deque[tuple[Nanos, int]] = field(default_factory=deque)  # of the last minute: when so many were moved
    errors: dict[int, bytes] = field(default_factory=dict)  # by sequence, clients' last reasons; old ones are forgotten
    fault: str = ""  # why messages cannot be moved now
    total: int = 0  # messages moved

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


def is_last(policy: DeliveryPolicy, count: int) -> bool:
    """True if the delivery that was the redelivery number *count* (0: the first delivery) is the last one."""
    return 0 < policy.max_deliver <= count + 1


def pause_after_ack_wait(policy: DeliveryPolicy, run: Run, cursor_id: int, now: Nanos) -> Nanos:
    """The ack wait of *run* is over: returns when the pause ends that the policy wants; 0: it is sent again at once."""
    pause = policy.pause_after(run.count + 1) if policy.backoff and not is_last(policy, run.count) else 0
    return Nanos(now + _varied(policy, pause, cursor_id, run) if pause else 0)


def pause_after_nak(policy: DeliveryPolicy, run: Run, cursor_id: int, soonest: int, now: Nanos, delay: int) -> Nanos:
    """A client has failed with a message: returns the end of its pause, which is not before *soonest*. *delay*: the pause that
    the client asks for, in ns; 0: as the policy says."""
    wanted = min(max(delay, 0), limits.NAK_DELAY_MAX)
    if not wanted and policy.backoff:
        wanted = _varied(policy, policy.pause_after(run.count + 1), cursor_id, run)
    return Nanos(max(now + wanted, soonest))


def _varied(policy: DeliveryPolicy, pause: int, cursor_id: int, run: Run) -> int:
    """The pause of *run*, in ns, as the policy varies it."""
    return pause if policy.steady else spread(pause, cursor_id, run.first, run.count)


def spread(pause: int, cursor_id: int, sequence: int, count: int) -> int:
    """A pause, in ns, changed by up to a fifth, so that messages which have failed together do not come back together. The same
    message gets the same pause on any leader."""
    return pause * (800 + crc32(b"%d.%d.%d" % (cursor_id, sequence, count)) % 401) // 1000
