"""The clients of `stan bench`, built on the client kernel: a Python client that touches every message cannot load a broker.

Publishes are encoded many at a time and windowed by their acks; deliveries are counted and acked a read at a time. Each
driver has its own connection and, unless raw, its own registration. Never decodes a payload, and never retries: a refusal
ends the run.
"""

import asyncio
import contextlib
import json
import time
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from stan_client.errors import ServerError, StanClientError, SubscribeRequestTimeoutError
from stan_client.positions import everything, new_only
from stan_client.transport.connection import ClientConnection
from stan_client.transport.session import Session, SessionOptions, fresh_id, text_of
from stan_protocol.frames import Frame
from stan_protocol.kernel.client import absorb, count_raw, load_publishes, raw_publishes
from stan_protocol.proto import wire_pb2 as wire

from stan_bench.bench.bench_report import Latencies, Measurement, add_latency

if TYPE_CHECKING:
    from collections.abc import Callable
BLOB_MESSAGES_MAX: Final = 1000
BLOB_BYTES_MAX: Final = 1024 * 1024
"""Messages and payload bytes encoded at once."""

ACK_WAIT_S: Final = 30
CONNECT_TIMEOUT_S: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The job of one load process."""

    role: str  # one of DRIVERS of bench_drivers, bench_python or bench_jetstream
    names: list[str]  # client ids (raw: labels), one client each
    counts: list[int]  # messages of each
    channel: str  # of JetStream: the stream, which is its subject, too
    size: int  # payload bytes
    server: str
    cluster_id: str
    nats_options: dict[str, Any] = field(default_factory=dict)
    window: int = 1000  # pub: publishes without ack
    in_flight: int = 1024  # sub: max_in_flight
    new_only: bool = False  # sub: ignore the messages in the channel
    replica: str = ""  # sub: node besides the leader that may serve it

    def to_json(self) -> str:
        """Return the job as one line."""
        return json.dumps(asdict(self))


class LoadConnection(ClientConnection):
    """A connection whose reads are counted, not dispatched."""

    def __init__(self) -> None:
        super().__init__()
        self.ack_sid = 0  # subscription of the publish acks
        self.inboxes: dict[int, tuple[bytes, bytes]] = {}  # subscription of messages -> ack inbox, channel
        self.on_acks: Callable[[int, int], None] = _ignore  # takes acks and refusals of one read
        self.on_messages: Callable[[int, int, int, int, bool], None] = _ignore  # takes a tally of the kernel

    def handle_data(self, data: bytes) -> int:
        """Count and ack with one call of the kernel; the rest goes the usual way."""
        consumed, good, bad, tallies, acks, others = absorb(data, 0, self.ack_sid, self.inboxes)
        if acks:
            self.send(acks)
        if others:
            self.dispatch(others)
        if good or bad:
            self.on_acks(good, bad)
        for tally in tallies.values():
            self.on_messages(*tally)
        return consumed


class RawConnection(ClientConnection):
    """A connection that counts the messages of one plain NATS subscription."""

    def __init__(self) -> None:
        super().__init__()
        self.raw_sid = 0
        self.on_messages: Callable[[int], None] = _ignore

    def handle_data(self, data: bytes) -> int:
        """Count with one call of the kernel."""
        consumed, count, others = count_raw(data, 0, self.raw_sid)
        if others:
            self.dispatch(others)
        if count:
            self.on_messages(count)
        return consumed


class LoadDriver:
    """A client under load; `run` ends when it has done its messages."""

    def __init__(self, job: Job, number: int) -> None:
        self.job = job
        self.name = job.names[number]
        self.count = job.counts[number]
        self.done = 0  # messages acked or received
        self.began_ns = self.ended_ns = 0
        self.redelivered = 0
        self.out_of_order = False
        self.latencies: Latencies = {}
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def sample(self) -> Measurement:
        """Return the figures of its work."""
        return Measurement(
            name=self.name,
            messages=self.done,
            size=self.job.size,
            began_ns=self.began_ns,
            ended_ns=self.ended_ns,
            redelivered=self.redelivered,
            out_of_order=self.out_of_order,
            latencies=self.latencies,
        )

    def received(self, messages: int) -> None:
        """Count messages; time runs from the first to the last, with which `run` ends."""
        now = time.monotonic_ns()
        self.began_ns = self.began_ns or now
        self.done += messages
        if self.done >= self.count:
            self.ended_ns = now
            self.finish()

    def finish(self, error: Exception | None = None) -> None:
        """End `run`."""
        if not self.finished.done():
            if error is None:
                self.finished.set_result(None)
            else:
                self.finished.set_exception(error)

    async def prepare(self) -> None:
        """Connect; nothing is measured yet."""
        raise NotImplementedError

    async def run(self) -> None:
        """Do the job; the callbacks do all of it unless a driver has more to do."""
        await self.finished

    async def leave(self) -> None:
        """Undo prepare()."""
        raise NotImplementedError


class StanDriver(LoadDriver):
    """A driver with a STAN session."""

    nats: LoadConnection

    async def prepare(self) -> None:
        """Connect and register."""
        job = self.job
        self.nats = LoadConnection()
        await self.nats.open(job.server.split(","), {"name": self.name, **job.nats_options}, CONNECT_TIMEOUT_S)
        options = SessionOptions(cluster_id=job.cluster_id, client_id=self.name, connect_timeout_s=CONNECT_TIMEOUT_S)
        self.session = Session(self.nats, options, lambda _session, error: self.finish(error))
        await self.session.open()

    async def leave(self) -> None:
        """Close the session and the connection."""
        with contextlib.suppress(StanClientError):
            await self.session.close()
        await self.nats.shut()


class WindowedPublisher(LoadDriver):
    """Keeps `window` publishes without ack on their way; a subclass has the connection, and encodes the publishes."""

    nats: ClientConnection

    def begin(self) -> None:
        """Nothing is sent yet."""
        self.sent = self.refused = 0
        self.blobs: deque[tuple[int, int, int]] = deque()  # messages sent up to its end, its messages, time
        self.blob_max = max(1, min(BLOB_MESSAGES_MAX, BLOB_BYTES_MAX // max(self.job.size, 1)))
        self.data = bytes(self.job.size)

    def encoded(self, count: int) -> bytes:
        """Return the frames of the next *count* publishes."""
        raise NotImplementedError

    async def run(self) -> None:
        """Send the first window; every ack sends more."""
        self.began_ns = time.monotonic_ns()
        self.send()
        await self.finished

    def send(self) -> None:
        """Fill the window."""
        room = min(self.job.window - (self.sent - self.done - self.refused), self.count - self.sent)
        while room > 0:
            blob = min(room, self.blob_max)
            self.nats.send(self.encoded(blob))
            self.sent += blob
            self.blobs.append((self.sent, blob, time.monotonic_ns()))
            room -= blob

    def on_acks(self, good: int, bad: int) -> None:
        """Count the acks of one read, in the order of the publishes; a new leader may repeat acks of the last one."""
        now = time.monotonic_ns()
        self.refused += bad
        self.done = min(self.done + good, self.sent - self.refused)
        settled = self.done + self.refused
        while self.blobs and self.blobs[0][0] <= settled:
            _, messages, sent_ns = self.blobs.popleft()
            add_latency(self.latencies, now - sent_ns, messages)
        if self.refused:
            self.finish(ServerError(f"the server refused {self.refused} publishes of {self.name}"))
        elif settled == self.count:
            self.ended_ns = now
            self.finish()
        else:
            self.send()


class PublishDriver(WindowedPublisher, StanDriver):
    """Publishes to a STAN channel."""

    nats: LoadConnection

    async def prepare(self) -> None:
        """Listen to acks."""
        await super().prepare()
        self.begin()
        self.ack_inbox = f"_STAN.acks.{fresh_id()}"
        self.nats.ack_sid = await self.nats.listen(self.ack_inbox, lambda _frames: None)
        self.nats.on_acks = self.on_acks
        channel = self.job.channel.encode()
        self.address = (
            self.session.answer.pub_prefix + b"." + channel,
            self.ack_inbox.encode(),
            self.name.encode(),
            channel,
            self.session.conn_id,
            fresh_id().encode(),
        )

    def encoded(self, count: int) -> bytes:
        """Return the frames of the next *count* publishes."""
        return load_publishes(*self.address, self.sent, count, self.data)


class SubscribeDriver(StanDriver):
    """Counts and acks until it has its messages; time runs from the first to the last."""

    async def prepare(self) -> None:
        """Subscribe; messages in the channel may come at once."""
        await super().prepare()
        job, session = self.job, self.session
        self.nats.on_messages = self.on_messages
        self.last = 0
        inbox = f"_INBOX.{fresh_id()}"
        self.early: list[Frame] = []
        sid = await self.nats.listen(inbox, self.early.extend)
        start = new_only() if job.new_only else everything()
        request = wire.SubscriptionRequest(
            client_id=self.name.encode(),
            subject=job.channel.encode(),
            inbox=inbox.encode(),
            max_in_flight=job.in_flight,
            ack_wait_s=ACK_WAIT_S,
            start_position=start.position,
            replica=job.replica.encode(),
        )
        payload = await session.request(
            session.answer.sub_requests, request.SerializeToString(), SubscribeRequestTimeoutError
        )
        response = wire.SubscriptionResponse.FromString(payload)
        if response.error:
            raise ServerError(text_of(response.error))
        self.nats.inboxes[sid] = (response.ack_inbox, job.channel.encode())
        if self.early:
            self.nats.handle_data(b"".join(_as_read(frame) for frame in self.early))

    def on_messages(self, count: int, first: int, last: int, redelivered: int, in_order: bool) -> None:  # noqa: FBT001
        """Messages of one read."""
        self.redelivered += redelivered
        if first:
            self.out_of_order |= not in_order or first <= self.last
            self.last = last
        self.received(count - redelivered)


class RawPublishDriver(LoadDriver):
    """Publishes to a plain NATS subject as fast as the socket takes it."""

    async def prepare(self) -> None:
        """Connect."""
        self.nats = ClientConnection()
        await self.nats.open(self.job.server.split(","), self.job.nats_options, CONNECT_TIMEOUT_S)

    async def run(self) -> None:
        """Publish until the server has read the last message."""
        self.began_ns = time.monotonic_ns()
        data, subject = bytes(self.job.size), self.job.channel.encode()
        blob_max = max(1, min(BLOB_MESSAGES_MAX, BLOB_BYTES_MAX // max(self.job.size, 1)))
        while self.done < self.count:
            blob = min(blob_max, self.count - self.done)
            self.nats.send(raw_publishes(subject, blob, data))
            self.done += blob
            await asyncio.sleep(0)
            await self.nats.drained()
        await self.nats.flush(timeout=60)
        self.ended_ns = time.monotonic_ns()

    async def leave(self) -> None:
        """Close."""
        await self.nats.shut()


class RawSubscribeDriver(LoadDriver):
    """Counts the messages of a plain NATS subject."""

    async def prepare(self) -> None:
        """Subscribe, and see to it that the server knows."""
        self.nats = nats = RawConnection()
        await nats.open(self.job.server.split(","), self.job.nats_options, CONNECT_TIMEOUT_S)
        nats.on_messages = self.received
        nats.raw_sid = await nats.listen(self.job.channel, lambda _frames: None)
        await asyncio.sleep(0)  # SUB leaves before the PING of flush
        await nats.flush()

    async def leave(self) -> None:
        """Close."""
        await self.nats.shut()


def _ignore(*_numbers: object) -> None:
    """Ignore figures until a driver asks for them."""


def _as_read(frame: Frame) -> bytes:
    return b"MSG %b %d %d\r\n%b\r\n" % (frame.subject, frame.sid, len(frame.payload), frame.payload)


DRIVERS: Final[dict[str, type[LoadDriver]]] = {
    "pub": PublishDriver,
    "sub": SubscribeDriver,
    "rawpub": RawPublishDriver,
    "rawsub": RawSubscribeDriver,
}
