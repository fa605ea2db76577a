"""Parts of channels that take nothing until a doubling has ended: a component of the group's machine (see components.py).

The mark is in the log of the part itself, so that no leader of its group stores anything behind it which belongs elsewhere then,
however old its copy of the metadata is. It stays when the doubling has ended, and means nothing any more.
"""

from dataclasses import dataclass
from typing import ClassVar

from stan_protocol.scalars import ChannelUid, RaftIndex

from stan.core.state.per_channel import PerChannel
from stan.protocol.proto import entries_pb2 as pb


@dataclass(slots=True)
class PartClosings(PerChannel[int]):
    """Of each part that was ever closed, the newest doubling for which it was. A row is a ClosePart without uid."""

    KIND: ClassVar[str] = "closed_part"
    CHANGES: ClassVar[tuple[str, ...]] = ("close_part",)

    def of(self, uid: ChannelUid) -> int:
        """The newest doubling for which a part was closed; 0: none."""
        return self.by_channel.get(uid, 0)

    def apply(self, _name: str, change: pb.ClosePart, _index: RaftIndex) -> None:
        """Close a part."""
        uid = ChannelUid(change.uid)
        self.put(uid, max(self.of(uid), change.doubling))

    def encode(self, state: int) -> bytes:
        """The row of a part."""
        return pb.ClosePart(doubling=state).SerializeToString()

    def decode(self, row: bytes) -> int:
        """The doubling that a row tells."""
        return pb.ClosePart.FromString(row).doubling
