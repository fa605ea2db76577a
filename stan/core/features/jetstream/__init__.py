"""JetStream's client protocol: streams are channels, consumers are cursors (docs/jetstream.md).

Off, as it is unless `jetstream_api` is set, the feature listens on nothing and makes no part.
"""

from collections.abc import Callable, Mapping

from stan_protocol.scalars import ChannelUid, GroupId

from stan.core.features import BrokerFeature, BrokerParts
from stan.core.features.jetstream.backups import StreamBackups
from stan.core.features.jetstream.consumers.acks import ConsumerAcks
from stan.core.features.jetstream.consumers.delivering import ConsumerDeliveries
from stan.core.features.jetstream.consumers.requests import ConsumerRequests
from stan.core.features.jetstream.consumers.retention import InterestStreams, WorkQueues
from stan.core.features.jetstream.requests import ApiHandler, ApiRouter
from stan.core.features.jetstream.rights import JetStreamRights
from stan.core.features.jetstream.streams import leader_parts
from stan.core.features.jetstream.streams.infos import StreamInfos
from stan.core.features.jetstream.streams.messages import MessageRequests
from stan.core.features.jetstream.streams.publishes import StreamPublishes
from stan.core.features.jetstream.streams.requests import StreamDeletions, StreamRequests
from stan.core.leader.local_group import Leadership
from stan.core.metadata.meta import MetaResult
from stan.core.services.services import Services
from stan.protocol.jetstream.api import ALL, ApiRow
from stan.protocol.proto import entries_pb2 as pb


class JetStreamFeature(BrokerFeature):
    """Streams and their API."""

    def __init__(self, services: Services, parts: BrokerParts) -> None:
        super().__init__(services, parts)
        self.on = services.node.config.jetstream_api
        self.rights = rights = JetStreamRights(services)
        self.streams = StreamRequests(services, parts, rights)
        self.publishes = StreamPublishes(services, rights)
        self.consumers = ConsumerRequests(services, parts, rights)
        self.streams.descriptions.count_consumers = self.consumers.shown.count
        self.acks = ConsumerAcks(services, rights)
        self.messages = MessageRequests(services, parts.channels)
        handlers: dict[ApiRow, ApiHandler] = (
            self.streams.handlers()
            | StreamInfos(services, rights, self.streams.descriptions).handlers()
            | self.messages.handlers()
            | self.consumers.handlers()
        )
        self.router = ApiRouter(services, rights, parts.read_index, handlers)
        parts.channels.expire = self._expire
        self.backups = StreamBackups(services, parts, self.streams)
        self._deliveries: dict[GroupId, ConsumerDeliveries] = {}  # of the groups that this node leads

    def handlers(self) -> Mapping[str, Callable[..., None]]:
        """Requests of `stan backup` and `stan restore`."""
        return self.backups.handlers()

    def start(self) -> None:
        """Listen to the API, and to the subjects of the streams that are known."""
        self._listen()

    def lead_group(self, leadership: Leadership) -> None:
        """Add the parts of streams and of their consumers."""
        if self.on:
            leadership.keep(StreamDeletions(self.services, leadership))
            self._deliveries[leadership.number] = deliveries = ConsumerDeliveries(self.services, leadership)
            leadership.keep(deliveries)
            leadership.keep(InterestStreams(self.services, leadership, self.parts.channels))
            leadership.keep(WorkQueues(self.services, leadership, self.parts.channels))
            for kind in leader_parts.PARTS:
                leadership.keep(kind(self.services, leadership, self.parts.channels, self.parts.publishing))

    def _expire(self, uid: ChannelUid) -> bool:
        return leader_parts.expire(self.services.leading, self.services.node.meta.by_uid[uid].group, uid)

    def leads_group(self, number: GroupId) -> None:
        """The live view of a group is complete: its consumers can be looked at."""
        if self.on:
            self.services.leading.leadership(number).part(ConsumerDeliveries).take_up()
            self.services.leading.leadership(number).part(InterestStreams).refresh()
            leader_parts.begin(self.services.leading, number)
            self._drop_strays(number)
            self.router.leads_group(number)

    def follow_group(self, number: GroupId) -> None:
        """The clients of consumers ask the next leader."""
        deliveries = self._deliveries.pop(number, None)
        if deliveries is not None:
            deliveries.leave()

    def _drop_strays(self, number: GroupId) -> None:
        """Delete consumers of a group whose stream is gone, once this node knows of all streams that consumers may have."""
        if self.services.node.groups[number].machine.consumers.by_channel:
            deliveries = self.services.leading.leadership(number).part(ConsumerDeliveries)
            self.parts.read_index.wait(deliveries.drop_strays, number)

    def meta_loaded(self) -> None:
        """Any stream may have come or gone."""
        self._listen()
        if self.on:
            leader_parts.streams_changed(self.services.leading)

    def meta_applied(self, change: pb.MetaChange, result: MetaResult) -> None:  # noqa: ARG002 - as BrokerFeature has it
        """A stream came, changed or went: listen to its subjects, answer the clients that have asked for that."""
        if not result.stream:
            return
        self.parts.channels.reconfigure()
        if self.on:
            self.streams.advise(result.stream, result.stream_before)
            self._listen()
            leader_parts.streams_changed(self.services.leading)
            self.services.leading.each(InterestStreams, InterestStreams.refresh)
            self.services.leading.each(ConsumerDeliveries, ConsumerDeliveries.streams_changed)
            if result.stream not in self.services.node.meta.streams.by_name:
                for number, _ in self.services.leading.led:
                    self._drop_strays(number)
            self.streams.changed(result.stream)

    def _listen(self) -> None:
        if self.on:
            rights, streams = self.rights, self.services.node.meta.streams
            self.services.listening.acks = rights.listened(self.acks.SUBJECT)
            own = {ALL: self.router.receive} | self.acks.takers()
            takers = {rights.listened(subject): take for subject, take in own.items()}
            self.services.listening.change(takers | self.publishes.takers(streams), self.publishes.subjects(streams))
