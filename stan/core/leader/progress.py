"""Which cursors of a group have something to report, and the changes for the log that report it.

A *progress entry* records what the leader has sent and who holds it, so that the next leader, or this node after a restart,
knows what to flag as redelivered.
"""

from stan import limits
from stan.core.base.runs import pairs
from stan.core.leader.cursors import LiveCursor, LiveCursors
from stan.protocol.proto import entries_pb2 as pb


class ProgressReports:
    """What the progress entries of one group have to report next."""

    def __init__(self) -> None:
        self.cursors: dict[int, LiveCursor] = {}  # by id, with something to report
        # Pairs (cursor id, maybe_sent_until) that no entry records yet, flat as in entries.MaybeSent.
        self.unconfirmed: list[int] = []

    def mark(self, live: LiveCursor) -> None:
        """The cursor has something to report."""
        self.cursors[live.cursor.cursor_id] = live

    @property
    def waiting(self) -> bool:
        """True if there may be something to write in a progress entry."""
        return bool(self.cursors or self.unconfirmed)

    def take(self) -> list[pb.GroupChange]:
        """Return what changed since the last call, as changes for the log."""
        changes = []
        if self.unconfirmed:
            changes.append(pb.GroupChange(maybe_sent=pb.MaybeSent(until=self.unconfirmed)))
            self.unconfirmed = []
        while self.cursors:
            entries = self._of_cursors(limits.PROGRESS_RUNS_MAX)
            if entries:
                changes.append(pb.GroupChange(progress=entries))
        return changes

    def _of_cursors(self, cursors_max: int) -> list[pb.Progress]:
        out: list[pb.Progress] = []
        while self.cursors and len(out) < cursors_max:
            _, live = self.cursors.popitem()
            if live.unreported.earlier_epochs:
                out += live.unreported.earlier_epochs
                live.unreported.earlier_epochs = []
            if live.has_unreported:
                out.append(live.progress())
        return out

    def lost(self, change: pb.GroupChange, cursors: LiveCursors) -> None:
        """A change that `take` returned was not written: report all of its content again. *cursors*: those of the group."""
        self.unconfirmed += change.maybe_sent.until
        for entry in change.progress:
            live = cursors.by_id.get(entry.cursor_id)
            if live is not None and entry.epoch != live.unreported.epoch:
                live.unreported.earlier_epochs.append(entry)
                self.mark(live)
            elif live is not None:
                for numbers in (*(held.runs for held in entry.held), entry.acked):
                    for first, last in pairs(numbers):
                        live.unreported.mark(first, last)
                live.unreported.last_sent = -1
                self.mark(live)

    def forget(self, live: LiveCursor) -> None:
        """The cursor is gone, or offline: it has nothing to report."""
        self.cursors.pop(live.cursor.cursor_id, None)

    def clear(self) -> None:
        """Forget everything."""
        self.cursors.clear()
        self.unconfirmed = []
