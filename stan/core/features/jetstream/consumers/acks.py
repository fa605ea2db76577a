"""Acks of consumers' messages, and answers of clients to flow control: to the leader of the group."""

from typing import ClassVar

from stan_protocol.frames import Frame, StreamAcks

from stan.core.base.interest import Change
from stan.core.features.jetstream.consumers.delivering import ConsumerDeliveries
from stan.core.services.listening import Taker
from stan.core.services.services import Services
from stan.protocol.jetstream.pulls import ACK_SUBJECTS, FLOW_SUBJECTS, read_ack_subject


class ConsumerAcks:
    """Takes the frames of acks, and what the leafnode connection tells."""

    SUBJECT: ClassVar[str] = ACK_SUBJECTS
    """Of acks that come as batches, if they can."""

    def __init__(self, services: Services) -> None:
        self.faults, self.leading, self.node = services.faults, services.leading, services.node
        self.placement = services.placement
        services.listening.take_acks = self._acked_together
        if services.node.config.jetstream_api:
            services.leaf.followers.append(self._interest_changed)

    def takers(self) -> dict[str, Taker]:
        """The subjects of acks, each with the taker of its frames."""
        return {ACK_SUBJECTS: self._acked, FLOW_SUBJECTS: self._flow_answered}

    def _acked(self, frame: Frame) -> None:
        """An ack. One of a consumer that is gone changes nothing."""
        place = read_ack_subject(frame.subject)
        stream = None if place is None else self.node.meta.streams.by_name.get(place.stream)
        if place is None or stream is None:
            return
        group = self.placement.group_number(stream.channel)
        part = self.leading.part(group, ConsumerDeliveries)
        found = None if part is None else part.find(stream.uid, place.consumer)
        if part is not None and found is not None:
            self.faults.within(group, part.ack, found, place.sequence, frame)

    def _acked_together(self, acks: StreamAcks) -> None:
        """Acks for one consumer, of which none wants an answer."""
        stream = self.node.meta.streams.by_name.get(acks.stream.decode(errors="replace"))
        if stream is None:
            return
        group = self.placement.group_number(stream.channel)
        part = self.leading.part(group, ConsumerDeliveries)
        found = None if part is None else part.find(stream.uid, acks.consumer)
        if part is not None and found is not None:
            self.faults.within(group, part.done, found, acks.ranges)

    def _flow_answered(self, frame: Frame) -> None:
        for part in self.leading.all_parts(ConsumerDeliveries):
            if part.flow_answered(frame.subject):
                return

    def _interest_changed(self, changes: list[Change]) -> None:
        self.leading.each(ConsumerDeliveries, ConsumerDeliveries.interest_changed, changes)
