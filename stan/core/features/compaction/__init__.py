"""Channels that keep the newest message of each key."""

from stan_protocol.scalars import Nanos

from stan.core.features import BrokerFeature
from stan.core.features.compaction.compacting import Compacting
from stan.core.leader.local_group import Leadership


class CompactionFeature(BrokerFeature):
    """Compaction by key."""

    def lead_group(self, leadership: Leadership) -> None:
        """Add the part that compacts."""
        leadership.keep(Compacting(self.services, leadership, self.parts.channels))

    def look(self, now: Nanos) -> None:
        """Compact messages that have become old enough."""
        self.services.leading.each(Compacting, Compacting.look, now)
