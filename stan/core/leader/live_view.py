"""The live view of one channel group: what its parts share that deliver its messages."""

from dataclasses import dataclass, field

from stan_protocol.scalars import ChannelUid

from stan.core.base.leaf_state import LeafStates
from stan.core.leader.cursors import LiveCursors
from stan.core.leader.progress import ProgressReports


@dataclass(slots=True)
class DeliveryStops:
    """Why a group may not send messages now."""

    disconnected: bool = False  # the NATS connection is lost: nothing is sent, no ack wait runs
    frozen: bool = False  # the log takes nothing until a restart
    progress_blocked: bool = False  # the log had no room for a progress entry
    lease_lapsed: bool = False  # another node may lead: nothing is sent until that is known
    handed_over: bool = False  # another node is to lead: nothing is sent that the log cannot tell of
    expiring: frozenset[ChannelUid] = frozenset()  # of these nothing is sent until what has expired is removed
    departing: frozenset[ChannelUid] = frozenset()  # the entry that holds them for a move is on its way into the log

    @property
    def mute(self) -> bool:
        """True if nothing may be sent although NATS is there: the log cannot record deliveries, so that they would be repeated
        unflagged, or another node may lead, or is to."""
        return self.frozen or self.progress_blocked or self.lease_lapsed or self.handed_over


@dataclass(slots=True)
class DeliveryTotals:
    """Counters of one group since its state was loaded; they count on when leadership ends."""

    out_messages: int = 0  # sent to subscribers, redeliveries included
    out_bytes: int = 0  # of these messages, as stored
    redelivered_messages: int = 0  # sent again, flagged


@dataclass(slots=True)
class LiveView:
    """The cursors of a group on the node that serves them, ahead of the replicated state."""

    cursors: LiveCursors = field(default_factory=LiveCursors)
    reports: ProgressReports = field(default_factory=ProgressReports)
    stops: DeliveryStops = field(default_factory=DeliveryStops)
    totals: DeliveryTotals = field(default_factory=DeliveryTotals)
    leaves: LeafStates = field(default_factory=LeafStates)
