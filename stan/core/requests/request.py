"""A request that this node has to answer."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from google.protobuf.message import Message
from stan_protocol.refusals import BUSY, SCHEMA_CHANGED, go_quote, refused
from stan_protocol.scalars import GroupId

from stan.core.base.names import text
from stan.core.leader.local_group import ChannelGroup, Part
from stan.core.metadata.meta import MetaResult
from stan.core.requests.table import RequestKind
from stan.core.services.leading import LED_ELSEWHERE
from stan.core.services.node import META_GROUP
from stan.core.services.services import Services

PASSING: Final = frozenset((SCHEMA_CHANGED,))
"""Errors of changes of the metadata that are gone when the client asks again."""

Send = Callable[[bytes, bytes, tuple[GroupId, ...]], None]
"""Sends an answer: called with the reply subject, the payload, and the groups on whose state the answer depends."""


class AcceptedRequest(NamedTuple):
    """A request that this node has to answer."""

    services: Services
    kind: RequestKind
    reply: bytes
    groups: tuple[GroupId, ...]
    """The groups for which this node answers as their leader; none if it answers for itself."""
    request: Any
    send: Send

    @property
    def number(self) -> GroupId:
        """The group of a request to one leader."""
        return self.groups[0]

    @property
    def border(self) -> GroupId:
        """The group that fails if the program fails in the request: the metadata, if it is not a request to one leader."""
        return self.groups[0] if len(self.groups) == 1 else META_GROUP

    @property
    def group(self) -> ChannelGroup:
        """The channel group of a request to its leader."""
        return self.services.node.groups[self.number]

    def part(self, kind: type[Part]) -> Part:
        """The part of class *kind* of the leader of the request's group."""
        return self.services.leading.leadership(self.number).part(kind)

    @property
    def name(self) -> bytes:
        """What the request is placed by: a channel's name, or another name that is placed like a channel's."""
        named: bytes = self.kind.placed_by(self.request)
        return named

    @property
    def user(self) -> bytes:
        """The user who sent the request; b"" if NATS does not report users."""
        return self.services.senders.user_of(self.reply)

    def begin_answer(self) -> Any:
        """An empty answer to a request to all leaders: the number of groups in the cluster and the groups of this node."""
        return self.kind.response(pool=self.services.placement.pool_open, groups=self.groups)

    def answer(self, **fields: object) -> None:
        """Send the response with *fields*; a change that succeeded is published as an admin event, too."""
        if self.kind.event:
            self._emit(fields.get("changed", 0))
        self.answer_with(self.kind.response(**fields))

    def answer_with(self, response: Message) -> None:
        """Send a response; it leaves only while no other node can lead the request's groups."""
        self.send(self.reply, response.SerializeToString(), self.groups)

    def change_meta(self, answer: Callable[[MetaResult], Mapping[str, object]], **change: object) -> None:
        """Change the metadata as `BrokerContext.change_meta` does, and answer once it is known what came of it: an error, or the
        fields that *answer* tells."""

        def done(result: object, error: str) -> None:
            if not isinstance(result, MetaResult):
                self.refuse(error or BUSY, retry=True)
            elif result.error:
                self.refuse(result.error, retry=result.error in PASSING)
            else:
                self.answer(**answer(result))

        self.services.proposals.change_meta(done, **change)

    def _emit(self, changed: object) -> None:
        """Publish the admin event about an operator's change."""
        request = getattr(self.request, "which", self.request)
        channel = getattr(request, "channel", b"")
        words = " ".join(re.findall("[a-z]+", self.kind.name.removeprefix("admin.")))
        where = f" on channel {go_quote(text(channel))}" if channel else ""
        client_id = getattr(self.request, "client_id", b"")
        who = f" {go_quote(text(client_id))}" if client_id else ""
        said = f"an operator asked for: {words}{who}{where}, {changed} changed"
        self.services.reports.emit("admin", said, channel=channel, client_id=client_id, group=self.number)

    def refuse(self, error: str, *, retry: bool = False) -> None:
        """Answer with an error, but LED_ELSEWHERE: another node answers; *retry*: the error passes, the client may ask again."""
        if error == LED_ELSEWHERE:
            return
        # The name shows at least that the node is there.
        named = {"node": self.services.node.name} if self.kind.named else {}
        self.answer_with(refused(self.kind.response(retry=retry, **named), error))

    def busy(self) -> None:
        """Answer that the client should ask again."""
        self.refuse(BUSY, retry=True)
