"""Indexes of stored messages, and the part of them that readers may see."""

from dataclasses import dataclass

from stan_protocol.scalars import ChannelUid, GroupId

from stan.core.base.ready import Index, Indexes
from stan.core.base.runs import Runs
from stan.core.services.node import Node


@dataclass(slots=True)
class StoredMessages:
    """The stored messages of the channels of one node."""

    node: Node
    written: Indexes  # all messages committed in the logs; readers use `indexes`

    def indexes(self, group: GroupId, uid: ChannelUid) -> Index:
        """The index of a channel's visible messages: without those of a transaction that is not complete yet."""
        return self.visible(group, uid, self.written(group, uid))

    def visible(self, group: GroupId, uid: ChannelUid, index: Index) -> Index:
        """The visible part of *index*, the index of all committed messages of a channel (see `indexes`)."""
        found = self.node.groups.get(group)
        if found is None or not found.machine.transactions.under_way:
            return index
        return found.machine.transactions.visible(uid, index)

    def deleted(self, group: GroupId, uid: ChannelUid) -> Runs | None:
        """Sequences of a channel that were deleted one by one; None if there are none."""
        found = self.node.groups.get(group)
        return None if found is None else found.machine.tombstones.by_channel.get(uid)
