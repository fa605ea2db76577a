"""Tombstones: the messages of one group's channels that were deleted one by one, or have expired. Their sequences stay unused;
delivery and fetches pass over them.

A component of the group's machine (see components.py), fed by committed entries alone. The log keeps the bytes of a deleted
message until its segment is removed, so readers of the log ask here which messages are deleted. Promises: deleted sequences lie
between the first and the last message of their channel; a channel has at most DELETED_RUNS_MAX runs of them, and of those that
have expired not many more than EXPIRING_RUNS_MAX; a channel without deleted messages has no row.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from stan_protocol.refusals import TOO_MANY_DELETED
from stan_protocol.scalars import ChannelUid

from stan import limits
from stan.core.base.runs import Run, Runs, from_flat, pairs
from stan.core.state.per_channel import PerChannel
from stan.protocol.proto import entries_pb2 as pb


@dataclass(slots=True)
class Tombstones(PerChannel[Runs]):
    """The deleted sequences of each channel. A row is a Removal without uid."""

    KIND: ClassVar[str] = "deleted"

    # --- what readers ask -------------------------------------------------------------------------------------------

    def within(self, uid: ChannelUid, first: int, last: int) -> list[Run]:
        """The deleted runs within [first, last], cut to that interval, in order."""
        runs = self.by_channel.get(uid)
        return [] if runs is None else runs.within(first, last)

    # --- changes ----------------------------------------------------------------------------------------------------

    def delete(self, change: pb.Removal) -> str:
        """Add the sequences that a Removal deletes one by one. Returns why nothing was deleted, or ""; how many
        schedules there may be was looked at when they were stored."""
        uid = ChannelUid(change.uid)
        runs = self.by_channel.get(uid, Runs())
        added = [gap for first, last in pairs(change.deleted) for gap in runs.missing(first, last)]
        for first, last in added:
            runs.merge(Run(first, last))
        if runs.pieces > limits.DELETED_RUNS_MAX and not change.scheduled:
            for first, last in added:
                runs.remove(first, last)
            return TOO_MANY_DELETED
        if added:
            self.put(uid, runs)
        return ""

    def merge(self, uid: ChannelUid, expired: Iterable[tuple[int, int]]) -> Runs:
        """Add messages that have expired, (first, last) each; how many runs there may be was looked at when they were stored.
        Returns all of the channel's."""
        runs = self.by_channel.get(uid, Runs())
        for first, last in expired:
            runs.merge(Run(first, last))
        self.put(uid, runs)
        return runs

    def trim(self, uid: ChannelUid, first: int) -> None:
        """Messages below *first* are gone, whether they were deleted or not."""
        runs = self.by_channel.get(uid)
        if runs is not None and runs.remove(1, first - 1):
            self.put(uid, runs or None)

    def encode(self, state: Runs) -> bytes:
        """The row of a channel's deleted sequences."""
        return pb.Removal(deleted=state.flat()).SerializeToString()

    def decode(self, row: bytes) -> Runs:
        """The deleted sequences that a row holds."""
        return from_flat(pb.Removal.FromString(row).deleted)


def deleted_from(deleted: Runs | None, first: int, last: int) -> int:
    """How many of [first, last] were *deleted*."""
    return 0 if deleted is None else sum(run.size for run in deleted.within(first, last))


def behind(deleted: Runs | None, sequence: int) -> int:
    """The lowest sequence from *sequence* on that was not *deleted*."""
    while deleted is not None and (gone := deleted.following(sequence)) is not None and gone.first <= sequence:
        sequence = gone.last + 1
    return sequence


def below_newest(deleted: Runs | None, last: int, number: int) -> int:
    """The highest sequence above which *number* messages up to *last* were not *deleted*; 0 if there are not as many."""
    for run in reversed(deleted.within(1, last) if deleted is not None else ()):
        if number <= last - run.last:
            break
        number -= last - run.last
        last = run.first - 1
    return max(0, last - number)
