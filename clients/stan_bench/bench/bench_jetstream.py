"""The clients of `stan bench --compare-jetstream`: those of bench_drivers, for a stream of JetStream.

Publishes carry a reply inbox, their acks are counted a read at a time; deliveries of a push consumer are acked a read at a time,
with the reply subjects that one regular expression takes out of it. An ack that is an error ends the run. The stream is there
before they prepare.
"""

import asyncio
import re
from typing import TYPE_CHECKING, Final

from stan_client.errors import ServerError
from stan_client.transport.connection import ClientConnection
from stan_client.transport.session import fresh_id
from stan_protocol.kernel.client import count_raw, raw_publishes

from stan_bench.bench.bench_drivers import ACK_WAIT_S, CONNECT_TIMEOUT_S, LoadDriver, WindowedPublisher
from stan_bench.bench.jetstream_api import JetStreamApi

if TYPE_CHECKING:
    from collections.abc import Callable

ERROR: Final = b'"error"'
"""In an ack that is none; the names of streams here do not have it."""
STATUS: Final = b"NATS/1.0 "
"""Begins the headers of NATS's own answer if no stream takes a publish."""
_DESCRIPTION: Final = re.compile(rb'"description":\s*"([^"]*)"')

ACK: Final = b" 4\r\n+ACK\r\n"
"""Behind `PUB` and the reply subject of a message."""
PLAIN_TOKENS: Final = 9
"""Of the reply subject `$JS.ACK.stream.consumer.delivered.sequence....`; with a domain two more stand before the stream."""


class JetStreamConnection(ClientConnection):
    """A connection that counts the messages of one subscription, and hands on each read of them as it came."""

    def __init__(self) -> None:
        super().__init__()
        self.counted_sid = 0
        self.on_read: Callable[[bytes, int, int], None] = _ignore
        """Takes a read, the size of its whole frames, and how many of them are of the subscription."""

    def handle_data(self, data: bytes) -> int:
        """Count with one call of the kernel; the rest goes the usual way."""
        consumed, count, others = count_raw(data, 0, self.counted_sid)
        if others:
            self.dispatch(others)
        if count:
            self.on_read(data, consumed, count)
        return consumed


class JetStreamDriver(LoadDriver):
    """A driver with a NATS connection, and one subscription that is counted."""

    nats: JetStreamConnection

    async def prepare(self) -> None:
        """Connect and subscribe, and see to it that the server knows."""
        job = self.job
        self.nats = JetStreamConnection()
        await self.nats.open(job.server.split(","), {"name": self.name, **job.nats_options}, CONNECT_TIMEOUT_S)
        self.inbox = f"_INBOX.{fresh_id()}"
        self.nats.on_read = self.on_read
        self.nats.counted_sid = await self.nats.listen(self.inbox, lambda _frames: None)
        await asyncio.sleep(0)  # SUB leaves before the PING of flush
        await self.nats.flush()

    def on_read(self, data: bytes, size: int, count: int) -> None:
        """Take a read with *count* messages of the subscription; its whole frames end at *size*."""
        raise NotImplementedError

    async def leave(self) -> None:
        """Close."""
        await self.nats.shut()


class JetStreamPublishDriver(WindowedPublisher, JetStreamDriver):
    """Publishes to the stream, each message with the inbox of its ack."""

    nats: JetStreamConnection

    async def prepare(self) -> None:
        """Listen to acks."""
        await super().prepare()
        self.begin()
        self.address = f"{self.job.channel} {self.inbox}".encode()

    def encoded(self, count: int) -> bytes:
        """Return the frames of *count* publishes."""
        return raw_publishes(self.address, count, self.data)

    def on_read(self, data: bytes, size: int, count: int) -> None:
        """Count acks; one that is an error ends the run."""
        if data.find(ERROR, 0, size) < 0 and data.find(STATUS, 0, size) < 0:
            self.on_acks(count, 0)
            return
        found = _DESCRIPTION.search(data, 0, size)
        reason = found[1].decode(errors="replace") if found else "no stream takes them"
        self.finish(ServerError(f"JetStream refused publishes of {self.name}: {reason}"))


class JetStreamSubscribeDriver(JetStreamDriver):
    """Counts and acks until it has its messages; time runs from the first to the last."""

    def begin(self) -> None:
        """Nothing has come yet."""
        self.last = 0  # sequence
        size = self.job.size
        self.deliveries = re.compile(rb"MSG \S+ \d+ (\S+) %d\r\n.{%d}\r\n" % (size, size), re.DOTALL)

    async def prepare(self) -> None:
        """Make the consumer; messages in the stream may come at once."""
        self.begin()
        await super().prepare()
        await JetStreamApi(self.nats).create_consumer(
            self.job.channel,
            self.inbox,
            window=self.job.in_flight,
            ack_wait_s=ACK_WAIT_S,
            new_only=self.job.new_only,
        )

    def on_read(self, data: bytes, size: int, count: int) -> None:
        """Ack all messages of a read."""
        replies = self.deliveries.findall(data, 0, size)
        if len(replies) != count:
            self.finish(ServerError(f"JetStream sent {self.name} what is no message of the stream"))
            return
        self.nats.send(b"PUB " + (ACK + b"PUB ").join(replies) + ACK)
        self.received(count - self._redelivered(replies))

    def _redelivered(self, replies: list[bytes]) -> int:
        """Count the messages that were redelivered; a read whose sequences just go on is not looked into."""
        _, first = _place(replies[0])
        _, last = _place(replies[-1])
        if first == self.last + 1 and last == self.last + len(replies):
            self.last = last
            return 0
        repeats = 0
        for delivered, sequence in map(_place, replies):
            if delivered > 1:
                repeats += 1
            else:
                self.out_of_order |= sequence <= self.last
                self.last = sequence
        self.redelivered += repeats
        return repeats


def _place(reply: bytes) -> tuple[int, int]:
    """Of a message, by its reply subject: how often it was delivered, and its sequence in the stream."""
    tokens = reply.split(b".")
    at = 4 if len(tokens) == PLAIN_TOKENS else 6
    return int(tokens[at]), int(tokens[at + 1])


def _ignore(_data: bytes, _size: int, _count: int) -> None:
    """Ignore reads until a driver asks for them."""


DRIVERS: Final[dict[str, type[LoadDriver]]] = {
    "jetstream-pub": JetStreamPublishDriver,
    "jetstream-sub": JetStreamSubscribeDriver,
}
