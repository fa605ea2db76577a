"""One hand-over of leadership at a time: to whom, until when, and who is told what came of it."""

from collections.abc import Callable
from typing import NamedTuple

from stan import limits
from stan.raft.pysyncobj.safe_raft import SafeRaft
from stan.types import Nanos


class _Transfer(NamedTuple):
    to: str
    deadline: Nanos
    done: Callable[[bool], None]


class Handover:
    """Of one member of a group. *done* gets whether it leads no more, exactly once."""

    def __init__(self, shell: SafeRaft) -> None:
        self._raft = shell
        self._transfer: _Transfer | None = None

    def __bool__(self) -> bool:
        """Whether one is under way."""
        return self._transfer is not None

    def begin(self, to: str, deadline: Nanos, done: Callable[[bool], None]) -> None:
        """Let *to* lead; takes the place of one that is under way."""
        if self._transfer is not None:
            self._transfer.done(False)  # noqa: FBT003 - the answer to the question
        self._transfer = _Transfer(to, deadline, done)

    def advance(self, now: Nanos) -> None:
        """Ask, look for an answer, or end it."""
        transfer, shell = self._transfer, self._raft
        if transfer is None:
            return
        asks, is_asked = now < transfer.deadline - limits.RAFT_REFUSAL_TIMEOUT, shell.handing_over
        over = now >= transfer.deadline or not (asks or is_asked)
        if not shell.is_leader or over or not shell.is_voter(transfer.to):
            self._transfer = None
            if is_asked:  # nobody knows whether it was refused: only an election brings a lease back
                shell.step_down()
            transfer.done(not shell.is_leader)
        elif asks:
            shell.hand_over(transfer.to)

    def give_up(self) -> None:
        """This member takes part no more."""
        transfer, self._transfer = self._transfer, None
        if transfer is not None:
            transfer.done(True)  # noqa: FBT003 - it leads no more
