"""Frames of NATS's leafnode protocol: stored messages as deliveries of a consumer, and messages that tell its state.

    LMSG <to> [+] <ack subject>@<subject> [queue] <size>        without headers
    HMSG <to> [+] <ack subject>@<subject> [queue] <header size> <size>

nats-server hands it to whoever listens to <to>, under <subject>, with the ack subject as the reply.
"""

from itertools import islice
from typing import Final

from stan_protocol.kernel.wire_py import records_in
from stan_protocol.proto import wire_pb2 as wire

from stan.protocol.jetstream import headers

MSG_SIZE: Final = b"Nats-Msg-Size"


def leaf_frames(
    records: bytes | memoryview,
    base_sequence: int,
    piece: tuple[bytes, int, int, int, int],
    ack_prefix: bytes,
    delivered: int,
    subject: bytes,
    queue: bytes,
    headers_only: bool,  # noqa: FBT001 - as the kernel has it
) -> bytes:
    """Frames with messages of one record batch, as far as it has them.

    Args:
        records: as `seal` made them.
        base_sequence: of the first message in *records*.
        piece: to which subject, the first and the last sequence, the number of the first delivery in the consumer's life, and
            how many messages the consumer gets behind the first.
        ack_prefix: `$JS.ACK.<stream>.<consumer>.`.
        delivered: how often each message was delivered, this time included.
        subject: of all messages; b"": each has its subject as its key.
        queue: queue group, one member of which gets each message; b"": none.
        headers_only: the messages go without their data, and a header tells the size of that.

    Raises:
        ValueError: a record that had to be read is cut off.
    """
    to, first, last, number, pending = piece
    data = bytes(records)
    upto = max(0, min(last - base_sequence + 1, len(data)))
    out: list[bytes] = []
    begin, end = (b"+ ", b" " + queue) if queue else (b"", b"")
    for at, (start, stop) in enumerate(islice(records_in(data), upto), base_sequence):
        if at < first:
            continue
        message = wire.MsgProto.FromString(data[start:stop])
        reply = b"%b%d.%d.%d.%d.%d@%b" % (
            ack_prefix,
            delivered,
            at,
            number + at - first,
            message.timestamp,
            max(0, pending - (at - first)),
            subject or message.key or message.subject,
        )
        fields = headers.of_message(message) if message.headers else []
        body = message.data
        if headers_only:
            fields.append((MSG_SIZE, b"%d" % len(body)))
            body = b""
        if fields:
            block = headers.render(fields)
            sizes = b"%d %d" % (len(block), len(block) + len(body))
            out.append(b"HMSG %b %b%b%b %b\r\n%b%b\r\n" % (to, begin, reply, end, sizes, block, body))
        else:
            out.append(b"LMSG %b %b%b%b %d\r\n%b\r\n" % (to, begin, reply, end, len(body), body))
    return b"".join(out)


def status_frame(
    to: bytes, status: bytes, fields: tuple[tuple[bytes, bytes], ...] = (), reply: bytes = b"", queue: bytes = b""
) -> bytes:
    """A frame without data; *status*: code and text of its header."""
    block = headers.render(fields, status)
    named = b""
    if queue:
        named = b" + %b %b" % (reply, queue) if reply else b" | %b" % queue
    elif reply:
        named = b" " + reply
    return b"HMSG %b%b %d %d\r\n%b\r\n" % (to, named, len(block), len(block), block)


def size_of(message: wire.MsgProto, ack_prefix: bytes) -> int:
    """Bytes that a message counts for against the limit of a puller: subject, ack subject, headers and data, about."""
    block = sum(len(header.key) + len(header.value) + 4 for header in message.headers)
    return len(message.key or message.subject) + len(ack_prefix) + 32 + block + len(message.data)
