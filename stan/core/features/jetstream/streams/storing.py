"""Messages published to streams, on the leader of their channels: from NATS messages to stored rows, and PubAcks.

    batches of the scan ─► nothing against any of them? ─► rows ─► Publishing ─► committed ─► PubAcks, by the kernel
    NATS messages, and those of other batches ─► judged one by one ─► rows of one batch ─► Publishing ─► committed ─► PubAcks
                     (ids and subjects that they name are looked up in the stream's index, which is caught up first)

Promises: a PubAck without error leaves only after the commit, and names the sequence; messages of one stream are stored in the
order in which they came; of the messages with one id, within the duplicate window of the stream, one is stored, and all are
answered with its sequence.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import groupby

from stan_protocol.channels import publication
from stan_protocol.frames import Frame, StreamMessages
from stan_protocol.scalars import ChannelUid

from stan import limits
from stan.core.base.shares import Shares
from stan.core.features.jetstream.streams.batches import Arrived, BatchInFlight, publisher_of, replies_of, singly
from stan.core.features.jetstream.streams.judging import NOT_SCHEDULED, InFlight, Judge, asks_index
from stan.core.features.jetstream.streams.reading import StreamReading
from stan.core.features.jetstream.streams.subjects import SubjectIndex, runs_of
from stan.core.leader.local_group import Leadership
from stan.core.metadata.streams import Stream
from stan.core.publishing.channels import LiveChannels
from stan.core.publishing.live_channel import LiveChannel
from stan.core.publishing.publishing import Publishing, StoringPart
from stan.core.publishing.row_batch import RowBatch, StoreResult
from stan.core.services.services import Services
from stan.protocol.jetstream.errors import UNAVAILABLE, ApiError, not_stored
from stan.protocol.jetstream.json_data import encode
from stan.protocol.kernel import server as kernel
from stan.protocol.proto import entries_pb2 as pb


@dataclass(slots=True)
class Row:
    """A message that is to be stored."""

    body: bytes  # with its length before it
    reply: bytes  # b"": no answer is wanted
    subject: bytes
    message_id: bytes
    checked: bool  # against the sequence that it gets, if nothing fails before


@dataclass(slots=True)
class _Batch:
    """Messages of one stream that are stored together."""

    stream: Stream
    first: int  # the sequence of the first one, if nothing fails before
    rows: list[Row] = field(default_factory=list)
    rollup: int = 0  # everything below this sequence goes with the batch; 0: nothing does
    replaced: set[int] = field(default_factory=set)  # messages that go with it
    # Messages that are schedules or end them: the place of each among the rows, when it is due, its subject.
    scheduled: list[tuple[int, int, bytes]] = field(default_factory=list)


class StreamStoring(StoringPart):
    """Stores publishes to the streams of one group, while this node leads it."""

    def __init__(
        self, services: Services, leadership: Leadership, channels: LiveChannels, publishing: Publishing
    ) -> None:
        super().__init__(services, leadership, channels, publishing)
        self._services = services
        self._queued: dict[
            ChannelUid, deque[Frame]
        ] = {}  # of streams whose messages wait for an index, or for a schema
        self._queued_bytes = Shares()
        self._in_flight: dict[ChannelUid, InFlight] = {}

    def is_in_flight(self, uid: ChannelUid, subject: bytes) -> bool:
        """True if messages of a subject are on their way into a stream."""
        found = self._in_flight.get(uid)
        return found is not None and found.newest(subject) > 0

    def store(self, stream: Stream, arrived: Sequence[Arrived]) -> None:
        """Store the messages that have arrived, in their order."""
        self._count(arrived)
        reading = self.leadership.part(StreamReading)
        if stream.uid in self._queued:
            self._queue(stream, singly(arrived))
        elif any(asks_index(stream, one) for one in arrived) and reading.current(stream) is None:
            self._queue(stream, singly(arrived))
            reading.with_index(stream, partial(self._resume, stream.uid))
        else:
            self._store(stream, arrived)

    def store_batch(self, stream: Stream, messages: StreamMessages) -> None:
        """Store a batch that has arrived, behind all that came before."""
        channel = self.channels.by_uid.get(stream.uid)
        if asks_index(stream, messages) or stream.uid in self._queued or channel is None or channel.closed:
            self.store(stream, [messages])
        else:
            totals = self.reports.totals
            totals.in_messages += messages.count
            totals.in_bytes += messages.payload_bytes
            self._store_batch(stream, channel, messages)

    def others_come(self, uid: ChannelUid) -> bool:
        """True if messages are on their way that were not published to the stream, but to its channel."""
        channel = self.channels.by_uid.get(uid)
        if channel is None:
            return False
        own = self._in_flight[uid].count if uid in self._in_flight else 0
        last = self.stored.indexes(self.number, uid).last_sequence
        return channel.next_sequence + channel.unsealed.count - 1 - last > own

    def _count(self, arrived: Sequence[Arrived]) -> None:
        totals = self.reports.totals
        for one in arrived:
            if isinstance(one, Frame):
                totals.in_messages += 1
                totals.in_bytes += len(one.payload)
            else:
                totals.in_messages += one.count
                totals.in_bytes += one.payload_bytes

    # --- waiting --------------------------------------------------------------------------------------------------------

    def _queue(self, stream: Stream, frames: Iterable[Frame]) -> None:
        queue = self._queued.setdefault(stream.uid, deque())
        for frame in frames:
            user, size = publisher_of(frame), _size(frame)
            if size > self._queued_bytes.left(user, limits.STREAM_WAITING_BYTES_MAX):
                self.refuse(stream, frame.reply, UNAVAILABLE)
            else:
                self._queued_bytes.add(user, size)
                queue.append(frame)

    def _resume(self, uid: ChannelUid, index: SubjectIndex | None) -> None:
        """The index is caught up, or cannot be."""
        frames, stream = self._queued.pop(uid, deque()), self.node.meta.streams.by_uid.get(uid)
        for frame in frames:
            self._queued_bytes.add(publisher_of(frame), -_size(frame))
        if stream is None:
            return
        if index is None:
            for frame in frames:
                self.refuse(stream, frame.reply, UNAVAILABLE)
        else:
            self._store(stream, frames)

    # --- storing --------------------------------------------------------------------------------------------------------

    def _store(self, stream: Stream, arrived: Iterable[Arrived]) -> None:
        channel = self.channels.by_uid.get(stream.uid)
        if channel is None or channel.closed:
            for frame in singly(arrived):
                self.refuse(stream, frame.reply, UNAVAILABLE)
            return
        for are_frames, some in groupby(arrived, lambda one: isinstance(one, Frame)):
            if stream.uid in self._queued:  # a part before waits for its schema
                self._queue(stream, singly(some))
            elif are_frames:
                self._store_singly(stream, channel, singly(some))
            else:
                self._store_batches(stream, channel, some)

    def _store_batches(self, stream: Stream, channel: LiveChannel, batches: Iterable[Arrived]) -> None:
        """Store batches, each as it is if nothing stands against it."""
        for messages in batches:
            if stream.uid in self._queued:
                self._queue(stream, singly((messages,)))
            elif isinstance(messages, Frame):
                self._store_singly(stream, channel, (messages,))
            else:
                self._store_batch(stream, channel, messages)

    def _store_batch(self, stream: Stream, channel: LiveChannel, messages: StreamMessages) -> None:
        """Store a batch as it is if nothing stands against it."""
        uid, first = stream.uid, channel.next_sequence + channel.unsealed.count
        in_flight = self._in_flight.get(uid) or self._in_flight.setdefault(uid, InFlight())
        index = self.leadership.part(StreamReading).index(uid)
        judge = Judge(self._services, stream, channel, self.channels.policies, index, in_flight)
        if not judge.lets_through(messages, first):
            self._store_singly(stream, channel, singly((messages,)))
            return
        done = partial(self._stored_batch, stream, in_flight.begin_batch(first, messages))
        rows = RowBatch(messages.bodies, messages.count, done, lasting=True)
        if uid in self.channels.policies.schemas:
            self._check(stream, channel, rows)
        else:
            self.publishing.add(channel, rows)

    def _store_singly(self, stream: Stream, channel: LiveChannel, frames: Iterable[Frame]) -> None:
        """Store messages that are judged one by one."""
        in_flight = self._in_flight.setdefault(stream.uid, InFlight())
        index = self.leadership.part(StreamReading).index(stream.uid)
        batch = _Batch(stream, channel.next_sequence + channel.unsealed.count)
        judge = Judge(self._services, stream, channel, self.channels.policies, index, in_flight)
        for frame in frames:
            self._judge(judge, batch, frame)
        if not batch.rows:
            return
        in_flight.count += len(batch.rows)
        change = partial(self._rollup, batch) if batch.rollup or batch.replaced else None
        bodies = b"".join([row.body for row in batch.rows])
        rows = RowBatch(bodies, len(batch.rows), partial(self._stored, batch), change)
        if batch.scheduled:
            rows.scheduled = partial(_scheduled, batch)
        self._check(stream, channel, rows)

    def _check(self, stream: Stream, channel: LiveChannel, rows: RowBatch) -> None:
        """Store rows if the schema of the channel has nothing against them."""
        judged: list[bool] = []
        self.publishing.schemas.rows(channel, rows.bodies, rows.count, partial(self._add, stream, rows, judged))
        if not judged:  # what comes meanwhile waits behind them
            self._queued.setdefault(stream.uid, deque())

    def _judge(self, judge: Judge, batch: _Batch, frame: Frame) -> None:
        """Take a message into the batch, or answer it now."""
        sequence = batch.first + len(batch.rows)
        verdict = judge.judge(frame, sequence, len(batch.rows))
        if isinstance(verdict, ApiError):
            self.refuse(batch.stream, frame.reply, verdict)
        elif verdict.duplicate_of:
            self._acknowledge(batch.stream, [(frame.reply, verdict.duplicate_of, True)])
        elif not verdict.waits:
            if verdict.due != NOT_SCHEDULED:
                batch.scheduled.append((len(batch.rows), verdict.due, frame.subject))
            batch.rows.append(Row(verdict.body, frame.reply, frame.subject, verdict.message_id, verdict.checked))
            batch.replaced.update(verdict.replaces)
            if verdict.rollup:
                batch.rollup = sequence

    def _add(
        self,
        stream: Stream,
        rows: RowBatch,
        judged: list[bool],
        channel: LiveChannel | None,
        error: str,
        _retry: bool,  # noqa: FBT001
    ) -> None:
        judged.append(True)
        if channel is None:
            rows.on_done(StoreResult(error=error))
        else:
            self.publishing.add(channel, rows)
        if stream.uid in self._queued:
            self.leadership.part(StreamReading).with_index(stream, partial(self._resume, stream.uid))

    def _rollup(self, batch: _Batch, first: int) -> bytes:
        """The change that removes what a message of a batch takes the place of. *first*: the first sequence of the batch."""
        below = first + batch.rollup - batch.first if batch.rollup else 0
        runs = runs_of(sorted(one for one in batch.replaced if one >= below))
        removal = pb.Removal(uid=batch.stream.uid, first_sequence=below, deleted=[end for run in runs for end in run])
        change = pb.GroupChange(
            removal=self.channels.policies.tiers.tell(removal), at=self.node.clock.wall, node=self.node.name.encode()
        )
        return change.SerializeToString()

    # --- outcome --------------------------------------------------------------------------------------------------------

    def _stored(self, batch: _Batch, stored: StoreResult) -> None:
        """The messages of a batch are stored, or not: answer."""
        uid, stream = batch.stream.uid, batch.stream
        in_flight = self._in_flight[uid]
        in_flight.count -= len(batch.rows)
        acks: list[tuple[bytes, int, bool]] = []
        for place, row in enumerate(batch.rows):
            sequence = stored.first + place if not stored.error else 0
            also = in_flight.end(row.subject, row.message_id, batch.first + place)
            if stored.error:
                for reply in (row.reply, *also):
                    self.refuse(stream, reply, not_stored(stored.error))
                continue
            if not row.checked or stored.first == batch.first:  # else nobody knows if it should have been stored
                acks.append((row.reply, sequence, False))
            acks += ((reply, sequence, True) for reply in also)
        if not in_flight.count:
            del self._in_flight[uid]
        self._acknowledge(stream, acks, in_memory=stored.in_memory)

    def _stored_batch(self, stream: Stream, batch: BatchInFlight, stored: StoreResult) -> None:
        """A batch is stored, or not: answer."""
        in_flight = self._in_flight[stream.uid]
        again = in_flight.end_batch(batch)
        if not in_flight.count:
            del self._in_flight[stream.uid]
        if stored.error:
            for reply in (*replies_of(batch.messages), *(reply for _, reply in again)):
                self.refuse(stream, reply, not_stored(stored.error))
            return
        if batch.messages.replies and not stream.config.no_ack:
            told = kernel.stream_acks(batch.messages.replies, _ack_begins(stream.name), stored.first)
            self._send(told, in_memory=stored.in_memory)
        if again:
            repeated = [(reply, stored.first + at, True) for at, reply in again]
            self._acknowledge(stream, repeated, in_memory=stored.in_memory)

    def _acknowledge(self, stream: Stream, acks: Iterable[tuple[bytes, int, bool]], *, in_memory: bool = False) -> None:
        """Answer messages that are stored: the reply subject, the sequence, and whether it was stored before."""
        if stream.config.no_ack:
            return
        begins = _ack_begins(stream.name)
        told = b"".join(
            [
                publication(reply, b'%b,"seq":%d%b}' % (begins, sequence, b',"duplicate":true' if again else b""))
                for reply, sequence, again in acks
                if reply
            ]
        )
        if told:
            self._send(told, in_memory=in_memory)

    def _send(self, pub_acks: bytes, *, in_memory: bool) -> None:
        if in_memory:
            self.outgoing.answer_as_leader(self.number, pub_acks)
        else:
            self.outgoing.pub_acks.append(pub_acks)

    def refuse(self, stream: Stream, reply: bytes, error: ApiError) -> None:
        """Answer that a message was not stored."""
        if reply and not stream.config.no_ack:
            told = encode({"error": error.document(), "stream": stream.name, "seq": 0})
            self.outgoing.answer_as_leader(self.number, publication(reply, told))


def _scheduled(batch: _Batch, first: int) -> bytes:
    """The change that lists the schedules of a batch. *first*: the first sequence of the batch."""
    places, dues, subjects = zip(*batch.scheduled, strict=True)
    sequences = [first + place for place in places]
    change = pb.Scheduled(uid=batch.stream.uid, sequences=sequences, dues=dues, subjects=subjects)
    return pb.GroupChange(scheduled=change).SerializeToString()


def _size(frame: Frame) -> int:
    """Bytes that a message takes while it waits."""
    return len(frame.subject) + len(frame.reply) + len(frame.header) + len(frame.payload)


@lru_cache(limits.STREAMS_MAX)
def _ack_begins(name: str) -> bytes:
    """How the PubAcks of a stream begin."""
    return encode({"stream": name})[:-1]
