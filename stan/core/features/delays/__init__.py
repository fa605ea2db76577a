"""Delays of channels, and publish times of messages."""

from collections.abc import Mapping

from stan.core.features import BrokerFeature, BrokerParts
from stan.core.features.delays.channel_delays import DelayClock, Delaying
from stan.core.features.delays.publish_times import Deferring
from stan.core.features.delays.requests import DelayedRequests
from stan.core.leader.local_group import Leadership
from stan.core.requests.router import Handler
from stan.core.services.services import Services


class DelaysFeature(BrokerFeature):
    """Messages that wait until they are due."""

    def __init__(self, services: Services, parts: BrokerParts) -> None:
        super().__init__(services, parts)
        self._clock = DelayClock(services, parts.channels)

    def handlers(self) -> Mapping[str, Handler]:
        """Requests of operators about messages that wait."""
        return DelayedRequests(self.services, self.parts.lookup).handlers()

    def lead_group(self, leadership: Leadership) -> None:
        """Add the parts that move due messages."""
        channels, publishing = self.parts.channels, self.parts.publishing
        leadership.keep(Delaying(self.services, leadership, channels, publishing, self._clock))
        leadership.keep(Deferring(self.services, leadership, channels, publishing))

    def due(self) -> None:
        """Move due messages of channels with a delay."""
        if self.parts.channels.policies.delayed:
            self._clock.pump()
