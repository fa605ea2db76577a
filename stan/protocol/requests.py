"""Decoding of clients' requests: no field is used, stored, quoted or logged before its length is checked.

Names have bounds of their own, and the number of all parts has one, counted in the bytes before decoding; the
contents of a request (rows, ids) are bounded by the payload limit of NATS. Pure.
"""

from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from stan_protocol.channels import is_subject
from stan_protocol.frames import Frame
from stan_protocol.kernel.wire_py import read_varint

from stan.limits import (
    CHANNEL_NAME_BYTES_MAX,
    INBOX_BYTES_MAX,
    NAME_BYTES_MAX,
    REQUEST_PARTS_MAX,
    RESTORE_PARTS_MAX,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

Kind = TypeVar("Kind", bound=Message)

_CONTENT: Final = frozenset({"rows", "compressed_rows", "ids", "data", "sha256", "text"})
_INBOXES: Final = frozenset({"inbox", "heartbeat_inbox"})
_SHORT: Final = frozenset({"client_id", "conn_id", "durable_name", "queue_group", "replica"})
_RESTORES: Final = frozenset({"RestoreRowsRequest", "RestoreDelayedRequest"})
"""Requests that describe each of their rows, too."""
_BYTES: Final = 2
_FIXED: Final = {1: 8, 5: 4}
"""Sizes of numbers, by wire type."""
_NOT_LAST: Final = bytes(range(0x80, 0x100))
"""All bytes of a varint but its last one."""
_NUMBERS_PER_PART: Final = 8
_TEXTS: Final = (FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_STRING)


class TooLong(DecodeError):  # noqa: N818 - as in stan.errors
    """A name is longer than any may be; the text has its field and the bound."""

    def __init__(self, field: str, most: int) -> None:
        super().__init__(f"{field} is longer than {most} bytes")
        self.field = field


class TooMany(DecodeError):  # noqa: N818 - as in stan.errors
    """A request has more parts than any may have; the text has the bound."""

    def __init__(self, most: int) -> None:
        super().__init__(f"it has more than {most} parts")


class _Name(NamedTuple):
    field: str
    most: int  # bytes; 0: it is a message with names


def can_be_answered(frame: Frame) -> bool:
    """True if an answer can be sent to the frame's reply subject, or the frame has none; other requests are ignored."""
    return not frame.reply or is_subject(frame.reply)


def decode(kind: type[Kind], payload: bytes) -> Kind:
    """The request in *payload*.

    Raises:
        DecodeError: *payload* is not a message of that kind.
        TooLong: a name in it is too long.
        TooMany: it has too many parts.
    """
    if len(payload) <= NAME_BYTES_MAX:
        return kind.FromString(payload)
    _count_parts(kind.DESCRIPTOR, payload)
    request = kind.FromString(payload)
    _check(request)
    return request


def because(error: str, problem: DecodeError) -> str:
    """The error text for a request that cannot be decoded: *error*, and the excess if something is too long or too much.
    For an inbox *error* alone, as the original checks inboxes itself and has only this text."""
    excessive = isinstance(problem, TooMany) or (isinstance(problem, TooLong) and problem.field not in _INBOXES)
    return f"{error}: {problem}" if excessive else error


def _count_parts(kind: Any, payload: bytes) -> None:
    """Raise TooMany if a request has too many fields, those of messages in it counted, or numbers in lists, eight for one. Stops
    there: the time is bounded, however many there are. Malformed bytes are left to the decoder."""
    most = RESTORE_PARTS_MAX if kind.name in _RESTORES else REQUEST_PARTS_MAX
    count, waiting = 0, [(kind, 0, len(payload))]
    with suppress(ValueError):
        while waiting:
            message, at, end = waiting.pop()
            while at < end and count <= most:
                count += 1
                tag, at = read_varint(payload, at, end)
                size = _FIXED.get(tag & 7)
                if size is not None:
                    at += size
                    continue
                value, at = read_varint(payload, at, end)
                if tag & 7 != _BYTES:
                    continue
                stop = min(at + value, end)
                field = message.fields_by_number.get(tag >> 3)
                if field is not None and field.type == FieldDescriptor.TYPE_MESSAGE:
                    waiting.append((field.message_type, at, stop))
                elif field is not None and field.type not in _TEXTS:
                    count += len(payload[at:stop].translate(None, _NOT_LAST)) // _NUMBERS_PER_PART
                at = stop
            if count > most:
                raise TooMany(most)


def _check(request: Message) -> None:
    for field, most in _names(request.DESCRIPTOR):
        value: Any = getattr(request, field)
        values: Iterable[Any] = (value,) if isinstance(value, bytes | str | Message) else value
        if not most:
            for part in values:
                _check(part)
        elif max(map(len, values), default=0) > most:
            raise TooLong(field, most)


@cache
def _names(kind: Descriptor) -> tuple[_Name, ...]:
    """The names in requests of a kind."""
    found = []
    for field in kind.fields:
        if field.type in _TEXTS and field.name not in _CONTENT:
            short = field.name in _SHORT
            most = NAME_BYTES_MAX if short else INBOX_BYTES_MAX if field.name in _INBOXES else CHANNEL_NAME_BYTES_MAX
            found.append(_Name(field.name, most))
        elif field.type == FieldDescriptor.TYPE_MESSAGE and _names(field.message_type):
            found.append(_Name(field.name, 0))
    return tuple(found)
