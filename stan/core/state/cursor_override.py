"""What operators have changed about a cursor, in the replicated state: paused, moved, messages skipped.

A cursor that was never changed has none of this. One that was moved back sends messages a second time: `resend` tells which
ones, so that they are flagged; what it has passed without sending it (it began later, was moved ahead, skipped it) is `unsent`
and is no repeat. Where it cannot be known any more whether a message was sent, it counts as sent. Each move or skip begins an
*epoch*: what a leader tells of sent and acked messages without knowing of it is only a hint of what was sent.

Invariants: `skipped` and `resend` lie above the cursor's last_sent, `unsent` does not.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from stan import limits
from stan.core.base.runs import Run, Runs, from_flat, pairs
from stan.protocol.proto import entries_pb2 as pb


@dataclass(slots=True)
class CursorOverride:
    """See the module's docstring."""

    paused: bool = False  # nothing is sent; acks count
    epoch: int = 0  # RaftIndex of the newest move or skip; 0: none
    moved_at: int = 0  # Unix ns, when the newest move was asked for
    skipped: Runs = field(default_factory=Runs)
    resend: Runs = field(default_factory=Runs)
    unsent: Runs = field(default_factory=Runs)

    @property
    def idle(self) -> bool:
        """Whether nothing has to be remembered."""
        return not self.paused and not self.epoch

    def move(self, last_sent: int, maybe_sent_until: int, to: int) -> None:
        """The cursor goes from *last_sent* to *to*; up to *maybe_sent_until* more may have been sent."""
        self.skipped.clear()
        if to < last_sent:
            for first, last in self.unsent.missing(to + 1, last_sent):
                self.resend.merge(Run(first, last))
            self.unsent.remove(to + 1, last_sent)
        elif to > last_sent:
            for first, last in self.resend.missing(max(last_sent, maybe_sent_until) + 1, to):
                self.unsent.merge(Run(first, last))
            self.resend.remove(1, to)
        if maybe_sent_until > max(last_sent, to):
            self.resend.merge(Run(max(last_sent, to) + 1, maybe_sent_until))
        self._bound()

    def passed(self, last_sent: int) -> None:
        """The cursor has come to *last_sent*."""
        if self.skipped:
            for run in self.skipped.remove(1, last_sent):
                for first, last in self.resend.missing(run.first, run.last):
                    self.unsent.merge(Run(first, last))
        if self.resend:
            self.resend.remove(1, last_sent)
        self._bound()

    def was_sent(self, first: int, last: int, last_sent: int) -> None:
        """[first, last] were sent in an earlier epoch."""
        self.unsent.remove(first, last)
        if last > last_sent:
            self.resend.merge(Run(max(first, last_sent + 1), last))
        self._bound()

    def _bound(self) -> None:
        """Too many pieces are made fewer: more counts as sent than was."""
        while self.unsent.pieces > limits.OVERRIDE_RUNS_MAX:
            self.unsent.remove(1, next(iter(self.unsent)).last)
        while self.resend.pieces > limits.OVERRIDE_RUNS_MAX:
            pieces = iter(self.resend)
            before, behind = next(pieces), next(pieces)
            self.resend.merge(Run(before.last + 1, behind.first - 1))

    def row(self) -> pb.CursorOverride:
        """As it is stored."""
        return pb.CursorOverride(
            paused=self.paused,
            epoch=self.epoch,
            moved_at=self.moved_at,
            skipped=self.skipped.flat(),
            resend=self.resend.flat(),
            unsent=self.unsent.flat(),
        )


def of_row(row: pb.CursorOverride) -> CursorOverride:
    """The inverse of `row`."""
    return CursorOverride(
        paused=row.paused,
        epoch=row.epoch,
        moved_at=row.moved_at,
        skipped=from_flat(row.skipped),
        resend=from_flat(row.resend),
        unsent=from_flat(row.unsent),
    )


def of_cursor(start_sequence: int) -> CursorOverride:
    """The first one of a cursor that began with sequence *start_sequence*; 0: not known."""
    return CursorOverride(unsent=Runs([Run(1, start_sequence - 1)]) if start_sequence > 1 else Runs())


def well_formed(runs: Sequence[int]) -> bool:
    """Whether *runs* are first, last, first, last, ... of sequences."""
    return len(runs) % 2 == 0 and all(1 <= first <= last for first, last in pairs(runs))
