"""Progress entries: how far the deliveries of each group have come, written to the group's log.

The next leader begins behind what they report, and flags deliveries that it may repeat.
"""

from collections.abc import Set
from functools import partial

from stan_protocol.scalars import GroupId, Nanos

from stan import limits
from stan.core.base.ready import Proposal, Ready
from stan.core.leader.dispatch import Dispatch
from stan.core.leader.local_group import ChannelGroup
from stan.core.services.services import Services
from stan.protocol.entries import Kind
from stan.protocol.proto import entries_pb2 as pb


class ProgressWriter:
    """Writes the progress of the groups that this node leads, when it is due."""

    def __init__(self, services: Services) -> None:
        self.leading, self.node = services.leading, services.node
        self.reports, self.timers = services.reports, services.timers

    def _is_due(self, number: GroupId, group: ChannelGroup, ready: Ready, changing: Set[GroupId]) -> bool:
        """True if a progress entry of the group is due. A node that runs alone writes progress with every delivery; acks that
        come together with new messages wait for the delivery of these, in the same turn as a rule, so that one entry tells of
        both. A replicated group writes it at intervals, before any change that may move positions, and before it is handed over.
        If the log had no room for the last progress entry, a node alone retries at intervals, too."""
        dispatch = group.dispatch
        stops, waiting = dispatch.stops, dispatch.reports.waiting
        if not waiting or stops.frozen or number in self.leading.write_blocked:
            stops.progress_blocked &= waiting  # the cursors to report may be gone
            return False
        sent, before = dispatch.totals.out_messages, group.reported_deliveries
        if (
            self.node.config.cluster is None
            and not stops.progress_blocked
            and (sent != before or all(proposal.group != number for proposal in ready.proposals))
        ):
            group.reported_deliveries = sent
            return True
        much = sent - before >= limits.PROGRESS_MESSAGES_MAX
        due = self.node.clock.now >= group.report_at > 0 or stops.handed_over
        if number in changing or due or (much and number not in self.leading.saturated):
            group.report_at = 0
            group.reported_deliveries = sent
            return True
        if not group.report_at:
            self.retry_later(number, group)
        return False

    def retry_later(self, number: GroupId, group: ChannelGroup) -> None:
        """Look again in a turn some time later if a progress entry of the group is due."""
        group.report_at = self.node.clock.now + limits.PROGRESS_INTERVAL
        self.timers.wake_at(group.report_at, number)

    def report(self, number: GroupId, group: ChannelGroup, ready: Ready, changing: Set[GroupId]) -> None:
        """Add the progress entries of a group to *ready*, if they are due. *changing*: groups with other changes in this turn."""
        leader = group.leadership
        if leader is None or not self._is_due(number, group, ready, changing):
            return
        for change in group.dispatch.reports.take(self.reports.moment):
            done, body = partial(self._done, group.dispatch, change), change.SerializeToString()
            ready.proposals.append(
                Proposal(number, Kind.CHANGE, body, urgent=False, leader=leader, done=done, in_doubt=done)
            )

    def _done(self, dispatch: Dispatch, change: pb.GroupChange, result: object = None, _error: str = "") -> None:
        """A progress entry is committed; or it is not in the log, or that is unknown: what it reported is unreported again."""
        if result is None:
            clock = self.node.clock
            dispatch.reports.lost(change, dispatch.cursors, Nanos(clock.now - (clock.wall - change.at)))
