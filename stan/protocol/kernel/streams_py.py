"""What is published to streams of JetStream, batch by batch: PubAcks, and the newest message of each subject; the plain twin."""

from stan_protocol.channels import publication
from stan_protocol.kernel.wire_py import read_fields, records_in

_HEADER, _KEY = 16, 17


def stream_acks(replies: bytes, begins: bytes, first: int) -> bytes:
    r"""`PUB <reply> <size>\r\n<begins>,"seq":<sequence>}\r\n` for each message that has a reply subject.

    Args:
        replies: `StreamMessages.replies`, not empty.
        begins: how the answers begin, `{"stream":"<name>"`.
        first: sequence of the first message.

    Raises:
        ValueError: a reply subject is cut off.
    """
    subjects = (replies[start:end] for start, end in records_in(replies))
    numbered = enumerate(subjects, first)
    return b"".join(publication(reply, b'%b,"seq":%d}' % (begins, at)) for at, reply in numbered if reply)


def newest_keys(records: bytes | memoryview, first: int) -> dict[bytes, int] | None:
    """The sequence of the newest message of each key; b"": of those without. None if some message has headers.

    Args:
        records: messages, each behind its length (u32 little-endian).
        first: sequence of the first one.

    Raises:
        ValueError: a record is cut off, or is no message.
    """
    newest: dict[bytes, int] = {}
    data = bytes(records)
    for at, (start, end) in enumerate(records_in(data), first):
        key = b""
        for number, wire, _, begin, stop in read_fields(data[start:end]):
            if number == _HEADER:
                return None
            if number == _KEY and wire == 2:
                key = data[start + begin : start + stop]
        newest[key] = at
    return newest
