"""Requests about pins, answered by the leader of the metadata: pin a channel's name to a group, let it go, list the pins. A
channel that is in another group already is moved."""

from stan_protocol import refusals
from stan_protocol.patterns import valid_name
from stan_protocol.proto import admin_pb2 as pb
from stan_protocol.refusals import GROUP_OF_OTHER_COMMIT, NOT_A_CLUSTER, PLACED_WITH_ANOTHER, go_quote
from stan_protocol.scalars import GroupId

from stan import limits
from stan.core.base.names import text
from stan.core.features.moves.channel_moves import ChannelMoves
from stan.core.metadata.meta import ChannelInfo
from stan.core.requests.channel_lookup import HEAD_ROOM, ITEM_ROOM
from stan.core.requests.request import AcceptedRequest
from stan.core.requests.router import Handler
from stan.core.services.node import META_GROUP
from stan.core.services.services import Services
from stan.policies import COMMITS, EPHEMERAL
from stan.protocol.proto import entries_pb2 as entries


class PinRequests:
    """Handles operators' requests about pins."""

    def __init__(self, services: Services, moves: ChannelMoves) -> None:
        self.nats, self.node, self.placement = services.nats, services.node, services.placement
        self.moves = moves

    def handlers(self) -> dict[str, Handler]:
        """The handler of each request, by name."""
        return {"admin.pin_channel": self._pin, "admin.pins": self._list, "admin.pause_moves": self._pause}

    def _pin(self, accepted: AcceptedRequest) -> None:
        """Pin a channel; group 0: let it go."""
        request = accepted.request
        pool = self.placement.pool_open
        if error := self._refusal(request, pool):
            accepted.refuse(error, retry=error == refusals.BUSY)
        elif (info := self.node.meta.channels.get(request.channel)) is not None and request.group not in (
            0,
            info.group,
        ):
            self._move(accepted, info)
        else:
            if info is not None and info.move:
                self.moves.cancel(info.move)
            pin = entries.Pin(channel=request.channel, group=request.group)
            accepted.change_meta(lambda result: {"changed": int(result.pins_changed)}, pin_channel=pin)

    def _pause(self, accepted: AcceptedRequest) -> None:
        """Pause the moves that are begun by the broker itself, or go on with them."""
        if not self.node.clustered:
            accepted.refuse(NOT_A_CLUSTER)
            return
        accepted.change_meta(lambda result: {"changed": int(result.pause_changed)}, pause_moves=accepted.request.paused)

    def _refusal(self, request: pb.PinChannelRequest, pool: int) -> str:
        placed_by = self.placement.placed_by(request.channel)
        checks = (
            (not valid_name(text(request.channel), wildcards=False), refusals.INVALID_ADMIN),
            (
                request.group > pool,
                f"{refusals.UNKNOWN_GROUP.format(request.group)}: groups of channels are 1 to {pool}",
            ),
            (self.node.meta.info is None, refusals.BUSY),
            (
                request.group != META_GROUP and self._changes_commit(request),
                GROUP_OF_OTHER_COMMIT.format(request.group, COMMITS[self.node.meta.commit_of(GroupId(request.group))]),
            ),
            (
                request.group != META_GROUP and placed_by != request.channel,
                PLACED_WITH_ANOTHER.format(go_quote(text(request.channel)), go_quote(text(placed_by))),
            ),
        )
        return next((error for wrong, error in checks if wrong), "")

    def _changes_commit(self, request: pb.PinChannelRequest) -> bool:
        """True if an ack of the channel would mean something else in that group."""
        info = self.node.meta.channels.get(request.channel)
        now = self.placement.wanted_commit(request.channel) if info is None else self.node.meta.commit_of_channel(info)
        return now != EPHEMERAL and now != self.node.meta.commit_of(GroupId(request.group))

    def _move(self, accepted: AcceptedRequest, info: ChannelInfo) -> None:
        """Pin a channel to another group than its own: it is moved there."""
        request = accepted.request
        if not self.node.clustered:
            accepted.refuse(NOT_A_CLUSTER)
        elif info.move and info.moving_to == request.group:
            accepted.answer(changed=0)
        else:

            def begun(error: str, retry: bool) -> None:  # noqa: FBT001 - as Begun has it
                if error:
                    accepted.refuse(error, retry=retry)
                else:
                    accepted.answer(changed=1)

            pin = entries.Pin(channel=request.channel, group=request.group)
            self.moves.begin(info, GroupId(request.group), begun, pin)

    def _list(self, accepted: AcceptedRequest) -> None:
        request: pb.PinsRequest = accepted.request
        meta, response = self.node.meta, pb.PinsResponse()
        names = [name for name in sorted(meta.pins) if name > request.after]
        room = self.nats.payload_bytes_max - HEAD_ROOM
        for name in names[: min(request.max or limits.REPORT_ITEMS_MAX, limits.REPORT_ITEMS_MAX)]:
            pin = pb.PinStatus(channel=name, group=meta.pins[name], exists=name in meta.channels)
            if (info := meta.channels.get(name)) is not None:
                pin.group_now, pin.moving = info.group, info.move > 0
            room -= pin.ByteSize() + ITEM_ROOM
            if room < 0 and response.pins:
                break
            response.pins.append(pin)
        response.more = len(response.pins) < len(names)
        accepted.answer_with(response)
