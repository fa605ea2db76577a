"""The hand-over of leadership, one at a time: target, deadline, and the callback that gets its outcome."""

from collections.abc import Callable
from typing import NamedTuple

from stan_protocol.scalars import Nanos

from stan import limits
from stan.raft.pysyncobj.safe_raft import SafeRaft


class _Transfer(NamedTuple):
    to: str
    deadline: Nanos
    done: Callable[[bool], None]


class Handover:
    """The hand-over of one member of a group. *done* is called exactly once, with True if the member does not lead anymore."""

    def __init__(self, shell: SafeRaft) -> None:
        self._raft = shell
        self.under_way: _Transfer | None = None

    def begin(self, to: str, deadline: Nanos, done: Callable[[bool], None]) -> None:
        """Begin to hand over to *to*; replaces a hand-over that is under way, whose callback gets False."""
        if self.under_way is not None:
            self.under_way.done(False)  # noqa: FBT003 - the outcome
        self.under_way = _Transfer(to, deadline, done)

    def advance(self, now: Nanos) -> None:
        """Ask the target to campaign, look for its answer, or end the hand-over."""
        transfer, shell = self.under_way, self._raft
        if transfer is None:
            return
        asks, is_asked = now < transfer.deadline - limits.RAFT_REFUSAL_TIMEOUT, shell.as_leader.handing_over
        over = now >= transfer.deadline or not (asks or is_asked)
        if not shell.library.is_leader or over or transfer.to not in shell.members.others:
            self.under_way = None
            if is_asked:  # the target may still campaign: only after an election can there be a lease again
                shell.library.step_down()
            transfer.done(not shell.library.is_leader)
        elif asks:
            shell.as_leader.hand_over(transfer.to)

    def give_up(self) -> None:
        """End the hand-over: this member leaves the group. The callback gets True."""
        transfer, self.under_way = self.under_way, None
        if transfer is not None:
            transfer.done(True)  # noqa: FBT003 - it leads no more
