"""Messages with a time to live."""

from stan_protocol.scalars import GroupId

from stan.core.features import BrokerFeature, BrokerParts
from stan.core.features.ttl.expiring import Expiring, ExpiryClock
from stan.core.leader.local_group import Leadership
from stan.core.services.services import Services


class TtlFeature(BrokerFeature):
    """Messages are removed when their time to live is over."""

    def __init__(self, services: Services, parts: BrokerParts) -> None:
        super().__init__(services, parts)
        self._clock = ExpiryClock(services)

    def lead_group(self, leadership: Leadership) -> None:
        """Add the part that removes messages, and hold the channels with something overdue."""
        expiring = Expiring(self.services, leadership, self.parts.channels, self._clock)
        leadership.keep(expiring)
        expiring.lead()

    def leads_group(self, number: GroupId) -> None:
        """Remove overdue messages, as all parts of the leader are there."""
        part = self.services.leading.part(number, Expiring)
        if part is not None:
            part.look()
            self._clock.set()

    def due(self) -> None:
        """Remove expired messages."""
        if self.services.node.clock.wall >= self.services.timers.wall_next:
            self._clock.pump()
