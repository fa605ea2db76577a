"""Channels filled for tests, many messages at once."""

from itertools import accumulate
from struct import Struct

from stan_protocol.kernel.rows import pack_rows

ROWS = 5000
"""In one request."""


def column(values):
    """Offsets and bytes, as Arrow has them."""
    ends = list(accumulate(map(len, values), initial=0))
    return Struct(f"<{len(ends)}i").pack(*ends), b"".join(values)


def fill(client, channel, values, *, replies=None, headers=None, keys=None):
    """Publish *values*, in order."""
    limit = client.max_payload // 2
    at = 0
    while at < len(values):
        end, size = at, 0
        while end < len(values) and end - at < ROWS and size + len(values[end]) <= limit:
            size += len(values[end]) + 50
            end += 1
        rows = pack_rows(
            *column(values[at:end]),
            0,
            end - at,
            replies=(*column(replies[at:end]), 0) if replies else None,
            headers=headers[at:end] if headers else None,
            keys=(*column(keys[at:end]), 0) if keys else None,
        )
        client.publish_batch(channel, rows, end - at)
        at = end
