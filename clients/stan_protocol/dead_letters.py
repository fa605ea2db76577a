"""Dead letters: stored copies of messages that a position has given up, and the headers with their origin. Pure.

A dead letter has the data, reply subject, key and headers of its message, and the headers below. Publishers may write them, too,
as a republished dead letter keeps its headers. So the broker believes them only of messages that it has stored
itself, which have a field that no publish and no row of a request has (`MsgProto.by_broker`). Of publishers it heeds
`stan-schema` (stan_protocol.schemas.kinds) and `stan-delete` (stan_protocol.compaction).
"""

from collections.abc import Iterable, Mapping
from typing import Final

from stan_protocol.proto import wire_pb2 as wire

CHANNEL: Final = b"stan-channel"
"""The channel of the message."""
SEQUENCE: Final = b"stan-sequence"
"""Its sequence there."""
DURABLE: Final = b"stan-durable"
"""Who has given it up: the name of the durable or queue group, of a plain subscription its client id."""
COUNT: Final = b"stan-count"
"""How often it was delivered."""
REASON: Final = b"stan-reason"
"""One of the reasons below."""
ERROR: Final = b"stan-error"
"""The client's text about its last failure with the message."""
PUBLISHED: Final = b"stan-published"
"""When the message was stored, Unix ns."""
REDRIVEN: Final = b"stan-redriven"
"""How often it was put back into its channel."""

EXHAUSTED: Final = b"exhausted"
"""Delivered as often as the policy allows."""
REJECTED: Final = b"rejected"
"""A client has rejected it."""
LATE: Final = b"late"
"""A delayed message that was later than its policy allows."""
TOO_LARGE: Final = b"too-large"
"""NATS takes no payload of its size any more, so that it could not be delivered."""

ADDED: Final = frozenset({CHANNEL, SEQUENCE, DURABLE, COUNT, REASON, ERROR, PUBLISHED})
"""Headers that a dead letter has beyond those of its message."""


def headers_of(message: wire.MsgProto) -> dict[bytes, bytes]:
    """The headers of a message by name; of one that is there twice the last."""
    return {header.key: header.value for header in message.headers}


def number(headers: Mapping[bytes, bytes], name: bytes) -> int:
    """The number in a header; 0 if it is not there or no number."""
    value = headers.get(name, b"")
    return int(value) if value.isdigit() and len(value) < 20 else 0


def origin_of(message: wire.MsgProto) -> bytes:
    """The channel from which the broker has moved a dead letter; b"": the broker has not made it a dead letter."""
    return headers_of(message).get(CHANNEL, b"") if message.by_broker else b""


def redriven(message: wire.MsgProto) -> int:
    """Return how often the broker has put a message back."""
    return number(headers_of(message), REDRIVEN) if message.by_broker else 0


def of_every_letter(channel: bytes, sequence: int, reason: bytes, published: int) -> list[tuple[bytes, bytes]]:
    """The headers of every dead letter; *sequence*: of its message in *channel*, or the id of one that waited for its time."""
    return [(CHANNEL, channel), (SEQUENCE, b"%d" % sequence), (REASON, reason), (PUBLISHED, b"%d" % published)]


def rewrite(message: wire.MsgProto, added: Iterable[tuple[bytes, bytes]], replaced: frozenset[bytes]) -> None:
    """Take the headers *replaced* out of a message, and put *added* ones, the broker's, behind the others."""
    if not message.by_broker:
        replaced |= {REDRIVEN}
    others = [header for header in message.headers if header.key not in replaced]
    message.by_broker = True
    del message.headers[:]
    message.headers.extend(others)
    for name, value in added:
        message.headers.add(key=name, value=value)


def row(message: wire.MsgProto, added: Iterable[tuple[bytes, bytes]], replaced: frozenset[bytes]) -> bytes:
    """Return *message* as a row (stan_protocol.kernel.rows), without the headers in *replaced*, with the *added* ones."""
    made = wire.MsgProto(reply=message.reply, data=message.data, key=message.key, headers=message.headers)
    made.by_broker = message.by_broker
    rewrite(made, added, replaced)
    encoded = made.SerializeToString()
    return len(encoded).to_bytes(4, "little") + encoded
