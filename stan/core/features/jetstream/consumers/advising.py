"""Advisories about the consumers of one group: which came and went, and which messages they have given up."""

from stan import limits
from stan.core.base.runs import Run
from stan.core.leader.live_consumer import LiveConsumer
from stan.core.services.services import Services
from stan.protocol.jetstream.advisories import AdvisoryMaker
from stan.protocol.jetstream.pulls import AckNumbers


class ConsumerAdvisories:
    """Makes advisories; those about messages wait for an entry that has the news."""

    def __init__(self, services: Services) -> None:
        self._clock, self._outgoing = services.node.clock, services.outgoing
        self._reports = services.reports
        self._maker = AdvisoryMaker(services.node.name)
        self.waiting: list[bytes] = []
        """Frames that may leave once the next change of the group is committed."""

    def action(self, consumer: LiveConsumer, action: str) -> None:
        """Tell that a consumer was made, or deleted: the entry is committed."""
        stream, name = consumer.names
        self._outgoing.responses.append(self._maker.of_consumer(self._clock.wall, stream, name, action))

    def spent(self, consumer: LiveConsumer, run: Run) -> None:
        """Messages were delivered as often as the consumer allows."""
        stream, name = consumer.names
        room = limits.ADVISORIES_WAITING_MAX - len(self.waiting)
        if run.size > room:
            self._reports.complain(
                "WRN", f"advisories of consumer {name} of stream {stream} are left out: too many at once"
            )
        for sequence in range(run.first, min(run.last + 1, run.first + room)):
            self.waiting.append(self._maker.of_spent(self._clock.wall, stream, name, sequence, run.count + 1))

    def terminated(self, consumer: LiveConsumer, numbers: AckNumbers, reason: bytes) -> None:
        """A client does not want a message any more."""
        if len(self.waiting) >= limits.ADVISORIES_WAITING_MAX:
            return
        stream, name = consumer.names
        why = {"reason": reason.decode(errors="replace")} if reason else {}
        self.waiting.append(self._maker.of_terminated(self._clock.wall, stream, name, numbers._asdict() | why))

    def take_waiting(self) -> list[bytes]:
        """The frames that wait; they wait no longer."""
        taken, self.waiting = self.waiting, []
        return taken
