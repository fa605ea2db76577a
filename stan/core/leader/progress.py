"""Cursors of a group that have something to report, and the changes for the log that report it.

A *progress entry* records what the leader has sent and who holds it, so that the next leader, or this node after a restart,
knows what to flag as redelivered.
"""

from stan_protocol.scalars import ChannelUid, Nanos

from stan import limits
from stan.core.base.ready import ReportMoment
from stan.core.base.runs import pairs
from stan.core.leader.cursors import LiveCursor, LiveCursors
from stan.core.leader.deliveries import Sending, recalled, recorded
from stan.protocol.proto import entries_pb2 as pb


class ProgressReports:
    """Contents of the next progress entries of one group."""

    def __init__(self) -> None:
        self.cursors: dict[int, LiveCursor] = {}  # by id, with something to report
        # Pairs (cursor id, maybe_sent_until) that no entry records yet, flat as in entries.MaybeSent.
        self.unconfirmed: list[int] = []
        self.gone: list[tuple[int, list[Sending]]] = []  # by id, sendings of cursors that have no live view now
        self.unrecorded: set[ChannelUid] = set()  # ephemeral channels: nothing of their cursors is in the log

    def mark(self, live: LiveCursor) -> None:
        """The cursor has something to report."""
        if self.unrecorded and live.cursor.uid in self.unrecorded:
            live.unreported.forget(live.last_sent)
            return
        self.cursors[live.cursor.cursor_id] = live

    def skip(self, live: LiveCursor, to: int) -> None:
        """Messages up to *to* are gone: move `last_sent` past them."""
        if to > live.last_sent:
            live.last_sent = to
            self.mark(live)

    @property
    def waiting(self) -> bool:
        """True if there may be something to write in a progress entry."""
        return bool(self.cursors or self.unconfirmed or self.gone)

    def take(self, moment: ReportMoment) -> list[pb.GroupChange]:
        """Return the changes since the last call, for the log, with each delivery and its cause."""
        changes = []
        if self.unconfirmed:
            changes.append(pb.GroupChange(maybe_sent=pb.MaybeSent(until=self.unconfirmed)))
            self.unconfirmed = []
        while self.cursors or self.gone:
            change = pb.GroupChange()
            if self.gone:
                self._tell_of_gone(change, moment)
            while self.cursors and len(change.progress) < limits.PROGRESS_RUNS_MAX:
                self._tell_of(self.cursors.popitem()[1], change, moment)
            if change.progress:
                changes.append(change)
        for change in changes:
            change.at = moment.wall
            if moment.node:
                change.node = moment.node
        return changes

    def _tell_of_gone(self, change: pb.GroupChange, moment: ReportMoment) -> None:
        gone, self.gone = self.gone, []
        for number, sent in gone:
            change.progress.add(cursor_id=number, sent=recorded(sent, moment))

    @staticmethod
    def _tell_of(live: LiveCursor, change: pb.GroupChange, moment: ReportMoment) -> None:
        """Add to *change* what a cursor has to report. Its entry is filled in place, as a copy would take as long."""
        unreported = live.unreported
        if unreported.earlier_epochs:
            change.progress.extend(unreported.earlier_epochs)
            unreported.earlier_epochs = []
        if live.has_unreported or unreported.sent:
            live.report(change.progress.add(), moment)

    def lost(self, change: pb.GroupChange, cursors: LiveCursors, made_at: Nanos) -> None:
        """A change that `take` returned was not written: report all of its content again. *cursors*: those of the group;
        *made_at*: when it was returned."""
        self.unconfirmed += change.maybe_sent.until
        for entry in change.progress:
            live = cursors.by_id.get(entry.cursor_id)
            if live is not None and (entry.sent or entry.rejected or entry.removed):
                live.unreported.sent[:0] = recalled(entry, made_at)
                live.unreported.rejected += entry.rejected
                live.unreported.removed += entry.removed
                for told in ("sent", "rejected", "removed"):
                    entry.ClearField(told)
                self.mark(live)
            elif live is None and entry.sent:
                self.gone.append((entry.cursor_id, list(recalled(entry, made_at))))
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
        if live.unreported.sent:
            self.gone.append((live.cursor.cursor_id, live.unreported.sent))

    def clear(self) -> None:
        """Forget everything."""
        self.cursors.clear()
        self.unconfirmed = []
        self.gone = []
        self.unrecorded.clear()
