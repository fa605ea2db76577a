"""Descriptions of the consumers of streams: what their clients want of them. Their positions are cursors like all others.

A component of the group's machine (see components.py). Promises: a description has a cursor as long as it is there, and goes with
it; a stream has at most STREAM_CONSUMERS_MAX.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple

from stan_protocol.scalars import ChannelUid, WallNanos

from stan.protocol.jetstream.consumers import ConsumerConfig, decode
from stan.protocol.proto import entries_pb2 as pb

CONSUMERS: Final = b"$JS"
"""Client id of all consumers' cursors; no client can be called so."""
UID_BYTES = 4


class Consumer(NamedTuple):
    """The description of one consumer."""

    stream: bytes
    config: ConsumerConfig
    changed: int  # index of the entry of its newest configuration
    created: WallNanos
    subject: bytes  # of all messages of the stream; b"": each has its own, as its key

    def row(self) -> bytes:
        """The description as a row."""
        return pb.Consumer(
            stream=self.stream,
            config=self.config.encoded(),
            changed=self.changed,
            created=self.created,
            subject=self.subject,
        ).SerializeToString()


@dataclass(slots=True)
class Consumers:
    """The descriptions of a group, by channel and name."""

    KIND: ClassVar[str] = "consumers"
    dirty: set[bytes] = field(default_factory=set)
    by_channel: dict[ChannelUid, dict[bytes, Consumer]] = field(default_factory=dict)

    def of(self, uid: ChannelUid) -> Mapping[bytes, Consumer]:
        """The consumers of a channel, by name."""
        return self.by_channel.get(uid, {})

    def put(self, uid: ChannelUid, name: bytes, consumer: Consumer) -> None:
        """Keep a description from now on."""
        self.by_channel.setdefault(uid, {})[name] = consumer
        self.dirty.add(_key(uid, name))

    def remove(self, uid: ChannelUid, name: bytes) -> None:
        """Forget a description, if there is one."""
        of_channel = self.by_channel.get(uid, {})
        if of_channel.pop(name, None) is not None:
            self.dirty.add(_key(uid, name))
            if not of_channel:
                del self.by_channel[uid]

    def drop_channel(self, uid: ChannelUid) -> None:
        """A channel is gone."""
        for name in list(self.of(uid)):
            self.remove(uid, name)

    def keys(self) -> Iterable[bytes]:
        """The keys of all rows."""
        return [_key(uid, name) for uid, of_channel in self.by_channel.items() for name in of_channel]

    def row(self, key: bytes) -> bytes | None:
        """The row of a consumer; None if it is gone."""
        uid, name = _parts(key)
        found = self.of(uid).get(name)
        return None if found is None else found.row()

    def load(self, key: bytes, state: bytes) -> None:
        """Take in one row; only before the first change."""
        uid, name = _parts(key)
        row = pb.Consumer.FromString(state)
        consumer = Consumer(row.stream, decode(row.config), row.changed, WallNanos(row.created), row.subject)
        self.by_channel.setdefault(uid, {})[name] = consumer


def _key(uid: ChannelUid, name: bytes) -> bytes:
    return uid.to_bytes(UID_BYTES, "big") + name


def _parts(key: bytes) -> tuple[ChannelUid, bytes]:
    return ChannelUid(int.from_bytes(key[:UID_BYTES], "big")), key[UID_BYTES:]
