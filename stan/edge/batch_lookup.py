"""Looking record batches up in a group's log and taking them from memory: what every reader does before it asks the disk.

Pure look-ups, for the event loop. A place that was given out may be gone when it is read (StaleRef): look it up again.
"""

from collections.abc import Sequence as Seq

from stan import limits
from stan.core.base.ready import ReadResult
from stan.log.types import BatchRef, ChannelIndex, GroupLog
from stan.types import Sequence

LOOKUP_ATTEMPTS = 3
"""Look-ups of one read before it is called failed."""


def refs_of_runs(index: ChannelIndex, runs: Seq[tuple[int, int]], bytes_max: int) -> list[BatchRef]:
    """Where the batches with the messages [first, last] of each run lie; bounded in bytes and number, and then without a gap:
    what is missing before the last one of them does not exist."""
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
    """Where the batches lie that hold *bytes_max* bytes of the messages [first, last], if there are as many: only a part of the
    first and of the last batch may be among them."""
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
    """The batches if all of them are in memory; None if the disk has to be read."""
    batches = []
    for ref in refs:
        records = log.recent(ref)
        if records is None:
            return None
        batches.append(ReadResult(ref.base_sequence, ref.count, records))
    return batches
