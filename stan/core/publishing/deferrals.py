"""What the leader of a group keeps about deferred messages: the live view of their hidden channel, and when the next are due."""

import heapq
from array import array
from dataclasses import dataclass, field

from stan_protocol.frames import Publishes
from stan_protocol.scalars import ChannelUid, GroupId, Sequence

from stan.config import ChannelLimits
from stan.core.metadata.meta import ChannelInfo
from stan.core.publishing.channels import LiveChannels
from stan.core.publishing.live_channel import LiveChannel
from stan.core.services.services import Services
from stan.protocol.entries import DEFERRED_UID
from stan.protocol.proto import entries_pb2 as pb

DEFERRED_NAME = b"_STAN.deferred"
"""Channel name in the messages of the hidden channels; no client can request it."""
NOWHERE = ChannelInfo(DEFERRED_NAME, DEFERRED_UID, GroupId(0))


@dataclass(slots=True)
class Deferrals:
    """The deferred messages of one group, while this node leads it."""

    hidden: LiveChannel = field(
        default_factory=lambda: LiveChannel(NOWHERE, ChannelLimits(msgs=0, bytes=0), Sequence(1), 0, 0)
    )
    soonest: list[tuple[int, int]] = field(
        default_factory=list
    )  # heap: when the next of a batch is due; its first sequence
    moving: dict[int, tuple[int, int]] = field(default_factory=dict)  # sequence -> first of its batch, due
    cancelling: set[int] = field(default_factory=set)  # sequences that are being cancelled: they stay where they are
    armed: int = 0  # Nanos: when to look next

    def expect(self, due: int, first: int) -> None:
        """The next message of a batch is due then."""
        heapq.heappush(self.soonest, (due, first))


def deferrals(services: Services, channels: LiveChannels, number: GroupId) -> Deferrals:
    """What a node keeps that leads a group from now on."""
    info = ChannelInfo(DEFERRED_NAME, DEFERRED_UID, number)
    index = services.stored.indexes(number, DEFERRED_UID)
    hidden = LiveChannel(
        info=info,
        limits=ChannelLimits(msgs=0, bytes=0),
        next_sequence=channels.written_end(info),
        last_timestamp=index.last_timestamp,
        idle_since=services.node.clock.now,
    )
    batches = services.node.groups[number].machine.deferred.batches
    soonest = [(batch.dues[0] if len(batch.dues) == 1 else batch.due, first) for first, batch in batches.items()]
    heapq.heapify(soonest)
    return Deferrals(hidden, soonest)


def deferred_change(uid: ChannelUid, batch: Publishes, first: int) -> bytes:
    """The change that goes with deferred messages of a channel, stored from the sequence *first* on."""
    dues = array("q", batch.times.dues)
    change = pb.Deferred(uid=uid, sequence=first, dues=dues, bytes=len(batch.bodies), user=batch.user)
    return pb.GroupChange(deferred=change).SerializeToString()
