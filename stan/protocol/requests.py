"""Decoding of clients' requests: no field is used, stored, quoted or logged before its length is checked.

Names have bounds of their own; the contents of a request (rows, ids) are bounded by the payload limit of NATS. Pure.
"""

from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from stan.limits import CHANNEL_NAME_BYTES_MAX, INBOX_BYTES_MAX, NAME_BYTES_MAX
from stan.protocol.channels import is_subject
from stan.protocol.frames import Frame

if TYPE_CHECKING:
    from collections.abc import Iterable

Kind = TypeVar("Kind", bound=Message)

_CONTENT: Final = frozenset({"rows", "compressed_rows", "ids", "data", "sha256", "text"})
_INBOXES: Final = frozenset({"inbox", "heartbeat_inbox"})
_SHORT: Final = frozenset({"client_id", "conn_id", "durable_name", "queue_group", "replica"})
_TEXTS: Final = (FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_STRING)


class TooLong(DecodeError):  # noqa: N818 - as in stan.errors
    """A name is longer than any may be; which one and how long it may be are the text."""

    def __init__(self, field: str, most: int) -> None:
        super().__init__(f"{field} is longer than {most} bytes")
        self.field = field


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
    """
    request = kind.FromString(payload)
    if len(payload) > NAME_BYTES_MAX:
        _check(request)
    return request


def because(error: str, problem: DecodeError) -> str:
    """The error text for a request that cannot be decoded: *error*, and which name is too long if that is the problem. For an
    inbox *error* alone, as the original checks inboxes itself and has only this text."""
    return f"{error}: {problem}" if isinstance(problem, TooLong) and problem.field not in _INBOXES else error


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
