"""Channels with parts: their number is doubled."""

from collections.abc import Mapping

from stan_protocol.scalars import GroupId

from stan.core.features import BrokerFeature, BrokerParts
from stan.core.features.parts.doubling import PartDoubling
from stan.core.features.parts.requests import PartRequests
from stan.core.metadata.meta import MetaResult
from stan.core.requests.router import Handler
from stan.core.services.services import Services
from stan.protocol.proto import entries_pb2 as pb


class PartsFeature(BrokerFeature):
    """The number of parts of channels."""

    def __init__(self, services: Services, parts: BrokerParts) -> None:
        super().__init__(services, parts)
        self._doubling = PartDoubling(services, parts.channels, parts.filters)

    def handlers(self) -> Mapping[str, Handler]:
        """Requests about channels with parts."""
        return PartRequests(self.services).handlers()

    def leads_group(self, number: GroupId) -> None:
        """Continue the doubling of parts."""
        self._doubling.lead(number)

    def meta_applied(self, change: pb.MetaChange, result: MetaResult) -> None:
        """Follow the steps of a doubling."""
        if change.HasField("part_closed"):
            self._doubling.part_closed(change.part_closed)
        self._doubling.changed(result.parted, divided=bool(result.created))

    def meta_loaded(self) -> None:
        """There may be more parts than before."""
        self._doubling.reset()
