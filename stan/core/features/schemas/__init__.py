"""Schemas of channels: registered and listed."""

from collections.abc import Mapping

from stan.core.features import BrokerFeature
from stan.core.features.schemas.requests import SchemaRequests
from stan.core.requests.router import Handler


class SchemasFeature(BrokerFeature):
    """The registry of schemas."""

    def handlers(self) -> Mapping[str, Handler]:
        """Requests about schemas."""
        return SchemaRequests(self.services).handlers()
