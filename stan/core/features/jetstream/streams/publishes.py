"""Publishes to the subjects of streams: collected by stream, and stored once everything of the turn is there.

A NATS message on a stream's subject is a publish, with or without a reply subject. One that nobody could take as its channel's
leader had just changed gets no answer; its publisher sends it again, and the id in its headers keeps it from being stored twice.
"""

from functools import partial

from stan_protocol.frames import Frame, StreamMessages, StreamSubject
from stan_protocol.scalars import Nanos

from stan.core.base.names import raw, text
from stan.core.features.jetstream.rights import JetStreamRights
from stan.core.features.jetstream.streams.batches import UserFrame, singly, subjects_of
from stan.core.features.jetstream.streams.storing import StreamStoring
from stan.core.metadata.streams import Stream, Streams
from stan.core.services.listening import Taker
from stan.core.services.node import META_GROUP
from stan.core.services.services import Services


class StreamPublishes:
    """Takes the frames of streams' subjects."""

    def __init__(self, services: Services, rights: JetStreamRights) -> None:
        self.rights = rights
        self.faults, self.leading, self.node = services.faults, services.leading, services.node
        self.placement, self.timers = services.placement, services.timers
        self._arrived: dict[str, list[Frame | StreamMessages]] = {}  # in this turn, by stream
        services.listening.take_messages = self._receive_batch

    def takers(self, streams: Streams) -> dict[str, Taker]:
        """The subjects of all streams, each with the taker of its frames."""
        rights = self.rights
        take = self._receive if rights.authorizer is None else self._judge
        return {
            rights.listened(subject): partial(take, name)
            for name, stream in streams.by_name.items()
            for subject in stream.config.subjects
            if rights.may_have(stream.config)
        }

    def subjects(self, streams: Streams) -> dict[str, StreamSubject]:
        """The same subjects, each with its stream: most messages come as batches."""
        return {
            self.rights.listened(subject): StreamSubject(name, not stream.config.is_literal)
            for name, stream in streams.by_name.items()
            for subject in stream.config.subjects
            if self.rights.may_have(stream.config)
        }

    def _judge(self, name: str, frame: Frame) -> None:
        """A message, where there are permissions. One that its user may not publish is answered by the leader."""
        said = self.rights.sent_by(frame)
        if said is not None:
            self._judge_of_user(name, *said)

    def _judge_of_user(self, name: str, user: str, frame: Frame) -> None:
        found = self._storing(name)
        if found is None:
            return
        storing, stream = found
        error = self.rights.publish_refusal(user, stream, frame)
        if error is None:
            self._receive(name, UserFrame.of(frame, raw(user)) if user and not frame.reply else frame)
        else:
            storing.refuse(stream, frame.reply, error)

    def _receive_batch(self, messages: StreamMessages) -> None:
        """Store a batch at once, unless messages that came before it wait for the end of the turn. One of which its user may not
        publish all is taken apart."""
        found = self._storing(messages.stream)
        if found is None:
            return
        storing, stream = found
        if not self.rights.may_publish(text(messages.user), partial(subjects_of, messages)):
            for frame in singly((messages,)):
                self._judge_of_user(stream.name, text(messages.user), frame)
        elif self._arrived:
            self._receive(stream.name, messages)
        else:
            self.faults.within(storing.number, storing.store_batch, stream, messages)

    def _receive(self, name: str, arrived: Frame | StreamMessages) -> None:
        if not self._arrived:
            self.timers.at(self.node.clock.now, self._store, META_GROUP)
        self._arrived.setdefault(name, []).append(arrived)

    def _store(self, _now: Nanos) -> None:
        """Hand the messages to the leaders of their channels; a channel's messages are stored by the node that leads it."""
        arrived, self._arrived = self._arrived, {}
        for name, messages in arrived.items():
            found = self._storing(name)
            if found is not None:
                self.faults.within(found[0].number, found[0].store, found[1], messages)

    def _storing(self, name: str) -> tuple[StreamStoring, Stream] | None:
        """The part of the leader that stores for a stream, and the stream; None: another node does, or none."""
        stream = self.node.meta.streams.by_name.get(name)
        if stream is None:
            return None
        storing = self.leading.part(self.placement.group_number(stream.channel), StreamStoring)
        return None if storing is None else (storing, stream)
