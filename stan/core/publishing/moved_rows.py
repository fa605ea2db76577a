"""Stored messages as rows to be stored once more in another channel. Pure."""

from stan.protocol.fetches import LENGTH_PREFIX
from stan.protocol.proto import wire_pb2 as wire

_OF_ITS_PLACE = ("sequence", "subject", "timestamp", "redelivered", "redelivery_count", "crc32")
"""Fields of a message that are others in another channel."""


def row_of(message: wire.MsgProto) -> bytes:
    """A message as a row of `RowBatch.bodies`; changes the message."""
    for name in _OF_ITS_PLACE:
        message.ClearField(name)
    body = message.SerializeToString()
    return len(body).to_bytes(LENGTH_PREFIX, "little") + body
