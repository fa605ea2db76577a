"""A NATS Streaming Server's FILE store, written by the rules of STAN-SPEC 8.5: to be read, damaged and measured."""

import zlib
from pathlib import Path
from struct import Struct

from stan_protocol.kernel.wire_py import number, text, varint

FIXTURES = Path(__file__).parents[1] / "fixtures"
PLAIN, ENCRYPTED = FIXTURES / "stan-filestore", FIXTURES / "stan-filestore-aes"
KEY = b"example-key"
VERSION = b"\1\0\0\0"
INDEX = Struct("<QQqI")
HEADER = Struct("<II")
EPOCH = 1_700_000_000_000_000_000


def record(payload: bytes, kind: int = 0) -> bytes:
    """One record of a file."""
    return HEADER.pack(kind << 24 | len(payload), zlib.crc32(payload)) + payload


def message(channel: bytes, sequence: int, data: bytes, timestamp: int, reply: bytes = b"") -> bytes:
    """A MsgProto as the original encodes it."""
    return number(1, sequence) + text(2, channel) + text(3, reply) + text(4, data) + number(5, timestamp)


def write_slice(directory: Path, slice_number: int, messages: list[bytes], first: int, timestamps: list[int]) -> None:
    """One slice with its index; the messages have consecutive sequences from *first* on."""
    directory.mkdir(parents=True, exist_ok=True)
    data, index = [VERSION], [VERSION]
    at = len(VERSION)
    for place, payload in enumerate(messages):
        entry = INDEX.pack(first + place, at, timestamps[place], len(payload))
        index.append(entry + zlib.crc32(entry).to_bytes(4, "little"))
        data.append(record(payload))
        at += len(data[-1])
    (directory / f"msgs.{slice_number}.dat").write_bytes(b"".join(data))
    (directory / f"msgs.{slice_number}.idx").write_bytes(b"".join(index))


def write_server(directory: Path, cluster_id: bytes = b"test-cluster", node_id: bytes = b"") -> None:
    """Write the server's identity; *node_id*: of a node of a cluster."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "server.dat").write_bytes(
        VERSION + record(text(1, cluster_id) + (text(9, node_id) if node_id else b""))
    )
    (directory / "clients.dat").write_bytes(VERSION)


def write_subscriptions(directory: Path, *records: bytes) -> None:
    """The subscriptions of a channel."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "subs.dat").write_bytes(VERSION + b"".join(records))


def durable(subscription: int, client: bytes, name: bytes, last_sent: int = 0) -> bytes:
    """A record that makes a durable."""
    told = number(1, subscription) + text(2, client) + text(4, b"_INBOX.x") + number(6, 10) + number(7, 30)
    return record(told + text(8, name) + number(9, last_sent) + number(10, 1), 1)


def sent(subscription: int, sequence: int) -> bytes:
    """A record of a message that was sent."""
    return record(number(1, subscription) + number(2, sequence), 5)


def acked(subscription: int, sequence: int) -> bytes:
    """A record of an ack."""
    return record(number(1, subscription) + number(2, sequence), 4)


def write_many(directory: Path, channel: bytes, count: int, payload: bytes, per_slice: int, step: int) -> None:
    """*count* messages, *step* nanoseconds apart, in slices; quick enough for millions."""
    write_server(directory)
    middle = text(2, channel) + text(4, payload) + b"\x28"
    for slice_number, first in enumerate(range(1, count + 1, per_slice), 1):
        sequences = range(first, min(first + per_slice, count + 1))
        timestamps = [EPOCH + sequence * step for sequence in sequences]
        messages = [
            b"\x08" + varint(sequence) + middle + varint(time)
            for sequence, time in zip(sequences, timestamps, strict=True)
        ]
        write_slice(directory / channel.decode(), slice_number, messages, first, timestamps)
