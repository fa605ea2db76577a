"""The order in which requests arrived: a subscription belongs to the connection that its client had when it sent the request.

A request may be handled long after it arrived: it waits for newer metadata, until the leader is known, or for the next leader,
which replays it. Meanwhile the client may have given up and connected again. A SubscriptionRequest does not name its connection,
but every node has received both requests and knows if the ConnectRequest arrived after it. What came while the node was cut off
from NATS it has not received. Pure.
"""

from typing import NamedTuple

from google.protobuf.message import DecodeError
from stan_protocol.frames import Frame
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import Nanos, RaftIndex

from stan import limits
from stan.core.metadata.registered_clients import Client
from stan.protocol.requests import decode


class _Arrival(NamedTuple):
    """When a request arrived, how many had before, and what this node's metadata were then."""

    at: Nanos
    number: int
    applied: RaftIndex


class ArrivalOrder:
    """The arrival order of connects and subscription requests of the last seconds; older ones are forgotten."""

    def __init__(self, discover: bytes, sub: bytes) -> None:
        """*discover*, *sub*: the subjects of the two kinds of requests."""
        self._discover = discover
        self._sub = sub
        self._count = 0
        self._before_gap = 0  # the number of the last request that arrived before this node was cut off from NATS
        self._arrivals: dict[tuple[bytes, ...], _Arrival] = {}  # by request; oldest first

    def gap(self) -> None:
        """Requests may have been sent that did not arrive here."""
        self._before_gap = self._count

    def add(self, frame: Frame, now: Nanos, applied: RaftIndex) -> None:
        """A request arrived, for the first time (not in a replay); *applied*: the newest entry of the metadata here."""
        if frame.subject == self._sub and frame.reply:
            self._remember((frame.reply,), now, applied)
        elif frame.subject == self._discover:
            try:
                request = decode(wire.ConnectRequest, frame.payload)
            except DecodeError:
                return
            identity = (request.client_id, request.conn_id, request.heartbeat_inbox)
            if (
                identity not in self._arrivals
            ):  # else it was sent again, or passed on, and what came behind the first is its own
                self._remember(identity, now, applied)

    def _remember(self, what: tuple[bytes, ...], now: Nanos, applied: RaftIndex) -> None:
        arrivals = self._arrivals
        self._count += 1
        arrivals.pop(what, None)
        arrivals[what] = _Arrival(now, self._count, applied)
        while (
            len(arrivals) > limits.ARRIVAL_ORDER_MAX
            or next(iter(arrivals.values())).at < now - limits.ARRIVAL_ORDER_AGE_MAX
        ):
            del arrivals[next(iter(arrivals))]

    def is_of_earlier(self, reply: bytes, client: Client) -> bool | None:
        """Return True if the SubscriptionRequest with that *reply* subject arrived before the ConnectRequest of *client*; None:
        not known, as the ConnectRequest did not arrive here, and may have been sent while this node was cut off.

        It did not if this node knew the client's connection when the request came: another node may have passed the connect on
        since.
        """
        asked = self._arrivals.get((reply,))
        if asked is None or asked.applied >= client.incarnation:
            return False
        connected = self._arrivals.get((client.client_id, client.conn_id, client.heartbeat_inbox))
        if connected is None:
            return None if asked.number <= self._before_gap else False
        return asked.number < connected.number
