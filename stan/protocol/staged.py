"""Rows of a transaction as they are staged: one message of a group's hidden channel, with the rows as received and the name of
their channel, so that they can become a part of that channel where they lie.

Readers get them as if they had been published: `sealed` gives each its sequence, subject and timestamp. Byte for byte the same
as `kernel.seal` writes published ones.
"""

from itertools import repeat
from struct import Struct

from stan_protocol.kernel.wire_py import number, read_fields, text, varint

from stan.errors import Damage
from stan.protocol.expiry import expiry_field, stamped
from stan.protocol.kernel import server as kernel

_LENGTH = Struct("<I")
_CHANNEL, _ROWS = 3, 4
"""Fields of MsgProto: reply and data."""
_ROWS_TAG = b"\x22"


def staged_body(channel: bytes, rows: bytes) -> bytes:
    """The body (see `Publishes.bodies`) of the message that holds *rows* for *channel*; *rows*: in the same form."""
    head = text(_CHANNEL, channel) + _ROWS_TAG + varint(len(rows))
    return b"".join((_LENGTH.pack(len(head) + len(rows)), head, rows))


def sealed(records: bytes | memoryview, base_sequence: int, timestamp: int, expiry: int = 0) -> bytes:
    """The records that readers get of staged rows.

    Args:
        records: of the batch of the hidden channel that holds them, and nothing else.
        base_sequence: of the first row in its channel.
        timestamp: of the commit.
        expiry: when the rows expire, in Unix seconds; 0: they do not.

    Raises:
        Damage: no such batch.
    """
    view = memoryview(records)[_LENGTH.size :]
    try:
        fields = {field: bytes(view[start:stop]) for field, _, _, start, stop in read_fields(view)}
        rows = fields[_ROWS]
        return kernel.seal(
            fields[_CHANNEL], base_sequence, timestamp, [stamped(rows, repeat(expiry)) if expiry else rows]
        )
    except (ValueError, KeyError) as error:
        raise Damage("not rows of a transaction") from error


def sealed_size(
    channel: bytes, rows_bytes: int, count: int, base_sequence: int, timestamp: int, expiry: int = 0
) -> int:
    """Length of the result of `sealed`. *rows_bytes*: of the rows, as received."""
    fixed = len(text(2, channel)) + len(number(5, timestamp)) + len(expiry_field(expiry))
    size, at, end = rows_bytes + count * fixed, base_sequence, base_sequence + count
    while at < end:  # runs of sequences whose numbers take as many bytes
        width = len(varint(at))
        upto = min(end, 1 << 7 * width)
        size += (upto - at) * (1 + width)
        at = upto
    return size
