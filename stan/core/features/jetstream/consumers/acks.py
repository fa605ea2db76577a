"""Acks of consumers' messages, and answers of clients to flow control, on their way to the leader of the group.

Plain acks of one turn go to each consumer together; a client that says something else is heard at once, behind its earlier acks.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from stan_protocol.frames import Frame, StreamAcks
from stan_protocol.scalars import GroupId, Nanos

from stan.core.base.interest import Change
from stan.core.base.leaf_state import LeafState
from stan.core.base.names import raw
from stan.core.features.jetstream.consumers.delivering import ConsumerDeliveries, LedConsumer
from stan.core.features.jetstream.rights import JetStreamRights
from stan.core.metadata.streams import Stream
from stan.core.services.listening import Taker
from stan.core.services.node import META_GROUP
from stan.core.services.services import Services
from stan.protocol.jetstream.headers import no_responders
from stan.protocol.jetstream.pulls import ACK_SUBJECTS, FLOW_SUBJECTS, PLAIN_ACKS, read_ack_subject, read_flow_subject


@dataclass(slots=True)
class _Acked:
    """Plain acks for one consumer."""

    sequences: list[int] = field(default_factory=list)
    replies: list[bytes] = field(default_factory=list)  # of those whose senders want an answer


class ConsumerAcks:
    """Takes the frames of acks, and NATS's interest."""

    SUBJECT: ClassVar[str] = ACK_SUBJECTS
    """Of acks that come as batches, if they can."""

    def __init__(self, services: Services, rights: JetStreamRights) -> None:
        self.rights = rights
        self.faults, self.leading, self.node = services.faults, services.leading, services.node
        self.outgoing = services.outgoing
        self.placement, self.timers = services.placement, services.timers
        self._arrived: dict[tuple[bytes, bytes], _Acked] = {}  # in this turn, by stream and consumer
        services.listening.take_acks = self._acked_together
        if services.node.config.jetstream_api:
            services.leaves.followers.append(self._interest_changed)

    def takers(self) -> dict[str, Taker]:
        """The subjects of acks, each with the taker of its frames."""
        if self.rights.with_users:
            return {ACK_SUBJECTS: self._acked_by_user, FLOW_SUBJECTS: self._flow_answered}
        return {ACK_SUBJECTS: self._acked, FLOW_SUBJECTS: self._flow_answered}

    def _acked_by_user(self, frame: Frame) -> None:
        """An ack, where users are known. One for a consumer of another user changes nothing."""
        said = self.rights.sent_by(frame)
        place = None if said is None else read_ack_subject(said[1].subject)
        led = None if place is None else self._led(place.stream, place.consumer)
        if said is not None and led is not None and led[2][2].leaf.user == raw(said[0]):
            self._acked(said[1])

    def _acked(self, frame: Frame) -> None:
        """An ack. One for a consumer that is gone changes nothing."""
        place = read_ack_subject(frame.subject)
        if place is None:
            return
        if frame.payload not in PLAIN_ACKS:
            self._hand_over(Nanos(0))
            led = self._led(place.stream, place.consumer)
            if led is not None:
                self.faults.within(led[0], led[1].verdict, led[2], place.sequence, frame)
            else:
                self._unheard(place.stream, place.consumer, (frame.reply,))
            return
        if not self._arrived:
            self.timers.at(self.node.clock.now, self._hand_over, META_GROUP)
        acked = self._arrived.get(place[:2])
        if acked is None:
            acked = self._arrived[place[:2]] = _Acked()
        acked.sequences.append(place.sequence)
        if frame.reply:
            acked.replies.append(frame.reply)

    def _hand_over(self, _now: Nanos) -> None:
        """Hand the plain acks of this turn to their consumers."""
        arrived, self._arrived = self._arrived, {}
        for (stream, consumer), acked in arrived.items():
            led = self._led(stream, consumer)
            if led is not None:
                ranges = [(one, one) for one in acked.sequences]
                self.faults.within(led[0], led[1].acked, led[2], ranges, acked.replies)
            else:
                self._unheard(stream, consumer, acked.replies)

    def _unheard(self, name: bytes, consumer: bytes, replies: Iterable[bytes]) -> None:
        """Answer acks for a consumer that is gone, as NATS does where nobody listens; other nodes answer for what they lead."""
        stream, group = self._stream(name)
        if not self.node.leads(group):
            return
        if stream is not None and consumer in self.node.groups[group].machine.consumers.of(stream.uid):
            return  # it is about to be delivered here
        for reply in filter(None, replies):
            self.outgoing.answer_as_leader(group, no_responders(reply))

    def _stream(self, name: bytes) -> tuple[Stream | None, GroupId]:
        """The stream of that name, and the group of its channel; None, and the group of the metadata: there is none."""
        stream = self.node.meta.streams.by_name.get(name.decode(errors="replace"))
        return stream, META_GROUP if stream is None else self.placement.group_number(stream.channel)

    def _led(self, name: bytes, consumer: bytes) -> tuple[GroupId, ConsumerDeliveries, LedConsumer] | None:
        """A consumer that this node delivers, its part of the leader and its group; None: it is another node's, or gone."""
        stream, group = self._stream(name)
        if stream is None:
            return None
        part = self.leading.part(group, ConsumerDeliveries)
        led = None if part is None else part.find(stream.uid, consumer)
        return None if part is None or led is None else (group, part, led)

    def _acked_together(self, acks: StreamAcks) -> None:
        """Plain acks of one read for one consumer, of which none wants an answer."""
        led = self._led(acks.stream, acks.consumer)
        if led is not None and led[2][2].leaf.user == acks.user:
            self.faults.within(led[0], led[1].acked, led[2], acks.ranges, ())

    def _flow_answered(self, frame: Frame) -> None:
        said = self.rights.sent_by(frame)
        if said is None:
            return
        user, answer = said
        place = read_flow_subject(answer.subject)
        led = None if place is None else self._led(place.stream, place.consumer)
        if led is not None and led[2][2].leaf.user == raw(user):
            self.faults.within(led[0], led[1].flow_answered, led[2], answer.subject)

    def _interest_changed(self, leaf: LeafState, changes: list[Change]) -> None:
        left = any(not begins for begins, *_ in changes)
        self.leading.each(ConsumerDeliveries, partial(ConsumerDeliveries.interest_changed, left=left), leaf)
