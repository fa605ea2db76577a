"""Messages published to streams, on the leader of their channels: from NATS messages to stored rows, and PubAcks.

    NATS messages ─► judged one by one ─► rows of one batch ─► Publishing ─► committed ─► PubAcks
                     (ids and subjects that they name are looked up in the stream's index, which is caught up first)

Promises: a PubAck without error leaves only after the commit, and names the sequence; messages of one stream are stored in the
order in which they came; of the messages with one id, within the duplicate window of the stream, one is stored, and all are
answered with its sequence.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from stan_protocol.channels import publication
from stan_protocol.frames import Frame
from stan_protocol.scalars import ChannelUid

from stan import limits
from stan.core.features.jetstream.streams.judging import InFlight, Judge, asks_index
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
        self._queued_bytes = 0
        self._in_flight: dict[ChannelUid, InFlight] = {}

    def store(self, stream: Stream, frames: Sequence[Frame]) -> None:
        """Store the messages in *frames*, in their order."""
        self.reports.totals.in_messages += len(frames)
        self.reports.totals.in_bytes += sum(len(frame.payload) for frame in frames)
        reading = self.leadership.part(StreamReading)
        if stream.uid in self._queued:
            self._queue(stream, frames)
        elif any(asks_index(stream, frame) for frame in frames) and reading.current(stream) is None:
            self._queue(stream, frames)
            reading.with_index(stream, partial(self._resume, stream.uid))
        else:
            self._store(stream, frames)

    # --- waiting --------------------------------------------------------------------------------------------------------

    def _queue(self, stream: Stream, frames: Iterable[Frame]) -> None:
        queue = self._queued.setdefault(stream.uid, deque())
        for frame in frames:
            size = len(frame.payload) + len(frame.header)
            if self._queued_bytes + size > limits.STREAM_WAITING_BYTES_MAX:
                self._refuse(stream, frame.reply, UNAVAILABLE)
            else:
                self._queued_bytes += size
                queue.append(frame)

    def _resume(self, uid: ChannelUid, index: SubjectIndex | None) -> None:
        """The index is caught up, or cannot be."""
        frames, stream = self._queued.pop(uid, deque()), self.node.meta.streams.by_uid.get(uid)
        self._queued_bytes -= sum(len(frame.payload) + len(frame.header) for frame in frames)
        if stream is None:
            return
        if index is None:
            for frame in frames:
                self._refuse(stream, frame.reply, UNAVAILABLE)
        else:
            self._store(stream, frames)

    # --- storing --------------------------------------------------------------------------------------------------------

    def _store(self, stream: Stream, frames: Iterable[Frame]) -> None:
        channel = self.channels.by_uid.get(stream.uid)
        if channel is None or channel.closed:
            for frame in frames:
                self._refuse(stream, frame.reply, UNAVAILABLE)
            return
        in_flight = self._in_flight.setdefault(stream.uid, InFlight())
        index = self.leadership.part(StreamReading).index(stream.uid)
        batch = _Batch(stream, channel.next_sequence + channel.unsealed.count)
        room = self.channels.policies.room_of(channel.info)
        judge = Judge(self._services, stream, channel, room, index, in_flight)
        for frame in frames:
            self._judge(judge, batch, frame)
        if not batch.rows:
            return
        in_flight.count += len(batch.rows)
        rows = b"".join([row.body for row in batch.rows])
        judged: list[bool] = []
        self.publishing.schemas.rows(channel, rows, len(batch.rows), partial(self._add, batch, rows, judged))
        if not judged:  # what comes meanwhile waits behind them
            self._queued.setdefault(stream.uid, deque())

    def _judge(self, judge: Judge, batch: _Batch, frame: Frame) -> None:
        """Take a message into the batch, or answer it now."""
        sequence = batch.first + len(batch.rows)
        verdict = judge.judge(frame, sequence, len(batch.rows))
        if isinstance(verdict, ApiError):
            self._refuse(batch.stream, frame.reply, verdict)
        elif verdict.duplicate_of:
            self._acknowledge(batch.stream, [(frame.reply, verdict.duplicate_of, True)])
        elif not verdict.waits:
            batch.rows.append(Row(verdict.body, frame.reply, frame.subject, verdict.message_id, verdict.checked))
            batch.replaced.update(verdict.replaces)
            if verdict.rollup:
                batch.rollup = sequence

    def _add(
        self,
        batch: _Batch,
        rows: bytes,
        judged: list[bool],
        channel: LiveChannel | None,
        error: str,
        _retry: bool,  # noqa: FBT001
    ) -> None:
        judged.append(True)
        if channel is None:
            self._stored(batch, StoreResult(error=error))
        else:
            change = partial(self._rollup, batch) if batch.rollup or batch.replaced else None
            self.publishing.add(channel, RowBatch(rows, len(batch.rows), partial(self._stored, batch), change))
        if batch.stream.uid in self._queued:
            reading = self.leadership.part(StreamReading)
            reading.with_index(batch.stream, partial(self._resume, batch.stream.uid))

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
                    self._refuse(stream, reply, not_stored(stored.error))
                continue
            if not row.checked or stored.first == batch.first:  # else nobody knows if it should have been stored
                acks.append((row.reply, sequence, False))
            acks += ((reply, sequence, True) for reply in also)
        if not in_flight.count:
            del self._in_flight[uid]
        self._acknowledge(stream, acks, in_memory=stored.in_memory)

    def _acknowledge(self, stream: Stream, acks: Iterable[tuple[bytes, int, bool]], *, in_memory: bool = False) -> None:
        """Answer messages that are stored: the reply subject, the sequence, and whether it was stored before."""
        begins = encode({"stream": stream.name})[:-1]
        told = b"".join(
            [
                publication(reply, b'%b,"seq":%d%b}' % (begins, sequence, b',"duplicate":true' if again else b""))
                for reply, sequence, again in acks
                if reply
            ]
        )
        if told and in_memory:
            self.outgoing.answer_as_leader(self.number, told)
        elif told:
            self.outgoing.pub_acks.append(told)

    def _refuse(self, stream: Stream, reply: bytes, error: ApiError) -> None:
        """Answer that a message was not stored."""
        if reply:
            told = encode({"error": error.document(), "stream": stream.name, "seq": 0})
            self.outgoing.answer_as_leader(self.number, publication(reply, told))
