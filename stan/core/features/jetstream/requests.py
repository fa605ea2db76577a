"""Requests of JetStream's API: which node answers, and how.

    $JS.API.… ─► row of the table ─► is the stream known? ─► has this node to answer? ─► can no other node lead? ─► handler

All nodes receive each request, and those that do not have to answer are silent. A stream is unknown only once this node's copy of
the metadata is as new as the leader's: the client may have made it a moment ago.
"""

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from stan_protocol.frames import Frame
from stan_protocol.scalars import GroupId, Nanos

from stan import limits
from stan.core.base.names import raw, shown, text
from stan.core.base.shares import Shares
from stan.core.features.jetstream.rights import JetStreamRights
from stan.core.leader.local_group import Part
from stan.core.metadata.meta import ChannelInfo
from stan.core.metadata.streams import Stream
from stan.core.requests.metadata_read_index import MetadataReadIndex
from stan.core.services.node import META_GROUP
from stan.core.services.services import Services
from stan.errors import fault
from stan.protocol.jetstream import headers
from stan.protocol.jetstream.api import LEVEL_READ, Answerer, ApiRow, ApiTable
from stan.protocol.jetstream.errors import (
    FORBIDDEN,
    NEWER_API,
    NO_STREAM,
    TOO_MANY_REQUESTS,
    UNAVAILABLE,
    ApiError,
    RequestError,
)
from stan.protocol.jetstream.json_data import encode, read_object


class ApiRequest(NamedTuple):
    """A request that this node has to answer."""

    services: Services
    row: ApiRow
    named: tuple[str, ...]  # in the place of the wildcards of the row's subject
    frame: Frame
    groups: tuple[GroupId, ...]  # whose state the answer depends on
    user: str  # of the request, as NATS tells; "" without users
    stream: Stream | None = None  # that the request names, of a row with Answerer.STREAM

    @property
    def known(self) -> Stream:
        """The stream that the request names; of a row with Answerer.STREAM."""
        assert self.stream is not None  # noqa: S101 - for mypy
        return self.stream

    @property
    def channel(self) -> ChannelInfo:
        """The channel of the stream that the request names."""
        return self.services.node.meta.by_uid[self.known.uid]

    def part(self, kind: type[Part]) -> Part:
        """The part of class *kind* of the leader of the stream's channel."""
        return self.services.leading.leadership(self.groups[0]).part(kind)

    def document(self) -> dict[str, Any]:
        """The object in the payload. Raises RequestError, which the router answers."""
        return read_object(self.frame.payload)

    def answer(self, **fields: object) -> None:
        """Answer with *fields*; it leaves only while no other node can lead the groups of the request."""
        self.answer_with({"type": self.row.type} | fields)

    def answer_with(self, document: Mapping[str, object]) -> None:
        """Answer with a whole document."""
        self.services.outgoing.respond(self.frame.reply, encode(document), self.groups)

    def refuse(self, error: ApiError) -> None:
        """Answer with an error; where answers are messages themselves, as NATS does where nobody listens, or that it is not
        permitted."""
        if not self.row.response:
            shown = (
                b"%d %b" % (error.code, raw(error.description)) if error.code == FORBIDDEN else headers.NO_RESPONDERS
            )
            status = headers.publication(self.frame.reply, b"", headers.render((), shown))
            self.services.outgoing.answer_as_leader(self.groups[0], status)
            return
        self.answer(error=error.document(), **dict(self.row.refused))


ApiHandler = Callable[[ApiRequest], None]


class _Received(NamedTuple):
    """A request, before it is known who answers it."""

    row: ApiRow
    named: tuple[str, ...]
    frame: Frame
    user: str

    def of(self, groups: tuple[GroupId, ...], services: Services, stream: Stream | None = None) -> ApiRequest:
        """The request to the leader of *groups*."""
        return ApiRequest(services, self.row, self.named, self.frame, groups, self.user, stream)


class ApiRouter:
    """Takes the frames of `$JS.API.>`."""

    def __init__(
        self,
        services: Services,
        rights: JetStreamRights,
        read_index: MetadataReadIndex,
        handlers: Mapping[ApiRow, ApiHandler],
    ) -> None:
        self._services = services
        self.rights = rights
        self.leading, self.node, self.placement = services.leading, services.node, services.placement
        self.rate_limiter, self.reports = services.senders.rate_limiter, services.reports
        self.read_index = read_index
        self.handlers = handlers
        self.table = ApiTable(handlers)
        self._waiting = Shares()  # requests that wait for the metadata
        self._recent: dict[ApiRow, deque[tuple[Nanos, _Received]]] = {  # that outlast a leader, and when they came
            row: deque(maxlen=limits.API_WAITING_MAX) for row in handlers if row.outlasts
        }

    def receive(self, frame: Frame) -> None:
        """A frame of the API. One that wants no answer, or that nobody knows, is left alone, as by NATS's own server."""
        said = self.rights.sent_by(frame)
        if said is None:
            return
        user, frame = said
        found = self.table.find(text(frame.subject)) if frame.reply else None
        if found is None:
            return
        received = _Received(*found, frame, user)
        if received.row.answerer is Answerer.METADATA:
            self._answer(received.of((META_GROUP,), self._services), META_GROUP)
        elif received.named[0] in self.node.meta.streams.by_name:
            self._of_stream(received)
        elif self._waiting.left(raw(user), limits.API_WAITING_MAX) > 0:
            self._waiting.add(raw(user), 1)
            self.read_index.wait(partial(self._look_again, received), META_GROUP)

    def leads_group(self, number: GroupId) -> None:
        """This node begins to lead a group: answer recent requests that perhaps met no leader. A client that has an answer
        already does not listen for another one."""
        for row, recent in self._recent.items():
            since, arrived = self.node.clock.now - row.outlasts, [*recent]
            recent.clear()
            for at, received in arrived:
                stream = self.node.meta.streams.by_name.get(received.named[0])
                if at < since or stream is None:
                    continue
                if self.placement.group_number(stream.channel) == number:
                    self._of_stream(received)
                else:
                    recent.append((at, received))

    def _look_again(self, received: "_Received", known: bool) -> None:  # noqa: FBT001
        self._waiting.add(raw(received.user), -1)
        if known:
            self._of_stream(received)

    def _of_stream(self, received: "_Received") -> None:
        stream = self.node.meta.streams.by_name.get(received.named[0])
        group = META_GROUP if stream is None else self.placement.group_number(stream.channel)
        if received.row.outlasts and not self.node.leads(group):
            self._recent[received.row].append((self.node.clock.now, received))
        self._answer(received.of((group,), self._services, stream), group)

    def _answer(self, request: ApiRequest, group: GroupId) -> None:
        """Have a request handled if this node leads *group*."""
        if not self.node.leads(group):
            return
        if not self.leading.holds((group,)):
            request.refuse(UNAVAILABLE)
        elif (refusal := self._refusal(request)) is not None:
            request.refuse(refusal)
        elif request.row.answerer is Answerer.STREAM and request.stream is None:
            request.refuse(NO_STREAM)
        elif _needs_newer(request.frame):
            request.refuse(NEWER_API)
        elif request.row.rated and not self.rate_limiter.admit(self.node.clock.now):
            request.refuse(TOO_MANY_REQUESTS)
        else:
            try:
                self.handlers[request.row](request)
            except RequestError as error:
                request.refuse(error.error)
            except Exception as error:  # noqa: BLE001 - of this request alone
                self.reports.complain("ERR", f"the request {shown(request.frame.subject)} failed: {fault(error)}")

    def _refusal(self, request: ApiRequest) -> ApiError | None:
        """Why the user may not ask for that; None: it may, or the handler judges."""
        if not request.named:
            return None
        return self.rights.request_refusal(request.user, request.row, request.stream, request.named[0])


def _needs_newer(frame: Frame) -> bool:
    """True if a request asks for a level of the API that this server does not know."""
    if headers.REQUIRED_LEVEL not in frame.header:
        return False
    if headers.too_large(frame.header):
        return True
    levels = [value for name, value in headers.parse(frame.header) if name == headers.REQUIRED_LEVEL]
    return any(not level.isdigit() or int(level[:9]) > LEVEL_READ for level in levels)
