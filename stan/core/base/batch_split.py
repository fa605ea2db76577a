"""Parting the messages of a batch one by one; the kernel does it by publisher. Off the hot path. Pure."""

from collections.abc import Sequence as Seq
from dataclasses import replace
from struct import Struct

from stan_protocol.frames import Publishes

from stan.protocol.kernel import server as kernel

OWNER = Struct("<H")


def split(batch: Publishes, keep: Seq[bool]) -> tuple[Publishes | None, bytes]:
    """The messages of *batch* that stay (None if none does), and the prepared PubAcks of the others."""
    if all(keep):
        return batch, b""
    if not any(keep):
        return None, batch.acks
    count = len(batch.publishers)  # what goes gets a publisher of its own
    owners = [(owner_of(batch, at) if stays else count) for at, stays in enumerate(keep)]
    marked = replace(
        batch, publishers=(*batch.publishers, (b"", b"goes")), owners=b"".join(OWNER.pack(owner) for owner in owners)
    )
    staying = set(owners)
    return kernel.select(marked, [*(owner in staying for owner in range(count)), False])


def owner_of(batch: Publishes, at: int) -> int:
    """Index of the publisher of message number *at*."""
    owner: int = OWNER.unpack_from(batch.owners, 2 * at)[0] if batch.owners else 0
    return owner


def last_of(owners: bytes, owner: int) -> int:
    """Number of the last message of a publisher, one of several; -1 if it has none."""
    at = owners.rfind(OWNER.pack(owner))
    while at % OWNER.size and at >= 0:  # half of one and half of the next
        at = owners.rfind(OWNER.pack(owner), 0, at + OWNER.size - 1)
    return at // OWNER.size
