"""Messages with a time at which they come into their channel or go from it, or from which on they may go by their key: the parts
of a broker that look at the clock."""

from dataclasses import dataclass
from typing import Final

from stan_protocol.scalars import ChannelUid, GroupId, Nanos

from stan.core.base.runs import flat_of, size_of
from stan.core.leader.local_group import Leadership
from stan.core.publishing.channels import DelayFaults, LiveChannels
from stan.core.publishing.compacting import Compacting, CompactionProgress
from stan.core.publishing.deferring import Deferring
from stan.core.publishing.delaying import DelayClock, Delaying
from stan.core.publishing.expiring import Expiring, ExpiryClock
from stan.core.publishing.publishing import Publishing
from stan.core.services.services import Services
from stan.core.state.deferred import Deferred
from stan.core.state.group import GroupResult
from stan.protocol.entries import DEFERRED_UID
from stan.protocol.proto import entries_pb2 as pb

TIMED_CHANGES: Final = frozenset(
    {"deferred", "deferred_gone", "drop_channel", "expiring", "expired", "restore", "commit_step"}
)
"""Changes by which messages come or go that have a time, or are seen from then on."""


@dataclass(frozen=True, slots=True)
class TimedMessages:
    """The clocks of a node for all its groups; makes the parts of each group that it leads."""

    services: Services
    channels: LiveChannels
    publishing: Publishing
    delays: DelayClock
    expiries: ExpiryClock
    compactions: CompactionProgress

    def lead(self, leadership: Leadership) -> None:
        """This node leads a group from now on."""
        channels = self.channels
        leadership.keep(DelayFaults())
        leadership.keep(Delaying(self.services, leadership, channels, self.publishing, self.delays))
        leadership.keep(Deferring(self.services, leadership, channels, self.publishing))
        leadership.keep(Compacting(self.services, leadership, channels, self.compactions))
        expiring = Expiring(self.services, leadership, channels, self.expiries)
        leadership.keep(expiring)
        expiring.lead()

    def look(self, now: Nanos) -> None:
        """Compact messages that have become old enough, if it is time to look."""
        for compacting in self.services.leading.all_parts(Compacting):
            self.services.faults.within(compacting.number, compacting.look, now)

    def applied(self, number: GroupId, change: pb.GroupChange, applied: GroupResult) -> None:
        """One of TIMED_CHANGES was applied; on every node that holds the group."""
        name = change.WhichOneof("change")
        if name == "expired":
            self._expired(number, applied)
        elif name in ("deferred", "deferred_gone", "drop_channel"):
            self._trim_deferred(number)
        leadership = self.services.node.groups[number].leadership
        if leadership is not None:
            _follow(leadership, change)

    def _trim_deferred(self, number: GroupId) -> None:
        """Messages of the hidden channel wait no more."""
        floor = self.services.node.groups[number].machine.part(Deferred).floor
        if floor > 1:
            self.services.outgoing.trims.append((number, DEFERRED_UID, floor))

    def _expired(self, number: GroupId, applied: GroupResult) -> None:
        """Expired messages are removed."""
        runs_by_channel = applied.of_part
        assert isinstance(runs_by_channel, dict)  # noqa: S101 - for mypy
        for uid, runs in runs_by_channel.items():
            self.channels.removed(number, pb.Removal(uid=uid, deleted=flat_of(runs)))
            if self.services.node.leads(number):
                self.services.reports.totals.expired_messages += size_of(runs)


def _follow(leadership: Leadership, change: pb.GroupChange) -> None:
    """The parts of a group's leader follow a change of TIMED_CHANGES."""
    match change.WhichOneof("change"):
        case "expiring":
            leadership.part(Expiring).listed(change.expiring)
        case "expired":
            leadership.part(Expiring).removed(change.expired)
        case "restore":
            leadership.part(Expiring).look_at(ChannelUid(change.restore.uid))
        case "commit_step":
            leadership.part(Expiring).look_at(ChannelUid(change.commit_step.uid))
        case "deferred":
            leadership.part(Deferring).added(change.deferred)
        case "drop_channel":
            leadership.part(Delaying).dropped(ChannelUid(change.drop_channel.uid))


def make_timed(services: Services, channels: LiveChannels, publishing: Publishing) -> TimedMessages:
    """Make the part of one broker."""
    return TimedMessages(
        services,
        channels,
        publishing,
        DelayClock(services, channels),
        ExpiryClock(services),
        CompactionProgress(services),
    )
