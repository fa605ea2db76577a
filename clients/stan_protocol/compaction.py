"""Keys and tombstones of stored messages, for compaction and for readers that fold a channel into a table. Pure.

A tombstone is a message with a key, without data and with the header DELETE_HEADER: it deletes its key.
"""

from array import array
from collections.abc import Iterable
from typing import Final, NamedTuple

from stan_protocol.kernel.rows import columns
from stan_protocol.proto import wire_pb2 as wire

DELETE_HEADER: Final = b"stan-delete"
"""A message with a key and no data that has it is a tombstone, whatever its value is."""
LENGTH_BYTES: Final = 4
"""In front of each message of a batch."""


class Keyed(NamedTuple):
    """The keys of the messages of a record batch."""

    keys: list[bytes]  # b"": the message has none
    ends: list[int]  # where in the records each message ends
    tombstones: frozenset[int]  # places of messages that are tombstones


def keyed(records: bytes | memoryview, count: int) -> Keyed:
    """The keys of *count* stored messages. Raises ValueError: these are no such records."""
    parts = columns(records, count, keys=True)
    assert parts.keys is not None  # noqa: S101 - for mypy
    places, names = memoryview(parts.keys[0]).cast("i"), parts.keys[1]
    data = memoryview(parts.data_offsets).cast("i")
    keys = [names[places[at] : places[at + 1]] for at in range(count)] if names else [b""] * count
    view, ends, at = memoryview(records), array("I"), 0
    for _ in range(count):
        at += LENGTH_BYTES + int.from_bytes(view[at : at + LENGTH_BYTES], "little")
        ends.append(at)
    bare = [at for at in range(count) if keys[at] and data[at] == data[at + 1]]
    tombstones = frozenset(
        at for at in bare if is_tombstone(bytes(view[(ends[at - 1] if at else 0) + LENGTH_BYTES : ends[at]]))
    )
    return Keyed(keys, ends.tolist(), tombstones)


def is_tombstone(message: bytes) -> bool:
    """True if an encoded MsgProto deletes its key."""
    if DELETE_HEADER not in message:
        return False
    decoded = wire.MsgProto.FromString(message)
    return deletes(decoded.key, decoded.data, (header.key for header in decoded.headers))


def deletes(key: bytes, data: bytes, headers: Iterable[bytes]) -> bool:
    """True if a message with that key, these data and headers of these names is a tombstone."""
    return bool(key) and not data and DELETE_HEADER in headers
