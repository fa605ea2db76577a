"""Rows of messages that expire, as they tell when."""

from collections.abc import Iterable
from struct import Struct

from stan_protocol.fetches import LENGTH_PREFIX
from stan_protocol.kernel.wire_py import varint
from stan_protocol.scalars import SECOND

TAG = b"\x90\x01"
"""Of MsgProto.expires_at (18), a varint."""
_LENGTH = Struct("<I")


def expiry_field(at: int) -> bytes:
    """The field of a message that expires at *at*, in Unix seconds; b"" for 0: it does not."""
    return TAG + varint(at * SECOND) if at else b""


def stamped(bodies: bytes, times: Iterable[int]) -> bytes:
    """Rows (see `Publishes.bodies`) that tell when they expire. *times*: one for each of them, or more."""
    fields: dict[int, bytes] = {}
    out: list[bytes] = []
    place = 0
    for at in times:
        if place == len(bodies):
            break
        (size,) = _LENGTH.unpack_from(bodies, place)
        end = place + LENGTH_PREFIX + size
        field = fields.get(at)
        if field is None:
            field = fields[at] = expiry_field(at)
        out += (_LENGTH.pack(size + len(field)), bodies[place + LENGTH_PREFIX : end], field)
        place = end
    return b"".join(out)
