"""Advisories about the consumers of one group: which came and went, and which messages they have given up."""

from stan import limits
from stan.core.base.names import raw
from stan.core.base.runs import Run
from stan.core.base.shares import Shares
from stan.core.features.jetstream.audience import Audience
from stan.core.features.jetstream.rights import JetStreamRights
from stan.core.leader.live_consumer import LiveConsumer
from stan.core.services.services import Services
from stan.protocol.jetstream.advisories import AdvisoryMaker
from stan.protocol.jetstream.pulls import AckNumbers


class ConsumerAdvisories:
    """Makes advisories; those about messages wait for an entry that has the news."""

    def __init__(self, services: Services) -> None:
        self._clock, self._outgoing = services.node.clock, services.outgoing
        self._reports = services.reports
        self._audience = Audience(JetStreamRights(services))
        self._maker = AdvisoryMaker(services.node.name)
        self.waiting: list[bytes] = []
        """Frames that may leave once the next change of the group is committed."""
        self._shares = Shares()  # of these, by the user to whom the consumer belongs

    def action(self, consumer: LiveConsumer, action: str) -> None:
        """Tell that a consumer was made, or deleted: the entry is committed."""
        users = self._users(consumer)
        self._outgoing.responses += self._maker.of_consumer(users, self._clock.wall, consumer.names, action)

    def spent(self, consumer: LiveConsumer, run: Run) -> None:
        """Messages were delivered as often as the consumer allows."""
        names, users = consumer.names, self._users(consumer)
        if not users:
            return
        room = self._room(consumer) // len(users)
        if run.size > room:
            self._reports.complain(
                "WRN", f"advisories of consumer {names[1]} of stream {names[0]} are left out: too many at once"
            )
        for sequence in range(run.first, min(run.last + 1, run.first + room)):
            self._add(consumer, self._maker.of_spent(users, self._clock.wall, names, sequence, run.count + 1))

    def terminated(self, consumer: LiveConsumer, numbers: AckNumbers, reason: bytes) -> None:
        """A client does not want a message any more."""
        users = self._users(consumer)
        if len(users) > self._room(consumer):
            return
        message = numbers._asdict() | ({"reason": reason.decode(errors="replace")} if reason else {})
        self._add(consumer, self._maker.of_terminated(users, self._clock.wall, consumer.names, message))

    def _room(self, consumer: LiveConsumer) -> int:
        """How many more frames may wait about consumers of the same user."""
        return max(0, self._shares.left(consumer.leaf.user, limits.ADVISORIES_WAITING_MAX))

    def _add(self, consumer: LiveConsumer, frames: list[bytes]) -> None:
        self.waiting += frames
        self._shares.add(consumer.leaf.user, len(frames))

    def _users(self, consumer: LiveConsumer) -> tuple[bytes, ...]:
        """Users who get advisories about a consumer; its stream, and the channel of that, may be gone already."""
        channel = consumer.subject or raw(consumer.names[0])  # one subject without wildcards, or the stream's name
        return self._audience.of_consumer(channel, consumer.leaf.user)

    def take_waiting(self) -> list[bytes]:
        """The frames that wait; they wait no longer."""
        taken, self.waiting, self._shares = self.waiting, [], Shares()
        return taken
