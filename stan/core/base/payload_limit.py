"""Messages that NATS would take from a publisher and not from us: a MsgProto may be some bytes longer than its PubMsg.

nats-server ends a connection that sends too large a payload, so one such message would cost the broker its connection at each
attempt to deliver it. They are refused when they come; stored ones that no longer fit are left out. Off the hot path: nothing is
looked at while a read holds less than one payload may.
"""

import struct
from collections.abc import Iterator

from stan_protocol.frames import Publishes

from stan.core.base.batch_split import split
from stan.core.base.ready import Delivery

MESSAGE_ROOM = 36
"""Bytes a MsgProto has besides its channel, reply and data: sequence, timestamp, flag and count of a redelivery, lengths."""
FLAG_ROOM = 8
"""Bytes that the flag and the count of a redelivery add to a stored message."""
ERROR_ROOM = 256
"""Bytes an error text may add to a PubAck."""

_LENGTH = struct.Struct("<I")


def split_too_large(batch: Publishes, payload_max: int) -> tuple[Publishes | None, bytes]:
    """What of *batch* can be delivered within *payload_max* (None if nothing), and the prepared acks of the rest."""
    body_max = payload_max - MESSAGE_ROOM - len(batch.channel)
    if len(batch.bodies) <= body_max:
        return batch, b""
    return split(batch, [size <= body_max for size in _sizes(batch.bodies)])


def answerable(acks: bytes, payload_max: int) -> bytes:
    """Those of the prepared *acks* that are within *payload_max* with an error text: a guid may be as long as a message."""
    if len(acks) <= payload_max - ERROR_ROOM:
        return acks
    return b"".join(frame for frame, size in ack_frames(acks) if size <= payload_max - ERROR_ROOM)


def deliverable(delivery: Delivery, payload_max: int) -> list[Delivery]:
    """What of *delivery* NATS still takes: its limit may have been lowered since the messages were stored."""
    if len(delivery.records) <= payload_max:
        return [delivery]
    parts: list[Delivery] = []
    first = delivery.first
    for sequence, size in enumerate(_sizes(delivery.records), delivery.base_sequence):
        if delivery.first <= sequence <= delivery.last and size + FLAG_ROOM > payload_max:
            if sequence > first:
                parts.append(delivery._replace(first=first, last=sequence - 1))
            first = sequence + 1
    if first <= delivery.last:
        parts.append(delivery._replace(first=first))
    return parts


def _sizes(bodies: bytes | memoryview) -> Iterator[int]:
    at = 0
    while at < len(bodies):
        (size,) = _LENGTH.unpack_from(bodies, at)
        yield size
        at += 4 + size


def ack_frames(acks: bytes) -> Iterator[tuple[bytes, int]]:
    """The frames of prepared acks one by one, each with the size of its payload."""
    at = 0
    while at < len(acks):
        line = acks.index(b"\r\n", at)
        size = int(acks[at:line].rpartition(b" ")[2])
        end = line + 2 + size + 2
        yield acks[at:end], size
        at = end
