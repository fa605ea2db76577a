"""Frames from NATS step the broker: publishes, acks, requests, and the answers to the broker's own requests."""

from collections.abc import Callable, Iterable, Sequence

from google.protobuf.message import DecodeError
from stan_protocol.frames import Acks, Frame, Publishes, StreamAcks, StreamMessages
from stan_protocol.proto import wire_pb2 as wire

from stan.core.base.names import shown
from stan.core.broker.routes import handlers, original_handlers
from stan.core.features import BrokerFeature, BrokerParts
from stan.core.requests.original_requests import OriginalRequests
from stan.core.requests.request import Send
from stan.core.requests.router import Handler, RequestRouter
from stan.core.requests.table import REQUESTS
from stan.core.services.services import Services


class ReceivedFrames:
    """Takes frames, in the order in which they were read."""

    def __init__(self, services: Services, parts: BrokerParts, features: Sequence[BrokerFeature]) -> None:
        self.faults, self.leading, self.nats = services.faults, services.leading, services.nats
        self.node, self.placement = services.node, services.placement
        self.reports, self.senders = services.reports, services.senders
        self.listening = services.listening
        self.parts = parts
        self.router = RequestRouter(services)
        self.own_requests = services.requests
        subjects = self.nats.subjects
        self.routes = {
            REQUESTS[name].subject(subjects): self.receiver(name, handler)
            for name, handler in handlers(features).items()
        }
        """The requests of the table that the core answers, by subject."""
        self.original = {
            getattr(subjects, name).encode(): handle
            for name, handle in original_handlers(services, parts, features).items()
        }
        """The requests of the original's clients and of nodes that every node reads, by subject."""
        self.original_requests = OriginalRequests(services, parts.arrival_order, self.original)

    def receiver(self, name: str, handler: Handler, send: Send | None = None) -> Callable[[Frame], None]:
        """Return the function that takes the frames of the request *name* for *handler*, which may be one outside the core."""
        return self.router.receiver(REQUESTS[name], handler, send)

    def step_publishes(self, batches: Iterable[Publishes]) -> None:
        """Publishes read from NATS."""
        publishes = self.parts.filters.publishes
        if self.node.meta.channels.parted.by_name:
            batches = self.parts.routing.routed(batches)
        for batch in batches:
            try:
                publishes(batch)
            except Exception as error:  # noqa: BLE001 - the border of the group
                self.faults.fail(self.placement.group_number(batch.channel), error)

    def step_acks(self, batches: Iterable[Acks]) -> None:
        """Acks read from NATS. An ack for a subscription that is gone, or of another user, changes nothing (STAN-SPEC 6.5)."""
        authorizer, clock = self.senders.authorizer, self.node.clock
        for acks in batches:
            taker = self.leading.acked(acks.group, acks.key)
            if taker is None:
                continue
            group, place = taker
            dispatch = group.dispatch
            if authorizer is not None:
                found = dispatch.cursors.by_ack_key.get(place)
                if found is None or not authorizer.may_ack(acks.user, found[1].sub):
                    continue
            try:
                dispatch.acks.ack(place, acks.ranges, clock.now, clock.wall)
            except Exception as error:  # noqa: BLE001 - the border of the group
                self.faults.fail(group.machine.group, error)

    def step_jetstream(self, messages: Iterable[StreamMessages], acks: Iterable[StreamAcks]) -> None:
        """Messages for streams, and acks to their consumers, read from NATS."""
        for batch in messages:
            self.listening.take_messages(batch)
        for one in acks:
            self.listening.take_acks(one)

    def step_verdicts(self, frames: Iterable[Frame], *, replayed: bool = False) -> None:
        """Acks read from NATS that say something else than "done", or that ack more than one message. They are judged like acks.
        One that cannot be taken changes nothing, and the log says so. *replayed*: the previous leader may have handled them."""
        clock, inbox, taker = self.node.clock, b"", None
        for frame in frames:
            if frame.subject != inbox:
                inbox, taker = frame.subject, self.senders.judged(frame.subject)
            if taker is None:
                continue
            group, key = taker
            number, found = group.machine.group, group.dispatch.cursors.by_ack_key.get(key)
            if found is None or (replayed and group.dispatch.acks.is_outdated(key, clock.wall)):
                continue
            try:
                refusal = group.dispatch.acks.verdict(key, wire.Ack.FromString(frame.payload), clock.now, clock.wall)
            except DecodeError:
                refusal = "it is no Ack"
            except Exception as error:  # noqa: BLE001 - the border of the group
                self.faults.fail(number, error)
                continue
            if refusal:
                client = shown(found[1].sub.client_id)
                self.reports.complain("WRN", f'A verdict of client "{client}" on a message was ignored: {refusal}')

    def step_malformed(self, frames: Iterable[Frame], pub_sid: int) -> None:
        """Payloads on the publish and ack subjects that could not be taken."""
        for frame in frames:
            if frame.sid == pub_sid:
                self.parts.filters.malformed(frame)
            else:
                self.reports.complain("ERR", f"Unable to process ack on {shown(frame.subject)}: not an ack")

    def step_frame(self, frame: Frame) -> None:
        """Any other frame: a request of a client or node, or the answer to a request of this broker."""
        if frame.subject in self.original:
            self.original_requests.receive(frame)
        elif frame.subject.startswith(self.nats.reply_prefix):
            answered = self.own_requests.answered(frame.subject[len(self.nats.reply_prefix) :])
            if answered is not None:
                answered(None if frame.no_responders else frame.payload)
