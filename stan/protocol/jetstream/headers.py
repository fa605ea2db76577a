"""Headers of NATS messages: a block of text there, fields of a message here."""

from collections.abc import Iterable, Iterator
from typing import Final

from stan_protocol.limits import HEADERS_BYTES_MAX
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import SECOND
from stan_protocol.units import parse_duration

from stan import limits

LINE: Final = b"NATS/1.0"
NO_RESPONDERS: Final = b"503"
"""NATS's own status where nobody listens."""
MSG_ID: Final = b"Nats-Msg-Id"
EXPECTED_STREAM: Final = b"Nats-Expected-Stream"
EXPECTED_LAST: Final = b"Nats-Expected-Last-Sequence"
EXPECTED_LAST_ID: Final = b"Nats-Expected-Last-Msg-Id"
EXPECTED_LAST_OF_SUBJECT: Final = b"Nats-Expected-Last-Subject-Sequence"
EXPECTED_LAST_SUBJECT: Final = b"Nats-Expected-Last-Subject-Sequence-Subject"
ROLLUP: Final = b"Nats-Rollup"
OF_ALL: Final = b"all"
OF_SUBJECT: Final = b"sub"
TTL: Final = b"Nats-TTL"
MARKER_REASON: Final = b"Nats-Marker-Reason"
_KV_OPERATION: Final = b"KV-Operation"
REQUIRED_LEVEL: Final = b"Nats-Required-Api-Level"
BATCH_ID: Final = b"Nats-Batch-Id"
COUNTER: Final = b"Nats-Incr"
SCHEDULE: Final = b"Nats-Schedule"
SCHEDULE_ZONE: Final = b"Nats-Schedule-Time-Zone"
SCHEDULE_TTL: Final = b"Nats-Schedule-TTL"
SCHEDULE_ROLLUP: Final = b"Nats-Schedule-Rollup"
SCHEDULE_TARGET: Final = b"Nats-Schedule-Target"
SCHEDULE_SOURCE: Final = b"Nats-Schedule-Source"
SCHEDULE_NEXT: Final = b"Nats-Schedule-Next"
SCHEDULER: Final = b"Nats-Scheduler"
TTL_MIN: Final = SECOND
_FIELD_ROOM: Final = 16
"""Bytes that a header takes in a stored message beside its text, at most."""
_LINES_AROUND: Final = 2


def too_large(block: bytes) -> bool:
    """True if a block takes more room in a stored message than headers may; looked at before it is parsed, line by line."""
    return len(block) + _FIELD_ROOM * (block.count(b"\n") - _LINES_AROUND) > HEADERS_BYTES_MAX


def parse(block: bytes) -> list[tuple[bytes, bytes]]:
    """The fields of a header block, in their order; lines without a colon are left out. Names keep their case."""
    found = []
    for line in block.split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        if colon and name:
            found.append((name, value.strip(b" \t")))
    return found


def render(fields: Iterable[tuple[bytes, bytes]], status: bytes = b"") -> bytes:
    """The block of some fields, whose line ends become spaces; *status*: code and text behind the version."""
    lines = [LINE + b" " + status if status else LINE]
    lines += [b"%b: %b" % (_line(name), _line(value)) for name, value in fields]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def stored(fields: Iterable[tuple[bytes, bytes]]) -> Iterator[wire.Header]:
    """The fields as a message has them."""
    return (wire.Header(key=name, value=value) for name, value in fields)


def time_to_live(value: bytes) -> int | None:
    """The time to live that a header tells, in ns; 0: for ever, None: it tells none."""
    told = value.decode("utf-8", "replace")
    if told == "never":
        return 0
    try:
        length = int(told) * SECOND if told.isdigit() else parse_duration(told)
    except ValueError:
        return None
    return length if TTL_MIN <= length <= limits.TTL_MAX else None


def takes_place(message: wire.MsgProto) -> bool:
    """True if a stored message takes the place of those before it that have its subject."""
    return next((header.value for header in message.headers if header.key == ROLLUP), b"") == OF_SUBJECT


def marks_deletion(message: wire.MsgProto) -> bool:
    """True if a stored message says that its subject, or its key of a bucket, has no value any more."""
    fields = dict(of_message(message))
    return bool(fields.get(MARKER_REASON)) or fields.get(_KV_OPERATION) == b"PURGE"


def of_message(message: wire.MsgProto) -> list[tuple[bytes, bytes]]:
    """The fields of a stored message."""
    return [(header.key, header.value) for header in message.headers if header.key]


def _line(text: bytes) -> bytes:
    return text.replace(b"\r", b" ").replace(b"\n", b" ")


def no_responders(reply: bytes) -> bytes:
    """Return the NATS frame that tells a client that nobody listens to what it has said."""
    return publication(reply, b"", render((), NO_RESPONDERS))


def publication(subject: bytes, payload: bytes, block: bytes, reply: bytes = b"") -> bytes:
    """Return a NATS HPUB frame; *block*: its headers, as `render` makes them."""
    to = subject + b" " + reply if reply else subject
    return b"HPUB %b %d %d\r\n%b%b\r\n" % (to, len(block), len(block) + len(payload), block, payload)
