"""Frames of NATS's leafnode protocol that tell the state of a consumer; those with messages are the kernel's."""

from stan_protocol.proto import wire_pb2 as wire

from stan.protocol.jetstream import headers


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


def size_of(message: wire.MsgProto, ack_prefix: bytes, numbers: tuple[int, int, int, int]) -> int:
    """Bytes that a message counts for against the limit of a puller: subject, ack subject, headers and data. *numbers*: those in
    the ack subject, but for the time of the message."""
    block = sum(len(header.key) + len(header.value) + 4 for header in message.headers)
    ack = len(ack_prefix) + len(b"%d.%d.%d.%d.%d" % (*numbers, message.timestamp))
    return len(message.key or message.subject) + ack + block + 12 * bool(block) + len(message.data)
