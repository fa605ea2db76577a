"""Requests of operators about channels, positions, clients, nodes and policies."""

from collections.abc import Mapping

from stan.core.features import BrokerFeature, BrokerParts
from stan.core.features.operators.channel_changes import ChannelChanges, Deletions
from stan.core.features.operators.cursors import CursorAdmin
from stan.core.features.operators.listing import AdminListing
from stan.core.features.operators.members import AdminMembers
from stan.core.features.operators.policies import PolicyRequests
from stan.core.leader.local_group import Leadership
from stan.core.metadata.meta import MetaResult
from stan.core.requests.router import Handler
from stan.core.services.services import Services
from stan.protocol.proto import entries_pb2 as pb


class OperatorsFeature(BrokerFeature):
    """Requests of operators."""

    def __init__(self, services: Services, parts: BrokerParts) -> None:
        super().__init__(services, parts)
        self._channels = ChannelChanges(services, parts.channels, parts.lookup)

    def handlers(self) -> Mapping[str, Handler]:
        """Requests that list and change."""
        services, channels, lookup = self.services, self.parts.channels, self.parts.lookup
        return {
            **self._channels.handlers(),
            **AdminListing(services, channels, lookup).handlers(),
            **AdminMembers(services, self.parts.nodes).handlers(),
            **CursorAdmin(services, channels, lookup).handlers(),
            **PolicyRequests(services).handlers(),
        }

    def lead_group(self, leadership: Leadership) -> None:
        """Add the part that waits for deleted channels."""
        leadership.keep(Deletions(self.services, leadership))

    def meta_applied(self, change: pb.MetaChange, result: MetaResult) -> None:  # noqa: ARG002 - as BrokerFeature has it
        """Answer the requests that wait until a channel is deleted."""
        if result.deleted is not None:
            self.services.faults.within(result.deleted.group, self._channels.unregistered, result.deleted)
