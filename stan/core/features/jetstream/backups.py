"""Descriptions of streams and consumers in backups: told to `stan backup`, and made again for `stan restore`.

    restore_stream ─► the stream, with its channel ─► restore_channel … restore_end ─► restore_consumer: over restored positions

A stream that had taken its channel over comes behind `restore_channel`, and so takes it over again. Promises: each request may be
repeated; streams and consumers that are there already stay as they are.
"""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from stan_protocol import refusals
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.refusals import go_quote

from stan.core.features import BrokerParts
from stan.core.features.jetstream.consumers.requests import change_for
from stan.core.features.jetstream.streams.requests import StreamRequests
from stan.core.metadata.meta import ChannelInfo, MetaResult
from stan.core.metadata.streams import CHANGED, Stream
from stan.core.requests.channel_lookup import HEAD_ROOM, ITEM_ROOM
from stan.core.requests.request import AcceptedRequest
from stan.core.requests.router import Handler
from stan.core.services.services import Services
from stan.core.state.consumers import CONSUMERS
from stan.core.state.cursors import CursorKind
from stan.core.state.group_state import GroupResult
from stan.protocol.jetstream.consumer_errors import CYCLE
from stan.protocol.jetstream.consumers import ConsumerConfig, read_config
from stan.protocol.jetstream.errors import UNAVAILABLE, RequestError, invalid_config, invalid_json
from stan.protocol.jetstream.json_data import Fields, read_object
from stan.protocol.jetstream.streams import take_own
from stan.protocol.user_subjects import BROKER

if TYPE_CHECKING:
    from stan.protocol.jetstream.streams import StreamConfig

_NO_POSITION: Final = "its position was not restored"


class StreamBackups:
    """Handles the requests `read_stream`, `restore_stream` and `restore_consumer`."""

    def __init__(self, services: Services, parts: BrokerParts, streams: StreamRequests) -> None:
        self.nats, self.node, self.proposals = services.nats, services.node, services.proposals
        self.parts, self.streams = parts, streams

    def handlers(self) -> dict[str, Handler]:
        """The handler of each request, by name."""
        existing = self.parts.lookup.existing
        return {
            "admin.read_stream": existing(self._read),
            "admin.restore_stream": self._restore,
            "admin.restore_consumer": existing(self._restore_consumer),
        }

    # --- backup -------------------------------------------------------------------------------------------------------

    def _read(self, accepted: AcceptedRequest, info: ChannelInfo) -> None:
        response = admin.ReadStreamResponse()
        stream = self.node.meta.streams.by_uid.get(info.uid)
        if stream is not None:
            response.stream, response.adopted = stream.config.encoded(), stream.adopted
            self._add_consumers(response, accepted, info)
        accepted.answer_with(response)

    def _add_consumers(self, response: admin.ReadStreamResponse, accepted: AcceptedRequest, info: ChannelInfo) -> None:
        """Add the consumers behind the name that a request tells, as many as fit, one at least."""
        consumers = accepted.group.machine.consumers.of(info.uid)
        room = self.nats.payload_bytes_max - HEAD_ROOM - len(response.stream)
        for name in sorted(name for name in consumers if name > accepted.request.after):
            told = consumers[name].config.encoded()
            room -= len(told) + len(name) + ITEM_ROOM
            if room < 0 and response.consumers:
                response.more = True
                return
            response.consumers.append(told)
            response.after = name

    # --- streams ------------------------------------------------------------------------------------------------------

    def _restore(self, accepted: AcceptedRequest) -> None:
        """A RestoreStreamRequest, on the leader of the metadata."""
        if not self.node.config.jetstream_api:
            accepted.refuse(refusals.JETSTREAM_OFF)
            return
        if self.node.meta.info is None:
            accepted.busy()
            return
        try:
            config, known = self._config_of(accepted.request)
        except RequestError as error:
            why = error.error.description
            accepted.refuse(refusals.STREAM_REFUSED.format(why), retry=error.error == UNAVAILABLE)
            return
        if known is None:
            change = self.streams.change_to(config, None)
            self.proposals.change_meta(partial(self._decided, accepted), stream=change)
        elif known.config == replace(config, replicas=known.config.replicas):
            accepted.answer(changed=0)
        else:
            accepted.refuse(refusals.STREAM_EXISTS.format(go_quote(known.name)))

    def _config_of(self, request: admin.RestoreStreamRequest) -> "tuple[StreamConfig, Stream | None]":
        """The configuration that a request tells, and the stream as it is. Raises RequestError."""
        document = read_object(request.stream)
        document.pop("num_replicas", None)  # of the cluster that was saved
        own = take_own(document)
        config, known = self.streams.config_of(document, Fields(document).text("name"), BROKER, own)
        self.streams.check_subjects(config, known)
        if config.channel != request.channel:
            raise RequestError(invalid_config("its channel is another one"))
        self.streams.check_channel(config, known)
        return config, known

    @staticmethod
    def _decided(accepted: AcceptedRequest, result: object, _error: str) -> None:
        if not isinstance(result, MetaResult):
            accepted.busy()
        elif result.error:
            accepted.refuse(refusals.STREAM_REFUSED.format(result.error), retry=result.error == CHANGED)
        else:
            accepted.answer(changed=1)

    # --- consumers ----------------------------------------------------------------------------------------------------

    def _restore_consumer(self, accepted: AcceptedRequest, info: ChannelInfo) -> None:
        """A RestoreConsumerRequest, on the leader of the channel."""
        channel, stream = self.parts.channels.by_uid.get(info.uid), self.node.meta.streams.by_uid.get(info.uid)
        if not self.node.config.jetstream_api:
            accepted.refuse(refusals.JETSTREAM_OFF)
        elif channel is None or channel.restoring:
            accepted.refuse(refusals.CHANNEL_RESTORING, retry=True)
        elif stream is None:  # or this copy of the metadata does not have it yet
            accepted.refuse(refusals.NO_STREAM_OF_CHANNEL, retry=True)
        else:
            try:
                config = _consumer_of(accepted.request.consumer, stream)
                self.streams.rights.check_consumer(BROKER, stream, config, None)
                self._make(accepted, stream, config)
            except RequestError as error:
                accepted.refuse(refusals.CONSUMER_REFUSED.format(error.error.description))

    def _make(self, accepted: AcceptedRequest, stream: Stream, config: ConsumerConfig) -> None:
        name, machine = config.name.encode(), accepted.group.machine
        if name in machine.consumers.of(stream.uid):
            accepted.answer(changed=0)
            return
        cursor = machine.channel(stream.uid).by_key.get((CursorKind.DURABLE, name, CONSUMERS))
        if cursor is None:
            accepted.refuse(refusals.CONSUMER_REFUSED.format(_NO_POSITION))
            return
        change = change_for(stream, config, cursor.last_sent + 1, self.node.clock.wall, cursor.user)
        self.proposals.change_group(accepted.number, partial(self._made, accepted), accepted.busy, set_consumer=change)

    @staticmethod
    def _made(accepted: AcceptedRequest, result: object, error: str) -> None:
        if not isinstance(result, GroupResult):
            accepted.refuse(error or refusals.BUSY, retry=True)
        elif result.error:
            accepted.refuse(refusals.CONSUMER_REFUSED.format(result.error))
        else:
            accepted.answer(changed=1)


def _consumer_of(text: bytes, stream: Stream) -> ConsumerConfig:
    """The configuration that `ConsumerConfig.encoded` has written, of a consumer of *stream*. Raises RequestError."""
    document: dict[str, Any] = read_object(text)
    document.pop("num_replicas", None)  # of the cluster that was saved
    own = Fields({name: document.pop(name, None) for name in ("named", "newest_until")})
    named, newest_until = own.switch("named"), own.number("newest_until")
    if newest_until < 0:
        raise RequestError(invalid_json("json: newest_until is out of range"))
    config = read_config(document, Fields(document).text("name"))
    if config.pushes and stream.overlaps(config.deliver_subject):
        raise RequestError(CYCLE)
    return replace(config, named=named, newest_until=newest_until)
