"""Indexes of stored messages."""

from dataclasses import dataclass

from stan_protocol.scalars import ChannelUid, GroupId

from stan.core.base.ready import Index, Indexes
from stan.core.base.runs import Runs
from stan.core.services.node import Node


@dataclass(slots=True)
class StoredMessages:
    """The stored messages of the channels of one node."""

    node: Node
    source: Indexes  # where `indexes` looks; another one once the node has an ephemeral channel

    def indexes(self, group: GroupId, uid: ChannelUid) -> Index:
        """The index of a channel's messages."""
        return self.source(group, uid)

    def deleted(self, group: GroupId, uid: ChannelUid) -> Runs | None:
        """Sequences of a channel that were deleted one by one; None if there are none."""
        found = self.node.groups.get(group)
        return None if found is None else found.machine.tombstones.by_channel.get(uid)
