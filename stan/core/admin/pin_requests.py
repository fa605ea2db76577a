"""Requests about pins, answered by the leader of the metadata: pin a channel's name to a group, let it go, list the pins."""

from stan import errors, limits
from stan.core.context import META_GROUP, BrokerContext, text
from stan.core.requests.channel_lookup import HEAD_ROOM, ITEM_ROOM
from stan.core.requests.request import AcceptedRequest
from stan.core.requests.router import Handler
from stan.core.state.meta import PIN_LEVEL_TOO_LOW
from stan.errors import go_quote
from stan.level import SCALE
from stan.patterns import valid_name
from stan.protocol.proto import admin_pb2 as pb
from stan.protocol.proto import entries_pb2 as entries

NO_GROUP = "stan: there is no group {}: groups of channels are 1 to {}"
PLACED_WITH = "stan: channel {} is kept where channel {} is: pin that one"


class PinRequests:
    """Handles operators' requests about pins."""

    def __init__(self, context: BrokerContext) -> None:
        self.context = context

    def handlers(self) -> dict[str, Handler]:
        """The handler of each request, by name."""
        return {"pin_channel": self._pin, "pins": self._list}

    def _pin(self, accepted: AcceptedRequest) -> None:
        """Pin a channel; group 0: let it go."""
        context, request = self.context, accepted.request
        pool = context.pool_open
        placed_by = context.placed_by(request.channel)
        if not valid_name(text(request.channel), wildcards=False):
            accepted.refuse(errors.INVALID_ADMIN)
        elif request.group > pool:
            accepted.refuse(NO_GROUP.format(request.group, pool))
        elif context.meta.info is None:
            accepted.busy()
        elif context.meta.level < SCALE:
            accepted.refuse(PIN_LEVEL_TOO_LOW)
        elif request.group != META_GROUP and placed_by != request.channel:
            accepted.refuse(PLACED_WITH.format(go_quote(text(request.channel)), go_quote(text(placed_by))))
        else:
            pin = entries.Pin(channel=request.channel, group=request.group)
            accepted.change_meta(lambda result: result.pins_changed, pin_channel=pin)

    def _list(self, accepted: AcceptedRequest) -> None:
        request: pb.PinsRequest = accepted.request
        meta, response = self.context.meta, pb.PinsResponse()
        names = [name for name in sorted(meta.pins) if name > request.after]
        room = self.context.nats.payload_bytes_max - HEAD_ROOM
        for name in names[: min(request.max or limits.REPORT_ITEMS_MAX, limits.REPORT_ITEMS_MAX)]:
            pin = pb.PinStatus(channel=name, group=meta.pins[name], exists=name in meta.channels)
            room -= pin.ByteSize() + ITEM_ROOM
            if room < 0 and response.pins:
                break
            response.pins.append(pin)
        response.more = len(response.pins) < len(names)
        accepted.answer_with(response)
