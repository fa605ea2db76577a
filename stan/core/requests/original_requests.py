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
from stan.core.requests.request_order import ArrivalOrder
from stan.core.requests.table import ORIGINAL, Scope
from stan.core.services.node import META_GROUP
from stan.core.services.services import Services
from stan.protocol.requests import decode


class OriginalRequests:
    """Handles the requests of `ORIGINAL`, in their order of arrival."""

    def __init__(
        self, services: Services, arrival_order: ArrivalOrder, handlers: Mapping[bytes, Callable[[Frame], None]]
    ) -> None:
        """*handlers*: by subject."""
        self.faults, self.leading, self.node = services.faults, services.leading, services.node
        self.placement = services.placement
        self._arrival_order = arrival_order
        self._handlers = handlers
        self.pending: deque[Frame] = deque(
            maxlen=limits.PENDING_REQUESTS_MAX
        )  # kept until it is known who handles them
        self._placed_by_channel = {
            getattr(services.nats.subjects, name).encode() for name, scope in ORIGINAL.items() if scope is Scope.CHANNEL
        }

    def receive(self, frame: Frame) -> None:
        """A request arrived, or is replayed: handle it, or keep it until `handle_pending`."""
        if self.leading.replaying is None and self.node.clustered:
            self._arrival_order.add(frame, self.node.clock.now, RaftIndex(self.node.meta.applied))
        if self.leading.replaying is None and (self.pending or self._may_be_replaced()):
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
        return (self.node.leads_meta and not self.leading.meta_lease) or any(
            group.dispatch.stops.lease_lapsed for _, group in self.leading.led
        )

    def _handle(self, frame: Frame) -> None:
        try:
            self._handlers[frame.subject](frame)
        except Exception as error:  # noqa: BLE001 - the border of the group, which is determined only on failure
            self.faults.fail(self._group_of(frame), error)

    def _group_of(self, frame: Frame) -> GroupId:
        """The group whose leader handles a request."""
        if frame.subject in self._placed_by_channel:
            with contextlib.suppress(DecodeError):  # all of them name their channel in the same field
                return self.placement.group_number(decode(wire.UnsubscribeRequest, frame.payload).subject)
        return META_GROUP
