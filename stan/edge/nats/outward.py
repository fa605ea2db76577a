"""The way out to NATS: the connection as the gateway sees it, and sends rendered into frames.

sends ─► frames ─► may their groups send? ─► one write to the connection, one to the leafnode connection
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Any, Protocol

from stan_protocol.scalars import GroupId

from stan.core.base.payload_limit import deliverable
from stan.core.base.ready import Delivery, LeafFrames, LeaseAnswer, Send
from stan.core.broker.broker import Broker
from stan.edge.nats.leaf import LeafPort
from stan.protocol.kernel import server as kernel

Silent = Callable[[Set[GroupId]], Set[GroupId]]
"""Called right before a write with the groups of what is written; returns those that must not send now."""


class NatsPort(Protocol):
    """The connection as the gateway sees it (`NatsConnection`, or the simulator's)."""

    subscriptions: dict[int, str]
    leaves: dict[bytes, LeafPort]
    """The leafnode connections beside it, by user (b"": there are no users); none if no consumers of JetStream are served."""

    @property
    def up(self) -> bool:
        """True if bytes can be written now."""

    @property
    def max_payload(self) -> int:
        """Bytes of the largest payload that the other side accepts."""

    @property
    def unsent(self) -> int:
        """Bytes that were written and have not left the process."""

    def write(self, data: bytes) -> bool:
        """Write bytes in one piece; False if there is no connection, and they are lost."""

    def hold_reading(self, hold: bool) -> None:  # noqa: FBT001 - a switch
        """Stop or go on reading."""

    def break_off(self) -> None:
        """Cut the connection; it is made again."""

    def ponged(self) -> None:
        """Note a PONG."""

    def informed(self, info: dict[str, Any]) -> None:
        """Note an INFO of NATS: its cluster has changed."""


class Unconnected:
    """Stands in before the first connection: bytes that are written are lost, as on a lost connection."""

    up = False
    max_payload = 0
    unsent = 0

    def __init__(self) -> None:
        self.subscriptions: dict[int, str] = {}
        self.leaves: dict[bytes, LeafPort] = {}

    def write(self, data: bytes) -> bool:  # noqa: ARG002 - it is gone
        """Always False: there is no connection."""
        return False

    def hold_reading(self, hold: bool) -> None:  # noqa: FBT001 - a switch
        """Does nothing: nothing is read."""

    def break_off(self) -> None:
        """Does nothing: there is no connection to cut."""

    def ponged(self) -> None:
        """Does nothing: no PONG can arrive."""

    def informed(self, info: dict[str, Any]) -> None:
        """Does nothing: no INFO can arrive."""


class Leaver(Protocol):
    """The gateway, as far as its sends need it."""

    broker: Broker
    connection: NatsPort


def _all_may_send(_groups: Set[GroupId]) -> Set[GroupId]:
    return frozenset()


def leave(gateway: Leaver, sends: Iterable[Send], silent: Silent = _all_may_send) -> list[Delivery | LeaseAnswer]:
    """Write *sends* in their order, as one piece; `Gateway.send`.

    *silent* is called right before the write with the groups of *sends*, and returns those whose deliveries and answers must
    not be sent. Returns those that were left out."""
    broker, connection = gateway.broker, gateway.connection
    shown: list[Send] = []
    rendered: list[bytes] = []
    leaving: list[Delivery | LeafFrames] = []  # by the leafnode connection
    groups: set[GroupId] = set()
    most = broker.view.payload_bytes_max
    for send in sends:
        if isinstance(send, Delivery):
            groups.add(send.group)
            if send.leaf is not None:
                leaving.append(send)
                continue
            try:
                for part in (send,) if len(send.records) <= most else deliverable(send, most):
                    inbox, records, base_sequence, first, last, redelivery_count, *_ = part
                    rendered.append(kernel.frames(records, base_sequence, first, last, inbox, redelivery_count))
                    shown.append(send)
            except Exception as error:  # noqa: BLE001 - the border of the group
                broker.step_fault(send.group, error)
        elif isinstance(send, LeafFrames):
            leaving.append(send)
            groups.update(send.groups)
        elif isinstance(send, LeaseAnswer):
            shown.append(send)
            rendered.append(send.data)
            groups.update(send.groups)
        else:
            shown.append(send)
            rendered.append(send)
    joined = b"".join(rendered)
    quiet = silent(groups)
    lost: list[Delivery | LeaseAnswer] = []
    if quiet:
        lost, joined = _without(quiet, shown, rendered)
    if joined:
        connection.write(joined)
    return [*lost, *_leave_by_leaf(broker, connection.leaves, leaving, quiet)] if leaving else lost


def _without(
    quiet: Set[GroupId], shown: list[Send], rendered: list[bytes]
) -> tuple[list[Delivery | LeaseAnswer], bytes]:
    """The sends of groups that must not send, and the frames of the others."""
    lost = [one for one in shown if isinstance(one, Delivery | LeaseAnswer) and not quiet.isdisjoint(_groups(one))]
    left = [data for send, data in zip(shown, rendered, strict=True) if quiet.isdisjoint(_groups(send))]
    return lost, b"".join(left)


def _leave_by_leaf(
    broker: Broker, leaves: Mapping[bytes, LeafPort], sends: list[Delivery | LeafFrames], quiet: Set[GroupId]
) -> list[Delivery]:
    """Write to the leafnode connections, to each as one piece; returns deliveries that did not leave."""
    rendered: dict[bytes, list[bytes]] = {}
    most = broker.view.payload_bytes_max
    for send in sends:
        if quiet and not quiet.isdisjoint(_groups(send)):
            continue
        frames = rendered.setdefault(_user(send), [])
        if isinstance(send, LeafFrames):
            frames.append(send.data)
            continue
        try:
            for part in (send,) if len(send.records) <= most else deliverable(send, most):
                frames += delivery_frames(part)
        except Exception as error:  # noqa: BLE001 - the border of the group
            broker.step_fault(send.group, error)
    written = {user for user, frames in rendered.items() if user in leaves and leaves[user].write(b"".join(frames))}
    if not quiet and len(written) == len(rendered):
        return []
    deliveries = [one for one in sends if isinstance(one, Delivery)]
    return [one for one in deliveries if _user(one) not in written or one.group in quiet]


def _user(send: Delivery | LeafFrames) -> bytes:
    """The user by whose leafnode connection something leaves."""
    if isinstance(send, LeafFrames):
        return send.user
    return b"" if send.leaf is None else send.leaf.user


def _groups(send: Send) -> tuple[GroupId, ...]:
    """Groups of which this node must be the leader to send this; empty if any node may."""
    if isinstance(send, bytes):
        return ()
    return (send.group,) if isinstance(send, Delivery) else send.groups


def delivery_frames(delivery: Delivery) -> Iterator[bytes]:
    """The frames of a delivery to a consumer of JetStream, one piece after the other."""
    parcel = delivery.leaf
    assert parcel is not None  # noqa: S101 - for mypy
    for piece in parcel.pieces:
        first, last = max(piece.first, delivery.first), min(piece.last, delivery.last)
        if first > last:
            continue
        ahead = first - piece.first
        part = piece.to, first, last, piece.consumer_sequence + ahead, piece.pending - ahead
        yield kernel.leaf_frames(
            delivery.records,
            delivery.base_sequence,
            part,
            parcel.ack_prefix,
            delivery.redelivery_count + 1,
            parcel.subject,
            parcel.queue,
            parcel.headers_only,
        )
