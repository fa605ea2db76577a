"""Batches of messages for streams of JetStream: headers, PubAcks, the subjects and ids that an index notes; the plain twin."""

from typing import Final

from stan_protocol.channels import publication
from stan_protocol.kernel.wire_py import read_fields, records_in

from stan.limits import HEADERS_BYTES_MAX

MSG_ID: Final = b"Nats-Msg-Id"
_UNDERSTOOD: Final = b"Nats-"
_LINE: Final = b"NATS/1.0"
_FIELD_ROOM: Final = 16
_HEADERS, _KEY = 16, 17


def header_fields(block: bytes) -> list[tuple[bytes, bytes]] | None:
    """The fields of a header block, b"" has none; None if its message has to be looked at alone: its lines, one at least, are not
    the usual `<name>: <value>`, it is long, or it has a name that NATS's own server understands, except one Nats-Msg-Id."""
    if not block:
        return []
    first, *lines = block.split(b"\r\n")
    if first != _LINE or len(lines) < 3 or lines[-1] or lines[-2]:
        return None
    fields: list[tuple[bytes, bytes]] = []
    for line in lines[:-2]:
        name, _, rest = line.partition(b":")
        value = rest[1:]
        usual = bool(name) and rest[:1] == b" " and value == value.strip(b" \t")
        if not usual or (name.startswith(_UNDERSTOOD) and name != MSG_ID):
            return None
        fields.append((name, value))
    too_long = len(block) + _FIELD_ROOM * len(fields) > HEADERS_BYTES_MAX
    return None if too_long or [name for name, _ in fields].count(MSG_ID) > 1 else fields


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


def noted(records: bytes | memoryview, first: int) -> tuple[dict[bytes, int], list[bytes]]:
    """The sequence of the newest message of each key, b"": of those without; and per message the value of the first Nats-Msg-Id,
    b"" if it has none, nothing at all if no message has any.

    Args:
        records: messages, each behind its length (u32 little-endian).
        first: sequence of the first one.

    Raises:
        ValueError: a record is cut off, or is no message.
    """
    newest: dict[bytes, int] = {}
    ids: list[bytes] = []
    data = bytes(records)
    for at, (start, end) in enumerate(records_in(data), first):
        texts = [
            (number, data[start + begin : start + stop])
            for number, wire, _, begin, stop in read_fields(data[start:end])
            if wire == 2
        ]
        newest[next((text for number, text in reversed(texts) if number == _KEY), b"")] = at
        named = (_header(text) for number, text in texts if number == _HEADERS)
        ids.append(next((value for name, value in [*named] if name == MSG_ID), b""))
    return newest, ids if any(ids) else []


def _header(text: bytes) -> tuple[bytes, bytes]:
    """The name and the value of a header."""
    found = {1: b"", 2: b""}
    for number, wire, _, begin, stop in read_fields(text):
        if wire == 2:
            found[number] = text[begin:stop]
    return found[1], found[2]
