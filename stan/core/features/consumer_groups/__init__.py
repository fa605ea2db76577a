"""Groups of consumers among which channels are divided."""

from collections.abc import Mapping

from stan.core.features import BrokerFeature
from stan.core.features.consumer_groups.leader import ConsumerGroupsLeader
from stan.core.leader.local_group import LeaderParts
from stan.core.metadata.meta import MetaResult
from stan.core.requests.router import Handler
from stan.core.services.node import META_GROUP
from stan.protocol.proto import entries_pb2 as pb


class ConsumerGroupsFeature(BrokerFeature):
    """Consumer groups, on the leader of the metadata."""

    def handlers(self) -> Mapping[str, Handler]:
        """Polls of members, and lists for operators."""
        return {
            "consumer_group": lambda accepted: accepted.part(ConsumerGroupsLeader).poll(accepted),
            "admin.consumer_groups": lambda accepted: accepted.part(ConsumerGroupsLeader).list(accepted),
        }

    def lead_meta(self, leader: LeaderParts) -> None:
        """Add the part that divides channels."""
        leader.keep(ConsumerGroupsLeader(self.services, leader))

    def meta_applied(self, change: pb.MetaChange, result: MetaResult) -> None:  # noqa: ARG002 - as BrokerFeature has it
        """Divide channels that were made, and forget those that were deleted."""
        leader = self.services.leading.part(META_GROUP, ConsumerGroupsLeader)
        if leader is not None and (result.created or result.deleted is not None):
            leader.channels_changed(result)

    def policies_changed(self) -> None:
        """Look again which channels are divided."""
        leader = self.services.leading.part(META_GROUP, ConsumerGroupsLeader)
        if leader is not None:
            leader.policies_changed()
