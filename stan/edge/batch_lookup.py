"""Batch look-up: the places of record batches in a group's log, and those in memory. Readers do this before they read the
disk.

No IO: runs on the event loop. A segment may be rewritten between look-up and read (StaleRef): then look the batch up again.
"""

from collections.abc import Sequence as Seq

from stan_protocol.scalars import Sequence

from stan import limits
from stan.core.base.ready import ReadResult
from stan.log.types import BatchRef, ChannelIndex, GroupLog

LOOKUP_ATTEMPTS = 3
"""Look-ups of one read before it fails."""


def refs_of_runs(index: ChannelIndex, runs: Seq[tuple[int, int]], bytes_max: int) -> list[BatchRef]:
    """Places of the batches with the messages [first, last] of each run, cut off after *bytes_max* bytes or BATCHES_PER_READ_MAX
    batches.

    Only the end is cut off: messages that are missing before the last of these batches do not exist."""
    refs: list[BatchRef] = []
    size = 0
    for first, last in runs:
        for ref in index.refs(
            Sequence(first), Sequence(last), bytes_max - size, limits.BATCHES_PER_READ_MAX - len(refs)
        ):
            if refs and refs[-1].base_sequence >= ref.base_sequence:
                continue
            refs.append(ref)
            size += ref.length
        end = refs[-1].base_sequence + refs[-1].count if refs else last + 1
        cut_off = end <= last and index.refs(Sequence(end), Sequence(last), 0, 1)
        if size >= bytes_max or len(refs) >= limits.BATCHES_PER_READ_MAX or cut_off:
            break
    return refs


def refs_that_fill(
    index: ChannelIndex, first: Sequence, last: Sequence, bytes_max: int, batches_max: int
) -> list[BatchRef]:
    """Places of the batches from the one with message *first* on, until they have *bytes_max* bytes or reach *last*.

    There are at most *batches_max* batches. The first one, which may begin with earlier messages, is not counted in bytes."""
    refs = index.refs(first, first, 0, 1)
    start = Sequence(refs[-1].base_sequence + refs[-1].count) if refs else first
    while start <= last and len(refs) < batches_max:
        more = index.refs(start, last, max(0, bytes_max), batches_max - len(refs))
        if not more:
            break
        refs += more
        bytes_max -= sum(ref.length for ref in more)
        if bytes_max <= 0:
            break
        start = Sequence(more[-1].base_sequence + more[-1].count)
    return refs


def from_memory(log: GroupLog, refs: list[BatchRef]) -> list[ReadResult] | None:
    """Return the batches if all are in memory, also the system's; None if a read has to wait for the disk."""
    read = log.read_at_once(refs)
    if read is None:
        return None
    return [ReadResult(ref.base_sequence, ref.count, data, ref.as_stored) for ref, data in zip(refs, read, strict=True)]
