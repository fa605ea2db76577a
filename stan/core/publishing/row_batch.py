"""Rows on their way into a channel: messages that came many at once, not as one publish each.

They are sealed with whatever else waits in their channel (see `Publishing.add`), all in one entry, together with a change of the
group's state that is applied if and only if they are stored. Whoever hands them in hears of it once, or never if this node leads
the group no more: then nobody may be answered, and the asker repeats.
"""

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from stan import errors, limits
from stan.core.base.payload_limit import MESSAGE_ROOM
from stan.protocol.channels import is_channel_name
from stan.protocol.kernel import rows as kernel

_LENGTH = Struct("<I")


class StoreResult(NamedTuple):
    """What became of rows."""

    first: int = 0  # their sequences are [first, last]; 0 if they were not stored
    last: int = 0
    error: str = ""
    retry: bool = False  # the error passes


@dataclass(slots=True)
class RowBatch:
    """See the module's docstring."""

    bodies: bytes
    """In the form of `Publishes.bodies`, checked."""
    count: int
    """1 or more."""
    on_done: Callable[[StoreResult], None]
    change: Callable[[int], bytes] | None = None
    """Gives the encoded GroupChange that goes with them, told their first sequence."""
    priority: bool = False
    """They pass what waits, also in a channel that is reserved: they are what it is reserved for."""


def refusal(channel: bytes, rows: bytes, count: int, payload_max: int) -> str:
    """Why rows cannot be taken into *channel*, whatever its state; "" if they can."""
    if not is_channel_name(channel):
        return errors.INVALID_SUBJECT
    if not count:
        return errors.INVALID_BATCH
    wrong = kernel.check_rows(rows, count)
    if wrong >= 0:
        return errors.INVALID_ROWS.format(wrong)
    room = payload_max - MESSAGE_ROOM - len(channel)
    if len(rows) > room:
        at = 0
        for row in range(count):
            (size,) = _LENGTH.unpack_from(rows, at)
            if size > room:
                return errors.ROW_TOO_LARGE.format(row)
            at += _LENGTH.size + size
    if sealed_size(channel, len(rows), count) > limits.ROWS_BYTES_MAX:
        return errors.TOO_MANY_ROWS
    return ""


def can_open_later(error: str) -> bool:
    """Whether *error*, because of which there is no channel (see Channels.open), may pass."""
    return error != errors.TOO_MANY_CHANNELS and not error.startswith(errors.CASE_CONFLICT)


def sealed_size(channel: bytes, size: int, count: int) -> int:
    """Most bytes that *count* messages take as records that took *size* without their sequences."""
    return size + count * (MESSAGE_ROOM + len(channel))
