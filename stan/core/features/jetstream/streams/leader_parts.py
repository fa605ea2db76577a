"""The parts of the leader of a group that have to do with its streams."""

from typing import Final

from stan_protocol.scalars import ChannelUid, GroupId

from stan.core.features.jetstream.streams.markers import DeleteMarkers
from stan.core.features.jetstream.streams.reading import StreamReading
from stan.core.features.jetstream.streams.scheduling import Scheduling
from stan.core.features.jetstream.streams.storing import StreamStoring
from stan.core.services.leading import Leading

PARTS: Final = (StreamReading, StreamStoring, Scheduling, DeleteMarkers)


def begin(leading: Leading, number: GroupId) -> None:
    """The live view of a group is complete: its streams can be looked at."""
    leading.leadership(number).part(Scheduling).take_up()


def expire(leading: Leading, number: GroupId, uid: ChannelUid) -> bool:
    """Remove the expired messages of a channel, if its stream leaves delete markers; False: it leaves none."""
    part = leading.part(number, DeleteMarkers)
    return part is not None and part.remove_expired(uid)


def streams_changed(leading: Leading) -> None:
    """Streams came, changed or went."""
    leading.each(StreamReading, StreamReading.refresh)
    leading.each(Scheduling, Scheduling.take_up)
