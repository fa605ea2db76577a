"""Requests on the extension's subjects for one leader: which node has to answer, and how.

Each request is for the leader of one group; all other nodes ignore it. A leader whose lease has lapsed, so that it may have been
replaced without knowing it, answers nothing but "ask again": its state may be outdated.
"""

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError, Message

from stan.core.context import BrokerContext, text
from stan.core.leader.local_group import ChannelGroup
from stan.errors import BUSY, go_quote
from stan.protocol.frames import Frame
from stan.protocol.proto.admin_pb2 import ChangeResponse
from stan.protocol.requests import because, decode
from stan.types import GroupId

UNSAID: Final = frozenset({"Node", "RestoreRows", "RestoreCursor"})
"""Changes of operators without an admin event of their own: they are reported by other events, or come in great numbers."""


class LeaderRequest(NamedTuple):
    """A request that this node has to answer."""

    context: BrokerContext
    reply: bytes
    number: GroupId
    request: Any
    response: type[Message]

    @property
    def group(self) -> ChannelGroup:
        """The channel group that the request is about."""
        return self.context.groups[self.number]

    @property
    def user(self) -> bytes:
        """The user who sent the request; b"" if NATS does not report users."""
        return self.context.user_of(self.reply)

    def answer(self, **fields: object) -> None:
        """Send the response with *fields*; a change that succeeded is published as an admin event, too."""
        if self.response is ChangeResponse and not fields.get("error"):
            self._say(fields.get("changed", 0))
        self.context.respond(self.reply, self.response(**fields).SerializeToString(), (self.number,))

    def _say(self, changed: object) -> None:
        """Publish the admin event about an operator's change."""
        request = self.request
        kind = type(request).__name__.removesuffix("Request")
        if kind in UNSAID:
            return
        channel = getattr(request, "channel", b"") or (request.which.channel if hasattr(request, "which") else b"")
        words = " ".join(word.lower() for word in re.findall("[A-Z][a-z]*", kind))
        where = f" on channel {go_quote(text(channel))}" if channel else ""
        client_id = getattr(request, "client_id", b"")
        who = f" {go_quote(text(client_id))}" if client_id else ""
        said = f"an operator asked for: {words}{who}{where}, {changed} changed"
        self.context.emit("admin", said, channel=channel, client_id=client_id, group=self.number)

    def refuse(self, error: str, *, retry: bool = False) -> None:
        """Answer with an error; *retry*: the error passes, the client may ask again."""
        self.answer(error=error.encode(), retry=retry)

    def busy(self) -> None:
        """Answer that the client should ask again."""
        self.refuse(BUSY, retry=True)


def leader_request(
    context: BrokerContext,
    frame: Frame,
    kinds: tuple[type[Message], type[Message]],
    name_of: Callable[[Any], bytes],
    invalid: str,
    *,
    once: Callable[[Any], bool] = lambda _request: False,
) -> LeaderRequest | None:
    """Decode the request in *frame*; None if this node need not answer it, or has answered already.

    Args:
        context: the shared state of the broker.
        frame: the frame as it was received.
        kinds: the message types of the request and of its answer.
        name_of: returns the name of the request's channel, or another name that is placed like a channel's.
        invalid: the error text for a request that cannot be decoded.
        once: returns True if the request is not idempotent: it is not answered "ask again" while another leader may have
            executed it.
    """
    kind, response = kinds
    if not frame.reply:
        return None
    try:
        request = decode(kind, frame.payload)
    except DecodeError as problem:
        if context.leads_meta:  # the group is unknown, so the metadata's leader answers
            error = because(invalid, problem).encode()
            context.respond(frame.reply, response(error=error).SerializeToString())
        return None
    number = context.group_number(name_of(request))
    if not context.leads(number):
        return None
    found = LeaderRequest(context, frame.reply, number, request, response)
    if found.group.dispatch.lease_lapsed:
        if not once(request):
            found.busy()
        return None
    return found
