"""Requests that show consumers, on the leader of the stream's channel."""

from collections.abc import Mapping
from typing import Final

from stan import limits
from stan.core.base.names import text
from stan.core.features.jetstream.consumers.delivering import ConsumerDeliveries
from stan.core.features.jetstream.consumers.descriptions import consumer_named, described
from stan.core.features.jetstream.requests import ApiHandler, ApiRequest
from stan.core.features.jetstream.rights import JetStreamRights
from stan.core.features.jetstream.streams.reading import StreamReading
from stan.core.leader.local_group import ChannelGroup
from stan.core.metadata.streams import Stream
from stan.core.services.services import Services
from stan.core.state.consumers import Consumer
from stan.core.state.consuming import cursor_of_consumer
from stan.core.state.cursors import Cursor
from stan.protocol.jetstream import consumer_errors as errors
from stan.protocol.jetstream.api import OWNS, ApiRow
from stan.protocol.jetstream.errors import RequestError
from stan.protocol.jetstream.json_data import Fields

_EMPTY: Final = (("total", 0), ("offset", 0), ("limit", 0), ("consumers", ()))
INFO = ApiRow("CONSUMER.INFO.*.*", "consumer_info", OWNS)
NAMES = ApiRow("CONSUMER.NAMES.*", "consumer_names", OWNS, refused=_EMPTY)
LIST = ApiRow("CONSUMER.LIST.*", "consumer_list", OWNS, refused=_EMPTY)


class ShownConsumers:
    """Finds consumers, and shows them to those who may see them."""

    def __init__(self, services: Services, rights: JetStreamRights) -> None:
        self.rights = rights
        self.node = services.node
        self._services = services

    def handlers(self) -> dict[ApiRow, ApiHandler]:
        """The handler of each kind of request."""
        return {INFO: self._info, NAMES: self._names, LIST: self._list}

    def count(self, stream: Stream) -> int:
        """The number of a stream's consumers, as this node knows."""
        info = self.node.meta.by_uid.get(stream.uid)
        held = None if info is None else self.node.groups.get(info.group)
        return 0 if held is None else len(held.machine.consumers.of(stream.uid))

    def named(self, request: ApiRequest, name: bytes) -> tuple[Cursor, Consumer] | None:
        """A consumer of the stream that a request names; None: there is none."""
        return consumer_named(self._group(request), request.known.uid, name)

    def existing(self, request: ApiRequest, *, changes: bool = False) -> tuple[Cursor, Consumer]:
        """The consumer that a request names. *changes*: it is to be paused or deleted. Raises RequestError."""
        there = self.named(request, request.named[1].encode())
        if there is None:
            raise RequestError(errors.NO_CONSUMER)
        error = self.rights.consumer_refusal(request.user, request.known, there[0], changes=changes)
        if error is not None:
            raise RequestError(error)
        return there

    def describe(self, request: ApiRequest, cursor: Cursor, consumer: Consumer) -> None:
        """Answer with a consumer. Of one with filters the messages that are not delivered yet are counted, if they are not too
        many to be read."""
        told, stream = described(self._services, self._group(request), cursor, consumer), request.known
        led = request.part(ConsumerDeliveries).find(stream.uid, cursor.name)
        reading = request.part(StreamReading)
        filtered = led is not None and bool(led[2].filters) and not stream.config.history
        behind = led[0].last_sent if led is not None else 0
        too_many = reading.last(stream) - behind > limits.STREAM_PENDING_COUNTED_MAX
        if not filtered or not told.get("num_pending") or too_many or reading.is_busy(request.user):
            request.answer(**told)
            return

        def answer(counts: Mapping[bytes, int] | None) -> None:
            passing = ((text(subject), count) for subject, count in (counts or {}).items())
            number = sum(count for subject, count in passing if consumer.config.wants(subject))
            request.answer(**(told if counts is None else told | {"num_pending": number}))

        reading.run(reading.count(stream, ">", answer, behind + 1), request.user)

    def _group(self, request: ApiRequest) -> ChannelGroup:
        return self.node.group_of(request.channel)

    def _info(self, request: ApiRequest) -> None:
        self.describe(request, *self.existing(request))

    def _names(self, request: ApiRequest) -> None:
        names, offset = self._page(request)
        page = [name.decode() for name in names[offset : offset + limits.STREAM_CONSUMER_NAMES_PAGE]]
        request.answer(total=len(names), offset=offset, limit=limits.STREAM_CONSUMER_NAMES_PAGE, consumers=page)

    def _list(self, request: ApiRequest) -> None:
        names, offset = self._page(request)
        group, uid = self._group(request), request.known.uid
        page = [consumer_named(group, uid, name) for name in names[offset : offset + limits.STREAM_CONSUMERS_PAGE]]
        told = [described(self._services, group, *one) for one in page if one is not None]
        request.answer(total=len(names), offset=offset, limit=limits.STREAM_CONSUMERS_PAGE, consumers=told)

    def _page(self, request: ApiRequest) -> tuple[list[bytes], int]:
        fields = Fields(request.document())
        offset = max(0, fields.number("offset"))
        fields.end()
        machine, rights, known = self._group(request).machine, self.rights, request.known
        names = sorted(
            name
            for name in machine.consumers.of(known.uid)
            if rights.lists(request.user, known, cursor_of_consumer(machine, known.uid, name))
        )
        return names, min(offset, len(names))
