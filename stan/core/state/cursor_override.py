"""Cursor overrides in the replicated state: what operators have changed about a cursor (paused, moved, messages skipped).

A cursor that was never changed has no override. A cursor that was moved back sends messages a second time: `resend` holds their
sequences, so that they are flagged. Sequences that the cursor passed without sending them (it began later, was moved ahead,
skipped them) are `unsent`; sending these is not a redelivery. If it is no longer known whether a message was sent, it counts as
sent. Each move or skip begins an *epoch*: progress that a leader reports from an earlier epoch only shows what was sent.

Invariants: `skipped` and `resend` lie above the cursor's last_sent, `unsent` does not.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from stan import limits
from stan.core.base.runs import Run, Runs, from_flat, pairs
from stan.protocol.proto import entries_pb2 as pb


@dataclass(slots=True)
class CursorOverride:
    """The override of one cursor."""

    paused: bool = False  # nothing is sent; acks count
    epoch: int = 0  # RaftIndex of the newest move or skip; 0: none
    moved_at: int = 0  # Unix ns, when the newest move was asked for
    skipped: Runs = field(default_factory=Runs)
    resend: Runs = field(default_factory=Runs)
    unsent: Runs = field(default_factory=Runs)
    pause_reason: bytes = b""  # why the leader has paused the cursor by itself

    @property
    def idle(self) -> bool:
        """True if there is nothing to remember: the cursor needs no override."""
        return not self.paused and not self.epoch

    def move(self, last_sent: int, maybe_sent_until: int, to: int) -> None:
        """Move the cursor from *last_sent* to *to*; messages up to *maybe_sent_until* may have been sent."""
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
        """The cursor's last_sent has reached *last_sent*."""
        if self.skipped:
            for run in self.skipped.remove(1, last_sent):
                for first, last in self.resend.missing(run.first, run.last):
                    self.unsent.merge(Run(first, last))
        if self.resend:
            self.resend.remove(1, last_sent)
        self._bound()

    def forget(self, index: int) -> None:
        """All messages are gone, by the entry at *index*: what progress entries of before tell is about none that is left."""
        for runs in (self.skipped, self.resend, self.unsent):
            runs.clear()
        self.epoch = index

    def was_sent(self, first: int, last: int, last_sent: int) -> None:
        """[first, last] were sent in an earlier epoch."""
        self.unsent.remove(first, last)
        if last > last_sent:
            self.resend.merge(Run(max(first, last_sent + 1), last))
        self._bound()

    def _bound(self) -> None:
        """Keep the number of runs bounded: drop surplus runs of `unsent` and join those of `resend`, so that more messages count
        as sent than were."""
        while self.unsent.pieces > limits.OVERRIDE_RUNS_MAX:
            self.unsent.remove(1, next(iter(self.unsent)).last)
        while self.resend.pieces > limits.OVERRIDE_RUNS_MAX:
            pieces = iter(self.resend)
            before, behind = next(pieces), next(pieces)
            self.resend.merge(Run(before.last + 1, behind.first - 1))

    def row(self) -> pb.CursorOverride:
        """The override as a protobuf message, for a row or snapshot."""
        return pb.CursorOverride(
            paused=self.paused,
            epoch=self.epoch,
            moved_at=self.moved_at,
            skipped=self.skipped.flat(),
            resend=self.resend.flat(),
            unsent=self.unsent.flat(),
            reason=self.pause_reason,
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
        pause_reason=row.reason,
    )


def of_cursor(start_sequence: int) -> CursorOverride:
    """A new override for a cursor that began with sequence *start_sequence*; 0: unknown."""
    return CursorOverride(unsent=Runs([Run(1, start_sequence - 1)]) if start_sequence > 1 else Runs())


def well_formed(runs: Sequence[int]) -> bool:
    """True if *runs* is a flat list first, last, first, last, ... of valid runs of sequences."""
    return len(runs) % 2 == 0 and all(1 <= first <= last for first, last in pairs(runs))
