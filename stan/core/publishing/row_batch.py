"""Rows on their way into a channel: messages that arrive many in one request, not as one publish each.

Rows are sealed together with the publishes that wait in their channel (`Publishing.add`), all in one entry, with a change of the
group's state that is applied if and only if they are stored. `on_done` is called once with the outcome, or never if this node no
longer leads the group: then the request must not be answered, and the client repeats it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from stan_protocol import refusals
from stan_protocol.channels import is_channel_name
from stan_protocol.frames import Publishes
from stan_protocol.kernel import rows as kernel
from stan_protocol.proto import wire_pb2 as wire

from stan import limits
from stan.core.base.payload_limit import MESSAGE_ROOM

_LENGTH = Struct("<I")
_OF_ITS_PLACE = ("sequence", "subject", "timestamp", "redelivered", "redelivery_count", "crc32")
"""Fields of a message that are others in another channel."""


class StoreResult(NamedTuple):
    """The outcome of storing rows."""

    first: int = 0  # their sequences are [first, last]; 0 if they were not stored
    last: int = 0
    error: str = ""
    retry: bool = False  # the error passes
    in_memory: bool = False  # of this leader alone: that is true only as long as no other node can lead the group


@dataclass(slots=True)
class RowBatch:
    """Rows to be stored in one entry."""

    bodies: bytes
    """In the form of `Publishes.bodies`, checked."""
    count: int
    """1 or more."""
    on_done: Callable[[StoreResult], None]
    change: Callable[[int], bytes] | None = None
    """Returns the encoded GroupChange that goes with the rows; called with their first sequence."""
    source: Publishes | None = None
    """The publishes that the rows come from: whoever leads next has to know that they are in the log."""
    expiring: Callable[[int], bytes] | None = None
    """As `change`, of rows that expire: the change which lists them."""
    scheduled: Callable[[int], bytes] | None = None
    """As `change`, of rows among which are schedules of a stream: the change which lists them."""
    frame: bytes = b""
    """The rows as they came, compressed; b"" if they came in clear, or are others now."""
    lasting: bool = False
    """None of the rows says when it expires; else they are looked at."""


def refusal(channel: bytes, rows: bytes, count: int, payload_max: int) -> str:
    """Return why rows cannot be stored in *channel*, whatever its state; "" if they can.

    Args:
        channel: its name.
        rows: as the request carries them.
        count: of rows, as the request tells it.
        payload_max: largest payload of a message to a subscriber, in bytes.
    """
    if not is_channel_name(channel):
        return refusals.INVALID_SUBJECT
    if not count:
        return refusals.INVALID_BATCH
    wrong = kernel.check_rows(rows, count)
    if wrong >= 0:
        return refusals.INVALID_ROWS.format(wrong)
    room = payload_max - MESSAGE_ROOM - len(channel)
    if len(rows) > room:
        at = 0
        for row in range(count):
            (size,) = _LENGTH.unpack_from(rows, at)
            if size > room:
                return refusals.ROW_TOO_LARGE.format(row)
            at += _LENGTH.size + size
    if sealed_size(channel, len(rows), count) > limits.ROWS_BYTES_MAX:
        return refusals.TOO_MANY_ROWS
    return ""


_LASTING = frozenset(("too_many_channels", "case_conflict", "has_parts", "name_of_part"))


def can_open_later(error: str) -> bool:
    """True if *error*, with which `ChannelOpening.open` failed, may pass."""
    return refusals.code_of(error) not in _LASTING


def sealed_size(channel: bytes, size: int, count: int) -> int:
    """Upper bound of the bytes that *count* messages take as sealed records; *size*: their bytes before that."""
    return size + count * (MESSAGE_ROOM + len(channel))


def row_of(message: wire.MsgProto) -> bytes:
    """A stored message as a row of `RowBatch.bodies`, to be stored once more in another channel; changes the message."""
    for name in _OF_ITS_PLACE:
        message.ClearField(name)
    body = message.SerializeToString()
    return _LENGTH.pack(len(body)) + body
