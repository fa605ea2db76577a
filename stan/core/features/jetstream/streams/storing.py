"""Messages published to streams, on the leader of their channels: from NATS messages to stored rows, and PubAcks.

    NATS messages ─► judged one by one ─► rows of one batch ─► Publishing ─► committed ─► PubAcks

Promises: a PubAck without error leaves only after the commit, and names the sequence; messages of one stream are stored in the
order in which they came.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from struct import Struct

from stan_protocol.channels import publication
from stan_protocol.frames import Frame
from stan_protocol.proto import wire_pb2 as wire

from stan.core.metadata.streams import Stream
from stan.core.publishing.live_channel import LiveChannel
from stan.core.publishing.publishing import StoringPart
from stan.core.publishing.row_batch import RowBatch, StoreResult
from stan.protocol.jetstream import headers
from stan.protocol.jetstream.errors import MESSAGE_TOO_LARGE, UNAVAILABLE, ApiError, not_stored
from stan.protocol.jetstream.json_data import encode

_LENGTH = Struct("<I")


@dataclass(slots=True)
class _Batch:
    """Messages of one stream that are stored together."""

    stream: Stream
    rows: list[bytes] = field(default_factory=list)
    replies: list[bytes] = field(default_factory=list)  # of each row; b"": no answer is wanted


class StreamStoring(StoringPart):
    """Stores what is published to the streams of one group, while this node leads it."""

    def store(self, stream: Stream, frames: Iterable[Frame]) -> None:
        """Store the messages in *frames*, in their order."""
        channel = self.channels.by_uid.get(stream.uid)
        batch = _Batch(stream)
        for frame in frames:
            error = UNAVAILABLE if channel is None or channel.closed else self._refusal(stream, frame)
            self.reports.totals.in_messages += 1
            self.reports.totals.in_bytes += len(frame.payload)
            if error is not None:
                self._refuse(stream, frame.reply, error)
            else:
                batch.rows.append(_row(stream, frame))
                batch.replies.append(frame.reply)
        if channel is not None and batch.rows:
            rows = b"".join(batch.rows)
            self.publishing.schemas.rows(channel, rows, len(batch.rows), partial(self._judged, batch, rows))

    def _refusal(self, stream: Stream, frame: Frame) -> ApiError | None:
        """Why a message is not stored; None if it is."""
        size, most = len(frame.payload) + len(frame.header), stream.config.max_msg_size
        if 0 <= most < size or size > self.nats.message_payload_max(stream.channel):
            return MESSAGE_TOO_LARGE
        return None

    def _judged(self, batch: _Batch, rows: bytes, channel: LiveChannel | None, error: str, _retry: bool) -> None:  # noqa: FBT001
        if channel is None:
            self._stored(batch, StoreResult(error=error))
        else:
            self.publishing.add(channel, RowBatch(rows, len(batch.rows), partial(self._stored, batch)))

    def _stored(self, batch: _Batch, stored: StoreResult) -> None:
        """The messages of a batch are stored, or not: answer."""
        name, acks = batch.stream.name, list[bytes]()
        if stored.error:
            for reply in batch.replies:
                self._refuse(batch.stream, reply, not_stored(stored.error))
            return
        for sequence, reply in enumerate(batch.replies, stored.first):
            if reply:
                acks.append(publication(reply, encode({"stream": name, "seq": sequence})))
        if stored.in_memory:
            self.outgoing.answer_as_leader(self.number, b"".join(acks))
        else:
            self.outgoing.pub_acks += acks

    def _refuse(self, stream: Stream, reply: bytes, error: ApiError) -> None:
        """Answer that a message was not stored."""
        if reply:
            told = encode({"error": error.document(), "stream": stream.name, "seq": 0})
            self.outgoing.answer_as_leader(self.number, publication(reply, told))


def _row(stream: Stream, frame: Frame) -> bytes:
    """A message as a row of `RowBatch.bodies`."""
    message = wire.MsgProto(data=frame.payload)
    if frame.header:
        message.headers.extend(headers.stored(headers.parse(frame.header)))
    if not stream.config.is_literal:
        message.key = frame.subject
    body = message.SerializeToString()
    return _LENGTH.pack(len(body)) + body
