"""Dead letters: messages that a position has given up, moved into another channel and back."""

from collections.abc import Mapping

from stan.core.features import BrokerFeature
from stan.core.features.dead_letters.moving import DeadLetters
from stan.core.features.dead_letters.redriving import Redriving
from stan.core.leader.local_group import Leadership
from stan.core.requests.router import Handler


class DeadLettersFeature(BrokerFeature):
    """Dead letter channels, filled and emptied."""

    def handlers(self) -> Mapping[str, Handler]:
        """Requests to publish dead letters once more."""
        leading = self.services.leading
        return {
            "admin.redrive": self.parts.lookup.existing(
                lambda accepted, info: leading.leadership(info.group).part(Redriving).redrive(accepted, info)
            )
        }

    def lead_group(self, leadership: Leadership) -> None:
        """Add the parts that move messages there and back."""
        for kind in (DeadLetters, Redriving):
            leadership.keep(kind(self.services, leadership, self.parts.channels, self.parts.publishing))

    def pump(self) -> None:
        """Let the leader of each group move the messages that its positions have given up."""
        self.services.leading.each(DeadLetters, DeadLetters.pump)
