"""Messages with a time at which they come into their channel or go from it, or from which on they may go by their key: the parts
of a broker that look at the clock."""

from dataclasses import dataclass
from typing import Final

from stan_protocol.scalars import ChannelUid, GroupId

from stan.core.context import BrokerContext
from stan.core.leader.leadership import Leadership
from stan.core.publishing.channels import LiveChannels
from stan.core.publishing.compacting import Compacting
from stan.core.publishing.deferring import Deferring
from stan.core.publishing.delaying import Delaying
from stan.core.publishing.expiring import Expiring
from stan.core.publishing.publishing import Publishing
from stan.core.publishing.stored_reads import StoredReads
from stan.core.state.group import GroupResult
from stan.protocol.proto import entries_pb2 as pb

TIMED_CHANGES: Final = frozenset(
    {"deferred", "deferred_gone", "drop_channel", "expiring", "expired", "restore", "commit_step"}
)
"""Changes by which messages come or go that have a time, or are seen from then on."""


@dataclass(frozen=True, slots=True)
class TimedMessages:
    """The parts of one broker; none is ever replaced."""

    delaying: Delaying
    deferring: Deferring
    expiring: Expiring
    compacting: Compacting

    def lead(self, number: GroupId, leadership: Leadership) -> None:
        """This node leads a group from now on."""
        self.deferring.lead(number, leadership)
        self.expiring.lead(number, leadership)

    def applied(self, number: GroupId, change: pb.GroupChange, applied: GroupResult) -> None:
        """One of TIMED_CHANGES was applied; on every node that holds the group."""
        match change.WhichOneof("change"):
            case "expiring":
                self.expiring.listed(number, change.expiring)
            case "expired":
                self.expiring.applied(number, change.expired, applied)
            case "restore":
                self.expiring.look_at(number, ChannelUid(change.restore.uid))
            case "commit_step":
                self.expiring.look_at(number, ChannelUid(change.commit_step.uid))
            case _:
                self.deferring.applied(number, change)


def make_timed(
    context: BrokerContext, channels: LiveChannels, publishing: Publishing, stored_reads: StoredReads
) -> TimedMessages:
    """Make the parts of one broker."""
    return TimedMessages(
        Delaying(context, channels, publishing, stored_reads),
        Deferring(context, channels, publishing, stored_reads),
        Expiring(context, channels),
        Compacting(context, channels),
    )
