"""The order in which requests arrived: a subscription belongs to the connection that its client had when it asked.

A request may be handled long after it was heard: it waits for news of the metadata, until it is known who leads, or for the next
leader, who looks at it again. Meanwhile its client may have given up and connected again. A SubscriptionRequest does not name its
connection, but every node has heard whether that connection asked to be let in after it. Pure.
"""

from google.protobuf.message import DecodeError

from stan import limits
from stan.core.state.meta import Client
from stan.protocol.frames import Frame
from stan.protocol.proto import wire_pb2 as wire
from stan.protocol.requests import decode
from stan.types import Nanos


class ArrivalOrder:
    """See the module's docstring. Of the last seconds; of what is older nothing is known."""

    def __init__(self, discover: bytes, sub: bytes) -> None:
        """*discover*, *sub*: the subjects of the two kinds of requests."""
        self._discover = discover
        self._sub = sub
        self._count = 0
        self._arrivals: dict[tuple[bytes, ...], tuple[Nanos, int]] = {}  # what: when, and its number; oldest first

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
        """Whether a SubscriptionRequest, known by its reply subject, was heard before *client* asked to be let in."""
        asked = self._arrivals.get((reply,))
        connected = self._arrivals.get((client.client_id, client.conn_id, client.heartbeat_inbox))
        return asked is not None and connected is not None and asked[1] < connected[1]
