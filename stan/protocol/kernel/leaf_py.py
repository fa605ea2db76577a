"""Stored messages as deliveries of a consumer of JetStream, in frames of NATS's leafnode protocol: the plain twin.

    LMSG <to> [+] <ack subject>@<subject> [queue] <size>               without headers
    HMSG <to> [+] <ack subject>@<subject> [queue] <header size> <size>

nats-server hands it to the listeners of <to>, under <subject>, with the ack subject as the reply.
"""

from itertools import islice
from typing import Final

from google.protobuf.message import DecodeError
from stan_protocol.kernel.wire_py import records_in
from stan_protocol.proto import wire_pb2 as wire

MSG_SIZE: Final = b"Nats-Msg-Size"
_PLAIN: Final = bytes(95 if at <= 32 or at == 127 else at for at in range(256))
"""No byte of a subject ends a token of a line: a key may have any."""
_LINE_ENDS: Final = bytes.maketrans(b"\r\n", b"  ")


def leaf_frames(
    records: bytes | bytearray | memoryview,
    base_sequence: int,
    piece: tuple[bytes, int, int, int, int],
    ack_prefix: bytes,
    delivered: int,
    subject: bytes,
    queue: bytes,
    headers_only: bool,  # noqa: FBT001 - as the compiled twin has it
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
        headers_only: the messages go without their data, and a header says how long these are.

    Raises:
        ValueError: a record that had to be read is cut off, or is no message.
    """
    to, first, last, number, pending = piece
    data = bytes(records)
    upto = max(0, min(last - base_sequence + 1, len(data)))
    out: list[bytes] = []
    begin, end = (b"+ ", b" " + queue) if queue else (b"", b"")
    for at, (start, stop) in enumerate(islice(records_in(data), upto), base_sequence):
        if at < first:
            continue
        message = _message(data[start:stop])
        behind = at - first
        numbers = delivered, at, number + behind, message.timestamp, max(0, pending - behind)
        named = (subject or message.key or message.subject).translate(_PLAIN)
        reply = b"%b%d.%d.%d.%d.%d@%b" % (ack_prefix, *numbers, named)
        block, body = _block(message, headers_only), b"" if headers_only else message.data
        if block:
            sizes = b"%d %d" % (len(block), len(block) + len(body))
            out.append(b"HMSG %b %b%b%b %b\r\n%b%b\r\n" % (to, begin, reply, end, sizes, block, body))
        else:
            out.append(b"LMSG %b %b%b%b %d\r\n%b\r\n" % (to, begin, reply, end, len(body), body))
    return b"".join(out)


def _message(record: bytes) -> wire.MsgProto:
    try:
        return wire.MsgProto.FromString(record)
    except DecodeError as error:
        raise ValueError("record is no message") from error


def _block(message: wire.MsgProto, sized: bool) -> bytes:  # noqa: FBT001 - see above
    """The header block of a message, with the size of its data if it is *sized*; b"": it has none."""
    fields = [(header.key, header.value) for header in message.headers if header.key]
    if sized:
        fields.append((MSG_SIZE, b"%d" % len(message.data)))
    if not fields:
        return b""
    lines = [b"%b: %b\r\n" % (name.translate(_LINE_ENDS), value.translate(_LINE_ENDS)) for name, value in fields]
    return b"NATS/1.0\r\n%b\r\n" % b"".join(lines)
