"""The order in which requests arrived: a subscription belongs to the connection that its client had when it sent the request.

A request may be handled long after it arrived: it waits for newer metadata, until the leader is known, or for the next leader,
which replays it. Meanwhile the client may have given up and connected again. A SubscriptionRequest does not name its connection,
but every node has received both requests and knows if the ConnectRequest arrived after it. Pure.
"""

from google.protobuf.message import DecodeError

from stan import limits
from stan.core.state.meta import Client
from stan.protocol.frames import Frame
from stan.protocol.proto import wire_pb2 as wire
from stan.protocol.requests import decode
from stan.types import Nanos


class ArrivalOrder:
    """The arrival order of connects and subscription requests of the last seconds; older ones are forgotten."""

    def __init__(self, discover: bytes, sub: bytes) -> None:
        """*discover*, *sub*: the subjects of the two kinds of requests."""
        self._discover = discover
        self._sub = sub
        self._count = 0
        self._arrivals: dict[tuple[bytes, ...], tuple[Nanos, int]] = {}  # request -> arrival and number; oldest first

    def add(self, frame: Frame, now: Nanos) -> None:
        """A request arrived, for the first time (not in a replay)."""
        if frame.subject == self._sub and frame.reply:
            self._remember((frame.reply,), now)
        elif frame.subject == self._discover:
            try:
                request = decode(wire.ConnectRequest, frame.payload)
            except DecodeError:
                return
            self._remember((request.client_id, request.conn_id, request.heartbeat_inbox), now)

    def _remember(self, what: tuple[bytes, ...], now: Nanos) -> None:
        arrivals = self._arrivals
        self._count += 1
        arrivals.pop(what, None)
        arrivals[what] = now, self._count
        while (
            len(arrivals) > limits.ARRIVAL_ORDER_MAX
            or next(iter(arrivals.values()))[0] < now - limits.ARRIVAL_ORDER_AGE_MAX
        ):
            del arrivals[next(iter(arrivals))]

    def is_of_earlier(self, reply: bytes, client: Client) -> bool:
        """True if the SubscriptionRequest with that *reply* subject arrived before the ConnectRequest of *client*."""
        asked = self._arrivals.get((reply,))
        connected = self._arrivals.get((client.client_id, client.conn_id, client.heartbeat_inbox))
        return asked is not None and connected is not None and asked[1] < connected[1]
