"""Building blocks of both plain kernels: NATS frames and protobuf fields.

Promises the same answers, texts and order of checks as its compiled twin, wire_c.pxd. Never trusts a length.
Modelled on the original's generated Go code (STAN-SPEC 2) for protobuf, on the NATS client protocol for frames.
"""

from collections.abc import Iterable, Iterator
from struct import Struct

from stan_protocol.frames import Frame
from stan_protocol.limits import NATS_CONTROL_LINE_BYTES_MAX, NATS_PAYLOAD_BYTES_MAX

_VERBS = frozenset((b"PING", b"PONG", b"+OK", b"-ERR", b"INFO"))
_UINT64_MAX = (1 << 64) - 1
_LENGTH = Struct("<I")

Field = tuple[int, int, int, int, int]
"""Number, wire type, value (wire type 0, else 0), start and end of the content."""


def varint(value: int) -> bytes:
    """*value* (0 <= value < 2**64) as a protobuf varint."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def text(number: int, content: bytes) -> bytes:
    """A text field with a number below 16; b"" if it is empty, because proto3 omits it."""
    return b"%c%b%b" % (number << 3 | 2, varint(len(content)), content) if content else b""


HEADER_TAG, KEY_TAG = b"\x82\x01", b"\x8a\x01"
"""Of the fields headers (16) and key (17) of a message."""


def long_text(tag: bytes, content: bytes) -> bytes:
    """A text field with a number of two bytes, also an empty one."""
    return tag + varint(len(content)) + content


def is_header(content: bytes) -> bool:
    """True if *content* is a Header in its one form: key and value in this order, neither empty, both may be absent."""
    try:
        return behind_texts(content, 0, len(content), (b"\x0a", b"\x12")) == len(content)
    except ValueError:
        return False


def behind_texts(data: bytes, at: int, end: int, tags: Iterable[bytes]) -> int:
    """Return the place after one text for each of *tags*, which may be absent, but not empty. Raises ValueError."""
    for tag in tags:
        if data.startswith(tag, at, end):
            size, at = read_varint(data, at + 1, end)
            at += size
            if not size or at > end:
                raise ValueError("empty or cut off")
    return at


def number(field: int, value: int) -> bytes:
    """A varint field; b"" if it is 0, because proto3 omits it."""
    return b"%c%b" % (field << 3, varint(value & _UINT64_MAX)) if value else b""


def read_varint(data: bytes | memoryview, at: int, end: int) -> tuple[int, int]:
    """Return the value and the place after it. Bits above 64 are lost, as in Go.

    Raises:
        ValueError: cut off, or longer than 10 bytes.
    """
    value = shift = 0
    stop = min(end, at + 10)
    while at < stop:
        byte = data[at]
        at += 1
        if byte < 0x80:
            return (value | byte << shift) & _UINT64_MAX, at
        value |= (byte & 0x7F) << shift
        shift += 7
    raise ValueError("varint cut off or too long")


def read_fields(data: bytes | memoryview) -> list[Field]:
    """All fields of one message.

    Raises:
        ValueError: truncated, a group, an illegal tag or wire type.
    """
    fields = []
    at, end = 0, len(data)
    while at < end:
        tag = data[at]
        at += 1
        if tag >= 0x80:
            tag, at = read_varint(data, at - 1, end)
        field, wire = tag >> 3 & 0xFFFFFFFF, tag & 7
        value, start = 0, at
        if not 0 < field <= 0x7FFFFFFF:
            raise ValueError("illegal tag")
        if wire == 2:
            size = data[at] if at < end else 0x80
            start += 1
            if size >= 0x80:
                size, start = read_varint(data, at, end)
            at = start + size
        elif wire == 0:
            value, at = read_varint(data, at, end)
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        else:
            raise ValueError("group or unknown wire type")
        if at > end:
            raise ValueError("truncated")
        fields.append((field, wire, value, start, at))
    return fields


def records_in(data: bytes) -> Iterator[tuple[int, int]]:
    """Start and end of each record behind its length. Raises ValueError: cut off."""
    at, end, length_at = 0, len(data), _LENGTH.unpack_from
    while at < end:
        start = at + 4
        at = start + length_at(data, at)[0] if start <= end else start
        if at > end:
            raise ValueError("record cut off")
        yield start, at


def read_frame(data: bytes, at: int) -> tuple[int, Frame] | None:
    """Return the place after the frame at *at*, and the frame; None if it is incomplete.

    Raises:
        ValueError: this is no NATS frame, or one beyond the limits.
    """
    stop = data.find(b"\n", at, at + NATS_CONTROL_LINE_BYTES_MAX + 2)
    if stop < 0:
        if len(data) - at >= NATS_CONTROL_LINE_BYTES_MAX + 2:
            raise ValueError("NATS: control line too long")
        return None
    if stop == at or data[stop - 1] != 13:
        raise ValueError("NATS: control line without CRLF")
    verb, _, rest = data[at : stop - 1].partition(b" ")
    if verb in _VERBS:
        return stop + 1, Frame(0, verb, b"", b"", rest)
    if verb not in (b"MSG", b"HMSG") or data[at + len(verb)] != 32:
        raise ValueError("NATS: unknown verb")
    subject, sid, reply, header, size = _read_line(rest.split(b" ", 6), len(verb) - 3)
    start = stop + 1
    stop = start + size
    if len(data) < stop + 2:
        return None
    if data[stop : stop + 2] != b"\r\n":
        raise ValueError("NATS: payload without CRLF")
    return stop + 2, Frame(sid, subject, reply, data[start : start + header], data[start + header : stop])


def read_frames(data: bytes, start: int) -> Iterator[tuple[int, int, Frame]]:
    """Yield (begin, end, frame) of each complete frame from *start* on.

    Raises:
        ValueError: *start* lies outside, or no NATS frame stands there; frames before garbage are yielded first.
    """
    if not 0 <= start <= len(data):
        raise ValueError("start lies outside of the data")
    at = start
    while at < len(data):
        try:
            read = read_frame(data, at)
        except ValueError:
            if at == start:
                raise
            return
        if read is None:
            return
        after, frame = read
        yield at, after, frame
        at = after


def _read_line(tokens: list[bytes], with_header: int) -> tuple[bytes, int, bytes, int, int]:
    """Subject, sid, reply, bytes of the header and of header plus payload; *with_header* is 1 for HMSG, else 0."""
    reply = b""
    if len(tokens) == 4 + with_header:
        reply = tokens.pop(2)
        if not reply:
            raise ValueError("NATS: bad message line")
    if len(tokens) != 3 + with_header or not tokens[0]:
        raise ValueError("NATS: bad message line")
    numbers = tokens[1:]
    if not all(len(token) <= 18 and token.isdigit() for token in numbers):
        raise ValueError("NATS: bad message line")
    sid, header, size = int(numbers[0]), int(numbers[1]) if with_header else 0, int(numbers[-1])
    if header > size:
        raise ValueError("NATS: bad message line")
    if size > NATS_PAYLOAD_BYTES_MAX:
        raise ValueError("NATS: payload too large")
    return tokens[0], sid, reply, header, size
