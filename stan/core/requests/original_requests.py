"""Requests of the original's clients, which every node reads: handled at once, or kept while it is unknown who handles them.

While the lease of a group has lapsed, another node may lead the group and answer instead: requests wait until this node holds
the lease again, or leads no more, in which case the next leader replays them.
"""

import contextlib
from collections import deque
from collections.abc import Callable, Container, Mapping

from google.protobuf.message import DecodeError
from stan_protocol.frames import Frame
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import GroupId, RaftIndex

from stan import limits
from stan.core.context import META_GROUP, BrokerContext
from stan.core.requests.request_order import ArrivalOrder
from stan.core.requests.table import ORIGINAL, Scope
from stan.protocol.requests import decode


class OriginalRequests:
    """Handles the requests of `ORIGINAL`, in their order of arrival."""

    def __init__(
        self, context: BrokerContext, arrival_order: ArrivalOrder, handlers: Mapping[bytes, Callable[[Frame], None]]
    ) -> None:
        """*handlers*: by subject."""
        self._context = context
        self._arrival_order = arrival_order
        self._handlers = handlers
        self.pending: deque[Frame] = deque(
            maxlen=limits.PENDING_REQUESTS_MAX
        )  # kept until it is known who handles them
        self._placed_by_channel = {
            getattr(context.nats.subjects, name).encode() for name, scope in ORIGINAL.items() if scope is Scope.CHANNEL
        }

    def receive(self, frame: Frame) -> None:
        """A request arrived, or is replayed: handle it, or keep it until `handle_pending`."""
        context = self._context
        if context.leading.replaying is None and context.clustered:
            self._arrival_order.add(frame, context.clock.now, RaftIndex(context.meta.applied))
        if context.leading.replaying is None and (self.pending or self._may_be_replaced()):
            self.pending.append(frame)
        else:
            self._handle(frame)

    def handle_pending(self) -> None:
        """Handle the kept requests, as far as this node holds the leases of all groups that it leads."""
        while self.pending and not self._may_be_replaced():
            self._handle(self.pending.popleft())

    def forget_pending(self, group: GroupId) -> None:
        """Drop the kept requests of a group, which are about to be replayed."""
        for frame in [frame for frame in self.pending if self._group_of(frame) == group]:
            self.pending.remove(frame)

    def is_about(self, frame: Frame, channels: Container[bytes]) -> bool:
        """True if a frame is a request about one of *channels*."""
        if frame.subject in self._placed_by_channel:
            with contextlib.suppress(DecodeError):  # all of them name their channel in the same field
                return decode(wire.UnsubscribeRequest, frame.payload).subject in channels
        return False

    def _may_be_replaced(self) -> bool:
        """True if the lease of a group that this node leads has lapsed: another node may lead the group and answer instead."""
        context = self._context
        return (context.leading.leads_meta and not context.leading.meta_lease) or any(
            group.dispatch.stops.lease_lapsed for _, group in context.leading.led
        )

    def _handle(self, frame: Frame) -> None:
        try:
            self._handlers[frame.subject](frame)
        except Exception as error:  # noqa: BLE001 - the border of the group, which is determined only on failure
            self._context.fail(self._group_of(frame), error)

    def _group_of(self, frame: Frame) -> GroupId:
        """The group whose leader handles a request."""
        if frame.subject in self._placed_by_channel:
            with contextlib.suppress(DecodeError):  # all of them name their channel in the same field
                return self._context.group_number(decode(wire.UnsubscribeRequest, frame.payload).subject)
        return META_GROUP
