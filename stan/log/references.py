"""References: batches of a channel whose messages lie where they were staged, in a message of the group's hidden channel.

An entry that commits a transaction holds references instead of the rows (stan.protocol.entries). The log has the message of the
hidden channel for as long as a part of the batch is live, moves both when it cleans, and gives readers the records as if they
were the channel's own.
"""

from collections.abc import Callable, Container
from typing import NamedTuple

from stan_protocol.scalars import Sequence

from stan.log.types import BatchRow, Entry
from stan.protocol.entries import (
    BATCH_HEADER,
    BESIDE_UID,
    REFERENCE,
    REFERENCES_FLAG,
    Reference,
    decode_references,
    encode_batch,
    encode_references,
)


class StagedPlace(NamedTuple):
    """A message of the hidden channel that is alone in its batch, and the place of that batch."""

    sequence: Sequence
    segment: int
    position: int  # of the first byte of the records
    length: int  # of the records
    expiry: int = 0  # of the batch that refers to it, as of BatchRef


def reference_rows(records: bytes | bytearray | memoryview, position: int) -> list[BatchRow]:
    """The rows of the references in *records*, which begin at *position*. Raises Damage."""
    return [
        BatchRow(*one[:5], position + at * REFERENCE.size, REFERENCE.size, one.size, one.staged, one.expiry)
        for at, one in enumerate(decode_references(records))
    ]


def with_rows(
    entry: Entry, uids: Container[int], sealed_rows: Callable[[Reference], bytes | memoryview | None]
) -> Entry:
    """The entry with batches in place of its references to batches of the *uids* channels.

    Args:
        entry: of kind RECORDS, in clear.
        uids: of channels.
        sealed_rows: returns the records of a reference as readers get them; None: it stays a reference.
    """
    view, at = memoryview(entry.body), 0
    parts: list[bytes | memoryview] = []
    changed = False
    while at < len(view):
        start = at + BATCH_HEADER.size
        uid, *_, length, _, flags = BATCH_HEADER.unpack_from(view, at)
        end = start + length
        if uid != BESIDE_UID or flags != REFERENCES_FLAG:
            parts.append(view[at:end])
        else:
            rest = []
            for one in decode_references(view[start:end]):
                records = sealed_rows(one) if one.uid in uids else None
                if records is None:
                    rest.append(one)
                else:
                    parts += encode_batch(*one[:5], bytes(records))
                    changed = True
            if rest:
                parts += encode_references(rest)
        at = end
    return entry._replace(body=b"".join(parts)) if changed else entry
