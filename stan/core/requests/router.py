"""What is done with each request of the table before its handler gets it.

    decode ─► has this node to answer it? ─► can no other node lead? ─► known version? ─► within the rate? ─► handler

All nodes receive each request, and those that do not have to answer ignore it. A leader whose lease has lapsed, so that it may
have been replaced without knowing it, answers nothing but "ask again": its state may be outdated.
"""

from collections.abc import Callable
from typing import Any, Final

from google.protobuf.message import DecodeError
from stan_protocol.frames import Frame
from stan_protocol.refusals import NOT_OF_EPHEMERAL, TOO_MANY_REQUESTS, UNKNOWN_VERSION, go_quote
from stan_protocol.scalars import GroupId

from stan.core.base.names import text
from stan.core.base.partition import ELSEWHERE
from stan.core.requests.request import AcceptedRequest, Send
from stan.core.requests.table import RequestKind, Scope
from stan.core.services.node import META_GROUP
from stan.core.services.services import Services
from stan.policies import EPHEMERAL
from stan.protocol.requests import because, decode

VERSIONS: Final = (0, 1)
"""Accepted versions of operators' requests; 0: the request names none."""

Handler = Callable[[AcceptedRequest], None]


class RequestRouter:
    """Decides which requests this node has to answer, and refuses those that it cannot accept."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.leading, self.node, self.outgoing = services.leading, services.node, services.outgoing
        self.placement, self.senders = services.placement, services.senders

    def receiver(self, kind: RequestKind, handler: Handler, send: Send | None = None) -> Callable[[Frame], None]:
        """Return the function that takes the frames of one kind of request. *send*: None: answers leave with the next Ready."""
        answers = self.outgoing.respond if send is None else send

        def receive(frame: Frame) -> None:
            accepted = self._asked(kind, frame, answers) if frame.reply else None
            if accepted is not None and self._is_acceptable(accepted):
                handler(accepted)

        return receive

    def _asked(self, kind: RequestKind, frame: Frame, send: Send) -> AcceptedRequest | None:
        """The request in *frame*; None if this node need not answer it, or if the request cannot be decoded."""
        try:
            request = decode(kind.request, frame.payload)
        except DecodeError as problem:
            groups = self._refusers(kind)
            if groups is not None:
                refused = AcceptedRequest(self._services, kind, frame.reply, groups, None, send)
                refused.refuse(because(kind.invalid, problem))
            return None
        groups = self._answerers(kind, request)
        return None if groups is None else AcceptedRequest(self._services, kind, frame.reply, groups, request, send)

    def _is_acceptable(self, asked: AcceptedRequest) -> bool:
        """True if the request is to be handled; otherwise it is refused."""
        kind = asked.kind
        if not self.leading.holds(asked.groups):
            if kind.repeatable(asked.request):
                asked.busy()
        elif kind.by_operators and asked.request.version not in VERSIONS:
            asked.refuse(UNKNOWN_VERSION)
        elif kind.of_logs and (channel := self._ephemeral_one(asked)):
            asked.refuse(NOT_OF_EPHEMERAL.format(go_quote(text(channel)), kind.of_logs))
        elif kind.rated and not self.senders.rate_limiter.admit(self.node.clock.now):
            asked.refuse(TOO_MANY_REQUESTS, retry=True)
        else:
            return True
        return False

    def _ephemeral_one(self, asked: AcceptedRequest) -> bytes:
        """A channel of the request that is ephemeral, or would be if it was made now; b"" if none is."""
        request = asked.request
        named = asked.kind.channels(request) if asked.kind.channels is not None else []
        for channel in named:
            info = self.node.meta.channels.get(channel)
            if info.is_ephemeral if info is not None else self.placement.wanted_commit(channel) == EPHEMERAL:
                return channel
        return b""

    def _answerers(self, kind: RequestKind, request: Any) -> tuple[GroupId, ...] | None:
        """The groups for which this node answers the request; None if it need not answer."""
        match kind.scope:
            case Scope.EACH_NODE | Scope.REPLICA:
                return ()
            case Scope.NAMED_NODE:
                return () if request.node == self.node.name else None
            case Scope.LEADERS:
                return tuple(sorted(number for number, _ in self.leading.led)) or None
            case Scope.METADATA:
                group = META_GROUP
            case Scope.OWNER:
                group = META_GROUP if self.placement.owns(kind.placed_by(request)) else ELSEWHERE
            case Scope.GROUP:
                group = GroupId(kind.placed_by(request))
                if group > self.placement.pool:  # there is no such group, which its handler says
                    group = META_GROUP
            case Scope.CHANNEL:
                group = self.placement.group_number(kind.placed_by(request))
            case Scope.APP:
                group = self.placement.app_group(kind.placed_by(request))
        return (group,) if self.node.leads(group) else None

    def _refusers(self, kind: RequestKind) -> tuple[GroupId, ...] | None:
        """As `_answerers`, for a request that cannot be decoded: whom it concerns is unknown, so the metadata's leader answers a
        request to one leader."""
        if kind.scope in (Scope.CHANNEL, Scope.OWNER, Scope.APP, Scope.GROUP):
            return () if self.node.leads_meta else None
        return () if kind.scope is Scope.NAMED_NODE else self._answerers(kind, None)
